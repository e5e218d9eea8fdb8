"""The figure of a target from our runs, and what it shows in words."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from PIL import Image, ImageOps
from sklearn.manifold import TSNE

from safecl.experiments.reproduce.plan import Entry, Job
from safecl.experiments.reproduce.probe import Probe
from safecl.experiments.reproduce.results import Line, Outcome, Shown, series, texts
from safecl.experiments.sweep.plan import Cell
from safecl.lines import plain
from safecl.report.colours import COLOURS, INK, PALETTE
from safecl.report.drawing import canvas
from safecl.report.figures import weight_bars
from safecl.report.runs import Run, Weight
from safecl.streams.catalog import open_stream
from safecl.streams.stream import Session, positions

OURS = COLOURS["safe"].light
OTHERS = COLOURS["finetune"].light


class Drawing(NamedTuple):
    """A figure, its alt text, and sentences on what it shows."""

    figure: Figure
    alt: str
    sentences: tuple[str, ...] = ()


def draw(
    job: Job,
    lines: Sequence[Line],
    runs: Mapping[str, Run],
    streams: Mapping[str, Cell],
    probe: Probe,
) -> Drawing | None:
    """The figure of a target; None where its runs are not there. ``streams``: a cell with the
    stream of each column.
    """
    target = job.target
    if target.kind == "datasets":
        return _datasets(job, streams)
    entries = [entry for entry in job.entries if any(cell.name in runs for cell in entry.runs)]
    if not entries:
        return None
    if target.kind == "sessions":
        return _sessions(target.caption, entries, runs, target.late)
    if target.kind == "weights":
        return _weights(target.caption, entries[0], runs, target.late)
    if target.kind == "tsne":
        return _tsne(target.caption, entries, runs, probe)
    columns = [column.label for column in job.columns]
    told = [
        f"{line.label}: "
        + ", ".join(f"{c} {texts(cell)[0]}" for c, cell in zip(columns, line.cells, strict=True))
        for line in lines
    ]
    figure = (
        _heatmap(lines, columns, target.axes or ("", ""))
        if target.kind == "heatmap"
        else _parameters(lines)
    )
    return Drawing(figure, plain(f"{target.caption} {'; '.join(told)}."))


def _heatmap(lines: Sequence[Line], columns: Sequence[str], axes_names: tuple[str, str]) -> Figure:
    """A cell per combination, with its accuracy; the mark: the paper's own choice."""
    values = np.array(
        [[np.nan if c.mean is None else c.mean for c in line.cells] for line in lines], dtype=float
    )
    with canvas((1.6 + 1.1 * len(columns), 1.4 + 0.75 * len(lines))) as (figure, (axes,)):
        drawn = axes.imshow(values, cmap="Blues", aspect="auto")
        middle = (
            np.nanmean([np.nanmin(values), np.nanmax(values)]) if np.isfinite(values).any() else 0.0
        )
        for y, line in enumerate(lines):
            for x, cell in enumerate(line.cells):
                text = "–" if cell.mean is None else f"{cell.mean:.1f}"
                mark = "" if cell.paper is None else f"\npaper {cell.paper:g}"
                strong = cell.mean is not None and cell.mean > middle
                axes.text(
                    x,
                    y,
                    text + mark,
                    ha="center",
                    va="center",
                    color="white" if strong else INK,
                    fontsize=10,
                )
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(lines)), [line.label for line in lines])
        axes.set(xlabel=axes_names[1], ylabel=axes_names[0])
        axes.grid(False)
        figure.colorbar(drawn, ax=axes, label="final accuracy, %")
    return figure


def _parameters(lines: Sequence[Line]) -> Figure:
    """Learnable numbers (log) against final accuracy; hollow: the paper's accuracy at our count."""
    with canvas((8.0, 4.6)) as (figure, (axes,)):
        for line in lines:
            accuracy = line.cells[0]
            count = line.cells[1].mean
            if count is None or accuracy.mean is None:
                continue
            x = max(count, 1)
            colour = OURS if line.label == "SAFE" else OTHERS
            axes.scatter(x, accuracy.mean, s=70, color=colour, zorder=3)
            axes.annotate(
                line.label,
                (x, accuracy.mean),
                xytext=(6, 4),
                textcoords="offset points",
                fontsize=10,
            )
            if accuracy.paper is not None:
                axes.scatter(
                    x, accuracy.paper, s=44, facecolors="none", edgecolors=colour, zorder=2
                )
        axes.set_xscale("log")
        axes.margins(x=0.12, y=0.12)
        axes.set(
            xlabel="learnable numbers", ylabel="final accuracy, %  (filled: ours, hollow: paper)"
        )
    return figure


def _sessions(
    caption: str, entries: Sequence[Entry], runs: Mapping[str, Run], late: float
) -> Drawing:
    """Bars by session, the mean over seeds; and which learner is better on early and on late
    classes.
    """
    ends: dict[
        str, list[list[float]]
    ] = {}  # by output and seed: the accuracy on each session's classes at the end
    for entry in entries:
        found = [
            series(runs[cell.name], entry.row.output) for cell in entry.runs if cell.name in runs
        ]
        ends[entry.row.label] = [
            [value or 0.0 for value in one.rows[one.run.done]] for one in found if one
        ]
    rows = {
        name: [mean(values) for values in zip(*seeds, strict=True)] for name, seeds in ends.items()
    }
    told = [
        f"{name}: {', '.join(f'{100 * value:.0f}' for value in values)}"
        for name, values in rows.items()
    ]
    sentences: tuple[str, ...] = ()
    count = max(map(len, rows.values()))
    if {"Slow learner", "Fast learner"} <= ends.keys() and count > 1:
        first = count - max(1, round(late * count))  # how many are early
        sentences = (
            _advantage(
                "early", "slow", ends["Slow learner"], ends["Fast learner"], slice(0, first)
            ),
            _advantage(
                "late", "fast", ends["Fast learner"], ends["Slow learner"], slice(first, count)
            ),
        )
    colours = {
        "Slow learner": COLOURS["slow"].light,
        "Fast learner": COLOURS["fast"].light,
        "SAFE": OURS,
    }
    with canvas((9.0, 4.0)) as (figure, (axes,)):
        width = 0.8 / len(rows)
        for number, (name, values) in enumerate(rows.items()):
            places = np.arange(len(values)) + (number - (len(rows) - 1) / 2) * width
            bars = axes.bar(
                places, values, width=0.92 * width, color=colours.get(name, OTHERS), label=name
            )
            axes.bar_label(bars, [f"{100 * value:.0f}" for value in values], fontsize=8, padding=1)
        axes.set_xticks(range(count), [str(i + 1) for i in range(count)])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        axes.set_ylim(0, 1.05)
        axes.set(xlabel="session that the classes came from", ylabel="accuracy at the end")
        axes.grid(False, axis="x")
        axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.12))
    return Drawing(
        figure, f"{caption} In percent, session by session: {'; '.join(told)}.", sentences
    )


def _advantage(
    when: str, who: str, one: list[list[float]], other: list[list[float]], part: slice
) -> str:
    """Whether a learner is better on some of the sessions, by how many points, and the spread over
    seeds.
    """
    gains = tuple(100 * (mean(a[part]) - mean(b[part])) for a, b in zip(one, other, strict=True))
    where = f"sessions {part.start + 1} to {part.stop}"
    return str(
        Outcome(f"the {who} learner is better on {when} classes ({where})", margin=Shown(gains))
    )


def _weights(caption: str, entry: Entry, runs: Mapping[str, Run], late: float) -> Drawing:
    """The mean weight of the fast learner by class, in the order of learning, which differs with
    the seed.
    """
    found = zip(
        *(runs[cell.name].weights() for cell in entry.runs if cell.name in runs), strict=True
    )
    means = [
        Weight(str(i), ones[0].session, mean(one.fast for one in ones))
        for i, ones in enumerate(found, start=1)
    ]
    first = means[-1].session - max(1, round(late * means[-1].session))
    parts = {"early": [one.fast for one in means if one.session <= first]}
    parts["late"] = [one.fast for one in means if one.session > first]
    told = [
        f"mean weight of the fast learner on {when} classes: {mean(v):.3f}"
        for when, v in parts.items()
        if v
    ]
    with canvas((9.0, 3.8)) as (figure, (axes,)):
        weight_bars(axes, means)
    return Drawing(figure, f"{caption} {'; '.join(told)}.", tuple(told))


def _tsne(caption: str, entries: Sequence[Entry], runs: Mapping[str, Run], probe: Probe) -> Drawing:
    """A panel per network; filled circles: seen classes, crosses: unseen ones."""
    cells = [next(cell for cell in entry.runs if cell.name in runs) for entry in entries]
    found = [
        probe.features(cell, entry.row.network or "")
        for cell, entry in zip(cells, entries, strict=True)
    ]
    first = runs[cells[0].name].facts.stream.sessions[0].classes
    kinds = {label: "seen" if label in first else "unseen" for label in found[0][0]}
    with canvas((4.0 * len(entries), 4.4), len(entries), len(entries)) as (figure, every):
        for axes, entry, (shown, features) in zip(every, entries, found, strict=True):
            perplexity = min(30.0, (len(features) - 1) / 3)
            points = TSNE(
                perplexity=perplexity, init="pca", max_iter=500, random_state=0
            ).fit_transform(features)
            labels = np.array(shown)
            for colour, (label, kind) in zip(cycle(PALETTE), kinds.items(), strict=False):
                how: dict[str, Any] = {"s": 22, "linewidths": 0, "label": f"{label} ({kind})"}
                if kind == "unseen":
                    how |= {"s": 30, "linewidths": 1.4, "marker": "x"}
                axes.scatter(*points[labels == label].T, color=colour.light, alpha=0.9, **how)
            axes.set(title=entry.row.label, xticks=[], yticks=[])
        figure.legend(
            *every[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=9
        )
    seen, unseen = (
        ", ".join(label for label in kinds if kinds[label] == kind) for kind in ("seen", "unseen")
    )
    panels = ", ".join(entry.row.label for entry in entries)
    return Drawing(figure, f"{caption} Panels: {panels}. Seen: {seen}; unseen: {unseen}.")


def _datasets(job: Job, streams: Mapping[str, Cell]) -> Drawing | None:
    """Pictures of the first classes of each stream, below its name."""
    sheets = {}
    for label, cell in streams.items():
        stream = open_stream(cell.settings.stream, seed=cell.settings.seed)
        sheets[job.streams[label].title] = _sheet(stream.open(1))
    if not sheets:
        return None
    across = min(2, len(sheets))
    with canvas((6.2 * across, 3.5 * math.ceil(len(sheets) / across)), len(sheets), across) as (
        figure,
        every,
    ):
        for axes, (name, drawn) in zip(every, sheets.items(), strict=True):
            axes.imshow(drawn)
            axes.set_title(name)
            axes.axis("off")
    return Drawing(figure, f"{job.target.caption} Shown: {', '.join(sheets)}.")


def _sheet(session: Session, classes: int = 4, each: int = 8, side: int = 64) -> Image.Image:
    """A row of pictures of each of the first classes."""
    sheet = Image.new("RGB", (each * side, classes * side), "white")
    where = positions(session.train.labels)
    for row, label in enumerate(session.classes[:classes]):
        for column, index in enumerate(where.get(label, [])[:each]):
            sheet.paste(
                ImageOps.fit(session.train.decode(index), (side, side)), (column * side, row * side)
            )
    return sheet

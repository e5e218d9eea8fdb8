"""The figure of a target, and what it shows in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from matplotlib.figure import Figure

from safecl.experiments.reproduce import figures
from safecl.experiments.reproduce.overview import overview
from safecl.experiments.reproduce.plan import Entry, Job
from safecl.experiments.reproduce.probe import Probe
from safecl.experiments.reproduce.results import Line, series
from safecl.experiments.reproduce.tables import texts
from safecl.experiments.sweep.plan import Cell
from safecl.lines import plain
from safecl.report.runs import Run
from safecl.streams.catalog import open_stream


@dataclass(frozen=True)
class Drawing:
    """A figure, its alt text, and sentences on what it shows."""

    figure: Figure
    alt: str
    sentences: tuple[str, ...] = ()


def draw(
    job: Job, lines: Sequence[Line], runs: Mapping[str, Run], probe: Probe, streams: Mapping[str, Cell]
) -> Drawing | None:
    """The figure of a target; None where its runs are not there. ``streams``: a cell with the stream of each column."""
    target = job.target
    if target.kind == "overview":
        return Drawing(overview(), target.caption)
    if target.kind == "datasets":
        return _datasets(job, streams)
    entries = [entry for entry in job.entries if any(cell.name in runs for cell in entry.runs)]
    if not entries:
        return None
    if target.kind == "heatmap":
        labels = [column.label for column in job.columns]
        return Drawing(figures.heatmap(lines, labels, target.axes or ("", "")), _numbers(target.caption, labels, lines))
    if target.kind == "parameters":
        labels = [column.label for column in job.columns]
        return Drawing(figures.parameters(lines), _numbers(target.caption, labels, lines))
    if target.kind == "sessions":
        return _sessions(target.caption, entries, runs, target.late)
    if target.kind == "weights":
        return _weights(target.caption, entries[0], runs, probe, target.late)
    return _tsne(target.caption, entries, runs, probe) if target.kind == "tsne" else None


def _numbers(caption: str, columns: Sequence[str], lines: Sequence[Line]) -> str:
    """The caption and every number."""
    told = [
        f"{line.label}: " + ", ".join(f"{c} {texts(cell)[0]}" for c, cell in zip(columns, line.cells, strict=True))
        for line in lines
    ]
    return plain(f"{caption} {'; '.join(told)}.")


def _sessions(caption: str, entries: Sequence[Entry], runs: Mapping[str, Run], late: float) -> Drawing:
    """Bars by session, the mean over seeds; and which learner is better on early and on late classes."""
    rows: dict[str, list[float | None]] = {}
    ends: dict[str, list[list[float]]] = {}
    for entry in entries:
        found = [runs[cell.name] for cell in entry.runs if cell.name in runs]
        last = [[v or 0.0 for v in series(run, entry.row.output).rows[run.done]] for run in found]
        rows[entry.row.label] = [mean(values) for values in zip(*last, strict=True)]
        ends[entry.row.label] = last
    told = "; ".join(
        f"{name}: " + ", ".join("–" if v is None else f"{100 * v:.0f}" for v in values) for name, values in rows.items()
    )
    sentences: tuple[str, ...] = ()
    if {"Slow learner", "Fast learner"} <= ends.keys():
        count = len(rows["Slow learner"])
        first = count - max(1, round(late * count))
        sentences = (
            _advantage("early", "slow", ends["Slow learner"], ends["Fast learner"], slice(0, first)),
            _advantage("late", "fast", ends["Fast learner"], ends["Slow learner"], slice(first, count)),
        )
    return Drawing(figures.sessions(rows), f"{caption} In percent, session by session: {told}.", sentences)


def _advantage(when: str, who: str, one: list[list[float]], other: list[list[float]], part: slice) -> str:
    """Whether a learner is better on some of the sessions, by how many points, and the spread over seeds."""
    gains = [100 * (mean(a[part]) - mean(b[part])) for a, b in zip(one, other, strict=True)]
    spread = f" ± {np.std(gains, ddof=1):.2f} over {len(gains)} seeds" if len(gains) > 1 else " (1 seed)"
    numbers = range(part.start + 1, part.stop + 1)
    verdict = "holds" if mean(gains) > 0 else "does not hold"
    gain = f"{mean(gains):+.2f}".replace("-", "−")
    where = f"sessions {numbers[0]} to {numbers[-1]}"
    return f"the {who} learner is better on {when} classes ({where}): {verdict}, by {gain} points{spread}"


def _weights(caption: str, entry: Entry, runs: Mapping[str, Run], probe: Probe, late: float) -> Drawing:
    found = [probe.weights(cell) for cell in entry.runs if cell.name in runs]
    slow, fast = (np.mean([one[name] for one in found], axis=0).tolist() for name in ("slow", "fast"))
    sessions = found[0]["session"]
    starts = [i for i in range(1, len(sessions)) if sessions[i] != sessions[i - 1]]
    count = max(sessions)
    first = count - max(1, round(late * count))
    parts = {
        "early": [i for i, session in enumerate(sessions) if session <= first],
        "late": [i for i, session in enumerate(sessions) if session > first],
    }
    told = [
        f"mean weight of the fast learner on {when} classes: {mean(fast[i] for i in places):.3f}"
        for when, places in parts.items()
        if places
    ]
    return Drawing(figures.weights(slow, fast, starts), f"{caption} {'; '.join(told)}.", tuple(told))


def _tsne(caption: str, entries: Sequence[Entry], runs: Mapping[str, Run], probe: Probe) -> Drawing:
    from sklearn.manifold import TSNE  # half a second, which other figures do without

    panels, seen, unseen = [], [], []
    for entry in entries:
        cell = next(cell for cell in entry.runs if cell.name in runs)
        found = probe.features(cell, entry.row.network or "backbone")
        features = np.asarray(found["features"], dtype=np.float64)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        seen, unseen = found["seen"], found["unseen"]
        perplexity = min(30.0, max(2.0, (len(features) - 1) / 4))
        points = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features)
        panels.append((entry.row.label, np.asarray(points), found["labels"]))
    classes = f"Seen: {', '.join(seen)}; unseen: {', '.join(unseen)}."
    shown = ", ".join(name for name, _, _ in panels)
    return Drawing(figures.tsne(panels, seen, unseen), f"{caption} Panels: {shown}. {classes}")


def _datasets(job: Job, streams: Mapping[str, Cell]) -> Drawing | None:
    sheets = {}
    for label, cell in streams.items():
        stream = open_stream(cell.settings.stream, seed=cell.settings.seed)
        sheets[job.streams[label].title] = figures.contact_sheet(stream)
    if not sheets:
        return None
    return Drawing(figures.datasets(sheets), f"{job.target.caption} Shown: {', '.join(sheets)}.")

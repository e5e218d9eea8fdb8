"""The figures of the paper from our runs: each function gives a matplotlib Figure, built without pyplot."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image, ImageOps

from safecl.experiments.reproduce.results import Line
from safecl.report.colours import COLOURS, GRID, INK, PALETTE
from safecl.report.drawing import dress, new_figure, style
from safecl.streams.stream import Stream

OURS, PAPERS = COLOURS["safe"].light, COLOURS["finetune"].light
TILE = 64  # pixels of a picture in a contact sheet
ACROSS, DOWN = 8, 4  # pictures in a contact sheet


def heatmap(lines: Sequence[Line], columns: Sequence[str], axes_names: tuple[str, str]) -> Figure:
    """A cell a combination, with its accuracy; the mark: the paper's own choice."""
    values = np.array([[np.nan if c.mean is None else c.mean for c in line.cells] for line in lines], dtype=float)
    with style():
        figure, axes = new_figure((1.6 + 1.1 * len(columns), 1.4 + 0.75 * len(lines)))
        drawn = axes.imshow(values, cmap="Blues", aspect="auto")
        middle = np.nanmean([np.nanmin(values), np.nanmax(values)]) if np.isfinite(values).any() else 0.0
        for y, line in enumerate(lines):
            for x, cell in enumerate(line.cells):
                text = "–" if cell.mean is None else f"{cell.mean:.1f}"
                mark = "" if cell.paper is None else f"\npaper {cell.paper:g}"
                strong = cell.mean is not None and cell.mean > middle
                axes.text(x, y, text + mark, ha="center", va="center", color="white" if strong else INK, fontsize=10)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(lines)), [line.label for line in lines])
        axes.set(xlabel=axes_names[1], ylabel=axes_names[0])
        axes.grid(False)
        figure.colorbar(drawn, ax=axes, label="final accuracy, %")
        return figure


def tsne(panels: Sequence[tuple[str, np.ndarray, Sequence[str]]], seen: Sequence[str], unseen: Sequence[str]) -> Figure:
    """A panel a network: points (n, 2) with their labels; filled circles: seen classes, crosses: unseen ones."""
    colours = [colour.light for colour in PALETTE]
    with style():
        figure = Figure(figsize=(4.0 * len(panels), 4.4), layout="constrained")
        for place, (name, points, labels) in enumerate(panels, 1):
            axes = dress(figure.add_subplot(1, len(panels), place))
            for number, label in enumerate([*seen, *unseen]):
                mine = points[[i for i, one in enumerate(labels) if one == label]]
                new = number >= len(seen)
                legend = f"{label} ({'unseen' if new else 'seen'})" if place == 1 else None
                how: dict[str, Any] = {"marker": "x", "s": 30, "linewidths": 1.4} if new else {"s": 22, "linewidths": 0}
                colour = colours[number % len(colours)]
                axes.scatter(mine[:, 0], mine[:, 1], color=colour, alpha=0.9, label=legend, **how)
            axes.set_title(name, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
        figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
        return figure


def sessions(rows: Mapping[str, Sequence[float | None]]) -> Figure:
    """For each session a bar of each output: accuracy on its classes after the last session."""
    colours = {"Slow learner": COLOURS["slow"].light, "Fast learner": COLOURS["fast"].light, "SAFE": OURS}
    with style():
        figure, axes = new_figure((9.0, 4.0))
        width = 0.8 / max(len(rows), 1)
        for number, (name, values) in enumerate(rows.items()):
            places = np.arange(len(values)) + (number - (len(rows) - 1) / 2) * width
            heights = [0.0 if value is None else value for value in values]
            bars = axes.bar(places, heights, width=0.92 * width, color=colours.get(name, PAPERS), label=name)
            axes.bar_label(bars, [f"{100 * height:.0f}" for height in heights], fontsize=8, padding=1)
        count = max((len(values) for values in rows.values()), default=0)
        axes.set_xticks(range(count), [str(i + 1) for i in range(count)])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        axes.set_ylim(0, 1.05)
        axes.set(xlabel="session that the classes came from", ylabel="accuracy at the end")
        axes.grid(False, axis="x")
        axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.12))
        return figure


def weights(slow: Sequence[float], fast: Sequence[float], starts: Sequence[int]) -> Figure:
    """The mean weight of each learner by class, in the order of learning; ``starts``: first class of each session."""
    with style():
        figure, axes = new_figure((9.0, 3.8))
        for start in starts:
            axes.axvline(start - 0.5, color=GRID, linewidth=1)
        for name, values, colour in (("slow learner", slow, COLOURS["slow"]), ("fast learner", fast, COLOURS["fast"])):
            axes.plot(range(len(values)), values, color=colour.light, linewidth=1, alpha=0.45)
            axes.plot(range(len(values)), _smooth(values), color=colour.light, linewidth=2.4, label=name)
        axes.axhline(0.5, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set(xlabel="class, in the order of learning", ylabel="mean aggregation weight")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.01)
        axes.legend(frameon=False, ncols=2)
        return figure


def parameters(lines: Sequence[Line]) -> Figure:
    """Learnable numbers (log) against final accuracy; hollow: the paper's accuracy at our count."""
    with style():
        figure, axes = new_figure((8.0, 4.6))
        for line in lines:
            accuracy, count = line.cells[0], line.cells[1].mean
            if count is None or accuracy.mean is None:
                continue
            colour = OURS if line.label == "SAFE" else PAPERS
            axes.scatter(max(count, 1), accuracy.mean, s=70, color=colour, zorder=3)
            axes.annotate(
                line.label, (max(count, 1), accuracy.mean), xytext=(6, 4), textcoords="offset points", fontsize=10
            )
            if accuracy.paper is not None:
                axes.scatter(max(count, 1), accuracy.paper, s=44, facecolors="none", edgecolors=colour, zorder=2)
        axes.set_xscale("log")
        axes.margins(x=0.12, y=0.12)
        axes.set(xlabel="learnable numbers", ylabel="final accuracy, %  (filled: ours, hollow: paper)")
        return figure


def datasets(sheets: Mapping[str, np.ndarray]) -> Figure:
    """A contact sheet (H, W, 3) of each stream, below its name."""
    across = 2 if len(sheets) > 1 else 1
    down = -(-len(sheets) // across)
    with style():
        figure = Figure(figsize=(6.2 * across, 3.5 * down), layout="constrained")
        for place, (name, sheet) in enumerate(sheets.items(), 1):
            axes = figure.add_subplot(down, across, place)
            axes.imshow(sheet)
            axes.set_title(name, color=INK)
            axes.axis("off")
        return figure


def contact_sheet(stream: Stream) -> np.ndarray:
    """Training pictures of the stream, evenly from its sessions and their classes: uint8 (H, W, 3)."""
    picked: list[Image.Image] = []
    each = -(-ACROSS * DOWN // len(stream))
    for session in stream:
        where: dict[Any, int] = {}
        for i, label in enumerate(session.train.labels):
            where.setdefault(label, i)
        places = list(where.values())
        places += [i for i in range(len(session.train)) if i not in set(places)]
        picked += [session.train.decode(i).convert("RGB") for i in places[:each]]
    sheet = Image.new("RGB", (ACROSS * TILE, DOWN * TILE), "white")
    for place, picture in enumerate(picked[: ACROSS * DOWN]):
        tile = ImageOps.fit(picture, (TILE - 2, TILE - 2))
        sheet.paste(tile, (place % ACROSS * TILE + 1, place // ACROSS * TILE + 1))
    return np.asarray(sheet)


def _smooth(values: Sequence[float], window: int = 5) -> list[float]:
    """The mean over each class and its neighbours."""
    half = window // 2
    return [float(np.mean(values[max(0, i - half) : i + half + 1])) for i in range(len(values))]

"""A drawing of the method: what is trained when, by which loss, and how both learners answer."""

from pathlib import Path

import yaml
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from safecl.report.colours import COLOURS, GRID, INK
from safecl.report.drawing import canvas

COLOUR = {"ink": INK, **{name: colour.light for name, colour in COLOURS.items()}}
WIDTH = 4.2  # of a panel


def overview() -> Figure:
    """Three panels: session 1, later sessions, prediction. Dashed boxes are frozen."""
    panels = yaml.safe_load((Path(__file__).parent / "overview.yaml").read_text(encoding="utf-8"))
    with canvas((13.2, 5.6)) as (figure, (axes,)):
        axes.set(xlim=(0, len(panels) * WIDTH), ylim=(0, 5.4), aspect="equal")
        axes.axis("off")
        for number, panel in enumerate(panels):
            left = number * WIDTH
            axes.text(left + WIDTH / 2, 5.15, panel["title"], ha="center", va="center", fontsize=14, weight="bold")
            if number:
                axes.plot([left, left], [0.1, 5.3], color=GRID, linewidth=1.2)
            for x, y, wide, high, text, name, look in panel["boxes"]:
                dashes = (0, (4, 2)) if "frozen" in look else "-"
                box = FancyBboxPatch((left + x, y), wide, high, boxstyle="round,pad=0,rounding_size=0.1")
                box.set(linewidth=1.8, edgecolor=COLOUR[name], facecolor=COLOUR[name] + "14", linestyle=dashes)
                axes.add_patch(box)
                size = 9 if "small" in look else 11
                axes.text(left + x + wide / 2, y + high / 2, text, ha="center", va="center", fontsize=size)
            for x, y, to_x, to_y, name, heads in panel["arrows"]:
                ends = (left + x, y), (left + to_x, to_y)
                arrow = FancyArrowPatch(*ends, arrowstyle=heads, mutation_scale=11, shrinkA=0, shrinkB=0)
                arrow.set(color=COLOUR[name], linewidth=1.2)
                axes.add_patch(arrow)
            for x, y, text, name, size in panel["texts"]:
                axes.text(left + x, y, text, ha="center", va="center", color=COLOUR[name], fontsize=size)
    return figure

"""The demo: SAFE beside RanPAC and plain fine-tuning on the embedded stream, a table, and a page."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from safecl.engine.metrics import History
from safecl.engine.progress import Show, make_progress
from safecl.experiments.config import load
from safecl.experiments.launch import launch
from safecl.experiments.layers import method_groups
from safecl.methods.catalog import method_settings
from safecl.report.page import write_page

METHODS = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning"}


def run_demo(words: list[str], folder: Path, show: Show = "auto", fresh: bool = False) -> Path:
    """Run the three methods below ``folder``; gives the page. What was stopped half-way goes on."""
    progress, histories = make_progress(show), {}
    for method, title in METHODS.items():
        settings = load("demo", [*([] if method == "safe" else [f"method={method}"]), *fitting(words, method)])
        progress.say(f"{title} on {settings.stream.title}, backbone {settings.backbone.name}, PET {settings.pet}")
        place = folder / method
        launch(settings, place, progress, facts={"command": " ".join(["safecl demo", *words])}, fresh=fresh)
        histories[method] = History.read(place)
    page = write_page([folder / method for method in METHODS], folder / "index.html", "safecl demo")
    console = Console()
    console.print(table(histories))
    console.print(f"\nThe page with curves and pictures: [bold]{page}[/bold]", highlight=False)
    console.print(NEXT, highlight=False)
    return page


def fitting(words: list[str], method: str) -> list[str]:
    """The words that mean something to ``method``: fine-tuning, for one, has no ridge head."""
    missing = method_groups() - method_settings()[method].model_fields.keys()
    return [word for word in words if word.partition("=")[0].partition(".")[0] not in missing]


NEXT = """
Next, on your own pictures (PATH holds one folder of pictures a class):
  [bold]safecl data check folder:PATH[/bold]                    is every picture readable?
  [bold]safecl run safe stream=folder:PATH[/bold]               learn session by session
  [bold]safecl run safe stream=folder:PATH pet=adapter[/bold]   with another kind of tuning"""


def table(histories: dict[str, History]) -> Table:
    """After each session: accuracy on all classes seen so far, forgetting so far, seconds. Fits into 80 columns."""
    drawn = Table(
        title="Accuracy in percent on all classes seen so far",
        caption="seen: classes; f: forgetting, points lost on earlier sessions; s: seconds",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    names = ("", "seen", "slow", "fast", "SAFE", "f", "s", "RanPAC", "f", "s", "fine-tuned", "f", "s")
    for name in names:
        drawn.add_column(name, justify="right", style="bold" if name == "SAFE" else "dim" if name in ("f", "s") else "")
    safe, ranpac, tuned = (histories[method].lines for method in METHODS)
    for lines in zip(safe, ranpac, tuned, strict=True):
        cells = [_percent(lines[0], "pooled", output) for output in ("slow", "fast")]
        for line, output in zip(lines, METHODS, strict=True):
            cells += [_percent(line, "pooled", output), _percent(line, "forgetting", output)]
            cells.append(f"{line['seconds']['total']:.0f}")
        drawn.add_row(str(lines[0]["session"]), str(lines[0]["classes_seen"]), *cells)
    return drawn


def _percent(line: dict[str, Any], kind: str, output: str) -> str:
    return f"{100 * line[kind][output]:.1f}"

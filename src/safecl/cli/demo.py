"""The demo: SAFE beside RanPAC and plain fine-tuning on the embedded stream, a table, and a page."""

import shlex
from pathlib import Path

from rich.console import Console

from safecl.cli.terminal import make_console
from safecl.configure.layers import method_groups
from safecl.engine.metrics import History
from safecl.engine.progress import Show, make_progress
from safecl.experiments.config import given_text, load
from safecl.experiments.launch import launch
from safecl.lines import print_sentence
from safecl.methods.catalog import method_settings
from safecl.report.page import write_page
from safecl.report.sentences import results
from safecl.report.table import Cell, Column, Table, print_table
from safecl.report.words import bare_percent

METHODS = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning"}
PLACE = Path("runs/demo")
NEXT = """
Next, on your own pictures (PATH holds one folder of pictures per class):
  safecl data check folder:PATH                    is every picture readable?
  safecl run safe stream=folder:PATH               learn session by session
  safecl run safe stream=folder:PATH pet=adapter   with another kind of tuning"""


def run_demo(words: list[str], folder: Path = PLACE, show: Show = "auto", fresh: bool = False) -> Path:
    """Run the three methods below ``folder``; gives the page. What was stopped half-way resumes."""
    progress, histories = make_progress(show), {}
    command = shlex.join(["safecl", "demo", *words, *(["--folder", str(folder)] if folder != PLACE else [])])
    for method, title in METHODS.items():
        chosen = [*([] if method == "safe" else [f"method={method}"]), *fitting(words, method)]
        settings = load("demo", chosen).model_copy(update={"preset": "demo"})
        progress.say(f"{title}, backbone {settings.backbone.name}, PET {settings.pet}")
        given = f"# {command}\n{given_text('demo', chosen)}"
        launch(settings, folder / method, progress, facts={"command": command}, given=given, fresh=fresh)
        histories[method] = History.read(folder / method)
    page = write_page([folder / method for method in METHODS], folder / "index.html", "safecl demo")
    console = make_console()
    print_sessions(histories, console)
    for method in METHODS:
        print_sentence(console, results(folder / method)[0])
    for text in (f"\nThe page with curves and pictures: {page}", NEXT):
        print_sentence(console, text)
    return page


def fitting(words: list[str], method: str) -> list[str]:
    """The words that mean something to ``method``: fine-tuning, for one, has no ridge head."""
    missing = method_groups() - method_settings()[method].model_fields.keys()
    return [word for word in words if word.partition("=")[0].partition(".")[0] not in missing]


def print_sessions(histories: dict[str, History], console: Console) -> None:
    """After each session: accuracy on all classes seen so far, forgetting so far, seconds. Fits into 80 columns."""
    names = ("", "seen", "slow", "fast", "SAFE", "f", "s", "RanPAC", "f", "s", "fine-tuned", "f", "s")
    styles = {"SAFE": "bold", "f": "dim", "s": "dim"}
    columns = [Column(name, style=styles.get(name, "")) for name in names]
    rows = []
    safe, ranpac, tuned = (histories[method].lines for method in METHODS)
    for lines in zip(safe, ranpac, tuned, strict=True):
        cells = [bare_percent(lines[0]["pooled"][output]) for output in ("slow", "fast")]
        for line, output in zip(lines, METHODS, strict=True):
            cells += [bare_percent(line[key][output]) for key in ("pooled", "forgetting")]
            cells.append(f"{line['seconds']['total']:.0f}")
        rows.append([Cell(text) for text in (str(lines[0]["session"]), str(lines[0]["classes_seen"]), *cells)])
    caption = "seen: classes; f: forgetting, points lost on earlier sessions; s: seconds"
    table = Table("Accuracy in percent on all classes seen so far", columns, rows)
    print_table(console, table, leads=2, caption=caption)

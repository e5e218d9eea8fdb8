"""The demo: SAFE beside RanPAC and plain fine-tuning on the embedded stream; or a page on which a model is taught."""

import shlex
from pathlib import Path

import numpy as np

from safecl.cli.quickstart import PLAIN, STYLED
from safecl.cli.terminal import make_console
from safecl.configure.layers import method_groups
from safecl.engine.progress import Show, make_progress
from safecl.experiments.config import given_text, load
from safecl.experiments.launch import launch
from safecl.lines import print_sentence
from safecl.methods.catalog import method_settings
from safecl.report.page import write_page
from safecl.report.runs import read_run
from safecl.report.sentences import results
from safecl.report.series import all_series
from safecl.report.table import print_table
from safecl.report.tables import after_each_session
from safecl.streams.drawn.drawing import draw

METHODS, PLACE = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning"}, Path("runs/demo")
# The page offers its sheet to draw on where the first session is called DRAWN.
DRAWN, CHARACTERS = "drawn characters", "0123456789ABCX"
NEXT = "\nNext: your pictures, in class folders (safecl quickstart draws some):\n  safecl learn PATH --model my.safecl"


def run_demo(words: list[str], folder: Path = PLACE, show: Show = "auto", fresh: bool = False) -> Path:
    """Run the three methods below ``folder``; gives the page. What was stopped half-way resumes."""
    progress, console = make_progress(show), make_console()
    command = shlex.join(["safecl", "demo", *words, *(["--folder", str(folder)] if folder != PLACE else [])])
    for method, title in METHODS.items():
        chosen = [*([] if method == "safe" else [f"method={method}"]), *fitting(words, method)]
        settings = load("demo", chosen).model_copy(update={"preset": "demo"})
        progress.say(f"{title}, backbone {settings.backbone.name}, PET {settings.pet}")
        given = f"# {command}\n{given_text('demo', chosen)}"
        launch(settings, folder / method, progress, facts={"command": command}, given=given, fresh=fresh)
    folders = [folder / method for method in METHODS]
    page = write_page(folders, folder / "index.html", "safecl demo")
    for table in after_each_session(all_series([read_run(each) for each in folders])):
        print_table(console, table, leads=2)
    for text in (*(results(each)[0] for each in folders), f"\nThe page with curves and pictures: {page}", NEXT):
        print_sentence(console, text)
    return page


def serve_demo(folder: Path = PLACE, show: Show = "auto", fresh: bool = False, port: int = 8000) -> None:
    """Teach a model drawn characters, unless it is below ``folder`` already, and open its page."""
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.cli.serve import check_installed, serve

    check_installed()
    path = folder / "characters.safecl"
    if fresh or not path.exists():
        random = np.random.default_rng(0)
        drawn = [(c, draw(c, random, style, PLAIN)) for c in CHARACTERS for _, style in STYLED]
        model = ContinualClassifier(epochs=1, show=show)
        model.learn(np.stack([picture for _, picture in drawn]), [c for c, _ in drawn], name=DRAWN)
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path, force=True)
    serve([path], port=port, open_=True)


def fitting(words: list[str], method: str) -> list[str]:
    """The words that mean something to ``method``: fine-tuning, for one, has no ridge head."""
    missing = method_groups() - method_settings()[method].model_fields.keys()
    return [word for word in words if word.partition("=")[0].partition(".")[0] not in missing]

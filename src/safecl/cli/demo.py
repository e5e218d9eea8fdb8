"""The demo: SAFE beside RanPAC and plain fine-tuning on the embedded stream; or a page on which a
model is taught.
"""

import shlex
from pathlib import Path

import numpy as np

from safecl.cli.quickstart import PLAIN, STYLED
from safecl.cli.terminal import make_console
from safecl.engine.progress import Show, make_progress
from safecl.errors import SafeclError
from safecl.experiments.config import load, resolve
from safecl.experiments.launch import launch
from safecl.lines import print_sentence
from safecl.methods.catalog import method_settings
from safecl.report import sentences, tables
from safecl.report.page import read_runs, write_page
from safecl.report.series import all_series
from safecl.report.table import print_table
from safecl.streams.drawn.drawing import SIDE, draw

METHODS = ("safe", "ranpac", "finetune")
PLACE = Path("runs/demo")
# The page offers its sheet to draw on where the first session is called DRAWN.
DRAWN = "drawn characters"
CHARACTERS = "0123456789ABCX"
NEXT = (
    "\nNext: your pictures, in class folders (safecl quickstart draws some):\n  safecl learn PATH"
    " --model my.safecl"
)


def run_demo(
    words: list[str], folder: Path = PLACE, show: Show = "auto", fresh: bool = False
) -> None:
    """Run the three methods below ``folder`` and write their page. What was stopped half-way
    resumes.
    """
    progress = make_progress(show)
    console = make_console()
    command = shlex.join(
        ["safecl", "demo", *words, *(["--folder", str(folder)] if folder != PLACE else [])]
    )
    folders = [folder / method for method in METHODS]
    chosen = [chosen_for(method, words) for method in METHODS]
    # a wrong word stops all three
    loaded = [load("demo", own).model_copy(update={"preset": "demo"}) for own in chosen]
    for place, settings in zip(folders, loaded, strict=True):
        progress.say(
            f"{settings.method.title}, backbone {settings.backbone.name}, PET {settings.pet}"
        )
        launch(settings, place, progress, command=command, fresh=fresh)
    page = write_page(folders, folder / "index.html", "safecl demo")
    for table in tables.after_each_session(all_series(read_runs(folders))):
        print_table(console, table)
    for text in (
        *(sentences.results(each)[0] for each in folders),
        f"\nCurves and pictures: {page}",
        NEXT,
    ):
        print_sentence(console, text)


def serve_demo(
    folder: Path = PLACE, show: Show = "auto", fresh: bool = False, port: int = 8000
) -> None:
    """Teach a model drawn characters, unless it is below ``folder`` already, and open its page."""
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.cli.serve import check_installed, serve

    check_installed()
    path = folder / "characters.safecl"
    if fresh or not path.exists():
        random = np.random.default_rng(0)
        drawn = [(c, draw(c, random, style, PLAIN)) for c in CHARACTERS for _, style in STYLED]
        model = ContinualClassifier(epochs=1, image_size=SIDE, show=show)
        model.learn(np.stack([picture for _, picture in drawn]), [c for c, _ in drawn], name=DRAWN)
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path, force=True)
    serve([path], port=port, open_=True)


def chosen_for(method: str, words: list[str]) -> list[str]:
    """The words that mean something to ``method``: fine-tuning, for one, has no ridge head; and
    which method it is.
    """
    fields = {name: method_settings()[name].model_fields.keys() for name in METHODS}
    others = set().union(*fields.values()) - fields[method]
    heads = {
        word: word.partition("=")[0].removeprefix("method.").partition(".")[0] for word in words
    }
    if {"method", "name"} & set(heads.values()):
        raise SafeclError("command.demo.method")
    own = [f"method={method}", *(word for word, head in heads.items() if head not in others)]
    settings = resolve("demo", own).method  # to which those of training may mean nothing
    return [word for word in own if settings.idle_outside(word.partition("=")[0]) is None]

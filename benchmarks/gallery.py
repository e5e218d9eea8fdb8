"""Make the pictures and the terminal text of docs/gallery.md, and README's picture, by the commands
that they show.

python benchmarks/gallery.py ASSETS WORK    ASSETS holds flowers102_20x12 and pacs_30x15; WORK is
where runs are kept.
"""

import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/gallery.md"
OUT = ROOT / "docs/gallery"
TERMINAL = ROOT / "docs/learn.svg"
FLOWERS = {
    "july": ("alpine_sea_holly", "anthurium", "artichoke"),
    "august": ("azalea", "bearded_iris"),
}
STRANGER = "bird_of_paradise"
ASK = "safecl predict {} --model flowers.safecl"
COMMANDS = {
    "flowers": (ASK.format("new"),),
    "correction": (
        f"safecl correct flowers.safecl new/{STRANGER}.jpg --label {STRANGER}",
        ASK.format(f"new/{STRANGER}.jpg"),
    ),
}
TAUGHT = 20
HEAT_WIDTH = 720


def main(assets: Path, work: Path) -> None:
    """Run all commands below ``work``; replaces the marked texts of the page and its pictures."""
    OUT.mkdir(exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    lay_out(assets / "flowers102_20x12", work)
    methods = ("safe", "ranpac", "finetune")
    curve(work, "demo", "safecl demo --quiet", *(f"runs/demo/{method}" for method in methods))
    pacs = shlex.quote(f"folder:{assets / 'pacs_30x15'}")
    domains = (
        f"safecl run simplecil stream={pacs} stream.protocol=domain --quiet --folder runs/domains"
    )
    curve(work, "domains", domains, "runs/domains")
    (work / "flowers.safecl").unlink(missing_ok=True)
    shutil.rmtree(work / "maps", ignore_errors=True)
    show(
        [*(f"safecl learn {name} --model flowers.safecl" for name in FLOWERS), ASK.format("new")],
        work,
    )
    ask(work)


def show(commands: Sequence[str], work: Path) -> None:
    """Run ``commands`` and keep what they print as README's picture of a terminal, in fonts that
    are there.
    """
    console = Console(record=True, width=118, file=io.StringIO())
    for command in commands:
        console.print(f"$ {command}", style="bold green", highlight=False)
        # in a terminal, a bar that goes
        said = re.sub(r"^Session .*\n", "", run(command, work), flags=re.MULTILINE)
        console.print(said, end="", markup=False, highlight=False)
    console.print()  # the last line is cut off
    drawn = re.sub(r"@font-face {.*?}\s*", "", console.export_svg(title="safecl"), flags=re.DOTALL)
    TERMINAL.write_text(
        drawn.replace("Fira Code", "ui-monospace, Menlo, Consolas"), encoding="utf-8"
    )


def ask(work: Path) -> None:
    """What the model of flowers says, before and after a correction, and a heat map."""
    for mark, commands in COMMANDS.items():
        put(mark, "".join(f"$ {command}\n{run(command, work)}" for command in commands))
    run(f"{ASK.format('new/bearded_iris.jpg')} --explain maps", work)
    heat = next((work / "maps").glob("*.png"))
    with Image.open(heat) as picture:
        picture.thumbnail((HEAT_WIDTH, HEAT_WIDTH))
        picture.convert("RGB").save(OUT / "heat.jpg", quality=85)


def lay_out(flowers: Path, work: Path) -> None:
    """Folders to teach, and one picture of each class and of a stranger to ask about."""
    taught = {
        session: [flowers / "train" / name for name in names] for session, names in FLOWERS.items()
    }
    for session, folders in taught.items():
        for folder in folders:
            target = work / session / folder.name
            target.mkdir(parents=True, exist_ok=True)
            for picture in sorted(folder.iterdir())[:TAUGHT]:
                shutil.copy(picture, target)
    (work / "new").mkdir(exist_ok=True)
    for name in (*(folder.name for folders in taught.values() for folder in folders), STRANGER):
        first = min((flowers / "test" / name).iterdir())
        shutil.copy(first, work / "new" / f"{name}{first.suffix}")


def curve(work: Path, name: str, command: str, *folders: str) -> None:
    """Run ``command`` and keep the accuracy after each session as docs/gallery/NAME.svg."""
    run(command, work)
    run(
        f"safecl report {' '.join(folders)} --page {name}.html --files figures-{name} --force", work
    )
    shutil.copy(work / f"figures-{name}/accuracy.svg", OUT / f"{name}.svg")


def run(command: str, work: Path) -> str:
    """The standard output of a safecl command."""
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(
        words, cwd=work, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ).stdout


def put(mark: str, text: str) -> None:
    """Replace the block behind ``<!-- MARK -->`` in the page."""
    page = PAGE.read_text(encoding="utf-8")
    block = f"<!-- {mark} -->\n```\n{text.rstrip()}\n```"
    page, found = re.subn(rf"<!-- {mark} -->\n```\n.*?```", lambda _: block, page, flags=re.DOTALL)
    assert found == 1, mark
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())

"""``safecl quickstart``: small folders of drawn pictures to teach a first model."""

import shlex
from pathlib import Path

import numpy as np
from PIL import Image

from safecl.cli.terminal import print_line
from safecl.errors import SafeclError
from safecl.streams.drawn.drawing import Difficulty, draw

STYLES = ("print", "sketch", "chalk", "scene")
STYLED = list(enumerate(STYLES * 4))  # number and style of each picture of a class
PLAIN = Difficulty(
    rotation=20, shear=20, size=(0.45, 0.9), perspective=0.15, noise=0.08, blur=1.5, clutter=0
)
SIGNS = {
    "first": {"heart": "♥", "sun": "☀", "smile": "☺"},
    "second": {"house": "⌂", "notes": "♫", "spade": "♠"},
}


def draw_folders(folder: Path) -> None:
    """Draw two folders of classes to teach and one of pictures to ask about; print the commands
    that do so.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SafeclError("command.quickstart.folder-exists", folder=folder)
    signs = [(session, *each) for session, taught in SIGNS.items() for each in taught.items()]
    drawn = [
        (folder / where / name / f"{i:02}.png", sign, style)
        for where, name, sign in signs
        for i, style in STYLED
    ]
    drawn += [
        (folder / "new" / f"{name}.png", sign, STYLES[0])
        for _, name, sign in [("", "stranger", "©"), *signs]
    ]
    random = np.random.default_rng(0)
    place = shlex.quote(folder.as_posix())  # which Windows reads as well
    for path, sign, style in drawn:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(sign, random, style, PLAIN)).save(path)
    for words in (*(f"learn {place}/{session}" for session in SIGNS), f"predict {place}/new"):
        print_line(f"safecl {words} --model {place}/signs.safecl")

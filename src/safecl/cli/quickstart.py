"""``safecl quickstart``: small folders of drawn pictures to teach a first model."""

import shlex
from pathlib import Path

import numpy as np
from PIL import Image

from safecl.errors import SafeclError
from safecl.streams.drawn.drawing import Difficulty, draw

STYLES, EACH = ("print", "sketch", "chalk", "scene"), 4  # pictures of a class in each style
PLAIN = Difficulty(rotation=20, shear=20, size=(0.45, 0.9), perspective=0.15, noise=0.08, blur=1.5, clutter=0)
SIGNS = {"first": {"heart": "♥", "sun": "☀", "smile": "☺"}, "second": {"house": "⌂", "notes": "♫", "spade": "♠"}}
STRANGER = "©"  # never taught


def draw_folders(folder: Path) -> list[str]:
    """Draw two folders of classes to teach and one of pictures to ask about; gives the commands that do so."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SafeclError(f"{folder} exists already; remove it, or name another: safecl quickstart FOLDER.")
    random, new = np.random.default_rng(0), {"stranger": STRANGER}
    drawn: list[tuple[Path, str, str]] = []
    for session, signs in SIGNS.items():
        for name, sign in signs.items():
            styles = enumerate(STYLES * EACH)
            drawn += [(folder / session / name / f"{i:02}.png", sign, style) for i, style in styles]
        new |= signs
    asked = [(folder / "new" / f"{name}.png", sign, STYLES[0]) for name, sign in new.items()]
    for path, sign, style in [*drawn, *asked]:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(sign, random, style, PLAIN)).save(path)
    words = [*(f"learn {{}}/{session}" for session in SIGNS), "predict {}/new"]
    place = shlex.quote(folder.as_posix())  # which Windows reads as well
    return [f"safecl {word.format(place)} --model {place}/signs.safecl" for word in words]

"""The characters on which a backbone is pre-trained: none is drawn nearly like a class of the
glyphs stream.
"""

import re
from pathlib import Path


def _expand(runs: str) -> tuple[str, ...]:
    """``"41-43 5A"`` → A, B, C, Z."""
    found: list[str] = []
    for run in runs.split():
        first, _, last = run.partition("-")
        found.extend(chr(code) for code in range(int(first, 16), int(last or first, 16) + 1))
    return tuple(found)


_, _EVERY_FACE, _SANS_FACES = re.split(
    r"^#.*$", Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"), flags=re.M
)
SANS_ONLY = frozenset(_expand(_SANS_FACES))  # what only the sans-serif faces have
PRETRAINING_POOL: tuple[str, ...] = _expand(_EVERY_FACE) + _expand(_SANS_FACES)

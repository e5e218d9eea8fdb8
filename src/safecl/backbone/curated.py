"""A short table of backbones to choose from, with size, licence and what each is good at. Without
torch and timm, which has some 1,800 more.
"""

from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import NamedTuple

import yaml
from huggingface_hub import try_to_load_from_cache

from safecl.backbone.settings import EMBEDDED, SIZES


class Curated(NamedTuple):
    """A row of ``curated.yaml``, where its fields are explained."""

    name: str
    parameters: int
    side: int
    licence: str
    good_at: str
    since: str = "0"

    @property
    def word(self) -> str:
        """The short name, if it has one."""
        return next((word for word, (name, _) in SIZES.items() if name == self.name), "")


@cache
def curated() -> tuple[Curated, ...]:
    """The rows that the installed timm has."""
    text = (resources.files("safecl.backbone") / "curated.yaml").read_text(encoding="utf-8")
    rows = [Curated(**row) for row in yaml.safe_load(text)]
    here = _numbers(version("timm"))
    return tuple(row for row in rows if _numbers(row.since) <= here)


def row_of(name: str) -> Curated | None:
    """The row of a name, short or timm's."""
    known = SIZES[name][0] if name in SIZES else name
    return next((row for row in curated() if row.name == known), None)


def at_hand(name: str) -> bool:
    """Whether the weights of a row are inside the package or in the hub's cache."""
    if name == EMBEDDED:
        return True
    return isinstance(try_to_load_from_cache(f"timm/{name}", "model.safetensors"), str)


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")[:3] if part.isdigit()]

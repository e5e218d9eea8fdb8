"""``safecl methods``: every method, and its sizes on a backbone."""

import re

import pytest
from rich.console import Console

from safecl.backbone.settings import EMBEDDED
from safecl.cli.info import print_methods
from safecl.methods.catalog import method_settings


def shown(backbone: str | None, width: int) -> str:
    console = Console(width=width, record=True, force_terminal=False)
    print_methods(backbone, console)
    return console.export_text()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_method_stands_there_with_its_paper(width: int) -> None:
    text = shown(None, width)
    for name, kind in method_settings().items():
        assert re.search(rf"^{name}\s", text, flags=re.M) and kind.paper[:12].lower() in " ".join(text.split()).lower()
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.slow
def test_sizes_are_counted_on_the_backbone() -> None:
    text = shown(EMBEDDED, 160)
    assert re.search(r"^simplecil .* 0 +154,012 +class means", text, flags=re.M)
    assert re.search(r"^l2p .* 11,520 ", text, flags=re.M)  # (10 · 5 + 10) · 192

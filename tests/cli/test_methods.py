"""``safecl methods``: every method."""

import re

import pytest
from rich.console import Console

from safecl.cli.info import print_methods
from safecl.methods.catalog import method_settings


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_method_stands_there_with_its_paper(width: int) -> None:
    console = Console(width=width, record=True, force_terminal=False)
    print_methods(console)
    text = console.export_text()
    for name, kind in method_settings().items():
        assert (
            re.search(rf"^{name}\s", text, flags=re.M)
            and kind.paper[:12].lower() in " ".join(text.split()).lower()
        )
    assert max(map(len, text.splitlines())) <= width

"""What a word of the command line means as the name of a class."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safecl.cli import correct


@pytest.mark.parametrize(
    ("classes", "word", "meant"),
    [([1, 2], "3", 3), ([1, 2], "-3", -3), ([1, 2], "--5", "--5"), ([1, "cat"], "1", 1), ([1, "cat"], "4", "4")],
)
def test_a_word_is_a_number_where_classes_are(
    classes: list[Any], word: str, meant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correct, "ModelFile", lambda path: SimpleNamespace(header={"classes": classes}))
    assert correct._label(Path("m.safecl"), word) == meant

"""The name of a class changes in the header alone."""

from typing import Any

import pytest

from safecl.classifier.history import as_label, renamed
from safecl.errors import SafeclError


def header(classes: list[Any]) -> dict[str, Any]:
    entry = {"what": "learn", "name": "x", "classes": [[label, 2] for label in classes], "new": classes}
    return {"classes": classes, "history": [entry], "undo": [], "calibration": None}


@pytest.mark.parametrize(
    ("classes", "word", "meant"),
    [
        ([1, 2], "3", 3), ([1, 2], "-3", -3), ([1, 2], "--5", "--5"), ([1, 2], "²", "²"), ([1, "cat"], "1", 1),
        ([1, "cat"], "4", "4"),
    ],
)  # fmt: skip
def test_a_word_is_a_number_where_all_classes_are_or_one_is_spelt_so(classes: list[Any], word: str, meant: Any) -> None:
    label = as_label(header(classes), word)
    assert label == meant and type(label) is type(meant)


@pytest.mark.parametrize("new", ["7", 7, "x"])
def test_a_class_is_renamed_in_its_past_as_well(new: Any) -> None:
    changed = renamed(header([1, "a"]), "1", new)
    assert changed["classes"] == [new, "a"] == changed["history"][0]["new"]


def test_two_classes_cannot_become_one() -> None:
    with pytest.raises(SafeclError, match="safecl join makes one class of two"):
        renamed(header(["a", "b"]), "a", "b")

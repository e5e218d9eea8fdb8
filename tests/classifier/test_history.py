"""The name of a class changes in the header alone."""

from typing import Any

import pytest

from safecl.classifier.history import as_label, renamed
from safecl.errors import SafeclError


def header(classes: list[Any]) -> dict[str, Any]:
    entry = {"what": "learn", "name": "x", "classes": [[label, 2] for label in classes], "new": classes}
    return {"classes": classes, "history": [entry], "undo": [], "calibration": None}


@pytest.mark.parametrize(
    ("old", "word", "meant"),
    [("1", "7", 7), ("1", "-7", -7), ("1", "²", "²"), ("1", "--7", "--7"), ("1", "x", "x"), ("a", "7", "7")],
)
def test_a_word_is_a_number_only_where_it_spells_one_and_the_class_is_one(old: str, word: str, meant: Any) -> None:
    head = header([1, "a"])
    label = as_label(head, word, old)
    assert label == meant and type(label) is type(meant)
    changed = renamed(head, old, label)
    assert meant in changed["classes"] and changed["history"][0]["new"] == changed["classes"]


@pytest.mark.parametrize(
    ("classes", "word", "meant"),
    [([1, 2], "3", 3), ([1, 2], "-3", -3), ([1, 2], "--5", "--5"), ([1, "cat"], "1", 1), ([1, "cat"], "4", "4")],
)
def test_a_word_for_any_class_is_a_number_where_all_are_or_one_is_spelt_so(
    classes: list[Any], word: str, meant: Any
) -> None:
    label = as_label(header(classes), word)
    assert label == meant and type(label) is type(meant)


def test_two_classes_cannot_become_one() -> None:
    with pytest.raises(SafeclError, match="safecl join makes one class of two"):
        renamed(header(["a", "b"]), "a", "b")

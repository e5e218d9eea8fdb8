"""The name of a class changes in the header alone."""

from typing import Any

import pytest

from safecl.classifier.modelfile.history import as_label, renamed
from tests.conftest import raises


def header(classes: list[Any]) -> dict[str, Any]:
    entry = {
        "what": "learn",
        "name": "x",
        "classes": [[label, 2] for label in classes],
        "new": classes,
    }
    return {"classes": classes, "history": [entry], "undo": [], "calibration": None}


@pytest.mark.parametrize(
    ("classes", "word", "meant"),
    [
        ([1, 2], "3", 3),
        ([1, 2], "-3", -3),
        ([1, 2], "--5", "--5"),
        ([1, 2], "²", "²"),
        ([1, "cat"], "1", 1),
        ([1, "cat"], "4", "4"),
        (["1", "cat"], 1, "1"),
        (["1", "cat"], 4, 4),
        (["1", "2"], 4, "4"),
        ([1, 2], "007", "007"),
        ([1, 2], "-0", "-0"),
        ([], "1", "1"),
        ([], 1, 1),
        ([1], "1" * 19, "1" * 19),
    ],
)
def test_a_label_is_a_number_or_a_word_as_the_class_of_its_spelling_or_as_all_are(
    classes: list[Any], word: Any, meant: Any
) -> None:
    label = as_label(header(classes), word)
    assert label == meant and type(label) is type(meant)


@pytest.mark.parametrize("new", ["7", 7, "x"])
def test_a_class_is_renamed_in_its_past_as_well(new: Any) -> None:
    changed = renamed(header([1, "a"]), "1", new)
    assert changed["classes"] == [new, "a"] == changed["history"][0]["new"]


def test_two_classes_cannot_become_one() -> None:
    with raises("rename.taken"):
        renamed(header(["a", "b"]), "a", "b")

"""What is wrong with data is found by reading it once."""

from pathlib import Path

import numpy as np
import pytest

from safecl.streams.catalog import check_stream
from safecl.streams.collection import Collection, make_stream
from safecl.streams.pictures.images import ArrayPictures
from safecl.streams.settings import parse_stream
from safecl.streams.survey import survey


def test_good_data_has_no_problem(class_folder) -> None:
    report = check_stream(parse_stream(f"folder:{class_folder({'ant': 5, 'bee': 5})}"))
    assert report.problems == [] and report.warnings == []
    assert report.facts[0] == "8 training and 2 test pictures of 2 classes"


def test_unreadable_pictures_and_duplicates_are_found(class_folder, paint) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    (top / "ant" / "text.jpg").write_text("hello")
    paint(top / "ant" / "same.png", seed=1)
    paint(top / "bee" / "same.png", seed=1)
    problems = " ".join(check_stream(parse_stream(f"folder:{top}")).problems)
    assert "text.jpg" in problems and "in more than one class" in problems


def test_what_is_in_training_and_test_is_found_in_arrays() -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    train = ArrayPictures(x, list("aabbcc"))
    test = ArrayPictures(x[[0, 3]], ["a", "c"])
    problems = survey(Collection("x", train, test, ("a", "b", "c"))).problems
    assert len(problems) == 2 and problems[0].startswith("2 pictures are in training and in test: ")
    assert problems[1].startswith("1 picture is in more than one class: ")


def test_lonely_and_untested_classes_are_warned_about(class_folder) -> None:
    warnings = check_stream(parse_stream(f"folder:{class_folder({'ant': 6, 'dodo': 1})}")).warnings
    assert warnings == [
        "1 class has a single training picture: 'dodo'",
        "1 class has no test picture: 'dodo'",
    ]


def test_one_line_names_every_broken_picture_with_its_reason(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    (top / "ant" / "notes.jpg").write_text("hello")
    (top / "ant" / "zero.png").touch()
    (top / "bee" / "loop.jpg").symlink_to("loop.jpg")
    (line,) = check_stream(parse_stream(f"folder:{top}")).problems
    assert line.startswith("3 pictures cannot be read: ")
    for name, why in (
        ("ant/notes.jpg", "not a picture"),
        ("ant/zero.png", "an empty file"),
        ("bee/loop.jpg", "a link"),
    ):
        assert f"{name} ({why}" in line
    assert line.endswith("; remove or replace them, or set stream.unreadable=skip to omit them")
    for i in range(4):
        (top / "ant" / f"more{i}.png").touch()
    (line,) = check_stream(parse_stream(f"folder:{top}")).problems
    assert line.startswith("7 pictures") and " and 2 more; remove" in line


def test_warnings_of_reading_are_reported(class_folder) -> None:
    warnings = check_stream(
        parse_stream(f"folder:{class_folder({'ant': 5, 'bee': 5, 'void': 0})}")
    ).warnings
    assert any("'void'" in line for line in warnings)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAFECL_CACHE", "off")


class Counted(str):
    """A label that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        Counted.hashed += 1
        return super().__hash__()


def test_work_grows_with_classes_plus_pictures_and_not_with_their_product() -> None:
    classes = 60
    each = 3
    labels = [Counted(f"c{i:02d}") for i in range(classes) for _ in range(each)]
    arrays = np.random.default_rng(0).integers(0, 256, (len(labels), 2, 2, 3), dtype=np.uint8)
    train, test = (ArrayPictures(arrays ^ flip, labels) for flip in (0, 1))
    domains = tuple(f"d{i % each}" for i in range(len(labels)))
    known = tuple(labels[::each])
    data = Collection("x", train, test, known, domains, domains, ("d0", "d1", "d2"))
    for work in (
        lambda: survey(data),
        lambda: make_stream(data, protocol="class", order=known, step=1),
        lambda: make_stream(data, protocol="domain"),
        data.natural,
    ):
        Counted.hashed = 0
        work()
        assert Counted.hashed < 20 * (classes + 2 * len(labels))

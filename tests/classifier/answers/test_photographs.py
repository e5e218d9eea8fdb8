"""Thumbnails that a model keeps where it may: two per class, and none of a picture that it no
longer stands for.
"""

import base64
import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safecl.classifier.answers.hub import card_of
from safecl.classifier.answers.page import write_page
from safecl.classifier.classifier import ContinualClassifier, learn_file
from safecl.classifier.data import hashes, labelled
from safecl.classifier.modelfile.schema import THUMBNAILS
from safecl.classifier.modelfile.store import ModelFile
from safecl.engine.progress import make_progress
from safecl.report.gallery import thumbnail
from tests.conftest import raises

New = Callable[..., ContinualClassifier]


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, write_folder: Callable[..., Path], new_model: New
) -> Path:
    """A model that keeps thumbnails, of two sessions, and the folders it has learned."""
    top = tmp_path_factory.mktemp("thumbnails")
    write_folder(top / "one", "abc")
    write_folder(top / "two", "bcd", seed=1)
    model = new_model(thumbnails=True)
    model.learn(top / "one")
    model.save(top / "one.safecl")
    model.learn(top / "two")
    model.save(top / "two.safecl")
    return top


def load(path: Path) -> ContinualClassifier:
    return ContinualClassifier.load(path, device="cpu")


def kept(model: ContinualClassifier) -> dict[Any, list[int]]:
    """By class, the hashes of the pictures that are kept, the typical one first."""
    found: dict[Any, list[int]] = {}
    for one in model._fitted.state.thumbnails:
        found.setdefault(model._fitted.classes[one.place], []).append(one.picture)
    return found


def expected(model: ContinualClassifier, folder: Path) -> dict[str, list[int]]:
    """The pictures whose own logit exceeds the others most and least."""
    pictures, _ = labelled(folder)
    columns = list(model.classes_)
    found = dict[str, list[tuple[float, int]]]()
    for row, label, mark in zip(
        model.decision_function(pictures), pictures.labels, hashes(pictures).tolist(), strict=True
    ):
        c = columns.index(label)
        found.setdefault(str(label), []).append((float(row[c] - np.delete(row, c).max()), mark))
    return {label: [max(rows)[1], min(rows)[1]] for label, rows in found.items()}


def file_of(folder: Path, mark: int) -> Path:
    files = sorted(folder.rglob("*.png"))
    return next(file for file in files if int(hashes(labelled([(file, "x")])[0])[0]) == mark)


def members(path: Path) -> set[str]:
    return set(ModelFile(path).header["members"])


def test_nothing_is_kept_unless_it_is_allowed(place: Path, tmp_path: Path, new_model: New) -> None:
    model = new_model()
    model.learn(place / "one")
    model.save(tmp_path / "m.safecl")
    assert kept(model) == {} and THUMBNAILS not in members(tmp_path / "m.safecl")
    assert THUMBNAILS in members(place / "one.safecl")


def test_the_typical_and_the_strangest_picture_are_kept_small(place: Path, tmp_path: Path) -> None:
    model = load(place / "one.safecl")
    assert kept(model) == expected(model, place / "one")
    file = ModelFile(place / "one.safecl")
    for one in file.thumbnails():
        image = Image.open(io.BytesIO(base64.b64decode(one.jpeg)))
        assert image.format == "JPEG" and max(image.size) <= 64
        source = Image.open(file_of(place / "one", one.picture)).convert("RGB")
        assert (
            np.abs(np.asarray(image, float) - np.asarray(source.resize(image.size), float)).mean()
            < 20
        )
    page = write_page(file, tmp_path / "page.html").read_text()
    assert [one.jpeg in page for one in file.thumbnails()] == [True] * 6


def test_the_best_of_all_sessions_stay(place: Path) -> None:
    one = load(place / "one.safecl")
    two = load(place / "two.safecl")
    assert kept(two)["a"] == kept(one)["a"] and kept(two)["d"] == expected(two, place / "two")["d"]
    before = {t.picture: t.margin for t in one._fitted.state.thumbnails}
    for label in "bc":
        now = expected(two, place / "two")[label]
        margins = {t.picture: t.margin for t in two._fitted.state.thumbnails}
        assert set(kept(two)[label]) <= {*kept(one)[label], *now} and len(kept(two)[label]) == 2
        first, last = kept(two)[label]
        assert margins[first] >= max(before[mark] for mark in kept(one)[label])
        assert margins[last] <= min(before[mark] for mark in kept(one)[label])


def test_what_leaves_a_model_leaves_no_thumbnail(place: Path, tmp_path: Path) -> None:
    model = load(place / "two.safecl")
    was = kept(model)
    model.forget("a")
    assert kept(model) == {label: was[label] for label in "bcd"}
    model.save(tmp_path / "m.safecl")
    text = ModelFile(tmp_path / "m.safecl").raw(THUMBNAILS).decode()
    assert {one["picture"] for one in json.loads(text)["pictures"]} == {
        mark for label in "bcd" for mark in was[label]
    }
    assert (
        kept(load(tmp_path / "m.safecl")) == kept(model) == kept(pickle.loads(pickle.dumps(model)))
    )
    model.save(tmp_path / "frozen.safecl", frozen=True)
    assert THUMBNAILS not in members(tmp_path / "frozen.safecl")
    assert ModelFile(tmp_path / "frozen.safecl").thumbnails() == ()


def test_a_corrected_picture_has_no_thumbnail(place: Path) -> None:
    model = load(place / "two.safecl")
    was = kept(model)
    wrong = was["d"][1]
    model.correct([str(file_of(place / "two", wrong))], "a")
    assert kept(model) == {**was, "d": was["d"][:1]}
    model.rollback()
    assert kept(model) == {**was, "d": was["d"][:1]}  # what left does not come back
    model.join("a", "d")
    assert kept(model) == {label: was[label] for label in "abc"}


def test_rolling_back_drops_those_of_the_session(place: Path) -> None:
    one = load(place / "one.safecl")
    two = load(place / "two.safecl")
    was = kept(two)
    before = {mark for marks in kept(one).values() for mark in marks}
    two.rollback()
    left = {label: [mark for mark in marks if mark in before] for label, marks in was.items()}
    assert kept(two) == {
        label: marks for label, marks in left.items() if marks
    } and "d" not in kept(two)


def test_a_merged_model_has_those_of_both(
    place: Path, tmp_path: Path, write_folder: Callable[..., Path]
) -> None:
    one = load(place / "one.safecl")
    two = load(place / "two.safecl")
    one.learn(write_folder(tmp_path / "three", "e", seed=5))
    mine = kept(one)
    more = kept(two)
    found = kept(one.merged(two))
    assert found["e"] == mine["e"] and found["d"] == more["d"] and found["a"] == mine["a"]
    for label in "bc":
        assert set(found[label]) <= {*mine[label], *more[label]} and len(found[label]) == 2


def test_a_model_that_may_keep_none_merges_with_one_that_may(
    place: Path, tmp_path: Path, new_model: New
) -> None:
    models = [new_model("simplecil", thumbnails=allowed) for allowed in (True, False)]
    for model, folder in zip(models, ("one", "two"), strict=True):
        model.learn(place / folder)
    for number, (one, other) in enumerate((models, models[::-1])):
        one.merged(other).save(tmp_path / f"{number}.safecl")
        found = ModelFile(tmp_path / f"{number}.safecl").thumbnails()
        both = ContinualClassifier.load(tmp_path / f"{number}.safecl", device="cpu")
        assert {both._fitted.classes[one.place] for one in found} == (
            {*"abc"} if both.thumbnails else set()
        )
        assert both.classes_.tolist() == list("abcd")


def test_nothing_but_pixels_is_kept(tmp_path: Path) -> None:
    Image.effect_noise((80, 60), 50).convert("RGB").save(tmp_path / "a.jpg", comment=b"x" * 60000)
    address = thumbnail(Image.open(tmp_path / "a.jpg"), 64)
    assert (
        "comment" not in Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).info
        and len(address) < 16000
    )


def test_one_class_and_a_renamed_one_have_theirs(
    place: Path, tmp_path: Path, new_model: New
) -> None:
    model = new_model("simplecil", thumbnails=True)
    pictures = [(str(file), "only") for file in sorted((place / "one/a").glob("*.png"))]
    model.learn(pictures)
    model.save(tmp_path / "m.safecl")
    assert len(kept(load(tmp_path / "m.safecl"))["only"]) == 2
    model.rename("only", "<b>")
    assert list(kept(model)) == ["<b>"]


def test_a_damaged_member_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ModelFile(place / "one.safecl")
    said = json.loads(file.raw(THUMBNAILS))
    for key, value in (
        ("place", 3),
        ("jpeg", '"><script>'),
        ("margin", "x"),
        ("picture", 1 << 63),
        ("more", 1),
    ):
        bad = {"pictures": [{**said["pictures"][0], key: value}]}
        monkeypatch.setattr(file, "raw", lambda _, bad=bad: json.dumps(bad).encode())
        with raises("model.thumbnails.damaged" if key == "place" else "model.header.damaged"):
            file.thumbnails()


def test_the_commands_ask_and_tell(
    place: Path, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.safecl").write_bytes((place / f"{name}.safecl").read_bytes())
    assert "thumbnails of two pictures of each class" in " ".join(
        command("inspect", str(tmp_path / "one.safecl"))[1].split()
    )
    model = load(tmp_path / "one.safecl")
    model.save(tmp_path / "frozen.safecl", frozen=True)
    assert "thumbnails" not in command("inspect", str(tmp_path / "frozen.safecl"))[1]
    code, _, said = command(
        "learn", str(place / "two"), "--model", str(tmp_path / "one.safecl"), "--thumbnails", "-q"
    )
    assert code == 0, said
    assert kept(load(tmp_path / "one.safecl")) == kept(load(tmp_path / "two.safecl"))
    assert "contains thumbnails" in card_of(tmp_path / "one.safecl")
    assert "contains thumbnails" not in card_of(tmp_path / "frozen.safecl")


def test_a_model_that_may_keep_none_refuses_to(place: Path, tmp_path: Path, new_model: New) -> None:
    model = new_model("simplecil")
    model.learn(place / "one")
    model.save(tmp_path / "m.safecl")
    with raises("model.setting.fixed", key="thumbnails", there="False", value=re.compile("^True")):
        learn_file(
            place / "two",
            tmp_path / "m.safecl",
            make_progress("quiet"),
            name=None,
            again=False,
            device="cpu",
            thumbnails=True,
        )

"""A folder teaches a model and asks it: what is learned, what is answered, and that nothing is
lost.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.store import ModelFile
from safecl.classifier.seen import learned_by, work_folder
from safecl.engine.progress import Progress
from safecl.errors import SafeclError
from safecl.serve.watch import Told, Watch
from tests.conftest import Refusal, raises, tells

Write = Callable[..., Path]


class Heard:
    """What a watched folder has told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.answers: dict[str, Any] = {}
        self.lessons: list[Any] = []

    @property
    def told(self) -> Told:
        return Told(
            self.said.append,
            lambda path, answer: self.answers.update({path: answer}),
            lambda lesson, known: self.lessons.append((dict(lesson.classes), known)),
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, write_folder: Write, new_model: Any) -> Path:
    """A model that has learned a and b from the folder ``first`` beside it."""
    top = tmp_path_factory.mktemp("watched")
    model = new_model()
    model.learn(write_folder(top / "first", "ab", 8))
    model.save(top / "m.safecl")
    return top


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of it, and an empty folder to watch."""
    shutil.copy(made / "m.safecl", tmp_path / "m.safecl")
    (tmp_path / "top").mkdir()
    return tmp_path


def watch(place: Path, **options: Any) -> tuple[Watch, Heard]:
    heard = Heard()
    model = place / "m.safecl"
    return Watch(place / "top", model, heard.told, device="cpu", **options), heard


def tree(top: Path) -> set[str]:
    return {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}


def test_a_class_folder_is_learned_when_it_no_longer_changes(
    place: Path, write_folder: Write
) -> None:
    watching, heard = watch(place)
    write_folder(place / "top", "c", 2)
    assert watching.look() == 0  # somebody may be copying it
    write_folder(place / "top", "c", 6)
    assert watching.look() == 0
    assert watching.look() == 6 and heard.lessons == [({"c": 6}, 3)]
    digest = ModelFile(place / "m.safecl").digest
    assert watching.look() == 0 and ModelFile(place / "m.safecl").digest == digest
    again, silent = watch(place)  # after a stop
    assert [again.look(), again.look()] == [0, 0] and not silent.lessons and not silent.said


class Killed(Progress):
    """Stops the process as soon as a network is tuned."""

    def phase(self, title: str, total: int, done: int = 0) -> Any:
        if title.startswith("Session") and not title.endswith("features"):
            raise KeyboardInterrupt(title)
        return super().phase(title, total, done)


def test_a_lesson_that_was_stopped_goes_on_to_the_same_model(
    place: Path, write_folder: Write, lesson: Callable[..., Any]
) -> None:
    whole = place / "whole"
    shutil.copytree(place, whole)
    for top in (place, whole):
        write_folder(top / "top", "cd", 4)
    watch(whole)[0].look()
    watching, heard = watch(place, progress=Killed())
    watching.look()
    with pytest.raises(KeyboardInterrupt):
        watching.look()
    assert work_folder((place / "m.safecl").resolve()).is_dir() and not heard.lessons
    for top in (whole, place):
        again, _ = watch(top)
        assert [again.look(), again.look(), again.look()] == [0, 8, 0]
    logits = [
        ContinualClassifier.load(top / "m.safecl", device="cpu").decision_function(
            lesson("abcd", 2, 5)[0]
        )
        for top in (whole, place)
    ]
    np.testing.assert_array_equal(*logits)
    assert not work_folder((place / "m.safecl").resolve()).is_dir()


def test_what_is_moved_to_another_class_folder_is_corrected(
    place: Path, write_folder: Write
) -> None:
    watching, heard = watch(place)
    write_folder(place / "top", "cd", 4)
    assert [watching.look(), watching.look()] == [0, 8]
    moved = place / "top/c/000.png"
    moved.rename(place / "top/d/moved.png")
    watching.look()
    watching.look()
    counts = dict.fromkeys("cd", 0)
    for labels in learned_by(ModelFile(place / "m.safecl")).values():
        counts |= {label: counts[label] + 1 for label in labels & counts.keys()}
    assert counts == {"c": 3, "d": 5} and heard.lessons[0] == ({"c": 4, "d": 4}, 4)


def test_the_inbox_is_answered_as_predict_does_and_sorted_or_queued(
    place: Path, write_folder: Write
) -> None:
    write_folder(place / "new", "abz", 4, seed=1)
    inbox = place / "top/inbox"
    for path in sorted((place / "new").rglob("*.png")):
        inbox.mkdir(exist_ok=True)
        shutil.copy(path, inbox / f"{path.parent.name}-{path.name}")
    model = ContinualClassifier.load(place / "m.safecl", device="cpu")
    files = sorted(inbox.iterdir())
    expected = {
        f"sorted/{one.label}/{file.name}"
        if not one.unknown and (one.probability or 0) >= 0.6
        else f"queue/{file.name}"
        for file, one in zip(files, model.answers(files, unknown=0.1), strict=True)
    }
    watching, heard = watch(place, sure=0.6, unknown=0.1)
    assert [watching.look(), watching.look(), watching.look()] == [0, len(files), 0]
    assert tree(place / "top") == expected and len(heard.answers) == len(files)


def test_half_a_picture_waits_and_is_named_once(place: Path, write_folder: Write) -> None:
    whole = (write_folder(place / "new", "a", 1) / "a/000.png").read_bytes()
    write_folder(place / "top", "c", 3)
    halves = [place / "top/inbox/half.png", place / "top/c/half.png"]
    halves[0].parent.mkdir()
    for half in halves:
        half.write_bytes(whole[: len(whole) // 2])
    watching, heard = watch(place)
    assert [watching.look() for _ in range(4)] == [0, 3, 0, 0]
    assert len(heard.said) == 2 and all("half.png" in text for text in heard.said)
    assert all(half.exists() for half in halves)
    halves[0].write_bytes(whole)
    assert [watching.look(), watching.look()] == [0, 1] and not halves[0].exists()


def test_a_picture_in_two_classes_keeps_nothing_else_from_being_learned(
    place: Path, write_folder: Write
) -> None:
    top = write_folder(place / "top", "cd", 3)
    shutil.copy(top / "c/000.png", top / "d/copy.png")
    watching, heard = watch(place)
    assert [watching.look() for _ in range(3)] == [0, 5, 0]
    assert len(heard.said) == 2 and "lies in c, d" in heard.said[0]
    (top / "d/copy.png").unlink()
    assert [watching.look(), watching.look()] == [0, 1]


def test_a_model_is_made_of_two_classes_and_a_lesson_is_not_tried_twice_in_vain(
    place: Path, write_folder: Write
) -> None:
    (place / "m.safecl").unlink()
    write_folder(place / "top", "c", 2)
    watching, heard = watch(place)
    assert [watching.look() for _ in range(3)] == [0, 0, 0]
    assert len(heard.said) == 1 and "second class" in heard.said[0]
    write_folder(place / "top", ["c", "C"], 2)
    assert [watching.look() for _ in range(3)] == [0, 0, 0]
    assert len(heard.said) == 2 and not (place / "m.safecl").exists()


def test_a_frozen_model_answers_and_says_that_it_cannot_learn(
    place: Path, write_folder: Write
) -> None:
    model = ContinualClassifier.load(place / "m.safecl", device="cpu")
    (place / "m.safecl").unlink()
    model.save(place / "m.safecl", frozen=True)
    write_folder(place / "top", "c", 2)
    write_folder(place / "top/inbox", "a", 2, seed=3)
    watching, heard = watch(place)
    assert [watching.look() for _ in range(3)] == [0, 2, 0]
    assert len(heard.said) == 1 and "frozen" in heard.said[0]


def test_a_damaged_model_loses_nothing_and_the_next_one_is_asked(
    place: Path, write_folder: Write
) -> None:
    good = (place / "m.safecl").read_bytes()
    (place / "m.safecl").write_bytes(good[:1000])
    write_folder(place / "top/inbox", "a", 1, seed=3)
    watching, heard = watch(place)
    assert [watching.look() for _ in range(3)] == [0, 0, 0]
    assert len(heard.said) == 1 and "m.safecl" in heard.said[0]
    (place / "m.safecl").write_bytes(good)
    assert watching.look() == 1


def test_one_process_watches_a_folder(place: Path) -> None:
    watching, _ = watch(place)
    with watching.held(), raises("watch.busy"), watch(place)[0].held():
        pass
    assert (place / "top/inbox").is_dir()
    with pytest.raises(SafeclError):
        Watch(place / "nowhere", place / "m.safecl", Heard().told)


def test_the_command_does_what_is_there_and_ends(
    place: Path, write_folder: Write, command: Callable[..., Any], refusal: Refusal
) -> None:
    write_folder(place / "top", "c", 3)
    write_folder(place / "top/inbox", "a", 2, seed=3)
    words = ("watch", str(place / "top"), "-m", str(place / "m.safecl"), "--device", "cpu")
    code, out, _ = command(*words, "--once", "--every", "0.1", "-f", "csv")
    assert code == 0 and len(out.splitlines()) == 3 and tree(place / "top/inbox") == set()
    missing = refusal("watch", str(place / "no"), "-m", str(place / "m.safecl"))
    tells(missing, "watch.no-folder", folder=str(place / "no"))

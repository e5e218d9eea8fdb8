"""The whole life of a model, with real processes: taught, killed, asked, renamed, merged, rolled
back.
"""

import json
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.store import ModelFile

SCRIPT = Path(__file__).parent / "model_child.py"
MAKE = [
    "--backbone",
    "test_vit",
    "--epochs",
    "2",
    "--set",
    "backbone.weights=random",
    "--set",
    "backbone.image_size=16",
    "--set",
    "method.ridge={size: 60, layers: 1, patches: false, mirror: false}",
    "--set",
    "method.pilots.use=false",
    "--set",
    "train.save_seconds=0.000001",
    "--set",
    "train.batch_size=4",
]


@pytest.fixture(autouse=True, scope="module")
def shallow(two_blocks: Path) -> None:
    """A third of the blocks: much of what is learned here is building and copying networks."""
    # maybe set already
    place = next(i for i, word in enumerate(MAKE) if word.startswith("backbone.weights="))
    MAKE[place] = f"backbone.weights={two_blocks}"


class Commands:
    """Runs commands of safecl, each in a process of its own that may be killed."""

    def __init__(self, server: Any, folder: Path) -> None:
        self.server = server
        self.folder = str(folder)

    def run(self, *words: str, kill_after: float | None = None) -> tuple[int, float]:
        """(exit code, seconds) of a command."""
        found: tuple[int, float] = self.server.run(json.dumps([self.folder, *words]), kill_after)
        return found


@pytest.fixture(scope="module")
def started(fork_server: Any) -> Iterator[Any]:
    started = fork_server(str(SCRIPT), env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    yield started
    started.close()


@pytest.fixture
def server(tmp_path: Path, started: Any) -> Commands:
    return Commands(started, tmp_path)


def probabilities(path: Path, images: Any) -> np.ndarray:
    return ContinualClassifier.load(path, device="cpu").predict_proba(images)


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_model_lives_through_kills_and_changes(
    kills: int, server: Commands, tmp_path: Path, write_folder: Callable[..., Path], lesson: Any
) -> None:
    write_folder(tmp_path / "one", "abcd", 4)
    write_folder(tmp_path / "two", "ef", 4, seed=1)
    write_folder(tmp_path / "three", "ag", 4, seed=2)
    images = lesson("abcdefg", 2, 9)[0]
    dice = random.Random(0)
    assert server.run("learn", "one", "--model", "m.safecl", *MAKE)[0] == 0
    first = (tmp_path / "m.safecl").read_bytes()
    whole, took = server.run("learn", "two", "--model", "m.safecl", "--tune")
    assert whole == 0
    wanted = probabilities(tmp_path / "m.safecl", images)
    (tmp_path / "m.safecl").write_bytes(first)
    killed = 0
    while killed < kills:  # one that was faster than the clock does not count
        code, _ = server.run(
            "learn", "two", "--model", "m.safecl", "--tune", kill_after=dice.uniform(0, 0.9 * took)
        )
        killed += code < 0
        if (tmp_path / "m.safecl").read_bytes() != first:
            # it answers, at least; the same command tunes it. Then again from the model before
            if not (probabilities(tmp_path / "m.safecl", images) == wanted).all():
                assert server.run("learn", "two", "--model", "m.safecl", "--tune")[0] == 0
            assert (probabilities(tmp_path / "m.safecl", images) == wanted).all()
            (tmp_path / "m.safecl").write_bytes(first)
    assert server.run("learn", "two", "--model", "m.safecl", "--tune")[0] == 0
    assert (probabilities(tmp_path / "m.safecl", images) == wanted).all()
    (tmp_path / "a.safecl").write_bytes((tmp_path / "m.safecl").read_bytes())
    assert server.run("learn", "three", "--model", "m.safecl", "--tune")[0] == 0
    assert server.run("predict", "two", "--model", "m.safecl")[0] == 0
    assert server.run("eval", "three", "--model", "m.safecl")[0] == 0
    assert server.run("rename", "m.safecl", "g", "golf")[0] == 0
    assert server.run("rollback", "m.safecl")[0] == 0
    assert (probabilities(tmp_path / "m.safecl", images) == wanted).all()
    assert server.run("learn", "three", "--model", "a.safecl", "--tune")[0] == 0
    write_folder(tmp_path / "four", "h", 4, seed=3)
    assert server.run("learn", "four", "--model", "m.safecl", "--tune")[0] == 0
    assert server.run("merge", "a.safecl", "m.safecl", "-o", "both.safecl")[0] == 0
    assert server.run("forget", "both.safecl", "h")[0] == 0
    assert sorted(ModelFile(tmp_path / "both.safecl").header["classes"]) == list("abcdefg")
    assert not [
        entry.name for entry in tmp_path.iterdir() if entry.name.endswith((".work", ".part"))
    ]


def phase(note: str, model: str) -> str:
    """What a command was about to do to a hidden file: the model itself, its lock, or its work
    folder.
    """
    kind, path = note.split(" ", 1)
    if path.endswith(".lock"):
        return "unlock" if kind == "os.remove" else "lock"
    if re.search(rf"\.{model}\.\d+\.part$", path):
        return "write" if kind == "open" else "replace"
    return "clear" if kind in ("os.remove", "os.rmdir") and "fit_" not in path else "work"


KILLED = [
    "rename m.safecl a z",
    "freeze m.safecl -o out.safecl --force",
    "learn three -m m.safecl",
    "forget m.safecl a",
    "rollback m.safecl",
    "merge m.safecl b.safecl -o out.safecl --force",
    "correct m.safecl one/a/000.png --label b",
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("words", "kills"),
    [(KILLED[0], 1), *(pytest.param(one, 10, marks=pytest.mark.slow) for one in KILLED)],
)
def test_a_kill_in_any_phase_leaves_the_old_or_the_new_file_and_no_litter(
    words: str,
    kills: int,
    server: Commands,
    tmp_path: Path,
    write_folder: Callable[..., Path],
    lesson: Any,
    new_model: Any,
) -> None:
    for name, classes in (("one", "abcd"), ("two", "ef"), ("three", "ag"), ("four", "h")):
        write_folder(tmp_path / name, classes, 2)
    model = new_model(epochs=2, settings={"train.save_seconds": 1e-6, "train.batch_size": 4})
    model.learn(tmp_path / "one")
    model.save(tmp_path / "m.safecl")
    other = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    other.learn(tmp_path / "three")
    other.save(tmp_path / "b.safecl")
    model.learn(tmp_path / "two")
    model.save(tmp_path / "m.safecl")
    other.save(tmp_path / "out.safecl", frozen=True)
    written = tmp_path / ("out.safecl" if "out.safecl" in words else "m.safecl")
    before = sorted(os.listdir(tmp_path))
    first = written.read_bytes()
    images = lesson("abg", 2, 9)[0]
    dice = random.Random(0)

    def says() -> tuple[list[Any], bool, bytes]:
        header = ModelFile(written).header
        return header["classes"], header["frozen"], probabilities(written, images).tobytes()

    old = says()
    assert server.run("@notes", *words.split())[0] == 0
    new = says()
    phases = {}
    for number, note in enumerate((tmp_path / "notes").read_text().splitlines(), 1):
        phases.setdefault(phase(note, written.name), []).append(number)
    (tmp_path / "notes").unlink()
    assert {"lock", "write", "replace", "unlock"} <= phases.keys() and new != old
    for name, numbers in phases.items():
        for kill in range(kills):
            written.write_bytes(first)
            number = numbers[kill * len(numbers) // kills]
            delay = 0 if kill < len(numbers) else dice.uniform(0, 0.002)
            code, _ = server.run(f"@{number}:{delay}", *words.split())
            assert code == -9 or delay, (name, number)
            found = says()
            assert written.read_bytes() == first or found == new, (name, number)
            # what is left of it goes with the next session
            if found == new and words.startswith("learn"):
                assert server.run("learn", "four", "-m", "m.safecl")[0] == 0
            written.write_bytes(first)
            assert server.run(*words.split())[0] == 0 and says() == new, (name, number)
            assert sorted(os.listdir(tmp_path)) == before, (name, number)


def test_a_file_that_cannot_be_written_to_its_end_leaves_the_old_one_and_no_litter(
    server: Commands, tmp_path: Path, write_folder: Callable[..., Path], new_model: Any, lesson: Any
) -> None:
    write_folder(tmp_path / "one", "ab", 2)
    write_folder(tmp_path / "two", "c", 2, seed=1)
    model = new_model(epochs=1)
    model.learn(tmp_path / "one")
    model.save(tmp_path / "b.safecl")
    model.learn(*lesson("ef"))
    model.save(tmp_path / "m.safecl")
    model.save(tmp_path / "out.safecl", frozen=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    out = "out.safecl --force"
    for words in (
        "learn two -m m.safecl",
        "correct m.safecl one/a/000.png --label b",
        "forget m.safecl a",
        "rollback m.safecl",
        "rename m.safecl a z",
        f"merge m.safecl b.safecl -o {out}",
        f"freeze m.safecl -o {out}",
        "export m.safecl --format safetensors -o w.safetensors",
        "inspect m.safecl --page p.html",
    ):
        assert server.run("@8000", *words.split())[0] == 2, words
        left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        assert left == before, words
        assert words.startswith("learn") or not list(tmp_path.glob(".*.work")), words
        for path in tmp_path.glob(".*.work"):  # with it the same command resumes
            shutil.rmtree(path)


@pytest.mark.slow
def test_a_learning_that_was_stopped_does_not_go_on_in_a_model_that_was_corrected(
    server: Commands, tmp_path: Path, write_folder: Callable[..., Path], lesson: Any
) -> None:
    """What was saved of it is of another model; so the result is that of the two commands, one
    after the other.
    """
    write_folder(tmp_path / "one", "abcd", 4)
    write_folder(tmp_path / "two", "ef", 4, seed=1)
    images = lesson("abcdef", 2, 9)[0]
    model = tmp_path / "m.safecl"
    assert server.run("learn", "one", "--model", "m.safecl", *MAKE)[0] == 0
    first = model.read_bytes()
    words = ("learn", "two", "--model", "m.safecl")
    correction = ("correct", "m.safecl", "one/a/000.png", "--label", "b")
    assert server.run(*correction)[0] == 0
    _, took = server.run(*words)
    wanted = probabilities(model, images)
    model.write_bytes(first)
    for share in (0.5, 0.7, 0.9):
        server.run(*words, kill_after=share * took)
        if (tmp_path / ".m.safecl.work/job.json").is_file():
            break
        model.write_bytes(first)
    assert server.run(*correction)[0] == 0 and server.run(*words)[0] == 0
    assert (probabilities(model, images) == wanted).all()


def test_a_stopped_session_goes_on_and_another_one_starts_anew(
    server: Commands, tmp_path: Path, write_folder: Callable[..., Path]
) -> None:
    write_folder(tmp_path / "one", "abcd", 4)
    write_folder(tmp_path / "two", "ef", 4, seed=1)
    _, took = server.run("learn", "one", "--model", "m.safecl", *MAKE)
    (tmp_path / "m.safecl").unlink()
    for kill in (0.5, 0.7, 0.9):
        if server.run("learn", "one", "--model", "m.safecl", *MAKE, kill_after=kill * took)[0] < 0:
            stopped = (tmp_path / ".m.safecl.work/job.json").is_file()
            if stopped and not (tmp_path / "m.safecl").exists():  # before it answered
                break
        (tmp_path / "m.safecl").unlink(missing_ok=True)
    assert server.run("learn", "two", "--model", "m.safecl", *MAKE)[0] == 0
    assert ModelFile(tmp_path / "m.safecl").header["classes"] == ["e", "f"]


def test_ctrl_c_between_answer_and_tuning_leaves_what_answers_and_the_same_command_tunes_it(
    server: Commands, tmp_path: Path, write_folder: Callable[..., Path], lesson: Any
) -> None:
    write_folder(tmp_path / "one", "abcd", 4)
    images = lesson("abcd", 2, 9)[0]
    words = ("learn", "one", "--model", "m.safecl", *MAKE)
    assert server.run("@interrupt", *words)[0] == 130
    said = (tmp_path / "said").read_text(encoding="utf-8").strip().splitlines()
    sentence = "safecl: stopped; everything is saved, and the same command resumes from here."
    assert [line for line in said if line.startswith("safecl:")] == said[-1:] == [sentence]
    header = ModelFile(tmp_path / "m.safecl").header
    assert not header["tuned"] and header["classes"] == list("abcd")
    assert len(probabilities(tmp_path / "m.safecl", images)) == len(images)
    assert server.run(*words)[0] == 0
    assert server.run("learn", "one", "--model", "whole.safecl", *MAKE)[0] == 0
    found, wanted = (probabilities(tmp_path / f"{n}.safecl", images) for n in ("m", "whole"))
    assert (found == wanted).all() and ModelFile(tmp_path / "m.safecl").header["tuned"]


@pytest.fixture
def pictures(tmp_path: Path, asset: Callable[[str], Path]) -> Path:
    """Six training and six test pictures of six classes of CIFAR-100, in SPLIT/PART/CLASS."""
    parts = {
        "apple": "taught",
        "bus": "taught",
        "cloud": "taught",
        "fox": "taught",
        "rose": "later",
        "whale": "other",
    }
    with zipfile.ZipFile(asset("pictures/cifar100_50x10.zip")) as archive:
        for member in sorted(name for name in archive.namelist() if name.endswith(".png")):
            split, label = member.split("/")[-3:-1]
            target = tmp_path / split / parts.get(label, "") / label / Path(member).name
            if label in parts and len(list(target.parent.glob("*"))) < 6:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(member))
    return tmp_path


QUICK = {"method.pilots.use": False, "method.ridge.size": 500}


def test_the_embedded_backbone_learns_real_pictures_and_finds_unknown_ones(pictures: Path) -> None:
    model = ContinualClassifier(epochs=1, settings=QUICK, device="cpu")
    told = model.learn(pictures / "train" / "taught")
    assert told.accuracy is not None and told.accuracy > 0.5
    assert model.score(pictures / "test" / "taught") > 0.5
    scores = [
        [a.score for a in model.answers(pictures / "test" / part)] for part in ("taught", "other")
    ]
    assert np.mean(scores[0]) > np.mean(scores[1])


@pytest.mark.slow
def test_a_model_on_real_weights_and_pictures_lives_its_whole_life(
    pictures: Path, asset: Callable[[str], Path]
) -> None:
    weights = {"backbone.weights": str(asset("weights/vit_tiny_p8_64.safetensors"))}
    model = ContinualClassifier(
        "vit_tiny_patch16_224", epochs=1, settings={**QUICK, **weights}, image_size=32, device="cpu"
    )
    model.learn(pictures / "train" / "taught")
    first = model.predict_proba(pictures / "test" / "taught")
    model.save(pictures / "m.safecl")
    other = ContinualClassifier.load(pictures / "m.safecl", device="cpu")
    model.learn(pictures / "train" / "later")
    other.learn(pictures / "train" / "other")
    assert model.score(pictures / "test" / "taught") > 0.5
    both = model.merged(other)
    assert set(both.classes_) == {"apple", "bus", "cloud", "fox", "rose", "whale"}
    assert (
        both.score(pictures / "test" / "taught") > 0.5
        and both.score(pictures / "test" / "other") > 0.3
    )
    both.rename("whale", "orca")
    both.forget("bus")
    assert sorted(both.classes_) == ["apple", "cloud", "fox", "orca", "rose"]
    model.rollback()
    assert np.array_equal(model.predict_proba(pictures / "test" / "taught"), first)

"""Commands that write models and pages: links, locks, what changed meanwhile, and what is never
replaced.
"""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.store import ModelFile
from tests.conftest import Refusal, raises, tells

pytestmark = pytest.mark.usefixtures("undrawn")

Say = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, write_folder: Callable[..., Path], new_model: Any
) -> Path:
    """m.safecl after two sessions; other.safecl, which parted after the first; frozen.safecl;
    folders to learn from.
    """
    top = tmp_path_factory.mktemp("made")
    for name, classes in (("one", "ab"), ("two", "cd"), ("three", "ef")):
        write_folder(top / name, classes, 3)
    model = new_model()
    model.learn(top / "one")
    model.save(top / "other.safecl")
    other = ContinualClassifier.load(top / "other.safecl", device="cpu")
    model.learn(top / "two")
    model.save(top / "m.safecl")
    other.learn(top / "three")
    other.save(top / "other.safecl")
    model.save(top / "frozen.safecl", frozen=True)
    return top


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of their own with copies of the models, in which the commands run."""
    for name in ("m", "other", "frozen"):
        (tmp_path / f"{name}.safecl").write_bytes((made / f"{name}.safecl").read_bytes())
    for name in ("one", "two", "three"):
        (tmp_path / name).symlink_to(made / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def say(here: Path, command: Callable[..., tuple[int, str, str]]) -> Say:
    """``say("rename m.safecl a z")``: (exit code, all that was said)."""

    def run(words: str) -> tuple[int, str]:
        quick = ["-q", "--device", "cpu"] if words.startswith("learn") else []
        code, out, error = command(*words.split(), *quick)
        return code, out + error

    return run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.is_symlink())


CHANGES = [
    "learn three -m",
    "rename {} a z",
    "forget {} a",
    "rollback {}",
    "correct {} one/a/000.png --label b",
]


def on(words: str, model: str) -> str:
    return words.format(model) if "{}" in words else f"{words} {model}"


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_through_a_link_is_made_to_the_file_and_keeps_its_rights(
    words: str, say: Say, here: Path
) -> None:
    (here / "deep").mkdir()
    (here / "m.safecl").rename(here / "deep/real.safecl")
    (here / "deep/real.safecl").chmod(0o600)
    (here / "link").symlink_to("deep/real.safecl")
    before = ModelFile("link").digest
    code, said = say(on(words, "link"))
    assert code == 0, said
    assert (here / "link").is_symlink() and ModelFile("deep/real.safecl").digest != before
    assert stat.S_IMODE((here / "deep/real.safecl").stat().st_mode) == 0o600
    assert names(here / "deep") == ["real.safecl"] and names(here) == [
        "deep",
        "frozen.safecl",
        "other.safecl",
    ]


def test_every_writer_takes_the_lock_of_the_real_file(
    refusal: Refusal, say: Say, here: Path
) -> None:
    (here / "deep").mkdir()
    (here / "frozen.safecl").rename(here / "deep/frozen.safecl")
    for link, target in (("link.safecl", "m.safecl"), ("ice.safecl", "deep/frozen.safecl")):
        (here / link).symlink_to(target)
    writers = [
        on(words, model) for words in CHANGES for model in ("m.safecl", "link.safecl", "./m.safecl")
    ]
    for out in ("m.safecl --force", "link.safecl --force"):
        writers += [f"merge m.safecl other.safecl -o {out}", f"freeze other.safecl -o {out}"]
        writers += [f"inspect other.safecl --page {out}"]
    writers = [words for words in writers if not words.startswith("merge m.safecl")]
    writers += ["freeze m.safecl -o ice.safecl", "merge m.safecl other.safecl -o ice.safecl"]
    before = (here / "m.safecl").read_bytes()
    with FileLock(here / ".m.safecl.lock"), FileLock(here / "deep/.frozen.safecl.lock"):
        for words in writers:
            assert refusal(*words.split()).code == "output.busy", words
        model = ContinualClassifier.load("m.safecl", device="cpu")
        for name in ("m.safecl", "link.safecl"):
            with raises("output.busy"):
                model.save(name)
    assert (here / "m.safecl").read_bytes() == before


def test_another_hard_link_of_a_model_is_a_copy_that_no_change_touches(
    say: Say, here: Path
) -> None:
    """Each name has its own lock, and after a change its own file."""
    before = (here / "m.safecl").read_bytes()
    for words in CHANGES:
        (here / "twin.safecl").unlink(missing_ok=True)
        os.link(here / "m.safecl", here / "twin.safecl")
        with FileLock(here / ".m.safecl.lock"):
            code, said = say(on(words, "twin.safecl"))
        assert code == 0, said
        assert (here / "m.safecl").read_bytes() == before and (
            here / "twin.safecl"
        ).read_bytes() != before
        assert (here / "m.safecl").stat().st_nlink == 1


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """``meanwhile(act)``: ``act`` is done once, when the next file is written and not yet in its
    place.
    """

    def plan(act: Callable[[], None]) -> None:
        acts = [act]
        sync = os.fsync

        def synced(descriptor: int) -> None:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if name.endswith(".part") and ".safecl." in name and acts:
                acts.pop()()
            sync(descriptor)

        monkeypatch.setattr("safecl.atomic.os.fsync", synced)

    return plan


@pytest.mark.parametrize("words", [*CHANGES, "rename {} a z on frozen"])
@pytest.mark.parametrize("what", ["replaced", "deleted", "spoilt"])
def test_a_file_that_has_changed_meanwhile_is_left_and_the_new_model_kept_beside_it(
    refusal: Refusal, words: str, what: str, say: Say, here: Path, meanwhile: Any
) -> None:
    words, _, frozen = words.partition(" on ")
    if frozen:
        (here / "m.safecl").write_bytes((here / "frozen.safecl").read_bytes())
    (here / "m.new.safecl").write_text("somebody's")
    stranger = (here / "other.safecl").read_bytes() if what == "replaced" else b"no model"

    def act() -> None:
        (here / "m.safecl").unlink()
        if what != "deleted":
            (here / "m.safecl").write_bytes(stranger)

    meanwhile(act)
    error = refusal(*on(words, "m.safecl").split())
    done = "was deleted" if what == "deleted" else "was replaced"
    kept = re.compile(r"m\.new2\.safecl$")
    tells(error, "model.replaced", file=re.compile(r"m\.safecl$"), done=done, kept=kept)
    if what == "deleted":
        assert not (here / "m.safecl").exists()
    else:
        assert (here / "m.safecl").read_bytes() == stranger
    classes = {
        "learn": "abcdef",
        "rename": "zbcd",
        "forget": "bcd",
        "rollback": "ab",
        "correct": "abcd",
    }[words.split()[0]]
    assert ModelFile(here / "m.new2.safecl").header["classes"] == list(classes)
    left = {"frozen.safecl", "m.new.safecl", "m.new2.safecl", "m.safecl", "other.safecl"}
    assert set(names(here)) == left - ({"m.safecl"} if what == "deleted" else set())


def test_a_model_that_appears_while_a_new_one_is_learned_is_left(
    refusal: Refusal, say: Say, here: Path, meanwhile: Any
) -> None:
    data = (here / "other.safecl").read_bytes()
    meanwhile(lambda: (here / "new.safecl").write_bytes(data) and None)
    tiny = "--backbone test_vit --set backbone.weights=random --set backbone.image_size=16"
    error = refusal(*f"learn three -m new.safecl {tiny} --method simplecil".split())
    tells(error, "model.replaced", done="was replaced", kept=re.compile(r"new\.new\.safecl$"))
    assert (here / "new.safecl").read_bytes() == data
    assert ModelFile(here / "new.new.safecl").header["classes"] == ["e", "f"]


def test_python_saves_to_files_it_knows_and_to_no_other_model_that_can_learn(here: Path) -> None:
    model = ContinualClassifier.load("m.safecl", device="cpu")
    for round in range(2):  # where it came from and where it was saved are its own
        model.rename("ab"[round], "xy"[round])
        for name in ("m.safecl", str(here / "copy.safecl")):
            model.save(name)
            assert "xy"[round] in ModelFile(name).header["classes"]
    model.save("frozen.safecl", frozen=True)
    with raises("output.not-ours", path="other.safecl", why="is there already and can learn"):
        model.save("other.safecl")
    with raises("output.not-ours", path="m.safecl", why="is there already and can learn"):
        model.save("m.safecl", frozen=True)
    (here / "text.safecl").write_text("a text")
    with raises(
        "output.not-ours",
        path="text.safecl",
        why="is no model",
        way=re.compile(r"--force \(force=True in Python\)"),
    ):
        model.save("text.safecl")
    model.save("text.safecl", force=True)
    (here / "m.safecl").write_bytes((here / "other.safecl").read_bytes())
    with raises("model.replaced", file=re.compile(r"m\.safecl$"), done="was replaced"):
        model.save("m.safecl")
    assert ModelFile("m.new.safecl").header["classes"] == list("xycd")
    (here / "copy.safecl").unlink()
    with raises("model.replaced", file=re.compile(r"copy\.safecl$"), done="was deleted"):
        model.save("copy.safecl")
    model.save("copy.safecl", force=True)
    assert ModelFile("copy.safecl").header["classes"] == list("xycd")


REFUSED = [
    ("inspect other.safecl --page m.safecl", "is no page of safecl"),
    ("eval one -m other.safecl --page m.safecl --device cpu", "is no page of safecl"),
    ("inspect other.safecl --page frozen.safecl", "is no page of safecl"),
    ("inspect other.safecl --page mine.html", "is no page of safecl"),
    ("report run --page m.safecl", "is no page of safecl"),
    ("freeze other.safecl -o m.safecl", "is there already and can learn"),
    ("freeze other.safecl -o text.safecl", "is no model"),
    ("merge other.safecl frozen.safecl -o m.safecl", "is there already and can learn"),
    ("export-run run --model m.safecl", "is there already and can learn"),
]


@pytest.mark.parametrize(("words", "why"), REFUSED)
def test_no_output_replaces_another_kind_or_a_model_that_can_learn(
    refusal: Refusal, words: str, why: str, say: Say, here: Path, write_run: Callable[..., Path]
) -> None:
    write_run(here / "run")
    (here / "mine.html").write_text("<!DOCTYPE html><title>mine</title>")
    (here / "text.safecl").write_text("a text")
    before = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
    error = refusal(*words.split())
    tells(error, "output.not-ours", why=why, way=re.compile("--force"))
    assert {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()} == before


def test_force_replaces_and_a_page_replaces_a_page_without_it(
    say: Say, here: Path, write_run: Callable[..., Path]
) -> None:
    write_run(here / "run")
    for words in (
        "inspect m.safecl --page p.html",
        "eval one -m m.safecl --page p.html --device cpu",
        "report run --page p.html",
        "freeze m.safecl -o frozen.safecl",
        "merge m.safecl other.safecl -o frozen.safecl",
        "merge m.safecl other.safecl -o frozen.safecl --force",
        "freeze m.safecl -o frozen.safecl --force",
        "inspect m.safecl --page frozen.safecl --force",
    ):
        code, said = say(words)
        assert code == 0, said
    assert (here / "frozen.safecl").read_text().startswith("<!DOCTYPE html>")


def test_a_link_in_place_of_the_work_folder_or_in_it_is_not_followed(
    refusal: Refusal, say: Say, here: Path
) -> None:
    (here / "precious").mkdir()
    (here / "precious/job.json").write_text("{}")
    work = here / ".m.safecl.work"
    work.symlink_to("precious")
    error = refusal("learn", "three", "-m", "m.safecl")
    tells(error, "folder.link", folder=re.compile(r"\.m\.safecl\.work$"))
    assert names(here / "precious") == ["job.json"]
    work.unlink()
    work.mkdir()
    for name in ("job.json", "fit_1_slow.safetensors"):
        (work / name).symlink_to(here / "precious/job.json")
        assert refusal("learn", "three", "-m", "m.safecl").code == "learn.folder.other"
        assert (work / name).is_symlink() and (here / "precious/job.json").read_text() == "{}"
        (work / name).unlink()
    for name in (".job.json.1.part", f".job.json.{os.getpid()}.part"):
        (work / name).symlink_to(here / "precious/job.json")
    assert say("learn three -m m.safecl")[0] == 0 and not work.exists()
    assert (here / "precious/job.json").read_text() == "{}"

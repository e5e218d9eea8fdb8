"""Commands on models: the usual way, and forty bad inputs that are one sentence each and leave the
model as it was.
"""

import errno
import inspect
import io
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from filelock import FileLock
from hostile import Draft
from PIL import Image

from safecl.classifier.answers.enough import interval
from safecl.classifier.modelfile.store import HEADER, ModelFile
from safecl.cli import main as cli
from safecl.cli.answer_words import printer
from safecl.cli.terminal import print_json
from safecl.errors import SafeclError
from safecl.runtime.answer import Answer, Limits, make_answers
from tests.conftest import Refusal, raises, tells

MAKE = [
    "--backbone",
    "test_vit",
    "--epochs",
    "1",
    "--set",
    "backbone.weights=random",
    "--set",
    "backbone.image_size=16",
    "--set",
    "method.ridge={size: 60, layers: 1, patches: false, mirror: false}",
    "--set",
    "method.pilots.use=false",
    "-q",
    "--device",
    "cpu",
]


@pytest.fixture(autouse=True, scope="module")
def shallow(two_blocks: Path) -> None:
    """A third of the blocks: much of what is learned here is building and copying networks."""
    (place,) = (i for i, word in enumerate(MAKE) if word.startswith("backbone.weights="))
    MAKE[place] = f"backbone.weights={two_blocks}"


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, write_folder: Callable[..., Path], new_model: Any
) -> Path:
    """A model, what else somebody may take for one, and folders to learn from."""
    top = tmp_path_factory.mktemp("models")
    write_folder(top / "one", "abcd")
    write_folder(top / "two", ["e", "日本"], seed=1)
    write_folder(top / "capital", ["A", "x"], seed=2)
    write_folder(top / "cyrillic", ["\u0430", "x"], seed=2)
    for broken in ("unreadable", "loose", "twice", "rubbish"):
        write_folder(top / broken, ["y", "z"], 2, seed=4)
    for file in (top / "rubbish").rglob("*.png"):
        file.write_bytes(b"no picture")
    (top / "moved/b").mkdir(parents=True)
    (top / "moved/b/000.png").write_bytes((top / "one/a/000.png").read_bytes())
    (top / "unreadable/y/000.png").write_bytes(b"no picture")
    (top / "loose/loose.png").write_bytes((top / "one/a/000.png").read_bytes())
    (top / "twice/z/copy.png").write_bytes((top / "twice/y/000.png").read_bytes())
    (top / "empty").mkdir()
    picture = top / "two/e/000.png"
    for name, label in (("slash", "a/b"), ("long", "x" * 300), ("none", "")):
        (top / f"{name}.csv").write_text(
            f"path,label\n{picture},{label}\n{top / 'two/e/001.png'},other\n"
        )
    two = "".join(
        f"two/e/{i:03d}.png,{label}\n" for i, label in enumerate(["cop", "\u0441\u043e\u0440"])
    )
    (top / "alike.csv").write_text(f"path,label\n{two}", encoding="utf-8")
    model = new_model()
    model.learn(top / "one")
    model.save(top / "m.safecl")
    model.save(top / "frozen.safecl", frozen=True)
    data = (top / "m.safecl").read_bytes()
    (top / "text.safecl").write_text("a text")
    (top / "nothing.safecl").write_bytes(b"")
    (top / "cut.safecl").write_bytes(data[: len(data) // 2])
    at = data.index(b"slow.pet") + 4000
    (top / "flipped.safecl").write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
    (top / "folder.safecl").mkdir()
    with zipfile.ZipFile(top / "other.safecl", "w") as file:
        file.writestr("something", "else")
    for name, text in (
        ("broken", "{"),
        ("bare", '{"format": 7}'),
        ("newer", '{"format": 99, "safecl": "9.0"}'),
    ):
        with zipfile.ZipFile(top / f"{name}.safecl", "w") as file:
            file.writestr(HEADER, text)
    elsewhere = Draft.of(top / "m.safecl")
    elsewhere.set("backbone.weights", "0" * 32)
    elsewhere.write(top / "elsewhere.safecl")
    return top


BAD: list[tuple[str, str]] = [
    ("predict one --model text.safecl", "is no model file of safecl, or it is damaged"),
    (
        "predict one --model one/a/000.png",
        "one/a/000.png is no model file of safecl, or it is damaged",
    ),
    ("predict one --model one", "one is a folder; give the model file"),
    ("predict one --model slash.csv", "slash.csv is no model file of safecl, or it is damaged"),
    ("predict one --model nothing.safecl", "is no model file of safecl, or it is damaged"),
    ("predict one --model cut.safecl", "is no model file of safecl, or it is damaged"),
    ("predict one --model flipped.safecl", "flipped.safecl is damaged in"),
    ("predict one --model newer.safecl", "was written by a newer safecl (9.0); update"),
    (
        "predict one --model nowhere.safecl",
        "no model nowhere.safecl; 'safecl learn FOLDER --model nowhere.safecl'",
    ),
    (
        "predict one --model README",
        "There is no model README; the name of a model ends in .safecl.",
    ),
    ("predict one --model m", "There is no model m; did you mean m.safecl?"),
    ("predict one --model folder.safecl", "is a folder"),
    ("predict one --model other.safecl", "is no model file"),
    ("predict one --model broken.safecl", "header of the model broken.safecl is damaged"),
    ("predict one --model bare.safecl", "bare.safecl was changed after safecl wrote it"),
    ("predict one --model elsewhere.safecl --device cpu", "taught with the backbone test_vit"),
    ("inspect text.safecl", "is no model file"),
    ("inspect m.safecl --page nowhere/page.html", "There is no folder nowhere"),
    ("rollback newer.safecl", "newer safecl"),
    ("learn nowhere --model m.safecl", "There is no folder nowhere"),
    ("correct one/a/000.png one/b/005.png --label b", "one/a/000.png is no model file of safecl"),
    ("queue one two", "one is a folder"),
    ("learn one/a/000.png --model m.safecl", "is a picture; give a folder"),
    ("learn text.safecl --model m.safecl", "neither a folder of class folders nor a CSV"),
    ("learn empty --model m.safecl", "There is no picture in a class folder"),
    ("learn loose --model m.safecl", "is in no class folder"),
    ("learn rubbish --model m.safecl", "No picture of rubbish can be read"),
    ("learn twice --model m.safecl", "take the wrong one out and try again"),
    (
        "correct m.safecl two/e/000.png --remove",
        "1 picture was never learned by this model: two/e/000.png",
    ),
    ("correct m.safecl one/a/000.png --label a", "the picture was learned as that already"),
    ("correct m.safecl one/a/000.png --label A", "differ only in spelling"),
    ("correct m.safecl one/a/000.png", "Give --label NAME, or --remove: one of the two."),
    ("correct m.safecl one/a/000.png --label b --remove", "one of the two"),
    ("correct m.safecl one --remove", "delete its file to start over"),
    ("correct m.safecl nowhere.png --remove", "nowhere.png"),
    ("correct frozen.safecl one/a/000.png --remove", "only predicts"),
    ("split m.safecl a one/b/005.png --into z", "were not learned as 'a' but as b"),
    ("split m.safecl a one/a/000.png --into b", "There is a class 'b' already"),
    ("join m.safecl a nobody", "There is no class 'nobody'"),
    ("join m.safecl a z", "There is no class 'z'"),
    ("learn capital --model m.safecl", "differ only in spelling"),
    (
        "learn cyrillic --model m.safecl",
        "look the same, but one has a Cyrillic small letter a; did you mean 'a'?",
    ),
    ("eval capital --model m.safecl", "differ only in spelling; did you mean 'a'?"),
    (
        "eval cyrillic --model m.safecl",
        "look the same, but one has a Cyrillic small letter a; did you mean 'a'?",
    ),
    (
        "correct m.safecl two/e/000.png --label \u0430",
        "look the same, but one has a Cyrillic small letter a",
    ),
    ("rename m.safecl b \u0430", "look the same, but one has a Cyrillic small letter a"),
    ("forget m.safecl \u0430", "There is no class '\u0430'; did you mean 'a'?"),
    ("join m.safecl b A", "There is no class 'A'; did you mean 'a'?"),
    ("learn alike.csv --model new.safecl", "The classes 'cop' and '\u0441\u043e\u0440' of"),
    ("learn slash.csv --model m.safecl", "holds a slash"),
    ("learn long.csv --model m.safecl", "has 300 characters"),
    ("learn none.csv --model m.safecl", "label"),
    ("learn two --model frozen.safecl", "only predicts"),
    ("freeze m.safecl -o m.safecl", "written over itself"),
    ("merge m.safecl frozen.safecl -o m.safecl", "written over itself"),
    ("learn two --model text.safecl", "is no model file"),
    ("learn two --model m.safecl --backbone micro", "was made with backbone=test_vit"),
    ("learn two --model m.safecl --set train.lr=1", "has its settings already"),
    ("learn two --model new.safecl --set train.lr", "key=value"),
    (
        "learn two --model new.safecl --set train.milestones=[3]",
        "omit it, or give --set train.schedule=steps.",
    ),
    ("learn two --model new.safecl --set train.lrr=1", "did you mean 'train.lr'?"),
    (
        "learn two --model new.safecl --backbone nano",
        "choose one of micro, tiny, small, base, large",
    ),
    ("learn two --model new.safecl --set method.nothing=1", "nothing"),
    (
        "learn two --model new.safecl --memory pictures",
        "'pictures' is not one of 'statistics', 'features'",
    ),
    ("learn two --model new.safecl --backbone vit_bsae", "vit_bsae"),
    ("learn two --model new.safecl --method saef", "did you mean 'safe'?"),
    ("learn two --model new.safecl --pet sff", "did you mean 'ssf'?"),
    ("learn two --model new.safecl --method simplecil --pet ssf", "SimpleCIL has no pet"),
    (
        "learn two --model new.safecl --method simplecil --epochs 1",
        "SimpleCIL does not train, so epochs means nothing",
    ),
    (
        "learn two --model new.safecl --epochs 1 --set train.epochs=2",
        "epochs=1 and train.epochs=2 contradict each",
    ),
    ("learn two --model new", "ends in .safecl"),
    ("learn two --model nowhere/new.safecl", "There is no folder nowhere"),
    ("predict --model m.safecl", "no picture to look at"),
    ("predict nowhere.png --model m.safecl", "could not be answered: nowhere.png (no such file)"),
    (
        "predict empty --model m.safecl",
        "could not be answered: empty (There is no picture in empty)",
    ),
    ("predict one --model m.safecl --format xml", "'xml' is not one of 'table', 'jsonl', 'csv'"),
    ("predict one --model m.safecl --unknown 2", "unknown"),
    ("eval nowhere --model m.safecl", "no folder nowhere"),
    ("rename m.safecl nobody x", "There is no class 'nobody'"),
    ("rename m.safecl a b", "safecl join makes one class of two"),
    ("rename m.safecl a B", "differ only in spelling"),
    ("rename m.safecl a a", "already"),
    ("rename m.safecl a ", "needs a name"),
    ("rename m.safecl a x/y", "holds a slash"),
    (f"rename m.safecl a {'x' * 300}", "has 300 characters"),
    ("forget m.safecl nobody", "There is no class 'nobody'"),
    ("rollback m.safecl", "it has learned one session only"),
    ("merge m.safecl m.safecl -o both.safecl", "learned nothing that the first one lacks"),
    ("merge m.safecl nowhere.safecl -o both.safecl", "There is no model nowhere.safecl"),
    ("freeze m.safecl -o nowhere/f.safecl", "There is no folder nowhere"),
    ("freeze m.safecl -o frozen.zip", "ends in .safecl, such as frozen.safecl"),
    ("freeze m.safecl -o one", "is a folder"),
    ("merge m.safecl frozen.safecl -o both.bin", "ends in .safecl"),
    ("export-run one --model run.model", "ends in .safecl"),
    ("export-run one --model run.safecl", "holds no finished run"),
    ("export-run one --model m.safecl", "is there already"),
    ("inspect m.safecl --force", "--force has no effect without --page"),
    ("eval one --model m.safecl --force", "--force has no effect without --page"),
    ("inspect m.safecl --json --page m.html", "give --json or --page"),
]
if os.path.isdir("/proc/self"):  # a folder in which nobody makes files
    BAD += [
        (words, "/proc/new.safecl cannot be written (No such file or directory)")
        for words in ("learn two --model /proc/new.safecl", "freeze m.safecl -o /proc/new.safecl")
    ]


@pytest.mark.parametrize(("words", "sentence"), BAD, ids=[words[:60] for words, _ in BAD])
def test_a_bad_input_is_one_sentence_and_changes_nothing(
    words: str, sentence: str, say: Callable[..., tuple[int, str, str]], place: Path
) -> None:
    before = (place / "m.safecl").read_bytes()
    code, _, said = say(*words.split(" "))
    assert code == 2 and said.startswith("safecl: ") and len(said.strip().splitlines()) == 1, said
    assert sentence in said
    assert (place / "m.safecl").read_bytes() == before
    assert not (place / "new.safecl").exists() and not (place / "both.safecl").exists()


@pytest.mark.usefixtures("offline")
def test_an_advice_names_what_the_command_takes(
    refusal: Refusal, say: Callable[..., tuple[int, str, str]], place: Path
) -> None:
    name = "vit_tiny_patch16_224.augreg_in21k"
    code, _, said = say(
        "learn",
        "two",
        "--model",
        "new.safecl",
        "--backbone",
        name,
        "--set",
        "backbone.image_size=16",
    )
    assert code == 2 and said.endswith(
        "; go online once, or give a local file as --set backbone.weights=FILE.\n"
    )
    draft = Draft.of(place / "m.safecl")
    for key, value in (
        ("settings.backbone.name", name),
        ("settings.backbone.weights", None),
        ("backbone.name", name),
    ):
        draft.set(key, value)
    draft.write(place / "hub.safecl")
    for words in ("learn two --model hub.safecl", "predict one --model hub.safecl"):
        tells(refusal(*words.split()), "backbone.weights.offline.bare", name=name)


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("inspect m.safecl", "inspect --model m.safecl"),
        ("inspect m.safecl --json", "inspect --json --model=m.safecl"),
        ("predict one/a/000.png --model m.safecl", "predict m.safecl one/a/000.png"),
        ("predict one/a/000.png -f jsonl -m m.safecl", "predict -f jsonl one/a/000.png m.safecl"),
        ("eval two --model m.safecl --json", "eval --json m.safecl two"),
        ("queue m.safecl two -n 2", "queue two -n 2 -m m.safecl"),
        ("queue m.safecl two -n 2", "queue two m.safecl -n 2"),
        ("rename m.safecl nobody x", "rename -m m.safecl nobody x"),
        ("forget m.safecl nobody", "forget nobody m.safecl"),
        (
            "correct m.safecl one/a/000.png --label A",
            "correct one/a/000.png --label A --model m.safecl",
        ),
        (
            "merge m.safecl nowhere.safecl -o both.safecl",
            "merge -o both.safecl m.safecl nowhere.safecl",
        ),
        ("freeze m.safecl -o m.safecl", "freeze -o m.safecl -m m.safecl"),
    ],
    ids=str,
)
def test_the_model_may_stand_first_last_or_behind_an_option(
    words: str, other: str, say: Callable[..., tuple[int, str, str]]
) -> None:
    assert say(*words.split()) == say(*other.split())


SPELT = {  # by command: its other words, an option with a value that may look like a model, a flag
    "learn": (["one"], ["--set", "a=b.safecl"], ["--quiet"]),
    "predict": (["a.png", "b.png"], ["-f", "csv"], ["--careful"]),
    "eval": (["one"], ["--page", "p.html"], ["--json"]),
    "inspect": ([], ["--page", "p.html"], ["--json"]),
    "rename": (["a", "b"], [], []),
    "forget": (["a"], [], []),
    "rollback": ([], [], []),
    "freeze": ([], ["-o", "small.safecl"], ["--force"]),
    "correct": (["a.png"], ["--label", "b.safecl"], ["--remove"]),
    "split": (["a", "a.png"], ["--into", "b.safecl"], []),
    "join": (["a", "b"], [], []),
    "queue": (["one"], ["-n", "3"], ["--force"]),
    "audit": (["one"], ["-n", "3"], ["--json"]),
    "sort": (["one"], ["--out", "sorted.safecl"], ["--move"]),
    "watch": (["one"], ["--every", "2"], ["--once"]),
    "export": ([], ["-o", "m.onnx"], ["--force"]),
    "export-run": (["run"], [], ["--force"]),
    "push": (["me/pets"], [], ["--private"]),
}
MODELS = (
    ["m.safecl"],
    ["-m", "m.safecl"],
    ["-mm.safecl"],
    ["--model", "m.safecl"],
    ["--model=m.safecl"],
)


@pytest.mark.parametrize("name", cli.ON_MODELS)
def test_every_command_takes_its_model_and_its_options_in_any_order(name: str) -> None:
    command = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    if name not in SPELT:
        assert all(part.name != "model" for part in command.params)
        return
    words, option, flag = SPELT[name]
    parts = [[word] for word in words] + [option, flag]
    wanted = command.make_context(name, ["--model", "m.safecl", *words, *option, *flag]).params
    assert str(wanted["model"]) == "m.safecl"
    for model in MODELS:
        for order in itertools.permutations([model, *parts]):
            if [one for one in order if one in parts[: len(words)]] == parts[: len(words)]:
                given = [word for part in order for word in part]
                assert command.make_context(name, given).params == wanted, given


def test_what_each_learner_says_is_told_without_signs_and_noughts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    opinions = {
        "slow": [("cat", 0.9), ("dog", 0.096), ("cow", 0.004)],
        "fast": [("dog", 1.0), ("cat", 0.0)],
        "safe": [("dog", 0.6), ("cat", 0.4)],
    }
    answer = Answer("dog", 0.6, False, [], opinions, {"slow": 0.25, "fast": 0.75}, -1.5, -2.25)
    printer("table")("a.png", answer)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    slow (counts 25 %): cat 90 %, dog 10 %",
        "    fast (counts 75 %): dog 100 %",
        "    together: dog 60 %, cat 40 %",
        "    how known it looks: -1.50; unknown below -2.25",
    ]
    # looks equal in two digits
    printer("table")("a.png", replace(answer, unknown=True, score=-2.2512))
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "    how known it looks: -2.2512; unknown below -2.2500"
    )
    same = dict.fromkeys(opinions, opinions["safe"])
    printer("table")("a.png", replace(answer, opinions=same, weights={}, threshold=-math.inf))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    slow, fast, together: dog 60 %, cat 40 %"
    ]


def test_eval_says_when_pictures_were_learned(
    say: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, said, _ = say("eval", "one", "--model", "m.safecl")
    assert (
        code == 0
        and "Note: 20 of 20 pictures were learned by the model, so this says little" in said
    )
    assert "promised" in said or "called unknown" not in said
    code, said, _ = say("eval", "two", "--model", "m.safecl", "--json")
    assert code == 0 and json.loads(said)["learned"] == 0
    code, said, _ = say("eval", "one", "--model", "frozen.safecl", "--json")
    assert code == 0 and json.loads(said)["learned"] is None  # it does not know


PRINTED = [
    f"{words} --model {model}.safecl"
    for model in ("m", "frozen")
    for words in (
        "predict one two unreadable -f jsonl",
        "eval one --json",
        "eval two --json --unknown 0",
    )
] + ["inspect m.safecl --json", "inspect frozen.safecl --json", "queue m.safecl two -f jsonl"]


@pytest.mark.parametrize("words", PRINTED)
def test_what_is_printed_as_json_is_json(
    words: str, say: Callable[..., tuple[int, str, str]]
) -> None:
    def no_number(word: str) -> None:
        raise AssertionError(word)

    _, said, _ = say(*words.split())
    for text in [said] if "--json" in words else said.splitlines():
        assert json.loads(text, parse_constant=no_number)
    assert said


def test_a_number_that_is_not_finite_is_never_printed_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in (math.nan, math.inf, -math.inf):
        with raises("number.not-finite"):
            print_json({"accuracy": [number]})
    answer = {"classes": ["a", "b"], "limits": Limits(np.zeros(2)), "calibrated": True}
    for p, score in (([0.5, math.nan], 0.0), ([0.5, 0.5], math.inf)):
        with raises("answer.not-finite"):
            next(make_answers(p={"safe": np.array([p])}, score=np.array([score]), **answer))
    assert capsys.readouterr().out == ""


def test_two_commands_at_once_are_refused(
    refusal: Refusal, say: Callable[..., tuple[int, str, str]], place: Path
) -> None:
    with FileLock(place / ".m.safecl.lock"):
        for words in (
            ("learn", "two", "--model", "m.safecl"),
            ("rename", "m.safecl", "a", "z"),
            ("forget", "m.safecl", "a"),
            ("rollback", "m.safecl"),
            ("join", "m.safecl", "a", "b"),
            ("correct", "m.safecl", "one/a/000.png", "--remove"),
        ):
            tells(refusal(*words), "output.busy", path="m.safecl")


def test_a_full_disk_leaves_the_model_as_it_was(
    say: Callable[..., tuple[int, str, str]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (place / "m.safecl").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for where in ("os.replace", "os.fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(f"safecl.atomic.{where}", full)
            code, _, said = say("learn", "two", "--model", "m.safecl", "-q")
        assert (
            code == 2 and "No space left on device" in said and len(said.strip().splitlines()) == 1
        )
        assert (place / "m.safecl").read_bytes() == before


def test_the_usual_way(
    refusal: Refusal,
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = str(tmp_path / "pets.safecl")
    code, said, error = say("learn", "one", "--model", model, *MAKE)
    assert code == 0 and "Learned 4 classes from 20 pictures" in said, error
    code, said, _ = say("learn", "two", "--model", model, "-q", "--device", "cpu")
    assert code == 0 and "knows 6 now" in said
    # no lock, no work, no part
    assert [entry.name for entry in tmp_path.iterdir()] == ["pets.safecl"]
    code, said, _ = say(
        "predict",
        "two",
        "one/a",
        "--model",
        model,
        "-f",
        "jsonl",
        "--explain",
        str(tmp_path / "maps"),
    )
    rows = [json.loads(line) for line in said.splitlines()]
    assert code == 0 and len(rows) == 15 and rows[0]["picture"] == "two/e/000.png"
    assert {"label", "probability", "unknown", "opinions", "weights", "score", "threshold"} <= rows[
        0
    ].keys()
    assert (
        len(list((tmp_path / "maps").glob("*.png"))) == 15
        and (tmp_path / "maps/index.html").is_file()
    )
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one/a/000.png\r\n\nunreadable/y/000.png"))
    )
    code, said, error = say("predict", "-", "--model", model, "--format", "csv")
    assert (
        code == 2
        and "1 file or folder could not be answered: unreadable/y/000.png (not a picture)" in error
    )
    assert [line.split(",")[0] for line in said.splitlines()][1:] == [
        "one/a/000.png",
        "unreadable/y/000.png",
    ]
    told = {}
    for form in ("csv", "jsonl", "table"):
        words = ("one/a", "--model", model, "--sets", "0.8", "-f", form)
        code, said, _ = say("predict", *words)
        told[form] = said.splitlines()
        assert code == 0
    sets = [json.loads(line)["set"] for line in told["jsonl"]]
    assert told["csv"][0] == "picture,label,probability,unknown,error,set"
    assert [line.split(",")[-1] for line in told["csv"][1:]] == ["|".join(one) for one in sets]
    for line, one in zip(told["table"], sets, strict=True):
        assert line.endswith(f"[{', '.join(one) or 'none of these'}]")
    code, _, error = say("predict", "one/a", "--model", model, "--sets", "0.999")
    assert code == 2 and "too few for those that hold the class of 0.999" in error
    code, said, _ = say(
        "eval", "two", "--model", model, "--json", "--page", str(tmp_path / "page.html")
    )
    html = (tmp_path / "page.html").read_text()
    assert (
        code == 0
        and json.loads(said)["pictures"] == 10 == json.loads(said)["learned"]
        and "svg" in html
    )
    assert re.findall("<h2>(?:Measured|Classes|Typical|History)", html)[:3] == [
        "<h2>Measured",
        "<h2>Classes",
        "<h2>Typical",
    ]
    code, said, _ = say("rename", model, "日本", "Zürich & <b>")
    assert code == 0 and ModelFile(model).header["classes"][-1] == "Zürich & <b>"
    code, said, _ = say("inspect", model)
    assert code == 0 and "2 two" in said and "learned from 30 pictures" in said
    code, said, _ = say("inspect", model, "--page", str(tmp_path / "page.html"))
    assert code == 0 and "Zürich &amp; &lt;b&gt;" in (tmp_path / "page.html").read_text()
    code, said, _ = say("rollback", model)
    assert code == 0 and ModelFile(model).header["classes"] == list("abcd")
    stranger = str(next(Path("two").rglob("*.png")))
    code, said, _ = say("correct", model, stranger, "--label", "fox")
    assert (
        code == 0
        and "Added 1 picture to fox. fox: a new class." in said
        and "no leave-one-out accuracy: fox" in said
    )
    code, said, _ = say("predict", stranger, "--model", model, "--unknown", "0", "--format", "csv")
    assert code == 0 and ",fox," in said and say("rollback", model)[0] == 0
    tells(refusal("correct", model, stranger, "--remove"), "correct.never-learned")
    code, said, _ = say("learn", "moved", "--model", model)
    assert (
        code == 0
        and "Corrected 1 picture that was learned as another class: moved/b/000.png" in said
    )
    code, said, _ = say("correct", model, "one/a/001.png", "one/c", "--label", "b")
    assert (
        code == 0
        and "Moved 6 pictures to b, learned before: 1 as a, 5 as c. No picture is left of c" in said
    )
    code, said, _ = say("split", model, "b", "one/c", "--into", "c")
    assert code == 0 and "Moved 5 pictures to c" in said
    code, said, _ = say("join", model, "b", "c")
    assert code == 0 and "b and c are one class now: b." in said
    assert ModelFile(model).header["classes"] == ["a", "b", "d"]
    monkeypatch.setenv("COLUMNS", "120")  # so that no cell of the history is folded
    code, said, _ = say("inspect", model)
    assert code == 0 and "joined" in said and "split" in said and "6 pictures moved to b" in said
    for wanted in ("abdc", "abd", "abcd"):
        code, said, _ = say("rollback", model)
        assert code == 0 and ModelFile(model).header["classes"] == list(wanted), said
    data = Path(model).read_bytes()
    code, said, _ = say("learn", "moved", "--model", model)
    assert code == 0 and said == "There is nothing new in moved: 1 picture was learned before.\n"
    # not seen from its folders
    (tmp_path / "again.csv").write_text(f"path,label\n{place / 'moved/b/000.png'},b\n")
    code, said, _ = say("learn", str(tmp_path / "again.csv"), "--model", model)
    assert (
        code == 0 and said == "There is nothing new in again.csv: 1 picture was learned before.\n"
    )
    assert Path(model).read_bytes() == data
    code, said, _ = say("freeze", model, "-o", str(tmp_path / "f.safecl"))
    assert code == 0 and ModelFile(tmp_path / "f.safecl").header["frozen"]
    code, said, _ = say("forget", model, "b")
    assert code == 0 and "'b' is forgotten" in said


def test_correct_computes_features_where_learn_does(
    say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safecl.classifier.classifier import ContinualClassifier

    devices = []
    load = ContinualClassifier.load

    def seen(*args: Any, **options: Any) -> ContinualClassifier:
        found = load(*args, **options)
        devices.append(found.device)
        raise SafeclError("package.says", sentence="enough")

    monkeypatch.setattr(ContinualClassifier, "load", seen)
    assert "enough" in say("correct", "m.safecl", "one/a/000.png", "--remove")[2]
    assert devices == ["auto"]


def test_a_flipped_bit_is_refused_or_changes_nothing(
    place: Path, tmp_path: Path, lesson: Any
) -> None:
    from safecl.classifier.classifier import ContinualClassifier

    data = (place / "m.safecl").read_bytes()
    images = lesson("ab", 1)[0]
    wanted = ContinualClassifier.load(place / "m.safecl", device="cpu").predict_proba(images)
    random = np.random.default_rng(0)
    for at in [*random.integers(0, len(data), 10).tolist(), len(data) - 10, len(data) - 60, 3, 20]:
        (tmp_path / "m.safecl").write_bytes(
            data[:at] + bytes([data[at] ^ 1 << int(random.integers(8))]) + data[at + 1 :]
        )
        try:
            model = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
            _ = model._fitted.state
            assert (model.predict_proba(images) == wanted).all()
        except SafeclError:
            continue


@pytest.mark.parametrize("statistics", ["following", "shared"])
def test_a_finished_run_becomes_a_model_like_one_that_was_taught_its_sessions(
    refusal: Refusal,
    statistics: str,
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    two_blocks: Path,
) -> None:
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.experiments.launch import run

    words = [
        f"backbone.weights={two_blocks}",
        "backbone.image_size=16",
        "ridge.size=60",
        "ridge.layers=1",
        "ridge.patches=false",
        "ridge.mirror=false",
        "method.pilots.use=false",
        "train.epochs=2",
        "train.later_epochs=1",
        "device=cpu",
        "stream.cache=false",
        "stream.step=2",
        f"method.answer.statistics={statistics}",
    ]
    found = tmp_path / "run"
    file = tmp_path / "m.safecl"
    shutil.copytree(place / "one", tmp_path / "photos")
    run(
        "safe",
        "backbone=test_vit",
        *words,
        stream=f"folder:{tmp_path / 'photos'}",
        folder=found,
        show="quiet",
    )
    code, said, error = say("export-run", str(found), "--model", str(file))
    assert code == 0 and "knows 4 classes" in said, error
    predictions = [
        json.loads(line) for line in (found / "predictions.jsonl").read_text().splitlines()
    ]
    model = ContinualClassifier.load(file, device="cpu")
    answers = model.predict([line["picture"] for line in predictions])
    assert answers.tolist() == [line["predicted"]["safe"] for line in predictions]

    header = ModelFile(file).header
    first, second = header["history"]
    assert [one["what"] for one in (first, second)] == ["learn", "learn"]
    assert [*first["new"], *second["new"]] == header["classes"] and (
        first["epochs"],
        second["epochs"],
    ) == (2, 1)
    assert {
        label: count for one in (first, second) for label, count in one["classes"]
    } == dict.fromkeys("abcd", 4)
    # what the fast learner gave then is not kept
    assert (header["calibration"] is None) is (statistics == "shared")

    tested = {Path(line["picture"]) for line in predictions}
    learned = [path for path in (tmp_path / "photos").rglob("*.png") if path not in tested]
    last = [path for path in learned if path.parent.name in second["new"]]
    other = {last[0].parent.name: 5, last[-1].parent.name: 3}
    code, said, error = say("correct", str(file), str(last[-1]), "--label", last[0].parent.name)
    if statistics == "shared":
        assert code == 2 and "its learners share their statistics" in error
    else:
        assert code == 0 and f"learned before: 1 as {last[-1].parent.name}" in said, error
        assert dict(ModelFile(file).header["history"][1]["classes"]) == other
        assert say("rollback", str(file))[0] == 0
    assert ModelFile(file).header["history"] == [first, second]
    code, said, error = say("learn", str(tmp_path / "photos"), "--model", str(file), "-q")
    # those that tested the run
    assert code == 0 and "from 4 pictures (16 skipped" in said, said + error
    code, said, error = say("learn", "two", "--model", str(file), "-q")
    assert code == 0 and "knows 6 now" in said, error
    code, said, error = say("forget", str(file), "a")
    assert code == 0 and "'a' is forgotten" in said, error
    assert set(ContinualClassifier.load(file, device="cpu").predict(sorted(tested))) <= {
        *"bcd",
        "e",
        "日本",
    }

    learned[0].write_bytes((place / "two/e/000.png").read_bytes())
    error = refusal("export-run", str(found), "--model", str(tmp_path / "other.safecl"))
    tells(error, "model.run.other", found=re.compile("training pictures of session"))
    assert not (tmp_path / "other.safecl").exists()


def test_pictures_may_be_of_any_kind(
    say: Callable[..., tuple[int, str, str]], place: Path, tmp_path: Path
) -> None:
    Image.new("L", (40, 30)).save(tmp_path / "grey.jpg")
    Image.new("RGBA", (30, 40)).save(tmp_path / "clear.png")
    code, said, _ = say("predict", str(tmp_path), "--model", "m.safecl")
    assert code == 0 and len(said.splitlines()) == 2


@pytest.mark.filterwarnings("always")
def test_what_of_a_split_folder_is_not_read_is_said_with_what_reads_it(
    say: Callable[..., tuple[int, str, str]], write_folder: Callable[..., Path], tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    model = str(tmp_path / "m.safecl")
    for seed, (part, each) in enumerate((("train", 3), ("val", 2), ("test", 4))):
        write_folder(photos / part, "ab", each, seed)
    (photos / "train" / "a" / "notes.txt").write_text("x")
    code, out, err = say("learn", str(photos), "-m", model, *MAKE)
    assert code == 0 and out.startswith("Learned 2 classes from 6 pictures")
    aside = f"test/ (8 pictures), val/ (4 pictures) in {photos} are left out: only train/ is read"
    notes = f"1 file is omitted without the ending of a picture: {photos}/train/a/notes.txt."
    assert err.splitlines()[:2] == [
        f"Note: {aside}; safecl eval measures on another folder.",
        f"Note: {notes}",
    ]
    code, out, err = say("eval", str(photos), "-m", model, "--json")
    assert code == 0 and json.loads(out)["pictures"] == 8 and json.loads(out)["learned"] == 0
    aside = f"train/ (6 pictures), val/ (4 pictures) in {photos} are left out: only test/ is read"
    assert err == f"Note: {aside}; give another folder to measure on it.\n"
    code, out, err = say("predict", str(photos), "-m", model, "-f", "jsonl")
    assert code == 0 and len(out.splitlines()) == 18 and f"Note: {notes}" in err.splitlines()


@pytest.mark.filterwarnings("always")
def test_pictures_in_a_folder_of_each_class_are_of_that_class(
    say: Callable[..., tuple[int, str, str]], write_folder: Callable[..., Path], tmp_path: Path
) -> None:
    photos = write_folder(tmp_path / "photos", ["cat", "dog"], 4)
    model = tmp_path / "m.safecl"
    for label in ("cat", "dog"):
        (photos / label).rename(photos / "images")
        (photos / label).mkdir()
        (photos / "images").rename(photos / label / "images")
    code, _, err = say("learn", str(photos), "-m", str(model), *MAKE)
    assert code == 0 and ModelFile(model).header["classes"] == ["cat", "dog"]
    assert err.splitlines()[0].startswith(
        f"Note: {photos} is read as the classes cat, dog; if 'images', the one "
    )
    (photos / "cat" / "masks").mkdir()
    (photos / "dog" / "masks").mkdir()
    for label in ("cat", "dog"):
        file = next((photos / label / "images").iterdir())
        file.rename(photos / label / "masks" / file.name)
    _, _, err = say("eval", str(photos), "-m", str(model))
    assert f"{photos} is read as the domains cat, dog with the classes images, masks." in err


def test_what_a_model_says_of_itself_and_a_refusal_need_no_torch(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.safecl").write_bytes((place / "m.safecl").read_bytes())
    program = """
import subprocess
import sys
from safecl.cli.main import main
for words in (["inspect", "m.safecl"], ["inspect", "m.safecl", "--page", "p.html"],
              ["inspect", "m.safecl", "--json"],
              ["rename", "m.safecl", "nobody", "alpha"], ["rollback", "m.safecl"]):
    sys.argv = ["safecl", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code == (2 if words[0] in ("rename", "rollback") else 0), words
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.filterwarnings("always")
def test_pictures_that_cannot_be_read_are_skipped_and_named(
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    write_folder: Callable[..., Path],
) -> None:
    folder = write_folder(tmp_path / "photos", ["y", "z"], 4, seed=4)
    for i in range(2):
        (folder / f"y/{i:03d}.png").write_bytes(b"no picture")
    for name in ("a.CR2", "b.psd"):
        (folder / "z" / name).write_bytes(b"a picture")
    (folder / "z/notes.txt").write_text("nothing to see")
    code, said, error = say("learn", str(folder), "--model", str(tmp_path / "m.safecl"), *MAKE)
    assert code == 0 and "Learned 2 classes from 6 pictures" in said
    notes = error.splitlines()
    begun = [note.split(":")[1].split(" omitted")[0] for note in notes]
    assert begun == [" 2 pictures are", " 1 file is", " 2 pictures are"]
    assert (
        "a.CR2" in error and "b.psd" in error and "y/001.png" in error and "z/notes.txt" in notes[1]
    )
    assert "stream." not in error
    code, said, error = say("predict", str(folder / "z"), "--model", str(tmp_path / "m.safecl"))
    assert code == 0 and len(said.splitlines()) == 4 and "2 pictures are omitted" in error
    code, said, error = say("eval", str(folder), "--model", str(tmp_path / "m.safecl"), "--json")
    assert code == 0 and json.loads(said)["pictures"] == 6


@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_what_is_wrong_with_one_picture_does_not_stop_the_others(
    form: str, say: Callable[..., tuple[int, str, str]], place: Path
) -> None:
    words = ["one/a/000.png", "nowhere.png", "empty", "unreadable/y/000.png", "one/b/005.png"]
    code, said, error = say("predict", *words, "--model", "m.safecl", "-f", form)
    lines = said.splitlines()[form == "csv" :]
    assert code == 2 and [next(word for word in words if word in line) for line in lines] == words
    assert (
        len(error.splitlines()) == 1
        and "3 files or folders could not be answered: nowhere.png" in error
    )
    if form == "jsonl":
        assert ["error" in json.loads(line) for line in lines] == [False, True, True, True, False]


def test_an_unknown_picture_has_no_percentage_that_could_be_read_as_how_sure(
    say: Callable[..., tuple[int, str, str]], place: Path
) -> None:
    code, said, _ = say("predict", "two", "one", "--model", "m.safecl", "--unknown", "0.99")
    unknown = [line for line in said.splitlines() if line.startswith("unknown ")]
    assert code == 0 and unknown
    assert all("%" not in line and "(most similar: " in line for line in unknown)
    assert all("%" in line for line in said.splitlines() if line not in unknown)


def test_explanations_are_written_beside_answers_in_csv(
    say: Callable[..., tuple[int, str, str]], place: Path, tmp_path: Path
) -> None:
    words = ("-f", "csv", "--explain", str(tmp_path / "maps"))
    code, said, error = say("predict", "one/a/000.png", "nowhere", "--model", "m.safecl", *words)
    assert str(tmp_path / "maps/index.html") in error and (tmp_path / "maps/000.png.png").is_file()
    head, row, bad = (line.split(",") for line in said.splitlines())
    assert code == 2 and len(head) == len(row) == len(bad) == 5


def test_the_command_answers_as_python_does_at_its_rate(
    say: Callable[..., tuple[int, str, str]], place: Path
) -> None:
    from safecl import ContinualClassifier

    model = ContinualClassifier.load("m.safecl", device="cpu")
    files = sorted(map(str, (place / "two").rglob("*.png")))
    for words, rate in (((), 0.05), (("--unknown", "0.2"), 0.2), (("--unknown", "0"), None)):
        _, said, _ = say("predict", *files, "--model", "m.safecl", "-f", "jsonl", *words)
        lines = [json.loads(line) for line in said.splitlines()]
        assert [None if line["unknown"] else line["label"] for line in lines] == list(
            model.predict(files, unknown=rate)
        )
        found = [(a.label, a.unknown) for a in model.answers(files, unknown=rate)]
        assert [(line["label"], line["unknown"]) for line in lines] == found
        p = model.predict_proba(files).max(axis=1)
        assert [line["probability"] for line in lines] == pytest.approx(p, abs=1e-6)


def test_what_cannot_be_told_has_no_number_in_any_format(
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    write_folder: Callable[..., Path],
) -> None:
    model = str(tmp_path / "m.safecl")
    folder = write_folder(tmp_path / "photos", ["a", "b", "c"], 3, seed=4)
    (folder / "single").mkdir()
    next((folder / "c").iterdir()).rename(folder / "single/000.png")
    code, said, _ = say("learn", str(folder), "--model", model, *MAKE)
    assert code == 0 and "they count less, and one with a single picture not at all." in said
    assert re.search(
        r"Leave-one-out accuracy \d+ % \(new pictures: \d+–\d+ %\), the mean over all classes", said
    )
    picture = str(place / "one/a/000.png")
    for form, shown in (
        ("table", r"^\w+ +–  /"),
        ("jsonl", '"probability": null, "unknown": null'),
        ("csv", ",[abc],,,$"),
    ):
        code, said, error = say("predict", picture, "--model", model, "-f", form)
        assert code == 0 and re.search(shown, said, re.MULTILINE), said
        assert (
            "has 8 pictures to judge itself by, too few to say how sure an answer is and whether"
            in error
        )
    _, said, _ = say("eval", str(folder), "--model", model)
    assert "Accuracy" in said and "Calibration error" not in said and "called unknown" not in said
    _, said, _ = say("inspect", model)
    assert "one picture only: single" in said and re.search("a .* of 3 +[0-9]+–[0-9]+ %", said)
    _, _, error = say("predict", picture, "--model", "m.safecl", "--unknown", "0.01")
    assert (
        "has 20 pictures to judge itself by, too few to say whether a picture is unknown at a rate"
        " of 0.01." in error
    )


def test_a_model_of_one_class_says_what_it_can_answer(
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    write_folder: Callable[..., Path],
) -> None:
    folder = write_folder(tmp_path / "photos", ["only"], 4, seed=4)
    code, said, _ = say("learn", str(folder), "--model", str(tmp_path / "m.safecl"), *MAKE)
    story = (
        "knows one class, so it answers only or unknown to every picture; teach it a second one."
    )
    assert code == 0 and "Learned 1 class from 4 pictures" in said and f"The model {story}" in said
    code, said, error = say("predict", str(folder), "--model", str(tmp_path / "m.safecl"))
    assert code == 0 and f"m.safecl {story}" in error


def test_a_method_that_cannot_judge_itself_shows_no_leave_one_out_accuracy(
    say: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    for name, shown in (("aper", True), ("finetune", False)):
        model = tmp_path / f"{name}.safecl"
        page = tmp_path / f"{name}.html"
        made = [
            word
            for word, after in zip(MAKE, [*MAKE[1:], ""], strict=True)
            if "method." not in word + after
        ]
        code, learned, _ = say("learn", "one", "--model", str(model), "--method", name, *made)
        assert code == 0 and ("cannot judge itself" not in learned) is shown
        _, told, _ = say("inspect", str(model))
        say("inspect", str(model), "--page", str(page))
        for text in (learned, told, page.read_text(encoding="utf-8")):
            assert ("leave-one-out" in text.lower()) is shown


def test_inspect_tells_what_was_done_and_what_is_left(
    say: Callable[..., tuple[int, str, str]], place: Path, tmp_path: Path
) -> None:
    model = str(tmp_path / "m.safecl")
    Path(model).write_bytes((place / "m.safecl").read_bytes())
    assert say("learn", "two", "--model", model, "-q")[0] == 0
    assert say("rename", model, "a", "alpha")[0] == 0
    assert say("rollback", model)[0] == 0
    assert say("learn", "two", "--model", model, "-q")[0] == 0
    assert say("forget", model, "b")[0] == 0
    code, said, _ = say("inspect", model)
    assert code == 0 and "5, learned from 25 pictures" in said
    rows = [line.split() for line in said[said.index("History") :].splitlines()]
    told = [row[1:5] for row in rows if row and row[0].isdigit()]
    assert [row[0] for row in told] == ["learned", "renamed", "learned", "forgot"]
    assert told[1][1:] == ["a", "→", "alpha"] and told[3][1] == "b"
    assert "15" in rows[[row[:1] for row in rows].index(["1"])]  # of 20 pictures, five were of b
    from safecl.classifier.classifier import ContinualClassifier

    assert "5 classes learned in 2 sessions" in repr(ContinualClassifier.load(model))


def test_classes_that_are_always_right_are_not_among_the_worst(
    say: Callable[..., tuple[int, str, str]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(*_: Any) -> tuple[dict[str, Any], list[Any]]:
        return {
            "pictures": 4,
            "accuracy": 0.75,
            "error": 0.1,
            "bins": [],
            "unknown": 0.05,
            "false_alarms": 0.0,
            "unknown_pictures": 0,
            "found": None,
            "classes": [["a", 1.0, 2], ["b", 0.5, 2]],
            "confused": [["b", "a", 1]],
        }, []

    monkeypatch.setattr("safecl.classifier.answers.snapshot.evaluate", evaluate)
    code, said, _ = say("eval", "one", "--model", "m.safecl")
    table = said[said.index("lowest accuracy") :].splitlines()
    assert code == 0 and [line.split()[0] for line in table if "%" in line] == ["b"]


def test_the_page_has_a_chart_with_axes_and_counts(place: Path, tmp_path: Path) -> None:
    from safecl.classifier.answers.page import write_page

    numbers = {
        "pictures": 35,
        "accuracy": 0.9,
        "error": 0.1,
        "false_alarms": 0.0,
        "unknown_pictures": 0,
        "found": None,
    }
    more = {"folder": "photos", "learned": 0, "classes": [], "confused": []}
    measured = {**numbers, **more, "bins": [(0.3, 0.25, 4), (0.97, 1.0, 31)]}
    page = write_page(
        ModelFile(place / "m.safecl"), tmp_path / "page.html", (measured, [])
    ).read_text()
    chart = page[page.index("<svg") : page.index("</figure>", page.index("<svg"))]
    for text in (
        "how sure the model is",
        "how often it is right",
        ">31</text>",
        "50 %",
        "<figcaption>",
        "97 % sure",
    ):
        assert text in chart
    assert "<h2>History</h2>" in page and "learned from 20\u00a0pictures" in page


def test_examples_in_the_help_begin_with_what_most_people_want(
    say: Callable[..., tuple[int, str, str]],
) -> None:
    code, said, _ = say("--help")
    assert code == 0 and 0 < said.index("safecl learn") < said.index("safecl predict") < said.index(
        "safecl run"
    )


@pytest.mark.parametrize(
    "command", [one.callback for one in cli.app.registered_commands], ids=lambda one: one.__name__
)
def test_no_word_of_a_help_is_taken_for_markup(command: Callable[..., Any]) -> None:
    """What stands in square brackets is markup to rich, and vanishes."""
    for parameter in inspect.signature(command).parameters.values():
        for option in getattr(parameter.annotation, "__metadata__", ()):
            assert not re.search(r"\[[a-z#/@]", option.help) and option.help == option.help.strip()


def test_the_page_of_eval_shows_typical_and_strange_pictures_and_mistakes(
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    write_folder: Callable[..., Path],
) -> None:
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.report.gallery import thumbnail

    write_folder(tmp_path / "new", "abcdx", 4, seed=7)
    # mistakes that are sure: a picture of one class among those of another
    for i, label in enumerate("ab"):
        data = (place / "one" / "cd"[i] / f"{10 + 5 * i:03d}.png").read_bytes()
        (tmp_path / "new" / label / "wrong.png").write_bytes(data)
    page = tmp_path / "page.html"
    code, said, error = say(
        "eval", str(tmp_path / "new"), "--model", "m.safecl", "--page", str(page)
    )
    html = page.read_text(encoding="utf-8")
    assert (
        code == 0
        and said.splitlines()[-1] == f"Wrote {page} ({page.stat().st_size / 1000:.1f} kB)."
    ), error

    files = sorted((tmp_path / "new").glob("[a-d]/*.png"))
    truth = [file.parent.name for file in files]
    model = ContinualClassifier.load("m.safecl", device="cpu")
    logits, p, told = (
        ask([str(file) for file in files])
        for ask in (model.decision_function, model.predict_proba, model.predict)
    )
    own = [
        row["abcd".index(label)] - max(np.delete(row, "abcd".index(label)))
        for row, label in zip(logits, truth, strict=True)
    ]
    sections = {
        part[: part.index("<")]: part.split('<li class="card">')[1:]
        for part in html.split("<h2>")[1:]
    }

    def pictures(card: str) -> list[str]:
        return re.findall(r'src="(data:image/jpeg[^"]+)"', card)

    def shown(i: int) -> str:
        return thumbnail(Image.open(files[i]).convert("RGB"), 160)

    assert len(sections["Typical and strangest pictures"]) == 4  # x is unknown to the model
    for card in sections["Typical and strangest pictures"]:
        (label,) = re.findall(r'<p class="is"><bdi>(\w)</bdi>', card)
        rows = sorted((i for i, one in enumerate(truth) if one == label), key=lambda i: own[i])
        assert pictures(card) == [shown(rows[-1]), shown(rows[0])]
        assert f"{sum(told[i] == label for i in rows)} of {len(rows)} pictures correct" in card
    wrong = sorted((i for i in range(len(files)) if told[i] != truth[i]), key=lambda i: -max(p[i]))
    assert (
        len(wrong) >= 2
        and [pictures(card) for card in sections["Surest mistakes"]]
        == [[shown(i)] for i in wrong][:12]
    )
    pairs = {
        (truth[i], told[i]): [shown(j) for j in wrong if (truth[j], told[j]) == (truth[i], told[i])]
        for i in wrong
    }
    found = {}
    for card in sections["Confusions"]:
        ((label, other),) = re.findall(r"<bdi>(\w), taken for (\w)</bdi>", card)
        found[label, other] = pictures(card)
    assert found == {pair: those[:3] for pair, those in pairs.items()}
    say("inspect", "m.safecl", "--page", str(page))
    assert "data:image" not in page.read_text(encoding="utf-8")  # no picture is kept


def test_the_page_of_eval_says_first_what_was_measured_and_where(
    say: Callable[..., tuple[int, str, str]],
    place: Path,
    tmp_path: Path,
    write_folder: Callable[..., Path],
) -> None:
    # three classes whose pictures show another one
    for label, other in zip("abc", "bcd", strict=True):
        write_folder(tmp_path / "draw", [other], 8, seed=11)
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "draw" / other).rename(tmp_path / "new" / label)
    write_folder(tmp_path / "new", "d", 8, seed=11)
    folder = str(tmp_path / "new")
    page = tmp_path / "page.html"
    assert say("eval", folder, "-m", "m.safecl", "--page", str(page))[0] == 0
    _, said, _ = say("eval", folder, "-m", "m.safecl", "--json")
    found = json.loads(said)
    header = ModelFile(place / "m.safecl").header
    assert (
        found["folder"] == folder
        and found["accuracy"] < 0.5 < 0.8 < header["calibration"]["accuracy"]
    )
    text = re.sub(r"<[^>]+>", "|", page.read_text(encoding="utf-8")).replace("\u00a0", " ")
    tiles = re.sub(r"[|\s]*\|[|\s]*", "|", text[text.index("learned from") :])
    low, high = (round(100 * share) for share in interval(found["accuracy"], 32))
    first = (
        f"accuracy, measured|{100 * found['accuracy']:.1f} %|on 32 pictures of {folder}:"
        f" {low}–{high} %|"
    )
    second = f"leave-one-out accuracy|{100 * header['calibration']['accuracy']:.1f} %|"
    assert first in tiles and second in tiles and tiles.index(first) < tiles.index(second)
    assert f"Measured on {folder}" in tiles
    right = {label: round(share * count) for label, share, count in found["classes"]}
    for label, (judged, own, _) in zip("abcd", header["calibration"]["classes"], strict=True):
        row = rf"\|{label}\|1 [^|]*\|5\|{right[label]} of 8\|\d+–\d+ %\|{own} of {judged}\|"
        assert re.search(row, tiles), row
    true, answer, count = found["confused"][0]
    assert f"{true} is confused with {answer} ({count} of 8 pictures)." in tiles
    assert say("inspect", "m.safecl", "--page", str(page))[0] == 0
    assert "easured" not in page.read_text(encoding="utf-8")


def test_the_pictures_on_a_page_are_bounded() -> None:
    from safecl.classifier.answers.photographs import photographs
    from safecl.classifier.answers.snapshot import Judged
    from safecl.runtime.answer import Answer
    from safecl.streams.pictures.images import ArrayPictures

    labels = [c for c in range(30) for _ in range(20)]
    blank = ArrayPictures(np.zeros((len(labels), 4, 4, 3), dtype=np.uint8), labels)
    judged = [
        Judged(i, c, Answer((c + 1) % 30, None, None, [], {}, {}, 0.0, None), -float(i))
        for i, c in enumerate(labels)
    ]
    numbers = {
        "classes": [[c, 0.0, 20] for c in range(30)],
        "confused": [[c, c + 1, 20] for c in range(10)],
    }
    shown = photographs(blank, judged, numbers)
    assert [sum(len(card.pictures) for card in one[2]) for one in shown] == [48, 30, 12]
    assert "Not shown: 6 classes of a higher accuracy." in shown[0][1]
    assert shown[2][2][0].lines == ["is 29", "picture 599"]  # without probabilities, by the logits
    single = photographs(blank, judged[:1], {"classes": [[0, 0.0, 1]], "confused": []})
    assert len(single[0][2][0].pictures) == 1 and [len(one[2]) for one in single] == [1, 0, 1]

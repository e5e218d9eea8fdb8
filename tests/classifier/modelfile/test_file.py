"""A model file is read whole from one state, or refused in one sentence, whatever was done to
it.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import AT_THE_DOOR, IN_LEARNING, IN_PREDICTIONS, Draft, build

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import unlabelled
from safecl.classifier.model import Model
from safecl.classifier.modelfile import schema
from safecl.classifier.modelfile.store import ModelFile
from safecl.classifier.seen import check_folder
from safecl.errors import SafeclError
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.find import File
from tests.conftest import Refusal, raises, tells

Command = Callable[..., tuple[int, str, str]]
WRONG = [
    None,
    True,
    -1,
    0,
    1.5,
    1 << 70,
    "x",
    "x" * 5000,
    "\x1b[31m",
    [],
    [[]],
    {},
    {"x": 1},
    ["x"] * 3,
]
COMMANDS = {
    "predict": "predict one -m bad.safecl --device cpu",
    "eval": "eval one -m bad.safecl --device cpu",
    "learn": "learn two -m bad.safecl --device cpu -q",
    "forget": "forget bad.safecl a",
    "rollback": "rollback bad.safecl",
    "freeze": "freeze bad.safecl -o out.safecl",
    "merge A": "merge bad.safecl good.safecl -o out.safecl",
    "merge B": "merge good.safecl bad.safecl -o out.safecl",
    "rename": "rename bad.safecl a alpha",
    "inspect": "inspect bad.safecl",
    "correct": "correct bad.safecl one/a/000.png --label b",
    "join": "join bad.safecl a b",
    "export": "export bad.safecl --format safetensors -o out.safetensors",
    "serve": "serve bad.safecl --port 0 --device cpu",
}


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory, new_model: Any, lesson: Any, write_folder: Any
) -> Path:
    """A folder with two states of a model, ``good`` and ``earlier``, and pictures."""
    top = tmp_path_factory.mktemp("files")
    write_folder(top / "one", "ab", 2)
    write_folder(top / "two", "xy", 2, seed=5)
    model = new_model()
    model.learn(*lesson("abcd"))
    model.save(top / "earlier.safecl")
    model.learn(*lesson("ef"))
    model.save(top / "good.safecl")
    return top


@pytest.fixture(scope="module")
def answer(home: Path, lesson: Any) -> Callable[[Path], np.ndarray]:
    """``answer(path)``: the probabilities that the model at ``path`` gives to some pictures."""
    first = ContinualClassifier.load(home / "good.safecl", device="cpu")
    images = lesson("abcdef", 1, seed=9)[0]
    first._snapshot()

    def ask(path: Path) -> np.ndarray:
        model = ContinualClassifier.load(path, device="cpu")
        model._loaded = first._loaded
        return model.predict_proba(images)

    return ask


def test_a_file_that_is_replaced_is_read_whole_from_the_old_one(
    home: Path, tmp_path: Path, answer: Any, lesson: Any
) -> None:
    path = tmp_path / "m.safecl"
    images = lesson("abcdef", 1, seed=9)[0]
    path.write_bytes((home / "good.safecl").read_bytes())
    wanted = answer(path)
    model = ContinualClassifier.load(path, device="cpu")
    (tmp_path / "new").write_bytes((home / "earlier.safecl").read_bytes())
    os.replace(tmp_path / "new", path)
    assert (model.predict_proba(images) == wanted).all() and len(model.classes_) == 6
    assert len(model._fitted.state.undo) == 1 and answer(path).shape[1] == 4


def test_a_page_shows_the_model_that_was_measured_though_another_took_its_place(
    home: Path, tmp_path: Path, write_folder: Any, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safecl.classifier import data

    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "pictures", "ef", 2, seed=7)
    Path("m.safecl").write_bytes((home / "good.safecl").read_bytes())
    Path("new").write_bytes((home / "earlier.safecl").read_bytes())
    labelled = data.labelled

    def replacing(*words: Any, **more: Any) -> Any:
        os.replace("new", "m.safecl")
        return labelled(*words, **more)

    monkeypatch.setattr(data, "labelled", replacing)
    _, said, _ = command(
        *["eval", "pictures", "-m", "m.safecl", "--device", "cpu", "--json", "--page", "p.html"]
    )
    assert json.loads(said)["pictures"] == 4 and len(ModelFile("m.safecl").header["classes"]) == 4
    text = re.sub(
        r"<(style|script).*?</\1>|<[^>]+>",
        " ",
        Path("p.html").read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    assert re.search(r"\bclasses\s+6\b", text)


@pytest.mark.parametrize("cut", [True, False])
def test_a_file_that_is_altered_in_place_while_it_is_open_is_refused(
    home: Path, tmp_path: Path, cut: bool
) -> None:
    path = tmp_path / "m.safecl"
    data = (home / "good.safecl").read_bytes()
    path.write_bytes(data)
    model = Model.open(path)
    with path.open("r+b") as file:
        if cut:
            file.truncate(1000)
        else:
            file.write(bytes(len(data) // 4))
    with raises("model.member.damaged", member="predict.safetensors"):
        _ = model.predicting


def test_threads_share_one_open_file_which_is_closed_when_nobody_needs_it(home: Path) -> None:
    file = ModelFile(home / "good.safecl")
    found = []
    before = len(os.listdir("/dev/fd"))
    wanted = [file.raw(name) for name in file.sizes]

    def read(file: ModelFile) -> None:
        found.extend([file.raw(name) for name in file.sizes] == wanted for _ in range(20))

    threads = [threading.Thread(daemon=True, target=read, args=(file,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80
    del file, threads, thread
    assert len(os.listdir("/dev/fd")) == before - 1


def test_every_written_file_has_a_state_of_its_own_in_every_name(
    home: Path, tmp_path: Path
) -> None:
    file = ModelFile(home / "good.safecl")
    Model.open(home / "good.safecl").save(tmp_path / "again.safecl")
    again = ModelFile(tmp_path / "again.safecl")
    assert file.header["state"] != again.header["state"]
    assert all(
        file.header["state"].encode() + b"/" + name.encode() in file.path.read_bytes()
        for name in file.sizes
    )


@pytest.mark.parametrize("name", AT_THE_DOOR)
def test_a_hostile_file_is_refused_before_a_member_is_read(
    home: Path, tmp_path: Path, name: str
) -> None:
    path = build(home / "good.safecl", name, tmp_path / "bad.safecl")
    code, fields = AT_THE_DOOR[name][1]
    with raises(code, **fields) as error:
        ModelFile(path)
    assert one_sentence(str(error.value))


@pytest.mark.parametrize("name", IN_PREDICTIONS)
def test_a_hostile_member_is_refused_by_predictions(
    home: Path, tmp_path: Path, name: str, answer: Any
) -> None:
    path = build(home / "good.safecl", name, tmp_path / "bad.safecl")
    code, fields = IN_PREDICTIONS[name][1]
    with raises(code, **fields) as error:
        answer(path)
    assert one_sentence(str(error.value))


@pytest.mark.parametrize("name", IN_LEARNING)
def test_a_hostile_member_is_refused_by_learning(home: Path, tmp_path: Path, name: str) -> None:
    model = Model.open(build(home / "good.safecl", name, tmp_path / "bad.safecl"))
    code, fields = IN_LEARNING[name][1]
    with raises(code, **fields) as error:
        _ = model.state
    assert one_sentence(str(error.value))


def check_no_change(draft: Draft, path: Path, lesson: Any, reason: str = "") -> None:
    """Every change of the model in the draft is refused for this reason."""
    model = ContinualClassifier.load(draft.write(path), device="cpu")
    for make in (
        lambda: model.learn(*lesson("g", 2)),
        lambda: model.forget("a"),
        lambda: model.join("a", "b"),
    ):
        with raises("model.parts.misfit", reason=re.compile(reason)):
            make()


@pytest.mark.parametrize(
    "part", [slice(1, None), (slice(None), slice(1, None))], ids=["fewer", "narrower"]
)
def test_offsets_that_do_not_fit_the_classes_are_refused_by_every_change(
    home: Path, tmp_path: Path, part: Any, lesson: Any
) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors["following.kept.offsets"] = tensors["following.kept.offsets"][part].clone()

    draft = Draft.of(home / "good.safecl")
    draft.change("learn.safetensors", change)
    check_no_change(draft, tmp_path / "bad.safecl", lesson)


@pytest.mark.parametrize("how", ["renamed", "narrower", "nameless"])
def test_features_that_the_networks_do_not_give_are_refused_by_every_change(
    home: Path, tmp_path: Path, how: str, lesson: Any
) -> None:
    def change(tensors: dict[str, Any]) -> None:
        rows = tensors.pop("hashes" if how == "nameless" else "slow")
        tensors |= {"renamed": {"other": rows}, "narrower": {"slow": rows[..., 1:]}}.get(how, {})

    draft = Draft.of(home / "good.safecl")
    draft.change("kept.safetensors", change)
    check_no_change(
        draft, tmp_path / "bad.safecl", lesson, "the features that are kept are of other networks"
    )


def test_a_step_back_of_another_shape_is_refused_by_a_merge(
    home: Path, tmp_path: Path, lesson: Any
) -> None:
    draft = Draft.of(home / "good.safecl")
    draft.change(
        "undo_0.safetensors", lambda tensors: tensors.update({"_extra_state": torch.tensor([1, 1])})
    )
    parted, bad = (
        ContinualClassifier.load(path, device="cpu")
        for path in (home / "earlier.safecl", draft.write(tmp_path / "bad.safecl"))
    )
    parted.learn(*lesson("g", 2))
    with raises("model.parts.misfit", path=re.compile(r"bad\.safecl$")):
        parted.merged(bad)


def one_sentence(text: str) -> bool:
    return len(text) < 600 and text.endswith(".") and all(letter.isprintable() for letter in text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_goes_through_the_same_door(
    name: str, home: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    faults = ["an altered seed", "format true", "nested JSON"]
    if name != "inspect":
        faults += ["NaN as a weight"]
    for fault in faults:
        build(home / "good.safecl", fault, home / "bad.safecl")
        before = (home / "bad.safecl").read_bytes()
        error = refusal(*COMMANDS[name].split())
        assert one_sentence(str(error))
        code, fields = (AT_THE_DOOR | IN_PREDICTIONS)[fault][1]
        tells(error, code, **fields)
        assert (home / "bad.safecl").read_bytes() == before and not (home / "out.safecl").exists()


@pytest.mark.parametrize("kind", ["FIFO", "device", "folder"])
def test_what_is_no_plain_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safecl"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    refused = raises("model.unreadable", reason="it is no plain file")
    with raises("model.folder") if kind == "folder" else refused:
        ModelFile(path)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a header."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:2])
        if isinstance(value, list)
        else ()
    )
    for key, below in inside:
        yield (*above, key)
        yield from places(below, (*above, key))


def test_a_wrong_type_in_any_part_of_the_header_is_refused(home: Path) -> None:
    """What is accepted is of the type that stood there, or one that may."""
    header = Draft.of(home / "good.safecl").header
    optional = {"accuracy", "calibration", "error", "file", "mean", "notes", "std"}
    optional |= {"own", "strangers", "weights"}
    count = 0
    for place in places(header):
        above: Any = header
        for key in place[:-1]:
            above = above[key]
        right = above[place[-1]]
        for wrong in WRONG:
            if json.dumps(wrong) == json.dumps(right) or "settings" in place[:1]:
                continue
            above[place[-1]], count = wrong, count + 1
            try:
                schema.check(json.dumps(header).encode(), "m.safecl")
            except SafeclError as error:
                assert one_sentence(str(error))
                continue
            finally:
                above[place[-1]] = right
            number = (
                isinstance(right, int | float)
                and isinstance(wrong, int | float)
                and wrong not in (1 << 70,)
            )
            label = isinstance(right, str | int) and isinstance(wrong, str | int)
            alike = number or label or type(wrong) is type(right)
            assert not isinstance(wrong, bool) or isinstance(right, bool) or place[-2] == "notes", (
                place
            )
            assert alike or optional & {*place}, (place, wrong)
    assert count > 1000


def test_a_key_that_is_missing_or_unknown_is_refused_in_every_part(home: Path) -> None:
    header = Draft.of(home / "good.safecl").header
    parts: list[Any] = [
        header,
        header["backbone"],
        header["transform"],
        header["calibration"],
        header["history"][0],
    ]
    parts += [
        header["undo"][0],
        header["undo"][0]["header"],
        next(iter(header["members"].values())),
    ]
    optional = {
        "choice",
        "licence",
        "looks",
        "mean",
        "own",
        "pictures",
        "precision",
        "std",
        "strangers",
        "tuned",
        "weights",
    }
    for part in parts:
        for key in [*part]:
            gone = part.pop(key)
            if key not in optional:
                with raises("model.header.damaged", name="m.safecl"):
                    schema.check(json.dumps(header).encode(), "m.safecl")
            part[key] = gone
        part["more"] = 1
        with raises(
            "model.header.damaged",
            reason=re.compile("more: Extra inputs are not permitted, unless a newer safecl"),
        ):
            schema.check(json.dumps(header).encode(), "m.safecl")
        del part["more"]
    schema.check(json.dumps(header).encode(), "m.safecl")


def test_a_session_that_recovered_from_divergence_is_saved(home: Path, tmp_path: Path) -> None:
    model = ContinualClassifier.load(home / "good.safecl", device="cpu")
    model.history_[-1]["notes"]["rate of slow"] = 0.1  # as ``Trainer`` names it
    model.save(tmp_path / "m.safecl")
    assert ModelFile(tmp_path / "m.safecl").header["history"][-1]["notes"]["rate of slow"] == 0.1


def test_what_cannot_be_written_is_not_called_damaged(home: Path, tmp_path: Path) -> None:
    model = ContinualClassifier.load(home / "good.safecl", device="cpu")
    model.history_[-1]["more"] = 1
    with raises("model.not-written", reason=re.compile(r"^history\.1\.learn\.more: ")):
        model.save(tmp_path / "m.safecl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "how", ["no tensors", "fewer", "no such class", "negative", "nested", "missing"]
)
def test_a_folder_is_compared_with_pictures_that_fit_together(
    home: Path, tmp_path: Path, how: str
) -> None:
    draft = Draft.of(home / "good.safecl")
    changes: dict[str, Callable[[Any], Any]] = {
        "fewer": lambda rows: rows[1:],
        "no such class": lambda rows: rows + 99,
        "negative": lambda rows: rows - 7,
        "nested": lambda rows: rows[:, None],
    }
    if how == "no tensors":
        draft.members["kept.safetensors"] = b"nothing"
    elif how == "missing":
        draft.change("kept.safetensors", lambda tensors: tensors.pop("seen/classes"))
    else:
        name = "seen/classes"
        draft.change(
            "kept.safetensors", lambda tensors: tensors.update({name: changes[how](tensors[name])})
        )
    with raises("model.parts.misfit", path=re.compile(r"m\.safecl$")):
        check_folder(home / "one", ModelFile(draft.write(tmp_path / "m.safecl")))


def test_a_picture_that_cannot_be_opened_is_left_to_learning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(file: File, **_: Any) -> bytes:
        raise UnreadableError(file.path, "permission denied")

    monkeypatch.setattr(File, "read", refused)
    check_folder(home / "one", ModelFile(home / "good.safecl"))


def test_a_folder_to_predict_may_lie_below_the_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    assert len(unlabelled("~/one")) == 4

"""From settings to a run in its folder."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from safecl.engine.checkpoint import load_state
from safecl.errors import SafeclError
from safecl.experiments.config import load, run_name
from safecl.experiments.launch import build, launch
from safecl.experiments.sweep.plan import make_plan
from safecl.experiments.sweep.sweep import run_sweep
from safecl.methods.simplecil import SimpleCIL
from safecl.streams.stream import Stream
from tests.conftest import raises

TINY = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=16"]
FEW = ["stream.classes=4", "stream.sessions=2", "stream.train=2", "stream.test=1", *TINY]
SMALL = [*FEW, "train.epochs=1", "device=cpu"]


def test_every_configuration_has_a_folder_of_its_own() -> None:
    words = [
        [],
        ["seed=1"],
        ["pet=adapter"],
        ["stream=folder:/a/b c"],
        ["train.epochs=3"],
        ["method=ranpac"],
    ]
    names = [run_name(load("safe", each)) for each in words]
    assert len(set(names)) == len(names)
    assert names == [run_name(load("safe", each)) for each in words]
    assert not {character for name in names for character in name} & set(" /:")
    assert run_name(load("safe", ["device=cpu", "train.save_seconds=3"]), "mine") == names[
        0
    ].replace("safe", "mine", 1)


def test_a_folder_holds_the_settings_as_resolved_and_the_name_of_the_preset(tmp_path: Path) -> None:
    settings = load("simplecil", FEW)
    launch(settings, tmp_path)
    assert load(str(tmp_path / "resolved.yaml"), []) == settings
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["preset"], facts["method"], facts["pet"], facts["precision"]) == (
        "simplecil",
        "simplecil",
        "none",
        "float32",
    )


def test_a_run_with_other_settings_is_refused_and_says_which(tmp_path: Path) -> None:
    launch(load("simplecil", FEW), tmp_path)
    with raises(
        "run.folder.other-run",
        found=re.compile(r"other settings: seed=0 \(now 3\), stream\.train=2 \(now 3\)$"),
    ):
        launch(
            load("simplecil", [*FEW[:2], *TINY, "stream.train=3", "stream.test=1", "seed=3"]),
            tmp_path,
        )
    launch(load("simplecil", FEW), tmp_path)  # the same ones


def test_how_the_machine_is_used_may_change(tmp_path: Path) -> None:
    words = ["ridge.size=20", *SMALL]
    summary = launch(load("ranpac", words), tmp_path)
    again = launch(load("ranpac", [*words, "train.save_seconds=1", "train.graphs=false"]), tmp_path)
    assert again["final"] == summary["final"]


def test_settings_that_name_nothing_leave_no_folder_behind(tmp_path: Path) -> None:
    for word in (f"stream=folder:{tmp_path}/none", "backbone=/none.npz"):
        with pytest.raises(SafeclError):
            launch(load("safe", [word]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises("file.place.not-writable"):
        launch(load("simplecil", FEW), tmp_path / "file")


def test_a_stream_of_ones_own_can_be_run(make_stream: Any, tmp_path: Path) -> None:
    stream: Stream = make_stream([["a", "b"], ["c"]])
    summary = launch(load("simplecil", ["backbone.image_size=16"]), tmp_path, stream=stream)
    assert summary["sessions"] == 2 and summary["classes"] == 3


def test_joint_training_has_one_session_and_the_tests_of_all(
    make_stream: Any, tmp_path: Path
) -> None:
    stream: Stream = make_stream([["a", "b"], ["c"]])
    summary = launch(load("joint-linear", ["backbone.image_size=16"]), tmp_path, stream=stream)
    assert summary["sessions"] == 1 and summary["classes"] == 3
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert [session["name"] for session in facts["stream"]["sessions"]] == ["joint"]


@pytest.fixture
def shards(class_folder: Any, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of 4 classes of 6 pictures, and two shards of it."""
    top = class_folder(dict.fromkeys(("ant", "bee", "cat", "dog"), 6))
    out = tmp_path / "shards"
    out.mkdir()
    for number, names in enumerate((("ant", "bee"), ("cat", "dog"))):
        with tarfile.open(out / f"{number}.tar", "w") as tar:
            for name in names:
                tar.add(top / name, name)
    return top, out


def test_a_run_over_shards_is_that_over_the_folder_and_goes_on_after_a_kill(
    shards: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On either, whatever it was begun on. Where a shard has changed since, it does not go on."""

    class Killed(BaseException):
        pass

    words = [
        "pet=adapter",
        "ridge.size=20",
        "stream.step=2",
        *TINY,
        "train.epochs=1",
        "train.batch_size=4",
    ]
    real = torch.optim.SGD.step

    def start(source: Path, folder: str, kill_at: int | None = None) -> dict[str, Any]:
        steps = [0]

        def step(self: Any, *arguments: Any) -> Any:
            steps[0] += 1
            if steps[0] == kill_at:
                raise Killed
            return real(self, *arguments)

        monkeypatch.setattr(torch.optim.SGD, "step", step)
        return launch(
            load("ranpac", [f"stream=folder:{source}", *words, "train.save_seconds=1e-9"]),
            tmp_path / folder,
        )

    def state(folder: str) -> dict[str, torch.Tensor]:
        return load_state(sorted((tmp_path / folder / "state").glob("session_*.safetensors"))[-1])[
            0
        ]

    top, packed = shards
    wanted = start(top, "straight")
    for number, (before, after) in enumerate(((packed, top), (top, packed))):
        with pytest.raises(Killed):
            start(before, str(number), 2)
        found = start(after, str(number))
        assert (
            found["final"] == wanted["final"] and found["test_pictures"] == wanted["test_pictures"]
        )
        assert all(
            value.equal(state(str(number))[name]) for name, value in state("straight").items()
        )
    with pytest.raises(Killed):
        start(packed, "changed", 2)
    data = (packed / "1.tar").read_bytes()
    at = data.rindex(b"IEND") - 9
    (packed / "1.tar").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with raises("run.folder.other-run", found=re.compile("pictures of session")):
        start(packed, "changed")


@pytest.mark.parametrize("harm", ["cut", "replaced", "gone"])
def test_a_shard_that_changes_during_a_run_ends_it_with_a_sentence(
    harm: str, shards: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = shards[1] / "1.tar"
    data = (shards[1] / "1.tar").read_bytes()
    learn = SimpleCIL.learn

    def spoil(method: Any, session: Any, fit: Any) -> None:
        learn(method, session, fit)
        shard.unlink()
        if harm != "gone":
            shard.write_bytes(data[:4096] if harm == "cut" else data)

    monkeypatch.setattr(SimpleCIL, "learn", spoil)
    words = [f"stream=folder:{shards[1]}", "stream.step=2", "stream.cache=false", *TINY]
    with raises("picture.changed", where=re.compile(r"1\.tar/.*\.png$")):
        launch(load("simplecil", words), tmp_path / "run")
    assert "has changed or gone" in json.loads((tmp_path / "run/failed.json").read_text())["error"]


@pytest.mark.slow
def test_a_sweep_over_shards_learns_what_is_in_the_folder(
    shards: tuple[Path, Path], tmp_path: Path
) -> None:
    found = list[dict[Any, torch.Tensor]]()
    for source in shards:
        base = {
            "preset": "simplecil",
            "stream": {"kind": "folder", "step": 2, "path": str(source)},
            "device": "cpu",
        }
        base["backbone"] = {"name": "test_vit", "weights": "random", "image_size": 16}
        (tmp_path / "mine.yaml").write_text(
            yaml.safe_dump({"base": base, "grid": {"seed": [0, 1]}})
        )
        folder = tmp_path / f"of {source.name}"
        result = run_sweep(make_plan(str(tmp_path / "mine.yaml")), folder, jobs=2, show="quiet")
        assert not result.failed
        states = sorted(folder.glob("*/state/session_*.safetensors"))
        found.append(
            {
                (n, name): value
                for n, file in enumerate(states)
                for name, value in load_state(file)[0].items()
            }
        )
    assert len(states) == 4 and found[0].keys() == found[1].keys()
    assert all(value.equal(found[1][name]) for name, value in found[0].items())


def test_a_class_order_that_domains_leave_no_use_for_is_said(class_folder: Any) -> None:
    """Only the pictures show that they are of domains."""
    folder = class_folder(
        {f"train/{domain}/{label}": 2 for domain in ("ink", "oil") for label in "ab"}
    )
    words = [f"stream=folder:{folder}", "stream.cache=false", *TINY]
    said = [build(load("simplecil", [*words, *more]))[3] for more in ([], ["stream.order_seed=3"])]
    note = "Note: stream.order_seed=3 has no effect where stream.protocol is domain."
    assert [note in sentences for sentences in said] == [False, True]

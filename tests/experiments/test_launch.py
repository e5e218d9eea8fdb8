"""From settings to a run in its folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from safecl.errors import SafeclError
from safecl.experiments.config import load, run_name
from safecl.experiments.launch import launch
from safecl.streams.stream import Stream

TINY = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=16"]
FEW = ["stream.classes=4", "stream.sessions=2", "stream.train=2", "stream.test=1", *TINY]
SMALL = [*FEW, "train.epochs=1", "device=cpu"]


def test_every_configuration_has_a_folder_of_its_own() -> None:
    words = [[], ["seed=1"], ["pet=adapter"], ["stream=folder:/a/b c"], ["train.epochs=3"], ["method=ranpac"]]
    names = [run_name(load("safe", each)) for each in words]
    assert len(set(names)) == len(names)
    assert names == [run_name(load("safe", each)) for each in words]
    assert not {character for name in names for character in name} & set(" /:")
    assert run_name(load("safe", ["device=cpu", "train.save_seconds=3"]), "mine") == names[0].replace("safe", "mine", 1)


def test_a_folder_holds_the_settings_as_resolved_and_the_name_of_the_preset(tmp_path: Path) -> None:
    settings = load("simplecil", FEW)
    launch(settings, tmp_path)
    assert load(str(tmp_path / "resolved.yaml"), []) == settings
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["preset"], facts["method"], facts["pet"], facts["precision"]) == (
        "simplecil", "simplecil", "none", "float32",
    )  # fmt: skip


def test_a_run_with_other_settings_is_refused_and_says_which(tmp_path: Path) -> None:
    launch(load("simplecil", FEW), tmp_path)
    with pytest.raises(SafeclError, match=r"other settings: seed=0 \(now 3\), stream\.train=2 \(now 3\);"):
        launch(load("simplecil", [*FEW[:2], *TINY, "stream.train=3", "stream.test=1", "seed=3"]), tmp_path)
    launch(load("simplecil", FEW), tmp_path)  # the same ones


def test_how_the_machine_is_used_may_change(tmp_path: Path) -> None:
    words = ["pet=none", "ridge.size=20", *SMALL]
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
    with pytest.raises(SafeclError, match="cannot be written"):
        launch(load("simplecil", FEW), tmp_path / "file")


def test_a_stream_of_ones_own_can_be_run(make_stream: Any, tmp_path: Path) -> None:
    stream: Stream = make_stream([["a", "b"], ["c"]])
    summary = launch(load("simplecil", ["backbone.image_size=16"]), tmp_path, stream=stream)
    assert summary["sessions"] == 2 and summary["classes"] == 3


def test_joint_training_has_one_session_and_the_tests_of_all(make_stream: Any, tmp_path: Path) -> None:
    stream: Stream = make_stream([["a", "b"], ["c"]])
    words = ["backbone.image_size=16", "train.epochs=1", "train.batch_size=4"]
    summary = launch(load("joint-linear", words), tmp_path, stream=stream)
    assert summary["sessions"] == 1 and summary["classes"] == 3
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert [session["name"] for session in facts["stream"]["sessions"]] == ["joint"]

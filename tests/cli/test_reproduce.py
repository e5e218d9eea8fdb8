"""``safecl reproduce``: what it lists, refuses, announces and prints."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safecl.backbone import hub
from safecl.cli.reproduce import reproduce as reproduce_command
from safecl.errors import SafeclError
from safecl.experiments.launch import launch
from safecl.experiments.reproduce import reproduce
from safecl.experiments.reproduce.targets import TARGETS
from safecl.experiments.sweep.plan import Plan
from tests.conftest import raises

TINY = [
    "stream.classes=4",
    "stream.sessions=2",
    "stream.train=2",
    "stream.test=2",
    "ridge.size=20",
    "train.epochs=1",
    "backbone.name=test_vit",
    "backbone.weights=random",
    "backbone.image_size=16",
    "device=cpu",
]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def in_this_process(plan: Plan, folder: Path, done: set[str], **_: Any) -> dict[str, str]:
    for cell in plan.cells:
        launch(cell.settings, folder / cell.name)
    return {}


def test_every_target_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce_command("list") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in TARGETS)


def test_all_that_is_missing_is_said_at_once_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(name: str) -> None:
        raise ConnectionError("no answer")

    monkeypatch.setattr(hub, "check_hub", offline)
    monkeypatch.setattr(reproduce, "run_cells", None)
    with pytest.raises(SafeclError) as error:
        reproduce_command(
            "all", [f"stream.root={tmp_path}"], folder=tmp_path / "out", scale="paper"
        )
    said = str(error.value)
    assert (
        said.startswith("9 things missing, and nothing was started:") and "--skip-missing" in said
    )
    assert said.count("  The weights of vit_base") == 2
    assert all(
        title in said
        for title in ("CIFAR-100", "ImageNet-R", "CUB", "OmniBenchmark", "VTAB", "DomainNet")
    )


def test_what_is_missing_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "run_cells", None)
    words = [f"stream.root={tmp_path}", "backbone.weights=random"]
    assert (
        reproduce_command(
            "table-ablation", words, folder=tmp_path / "out", scale="paper", skip_missing=True
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "Not run: preset=ranpac-published stream=imagenet-a" in shown


def test_the_command_prints_both_numbers_and_names_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "run_cells", in_this_process)
    assert reproduce_command("table-ablation", TINY, folder=tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert (
        "62.21" in shown
        and "The slow learner is above the baseline:" in shown
        and "on glyphs" in shown
    )
    assert (tmp_path / "out" / "small-safe" / "index.html").is_file()
    monkeypatch.setattr(
        reproduce,
        "run_cells",
        lambda plan, folder, done, **_: {"left": "x"} if len(done) < 2 else {},
    )
    assert reproduce_command("table-ablation", TINY, folder=tmp_path / "out") == 0


@pytest.mark.parametrize(
    ("target", "words", "change", "refused"),
    [
        ("table-sotas", [], {}, partial(raises, "name.unknown.near", near="table-sota")),
        ("table-sota,table-gama", [], {}, partial(raises, "name.unknown.near", near="table-gamma")),
        ("all", [], {"scale": "papers"}, partial(raises, "name.unknown.near", near="paper")),
        ("all", [], {"scale": "assets"}, partial(raises, "reproduce.scale.no-folder")),
        ("all", ["a", "b"], {"scale": "assets"}, partial(raises, "command.reproduce.two-folders")),
        ("all", [], {"seeds": 9}, partial(raises, "reproduce.seeds.range", count=3)),
    ],
)
def test_a_wrong_word_is_one_sentence(
    target: str,
    words: list[str],
    change: dict[str, Any],
    refused: Callable[[], Any],
    tmp_path: Path,
) -> None:
    with refused():
        reproduce_command(target, words, folder=tmp_path / "out", **change)

"""A measurement is kept where it was made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from safecl.backbone import timing
from safecl.backbone.backbone import Backbone
from safecl.backbone.timing import Timing


def test_what_was_measured_is_known_afterwards(tmp_path: Path) -> None:
    took = Timing(1.5, 64, "cpu")
    assert timing.known("net", 64, tmp_path) is None
    timing.remember("net", took, tmp_path)
    timing.remember("other", Timing(2.5, 32, "cuda"), tmp_path)
    assert timing.known("net", 64, tmp_path) == took
    assert timing.known("net", 128, tmp_path) is None


def test_another_machine_knows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing.remember("net", Timing(1.5, 64, "cpu"), tmp_path)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    assert timing.known("net", 64, tmp_path) is None


def test_the_cache_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    timing.remember("net", Timing(1.5, 64, "cpu"))
    assert [file.parent for file in tmp_path.rglob("*.json")] == [tmp_path / "safecl"]


def test_a_damaged_cache_and_one_that_cannot_be_written_are_none(tmp_path: Path) -> None:
    (tmp_path / "backbones.json").write_text("{")
    assert timing.known("net", 64, tmp_path) is None
    (tmp_path / "file").touch()
    timing.remember("net", Timing(1.5, 64, "cpu"), tmp_path / "file")
    assert timing.known("net", 64, tmp_path / "file") is None


def test_a_network_is_measured_at_its_own_size(make_backbone: Callable[..., Backbone]) -> None:
    backbone = make_backbone()
    took = timing.measure(backbone, least=0)
    assert took.seconds > 0 and took[1:] == (backbone.size, "cpu")

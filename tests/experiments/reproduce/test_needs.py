"""All that is missing is named at once, and nothing is started."""

from pathlib import Path

import pytest

from safecl.backbone import hub
from safecl.backbone.settings import BackboneSettings
from safecl.experiments.reproduce.plan import make_job
from safecl.experiments.reproduce.reproduce import missing, missing_weights
from safecl.experiments.reproduce.targets import read_scale, read_target


def offline(name: str) -> None:
    raise ConnectionError("no answer")


def test_every_dataset_and_both_backbones_are_named_with_the_runs_that_need_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "check_hub", offline)
    job = make_job(
        read_target("table-sota"), read_scale("paper"), "paper", [f"stream.root={tmp_path}"]
    )
    found = missing(job.cells)
    for title in ("CIFAR-100", "ImageNet-R", "ImageNet-A", "CUB", "OmniBenchmark", "VTAB"):
        (cells,) = [cells for sentence, cells in found.items() if sentence.startswith(title)]
        assert len(cells) == 9
    assert sum("weights of vit_base" in sentence for sentence in found) == 2 and len(found) == 8


def test_what_is_there_is_not_missing(miniatures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "check_hub", lambda name: None)
    job = make_job(
        read_target("table-sota"), read_scale("paper"), "paper", [f"stream.root={miniatures}"]
    )
    assert missing(job.cells) == {}
    assert missing(make_job(read_target("table-sota"), read_scale("small"), "safe").cells) == {}


def test_given_weights_and_pictures_that_are_not_there_are_named(tmp_path: Path) -> None:
    found = missing(
        make_job(read_target("table-domainnet"), read_scale("assets", tmp_path), "safe").cells
    )
    assert sorted(found) == [
        f"The pictures {tmp_path}/pacs_30x15 do not exist.",
        f"The weight file {tmp_path}/vit_tiny_augreg.safetensors does not exist.",
    ]


def test_random_weights_need_nothing() -> None:
    assert missing_weights(BackboneSettings(name="vit_base_patch16_224", weights="random")) is None

"""The pre-training script with a tiny budget: it learns, and what it saves is a backbone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import safecl.backbone.micro as micro
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings

pytestmark = pytest.mark.slow  # run once before a release: a benchmark is no part of the package

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pretrain_micro.py"
SHAPE = {"embed_dim": 48, "depth": 2, "num_heads": 2, "width": 12, "residual": [0, 0, 1]}


def patterns(random: np.random.Generator) -> list[np.ndarray]:
    """One of each class, (64, 64) in [-1, 1]; a mirror image or a crop of a pattern is the same
    pattern.
    """
    x, y = np.meshgrid(
        np.arange(64) - random.uniform(16, 48), np.arange(64) - random.uniform(16, 48)
    )
    k = 2 * np.pi / random.uniform(9, 13)
    rings = np.hypot(x, y)
    rays = np.arctan2(y, x)
    return [
        np.sin(k * x),
        np.sin(k * y),
        np.sin(k * x) * np.sin(k * y),
        np.sin(k * rings),
        np.sin(8 * rays),
        np.sin(k * (np.abs(x) + y)),
        np.where(rings < 14, 1.0, -1.0),
        random.normal(0, 1, (64, 64)),
    ]


def write_pictures(folder: Path, each: int, seed: int) -> Path:
    random = np.random.default_rng(seed)
    for i in range(each):
        for c, pattern in enumerate(patterns(random)):
            one, other = random.uniform(0, 255, (2, 3))
            picture = (
                one + (pattern[..., None] > 0) * (other - one) + random.normal(0, 15, (64, 64, 3))
            )
            (folder / f"c{c}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(
                folder / f"c{c}" / f"{i}.png"
            )
    return folder


def write_teacher(file: Path) -> Path:
    """A random ViT with blocks of the student's shape."""
    shape = {
        "embed_dim": SHAPE["embed_dim"],
        "depth": SHAPE["depth"],
        "num_heads": SHAPE["num_heads"],
        "img_size": 112,
    }
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, **shape)
    facts = {
        "timm_model": "vit_tiny_patch16_224",
        "create_kwargs": json.dumps(shape),
        "mean": "0,0,0",
        "std": "1,1,1",
    }
    save_file(vit.state_dict(), file, facts)
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("pretraining")
    write_pictures(folder / "pictures" / "train", 24, seed=0)
    write_pictures(folder / "pictures" / "test", 12, seed=1)
    options = {
        "--photographs": folder / "pictures" / "train",
        "--measure": folder / "pictures",
        "--teacher": write_teacher(folder / "teacher.safetensors"),
        "--out": folder / "micro.safetensors",
        "--shape": json.dumps(SHAPE),
        "--characters": 8,
        "--each": 8,
        "--glyphs": 5,
        "--steps": 60,
        "--views": 400,
        "--batch": 32,
        "--larger": 8,
        "--drawings": 16,
        "--ema": 0.9,
        "--shots": 10,
        "--device": "cpu",
    }
    command = [
        sys.executable,
        str(SCRIPT),
        *(str(part) for pair in options.items() for part in pair),
    ]
    env = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1] / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "micro.safetensors", json.loads(done.stdout.splitlines()[-1])


def test_the_loss_falls(run: tuple[Path, dict]) -> None:
    done = run[1]["done"]
    assert done["steps"] == 60
    assert done["last loss"] < 0.9 * done["first loss"]


def test_the_figures_are_measured_at_both_sizes(run: tuple[Path, dict]) -> None:
    figures = run[1]["figures"]
    assert set(figures["64"]) == {"characters", "glyphs", "pictures"}
    assert set(figures["128"]) == {"pictures"}  # drawings have 64 pixels
    assert all(
        0 <= value <= 1
        for some in figures.values()
        for pair in some.values()
        for value in pair.values()
    )


def test_the_file_is_the_network_the_package_builds(run: tuple[Path, dict]) -> None:
    file, _ = run
    with safe_open(file, "pt") as opened:
        facts = opened.metadata()
    assert all(value.dtype == torch.float16 for value in load_file(file).values())
    for size in (64, 128):
        backbone = load_backbone(BackboneSettings(weights=str(file), image_size=size))
        assert backbone.network.forward_features(torch.rand(2, 3, size, size)).isfinite().all()
    assert [float(v) for v in facts["mean"].split(",")] == list(micro.MEAN)
    assert not list(file.parent.glob("*.partial"))


def test_folding_batchnorm_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    networks = pytest.importorskip("pretrain_networks")
    blocks = {key: SHAPE[key] for key in ("embed_dim", "depth", "num_heads")}
    student = networks.Student(
        SHAPE, timm.create_model("vit_tiny_patch16_224", num_classes=0, **blocks), 2, 2
    )
    for module in student.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
            torch.nn.init.uniform_(module.weight, 0.5, 2)
    x = torch.randn(2, 3, 128, 128)
    expected = student.eval().vit.forward_features(x)
    torch.testing.assert_close(
        networks.plain(student).forward_features(x), expected, rtol=1e-3, atol=1e-4
    )

"""The benchmark of speed measures what it says: parts that add up, and a reference that computes
the same heads.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import plain
import speed

pytestmark = pytest.mark.slow  # run once before a release: a benchmark is no part of the package

WORK = {
    "backbone": "safecl_micro",
    "side": 64,
    "classes": 2,
    "train": 3,
    "test": 2,
    "epochs": 1,
    "later": 1,
    "size": 40,
    "batch": 4,
    "workers": 0,
}


def test_a_session_is_timed_in_parts_that_add_up() -> None:
    result = speed.ours(WORK, "ssf", 2, "cpu", [])
    # two classes are too few for a pilot
    assert [line["steps"] for line in result["sessions"]] == [
        2,
        2,
    ]
    for line in result["sessions"]:
        parts = sum(
            line[part] for part in ("training", "features", "heads", "evaluation", "saving")
        )
        assert 0 < parts <= line["whole"]
    assert result["method"].classes == [0, 1, 2, 3]


@pytest.mark.parametrize("pet", ["ssf", "adapter"])
def test_the_reference_goes_through_all_parts(pet: str) -> None:
    found = speed.reference(WORK, pet, torch.device("cpu"), epochs=1)
    assert found["whole"] == pytest.approx(
        sum(v for k, v in found.items() if k not in ("whole", "saving"))
    )


def test_the_heads_of_the_reference_are_ridge_regressions() -> None:
    h = torch.rand(50, 12)
    targets = torch.arange(50) % 3
    weights = plain.heads(h, targets, 3)
    y = torch.nn.functional.one_hot(targets, 3).float()
    errors = [
        (torch.linalg.solve(h.T @ h + b * torch.eye(12), h.T @ y) - weights).abs().max()
        for b in plain.BETAS
    ]
    assert min(errors) < 1e-6


def test_operations_are_those_of_the_matrices() -> None:
    import timm

    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32)
    tokens = 5
    d = 192
    block = 2 * tokens * d * (3 * d + d + 8 * d) + 4 * tokens * tokens * d
    assert speed.operations(vit, 32) == pytest.approx(12 * block + 2 * 4 * 768 * d, rel=0.01)

"""The benchmark of the methods counts what the network computes, and a method that fails stops no
other.
"""

import csv
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from safecl.backbone.load import load_backbone
from safecl.learner import Learner
from safecl.pet.settings import pet_settings

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import methods

pytestmark = pytest.mark.slow  # run once before a release: a benchmark is no part of the package

WORDS = [
    "--device",
    "cpu",
    "--classes",
    "2",
    "--sessions",
    "2",
    "--each",
    "3",
    "--epochs",
    "1",
    "--batch",
    "4",
    "--times",
    "1",
    "ridge.size=40",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], Path]:
    file = tmp_path_factory.mktemp("speed") / "methods.csv"
    return (
        methods.main(["--methods", "simplecil,no-such-preset,l2p", "--out", str(file), *WORDS]),
        file,
    )


def test_safe_comes_first_and_is_its_own_measure(table: tuple[list[dict], Path]) -> None:
    rows, _ = table
    assert [row["method"] for row in rows] == ["safe", "simplecil", "no-such-preset", "l2p"]
    assert [rows[0][key] for key in ("ratio", "per_pass", "training_ratio")] == pytest.approx(
        [1, 1, 1]
    )


def test_a_method_that_fails_says_so_and_the_others_are_measured(
    table: tuple[list[dict], Path],
) -> None:
    rows, _ = table
    assert rows[2]["note"].startswith("failed: UnknownName") and "seconds" not in rows[2]
    assert rows[3]["seconds"] > rows[3]["training"] > 0
    assert methods.verdict(rows).splitlines()[-1] == "failed: no-such-preset"


def test_the_file_holds_the_table(table: tuple[list[dict], Path]) -> None:
    rows, file = table
    read = list(csv.DictReader(file.open(encoding="utf-8")))
    assert [row["method"] for row in read] == [row["method"] for row in rows]
    for mine, theirs in zip(rows, read, strict=True):
        assert float(theirs["passes"] or 0) == pytest.approx(mine.get("passes", 0), rel=1e-5)


def test_a_session_without_training_is_one_pass_a_picture(table: tuple[list[dict], Path]) -> None:
    row = table[0][1]
    assert (row["passes"], row["training_passes"], row["training"]) == (6, 0, 0)
    assert row["graph"] == "no training" and "training_ratio" not in row


def test_training_counts_forward_and_backward_passes_of_every_step(
    table: tuple[list[dict], Path],
) -> None:
    """L2P: a query and a longer prompted pass, and a backward pass without the frozen stem, for 6
    pictures.
    """
    row = table[0][3]
    backbone = load_backbone("safecl_micro")
    with methods.Operations() as stem, torch.no_grad():
        backbone.network.patch_embed(torch.zeros(1, 3, backbone.size, backbone.size))
    blocks = 1 - stem.total / methods.operations_of_pass(backbone)
    tokens = (backbone.size // backbone.network.patch_embed.patch_size[0]) ** 2 + 1
    longer = blocks * (tokens + 25) / tokens
    assert row["passes"] == row["training_passes"]
    # the last block follows more tokens
    assert row["passes"] == pytest.approx(6 * (1 + 2 * longer), rel=0.15)
    assert row["graph"] == "no CUDA device (l2p)"


@pytest.mark.parametrize("kind", ["ssf", "adapter", "full"])
def test_operations_are_those_of_torchs_own_counter(kind: str) -> None:
    backbone = load_backbone("safecl_micro")
    learner = Learner(backbone, pet_settings(kind)).train()
    images = torch.rand(2, 3, backbone.size, backbone.size)
    with methods.Operations() as mine:
        learner.features(images).sum().backward()
    with FlopCounterMode(display=False) as theirs:
        learner.features(images.clone()).sum().backward()
    assert mine.total == theirs.get_total_flops()


def test_the_reference_is_the_line_through_both_sessions_of_safe() -> None:
    one, two = (
        methods.Measured(seconds, 0, passes, 0, [], {}) for seconds, passes in ((3, 10), (5, 20))
    )
    assert [methods.seconds_for(passes, [one, two]) for passes in (0, 10, 20, 30)] == pytest.approx(
        [1, 3, 5, 7]
    )
    assert methods.seconds_for(100, [two, one]) == pytest.approx(21)
    # noise: no falling line
    assert methods.seconds_for(5, [one, methods.Measured(2, 0, 20, 0, [], {})]) == 3


def test_what_is_not_recorded_is_named_with_its_cause() -> None:
    good = methods.Steps(1, "slow", recorded=2)
    bad = methods.Steps(2, "fast", cause="a sync")
    assert methods.recording([good]) == "recorded"
    assert (
        methods.recording([good, bad, methods.Steps(3, "head", cause="a sync")])
        == "a sync (fast, head)"
    )
    assert (
        methods.recording([methods.Steps(1, "short")])
        == "no shape of its inputs came twice (short)"
    )

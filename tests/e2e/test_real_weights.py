"""Real weights on real pictures, at a size that fits a test; ``benchmarks/cells.py`` measures the
same in full.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safecl.engine.progress import Progress
from safecl.experiments.config import load
from safecl.experiments.launch import launch
from safecl.streams.datasets.archive import open_source

CLASSES = (
    "apple",
    "bee",
    "bottle",
    "bus",
    "castle",
    "clock",
    "cloud",
    "fox",
    "lamp",
    "orange",
    "rose",
    "whale",
)
SIZE = [
    "backbone.image_size=32",
    "train.epochs=3",
    "train.batch_size=16",
    "train.lr=0.05",
    "stream.cache=false",
]


@pytest.fixture(scope="module")
def streams(
    asset: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """The words for a few pictures of CIFAR-100 (classes) and of PACS (domains)."""
    folder = tmp_path_factory.mktemp("pictures")
    found = {}
    for protocol, name, train, test in (
        ("class", "cifar100_50x10.zip", 8, 8),
        ("domain", "pacs_30x15.zip", 4, 4),
    ):
        source = open_source(asset(f"pictures/{name}"), folder)
        members = [member for member in source.names if member.endswith((".png", ".jpg", ".jpeg"))]
        taken: dict[str, list[str]] = {}
        for member in members:
            if protocol == "domain" or member.split("/")[-2] in CLASSES:
                taken.setdefault(str(Path(member).parent), []).append(member)
        rows = []
        for place, files in taken.items():
            split, *domain, label = place.split("/")
            for member in files[: train if split == "train" else test]:
                rows.append([f"{name}/{member}", label, split, *domain])
        with (folder / f"{protocol}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [["path", "label", "split", "domain"][: len(rows[0])], *rows]
            )
        found[protocol] = [
            f"stream=csv:{folder / f'{protocol}.csv'}",
            f"stream.protocol={protocol}",
        ]
    found["class"] += ["stream.first=4", "stream.step=4"]
    return found


@pytest.fixture(scope="module")
def learn(
    asset: Callable[[str], Path],
    streams: dict[str, list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., dict[str, Any]]:
    """``learn(preset, protocol, …words)``: the summary of a run."""
    weights = asset("weights/vit_tiny_p8_64.safetensors")

    def run(preset: str, protocol: str, *words: str) -> dict[str, Any]:
        ridge = [] if preset == "finetune" else ["ridge.size=500"]
        settings = load(preset, [*streams[protocol], f"backbone={weights}", *SIZE, *ridge, *words])
        return launch(settings, tmp_path_factory.mktemp("runs") / "run", Progress())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("pet", ["ssf", "adapter", "vpt_deep"])
@pytest.mark.parametrize("protocol", ["class", "domain"])
def test_safe_learns_as_well_as_ranpac_or_better(
    protocol: str, pet: str, learn: Callable[..., dict[str, Any]]
) -> None:
    safe, ranpac = (learn(preset, protocol, f"pet={pet}")["final"] for preset in ("safe", "ranpac"))
    assert min(safe.values()) > 2 / len(CLASSES if protocol == "class" else range(7))
    assert safe["safe"] >= ranpac["ranpac"] - 0.05  # five of about a hundred test pictures


@pytest.mark.slow
def test_fine_tuning_loses_more_than_half(learn: Callable[..., dict[str, Any]]) -> None:
    few = "stream.step=2"  # of twelve classes, since fine-tuning keeps the last session's
    safe = learn("safe", "class", few, "pet=ssf")
    tuned = learn("finetune", "class", few, "train.lr=0.1", "train.epochs=20")
    assert tuned["final"]["finetune"] < 0.5 * safe["final"]["safe"]
    assert tuned["forgetting"]["finetune"] > tuned["final"]["finetune"]

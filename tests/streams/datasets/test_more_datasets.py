"""The datasets that the paper does not use, as miniatures in their published formats."""

from pathlib import Path
from typing import Any

from safecl.streams.catalog import check_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.archive import open_source
from safecl.streams.datasets.dataset import record
from safecl.streams.settings import DatasetSettings
from tests.conftest import raises
from tests.streams.datasets.test_datasets import (
    miniature,
    opened,
    picture,
    processed,
    tarred,
    zipped,
)

__all__ = ["miniature"]


def sizes(stream: Any) -> list[int]:
    return [len(classes) for _, classes in stream.sessions]


def test_cars_in_folders_have_sixteen_classes_first(tmp_path: Path, miniature: Any) -> None:
    classes = [f"Car {i:03d} 2012" for i in range(196)]
    root = miniature(
        "cars", zipped(tmp_path / "mirror.zip", processed(classes, "car_data/car_data"))
    )
    assert record(root / "cars")["split"] == "official"
    stream = opened("cars", root)
    assert sizes(stream) == [16] + [20] * 9 and stream.labels[:3] == [
        classes[i] for i in (59, 134, 162)
    ]


def test_food_is_split_by_its_lists(tmp_path: Path, miniature: Any) -> None:
    classes = [f"dish_{i:03d}" for i in range(101)]
    files = {
        f"food-101/images/{c}/{k}.jpg": picture(7 * i + k)
        for i, c in enumerate(classes)
        for k in range(3)
    }
    for part, wanted in (("train", (0, 2)), ("test", (1,))):
        lines = "\n".join(f"{c}/{k}" for c in classes for k in wanted)
        files[f"food-101/meta/{part}.txt"] = lines.encode()
    archive = tarred(tmp_path / "food-101.tar.gz", files)
    root = miniature("food101", archive)
    assert (root / "food-101/test/dish_007/1.jpg").is_file() and (
        root / "food-101/train/dish_007/2.jpg"
    ).is_file()
    stream = opened("food101", root)
    assert sizes(stream) == [11] + [10] * 9
    assert [(len(s.train), len(stream.test(s.number))) for s in stream][:2] == [(22, 11), (20, 10)]
    del files["food-101/images/dish_003/0.jpg"]
    with raises("dataset.source.no-picture", name="dish_003/0.jpg"):
        DATASETS["food101"].plan(
            [open_source(tarred(tmp_path / "other.tar.gz", files), tmp_path / "work")]
        )


def test_core50_learns_eight_places_and_is_tested_in_three_others(
    tmp_path: Path, miniature: Any
) -> None:
    places = [f"s{i}" for i in range(1, 12)]
    files = {
        f"core50_128x128/{s}/o{o}/C_{i:02d}_{o:02d}_{k:03d}.png": picture(
            100 * i + 2 * o + k, "PNG"
        )
        for i, s in enumerate(places)
        for o in (1, 2, 10)
        for k in range(2)
    }
    root = miniature("core50", zipped(tmp_path / "core50_128x128.zip", files))
    report = check_stream(DatasetSettings(name="core50", root=root))
    assert not report.problems
    stream = opened("core50", root)
    assert (
        tuple(name for name, _ in stream.sessions) == DATASETS["core50"].domains
        and stream.protocol == "domain"
    )
    assert stream.sessions[0][1] == ("o1", "o10", "o2")
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [(6, 18)] + [(6, 0)] * 7
    with raises("dataset.core.lacking", missing="s11"):
        few = {name: data for name, data in files.items() if "/s11/" not in name}
        DATASETS["core50"].plan([open_source(zipped(tmp_path / "few.zip", few), tmp_path / "work")])

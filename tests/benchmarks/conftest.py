"""What the tests of the benchmarks share."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes that differ in brightness, five pictures each for training and three for
    tests.
    """
    place = tmp_path_factory.mktemp("pictures")
    random = np.random.RandomState(0)
    for part, each in (("train", 5), ("test", 3)):
        for c in range(6):
            (place / part / f"class{c}").mkdir(parents=True)
            for i in range(each):
                pixels = (40 * c + random.randint(0, 40, (20, 20, 3))).astype(np.uint8)
                Image.fromarray(pixels).save(place / part / f"class{c}" / f"{part}{i}.png")
    return place


@pytest.fixture
def options(folder: Path) -> Callable[..., argparse.Namespace]:
    """The options of the benchmarks of cells: four classes, two in a session, unless ``given``."""

    def make(**given: Any) -> argparse.Namespace:
        usual = {
            "protocol": "class",
            "first": None,
            "step": 2,
            "classes": 4,
            "each": 4,
            "tested": 2,
        }
        usual |= {
            "keep_split": False,
            "backbone": None,
            "weights": None,
            "image_size": None,
            "pet": "ssf",
        }
        usual |= {"every": 0, "no_ranpac": False}
        return argparse.Namespace(**{"folder": folder, "words": [], **usual, **given})

    return make

"""Small pictures, each unlike every other."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Paint = Callable[..., Path]


@pytest.fixture
def paint() -> Paint:
    """``paint(path, seed=None, size=(24, 18))``: a picture of smooth noise; without a seed, a new one each time."""
    count = iter(range(10**6))

    def write(path: Path, seed: int | None = None, size: tuple[int, int] = (24, 18)) -> Path:
        random = np.random.default_rng([7, next(count)] if seed is None else [3, seed])
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (3, 4, 3), dtype=np.uint8)).resize(size).save(path)
        return path

    return write


@pytest.fixture
def class_folder(tmp_path: Path, paint: Paint) -> Callable[..., Path]:
    """``class_folder({"cat": 3, "train/dog": 2})``: folders with that many pictures."""

    def write(counts: dict[str, int], top: str = "data") -> Path:
        for name, count in counts.items():
            (tmp_path / top / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                paint(tmp_path / top / name / f"{i:03d}.png")
        return tmp_path / top

    return write

"""Models on a tiny random backbone, and the pictures to teach them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safecl.classifier.classifier import ContinualClassifier
from safecl.methods.catalog import method_settings
from safecl.streams.images import ArrayPictures

TINY = {
    "backbone.weights": "random",
    "method.ridge": {"size": 60, "betas": (0.01,)},
    "method.pilot": False,
    "train.lr": 0.02,
}


def make_model(method: str = "safe", **options: Any) -> ContinualClassifier:
    """A classifier that learns in a moment."""
    has = {f"method.{name}" for name in method_settings()[method].model_fields}
    settings = {key: value for key, value in TINY.items() if not key.startswith("method.") or key in has}
    settings |= options.pop("settings", {})
    given = {"epochs": 1, "image_size": 16, "device": "cpu", **options}
    return ContinualClassifier("test_vit", method, settings=settings, **given)


def pairs(pictures: ArrayPictures) -> tuple[np.ndarray, list[Any]]:
    return pictures.arrays, list(pictures.labels)


@pytest.fixture(scope="session")
def new_model() -> Callable[..., ContinualClassifier]:
    return make_model


@pytest.fixture(scope="session")
def lesson(make_pictures: Callable[..., ArrayPictures]) -> Callable[..., tuple[np.ndarray, list[Any]]]:
    """``lesson("ab", 5)``: five pictures of each class, always the same ones."""

    def make(classes: Sequence[Any], each: int = 5, seed: int = 0) -> tuple[np.ndarray, list[Any]]:
        return pairs(make_pictures([label for label in classes for _ in range(each)], seed))

    return make


@pytest.fixture(scope="session")
def write_folder(make_pictures: Callable[..., ArrayPictures]) -> Callable[..., Path]:
    """``write_folder(path, "ab", 5)``: a folder of class folders with PNG pictures."""

    def write(path: Path, classes: Sequence[str], each: int = 5, seed: int = 0) -> Path:
        pictures = make_pictures([label for label in classes for _ in range(each)], seed)
        for i, label in enumerate(pictures.labels):
            (path / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pictures.arrays[i]).save(path / str(label) / f"{i:03d}.png")
        return path

    return write

"""The paper's seven datasets in miniature."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safecl.streams.datasets import DATASETS

CLASSES = 5
EACH = 2


def picture(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(number)
    Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(path)


@pytest.fixture(scope="session")
def _miniatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few pictures of every dataset of the paper, laid out as ``safecl data
    prepare`` does.
    """
    root = tmp_path_factory.mktemp("data")
    count = iter(range(10**6))
    for name in ("imagenet-r", "imagenet-a", "cub", "omnibenchmark", "vtab"):
        for part in ("train", "test"):
            for label in range(CLASSES):
                for i in range(EACH):
                    picture(
                        root / DATASETS[name].folder / part / f"class {label}" / f"{i}.png",
                        next(count),
                    )
    for domain in DATASETS["domainnet"].domains:
        for part in ("train", "test"):
            for label in range(CLASSES):
                for i in range(EACH):
                    picture(
                        root / "DomainNet" / part / domain / f"class{label}" / f"{i}.png",
                        next(count),
                    )
    cifar = root / DATASETS["cifar100"].folder
    cifar.mkdir()
    labels = [label for label in range(CLASSES) for _ in range(EACH)]
    data = np.random.default_rng(0).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    for part in ("train", "test"):
        (cifar / part).write_bytes(
            pickle.dumps({"data": data + (part == "test"), "fine_labels": labels})
        )
    (cifar / "meta").write_bytes(
        pickle.dumps({"fine_label_names": [f"class {i}" for i in range(CLASSES)]})
    )
    return root


@pytest.fixture
def miniatures(_miniatures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, for a test that takes its pictures for the published ones, whatever the md5."""
    monkeypatch.setattr(
        "torchvision.datasets.cifar.check_integrity", lambda path, md5: Path(path).is_file()
    )
    return _miniatures


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decoded pictures are not kept on disk."""
    monkeypatch.setenv("SAFECL_CACHE", "off")
    yield

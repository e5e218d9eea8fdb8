"""The real pictures of the shared assets, where they are: prepared by nobody, streamed as they
lie.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path

from safecl.streams.catalog import open_stream
from safecl.streams.datasets.archive import open_source
from safecl.streams.pictures.load import batches

Asset = Callable[[str], Path]


def unpacked(archive: Path, to: Path) -> Path:
    assert zipfile.is_zipfile(archive)
    return open_source(archive, to).folder


def test_cifar_pictures_are_a_class_incremental_stream(asset: Asset, tmp_path: Path) -> None:
    stream = open_stream(
        f"folder:{unpacked(asset('pictures/cifar100_50x10.zip'), tmp_path)}",
        step=10,
        order_seed=1993,
        size=32,
        margin=1.0,
    )
    assert (len(stream), len(stream.labels), stream.protocol) == (10, 100, "class")
    classes = sorted(str(label) for label in stream.labels)
    assert stream.labels[:5] == [classes[i] for i in (68, 56, 78, 8, 23)]
    session = stream.open(1)
    assert (len(session.train), len(stream.test(1))) == (500, 100)
    first = next(batches(session.train, range(500), 64, "canvas", stream.transform))
    assert first.pictures.shape == (64, 3, 32, 32)


def test_pacs_is_a_domain_incremental_stream(asset: Asset, tmp_path: Path) -> None:
    stream = open_stream(f"folder:{unpacked(asset('pictures/pacs_30x15.zip'), tmp_path)}", size=64)
    assert stream.protocol == "domain"
    assert [name for name, _ in stream.sessions] == ["art_painting", "cartoon", "photo", "sketch"]
    assert {classes for _, classes in stream.sessions} == {
        ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    }
    for session in stream:
        assert (len(session.train), len(stream.test(session.number))) == (210, 105)
        assert session.train.plain([0, 100, 209], stream.transform).shape == (3, 3, 64, 64)

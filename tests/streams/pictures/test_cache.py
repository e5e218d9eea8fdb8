"""The cache gives the same bytes, decodes once, stays within its bounds, and survives whatever
happens to it.
"""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.streams.pictures.cache import GIB, CachedPictures, cache_folder, cached, max_bytes
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.load import batches
from tests.conftest import raises

SMALL = Transform(size=12)


class Counting(FilePictures):
    decoded = 0

    def reduced(self, index: int, least: int | None = None) -> Image.Image:
        self.decoded += 1
        return super().reduced(index, least)


@pytest.fixture
def pictures(tmp_path: Path, paint) -> Counting:
    paths = [paint(tmp_path / "data" / f"{i}.png", size=(20 + i, 16)) for i in range(10)]
    return Counting([File.at(p) for p in paths], list("abcdefghij"))


def store(tmp_path: Path, pictures: Pictures, limit: int = GIB) -> Pictures:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAFECL_CACHE_GB", str(limit / GIB))
        return cached(pictures, SMALL, tmp_path / "cache")


def test_cached_views_are_the_views(tmp_path: Path, pictures: Counting) -> None:
    through = store(tmp_path, pictures)
    order = [3, 0, 9, 3]
    for _ in range(2):
        assert torch.equal(through.plain(order, SMALL), pictures.plain(order, SMALL))
        for got, expected in zip(
            through.canvas(order, SMALL), pictures.canvas(order, SMALL), strict=True
        ):
            assert torch.equal(got, expected)
    other = Transform(size=9)
    assert torch.equal(through.plain([1], other), pictures.plain([1], other))


def test_a_picture_is_decoded_once_for_every_view_epoch_and_run(
    tmp_path: Path, pictures: Counting
) -> None:
    for _run in range(2):
        through = store(tmp_path, pictures)
        for _epoch in range(2):
            for view in ("canvas", "plain"):
                assert (
                    sum(
                        len(b.indices)
                        for b in batches(through, range(10), 3, view, SMALL, workers=3)
                    )
                    == 10
                )
    assert pictures.decoded == 10


def test_a_changed_file_is_another_store(tmp_path: Path, pictures: Counting, paint) -> None:
    before = store(tmp_path, pictures).plain([0], SMALL)
    path = pictures.files[0].path
    paint(Path(path), seed=99)
    os.utime(path, ns=(7, 7))
    fresh = FilePictures([File.at(f.path) for f in pictures.files], pictures.labels)
    after = store(tmp_path, fresh).plain([0], SMALL)
    assert torch.equal(after, fresh.plain([0], SMALL)) and not torch.equal(after, before)


def test_a_damaged_view_is_decoded_again(tmp_path: Path, pictures: Counting) -> None:
    expected = store(tmp_path, pictures).plain(range(10), SMALL)
    (view,) = (tmp_path / "cache").glob("*/plain")
    data = bytearray(view.read_bytes())
    data[5 * 3 * 12 * 12 + 7] ^= 255
    view.write_bytes(bytes(data))
    pictures.decoded = 0
    assert torch.equal(store(tmp_path, pictures).plain(range(10), SMALL), expected)
    assert pictures.decoded == 1


def test_a_damaged_shape_is_computed_again(tmp_path: Path, pictures: Counting) -> None:
    expected = store(tmp_path, pictures).canvas(range(10), SMALL)
    (shapes,) = (tmp_path / "cache").glob("*/shapes")
    data = bytearray(shapes.read_bytes())
    data[5 * 12 + 1] ^= 255
    shapes.write_bytes(bytes(data))
    pictures.decoded = 0
    for got, wanted in zip(
        store(tmp_path, pictures).canvas(range(10), SMALL), expected, strict=True
    ):
        assert torch.equal(got, wanted)
    assert pictures.decoded == 1


def test_runs_at_the_same_time_share_a_store(tmp_path: Path, pictures: Counting) -> None:
    def fill(order: range) -> None:
        store(tmp_path, pictures).plain(order, SMALL)

    process = multiprocessing.get_context("fork").Process
    runs = [process(target=fill, args=(order,)) for order in (range(10), range(9, -1, -1))]
    for run in runs:
        run.start()
    for run in runs:
        run.join(120)
    assert [run.exitcode for run in runs] == [0, 0]
    expected = pictures.plain(range(10), SMALL)
    pictures.decoded = 0
    assert torch.equal(store(tmp_path, pictures).plain(range(10), SMALL), expected)
    assert pictures.decoded == 0


def test_what_does_not_fit_is_decoded_each_time(tmp_path: Path, pictures: Counting) -> None:
    per_picture = 3 * (12 * 12 + 26 * 26) + 20
    through = store(tmp_path, pictures, limit=4 * per_picture + 5)
    for _ in range(3):
        assert torch.equal(
            through.plain(range(10), SMALL),
            torch.stack([through.plain([i], SMALL)[0] for i in range(10)]),
        )
    assert isinstance(through, CachedPictures) and through.store.count == 4
    assert pictures.decoded == 4 + 6 * 2 * 3
    size = sum(f.stat().st_size for f in (tmp_path / "cache").rglob("*") if f.is_file())
    assert size <= 4 * per_picture + 5
    assert store(tmp_path / "other", pictures, limit=10) is pictures


def test_the_stores_used_longest_ago_make_room(tmp_path: Path, pictures: Counting) -> None:
    def one(i: int, when: int) -> Path:
        some = pictures.subset(range(i, i + 3))
        before = set((tmp_path / "cache").glob("*/"))
        store(tmp_path, some, limit=60_000).plain(range(3), SMALL)
        (new,) = {p for p in (tmp_path / "cache").glob("*/") if p.is_dir()} - before
        os.utime(new, (when, when))
        return new

    stores = [one(i, when) for i, when in ((0, 100), (1, 300), (2, 200), (3, 400), (4, 500))]
    assert not stores[0].exists() and stores[-1].exists()


def test_a_full_disk_turns_the_cache_off_and_nothing_else(
    tmp_path: Path, pictures: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = store(tmp_path, pictures)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safecl.streams.pictures.cache.write_at", full)
    with pytest.warns(UserWarning, match="cache cannot be written"):
        assert torch.equal(through.plain(range(10), SMALL), pictures.plain(range(10), SMALL))


def test_a_folder_that_cannot_be_written_is_said_and_read_without(
    tmp_path: Path, pictures: Counting
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.warns(UserWarning, match="without a cache"):
        assert cached(pictures, SMALL, tmp_path / "file" / "cache") is pictures


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAFECL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder(tmp_path) == tmp_path / ".safecl-cache"
    assert cache_folder(tmp_path / "gone") == Path("/somewhere/safecl/pictures")
    assert cache_folder(tmp_path, "/fast") == Path("/fast")
    assert cache_folder(tmp_path, False) is None and cache_folder(tmp_path, "off") is None
    monkeypatch.setenv("SAFECL_CACHE", "/env")
    assert cache_folder(tmp_path) == Path("/env")
    monkeypatch.setenv("SAFECL_CACHE", "off")
    assert cache_folder(tmp_path) is None


def test_the_limit_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFECL_CACHE_GB", "0.5")
    assert max_bytes() == 2**29
    monkeypatch.setenv("SAFECL_CACHE_GB", "lots")
    with raises("pictures.cache.size"):
        max_bytes()


def test_pictures_that_must_be_decoded_to_be_known_are_not_cached(tmp_path: Path) -> None:
    class Nameless(Pictures):
        labels = ("a",)

        def decode(self, index: int) -> Image.Image:
            return Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8))

    nameless = Nameless()
    assert cached(nameless, SMALL, tmp_path) is nameless

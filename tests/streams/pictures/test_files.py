"""Picture files: read as they were found, or one sentence that names the file."""

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.streams.pictures.cache import CachedPictures, Store
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import Selection, Transform, canvas_view, plain_view
from tests.conftest import raises


def test_a_file_that_goes_away_is_named(tmp_path: Path, paint) -> None:
    path = paint(tmp_path / "a.png")
    pictures = FilePictures([File.at(path)], ["a"])
    path.unlink()
    with raises("picture.changed", where=str(path)):
        pictures.decode(0)


def test_a_file_that_changes_is_named(tmp_path: Path, paint) -> None:
    path = paint(tmp_path / "a.png", seed=1)
    pictures = FilePictures([File.at(path)], ["a"])
    paint(path, seed=2, size=(30, 30))
    os.utime(path, ns=(1, 1))
    with raises("picture.changed", where=str(path)):
        pictures.decode(0)


def test_a_picture_that_was_replaced_by_one_of_its_size_and_time_is_not_decoded(
    tmp_path: Path, paint
) -> None:
    path = tmp_path / "a.bmp"
    other = tmp_path / "b.bmp"
    for seed, each in enumerate((path, other)):
        paint(each, seed=seed)
    pictures = FilePictures([File.at(path)], ["a"])
    pictures.fingerprint()
    then = path.stat()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    with raises("picture.changed", where=str(path)):
        pictures.decode(0)


def detailed(size: tuple[int, int], **options: Any) -> bytes:
    """A JPEG with detail at every scale."""
    random = np.random.default_rng(0)
    found = np.zeros((size[1], size[0], 3))
    for cells in (4, 16, 64, 256):
        noise = random.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        found += np.asarray(Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)) / 4
    out = io.BytesIO()
    Image.fromarray(found.astype(np.uint8)).save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_at_a_reduced_size_and_its_views_stay_the_same(
    tmp_path: Path, orientation: int
) -> None:
    (tmp_path / "large.jpg").write_bytes(detailed((1216, 912), exif=turned(orientation)))
    pictures = FilePictures([File.at(tmp_path / "large.jpg")], ["a"])
    transform = Transform(64)
    assert (
        min(pictures.decode(0).size) == 912
        and min(pictures.reduced(0, transform.enough).size) == 456
    )
    assert (pictures.decode(0).height > 912) == (orientation == 6)
    whole = pictures.decode(0)
    side = pictures.side(transform)
    (square, shape), plain = canvas_view(whole, side), plain_view(whole, transform)
    squares, shapes = pictures.canvas([0], transform)
    for found, wanted in ((pictures.plain([0], transform)[0], plain), (squares[0], square)):
        difference = (found.int() - wanted.int()).abs().float()
        assert difference.max() <= 3 and difference.mean() < 0.5
    assert torch.allclose(shapes[0], shape, atol=0.01)
    store = Store({"plain": 64, "canvas": side}, 1)  # what is learned from is what is predicted
    held = CachedPictures(pictures, store, transform)
    assert torch.equal(held.plain([0], transform), pictures.plain([0], transform))
    assert torch.equal(held.canvas([0], transform)[0], squares)
    assert torch.equal(
        Selection([pictures], [0]).plain([0], transform), pictures.plain([0], transform)
    )


@pytest.mark.parametrize("size", [(64, 48), (300, 583), (1210, 907)])
def test_a_small_jpeg_and_any_other_format_are_decoded_whole(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "small.jpg").write_bytes(detailed(size))
    Image.open(tmp_path / "small.jpg").resize((1200, 1000)).save(
        tmp_path / "large.png", compress_level=0
    )
    pictures = FilePictures([File.at(tmp_path / name) for name in ("small.jpg", "large.png")], "ab")
    for i in range(2):
        assert pictures.reduced(i, Transform(64).enough).tobytes() == pictures.decode(i).tobytes()


def test_a_large_jpeg_that_breaks_off_is_unreadable_at_any_size(tmp_path: Path) -> None:
    (tmp_path / "cut.jpg").write_bytes(detailed((1200, 900))[:-2000])
    pictures = FilePictures([File.at(tmp_path / "cut.jpg")], ["a"])
    for least in (None, 292, 1):
        with raises(
            "picture.unreadable",
            where=re.compile(r"cut\.jpg$"),
            reason=re.compile("^image file is truncated"),
        ):
            pictures.reduced(0, least)

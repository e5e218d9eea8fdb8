"""The two views of pictures, and collections of collections."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from safecl.errors import SafeclError
from safecl.serve.decoding import view
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import (
    ArrayPictures,
    Pictures,
    Transform,
    join,
    pixels,
    plain_view,
)
from safecl.streams.pictures.prepare import prepare


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize(
    ("size", "margin", "resize"), [(224, 256 / 224, 256), (224, 1.0, 224), (64, 256 / 224, 73)]
)
def test_the_plain_view_is_the_fields_test_transform(size: int, margin: float, resize: int) -> None:
    transform = Transform(size=size, margin=margin)
    image = smooth(300, 210)
    assert transform.resize == resize
    assert torch.equal(plain_view(image, transform), pixels(fields(image, size, resize)))


def fields(image: Image.Image, size: int, resize: int) -> Image.Image:
    found: Image.Image = TF.center_crop(
        TF.resize(image, [resize], InterpolationMode.BICUBIC), [size]
    )
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 24), st.integers(0, 5))
def test_a_picture_of_any_shape_is_prepared_alike_wherever_it_comes(
    width: int, height: int, size: int, more: int
) -> None:
    """For learning and answering, in a service, and in the square that an exported graph crops
    itself.
    """
    assume(max(width, height) <= 64 * min(width, height))
    image = smooth(width, height, seed=width)
    resize = size + more
    data = io.BytesIO()
    image.save(data, "PNG")
    expected = np.asarray(fields(image, size, resize))
    found = (
        plain_view(image, Transform(size, margin=resize / size)),
        view(data.getvalue(), size, resize),
    )
    assert (found[0].permute(1, 2, 0).numpy() == expected).all() and (
        np.asarray(found[1]) == expected
    ).all()
    square = prepare(image, size, resize, side=resize)
    assert (
        square.size == (resize, resize)
        and (np.asarray(fields(square, size, resize)) == expected).all()
    )


def test_the_training_transform_is_the_fields() -> None:
    assert Transform() == Transform(224, 256 / 224, (0.05, 1.0), (3 / 4, 4 / 3), 0.5)


@pytest.mark.parametrize("shape", [(32, 32), (20, 32), (32, 20), (72, 72), (40, 72)])
def test_arrays_up_to_twice_the_resized_side_are_their_own_canvas(shape: tuple[int, int]) -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (5, *shape, 3), dtype=np.uint8)
    height, width = shape
    canvas, shapes = ArrayPictures(arrays, list("abcde")).canvas(
        [3, 1], Transform(size=36, margin=1.0)
    )
    side = max(shape)
    assert canvas.shape == (2, 3, side, side)
    assert shapes.tolist() == [pytest.approx([width / height, width / side, height / side])] * 2
    assert (canvas[0, :, :height, :width].permute(1, 2, 0).numpy() == arrays[3]).all()
    assert canvas[..., height:, :].sum() == canvas[..., width:].sum() == 0


def test_larger_arrays_are_reduced_in_the_direction_in_which_they_are_larger() -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (2, 30, 80, 3), dtype=np.uint8)
    canvas, shapes = ArrayPictures(arrays, list("ab")).canvas([1], Transform(size=16, margin=1.25))
    assert canvas.shape == (1, 3, 40, 40) and shapes.tolist() == [
        pytest.approx([80 / 30, 1.0, 0.75])
    ]
    expected = Image.fromarray(arrays[1]).resize((40, 30), Image.Resampling.LANCZOS)
    assert torch.equal(canvas[0, :, :30], pixels(expected))


class Sized(Pictures):
    """Pictures of given sizes; counts how many are decoded and how many are only measured."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes
        self.labels = [0] * len(sizes)
        self.decoded = 0
        self.measured = 0

    def size_of(self, index: int) -> tuple[int, int]:
        self.measured += 1
        if self.sizes[index] == (0, 0):
            raise SafeclError("package.says", sentence="broken")
        return self.sizes[index]

    def decode(self, index: int) -> Image.Image:
        self.decoded += 1
        return Image.new("RGB", self.sizes[index])


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(40, 30)] * 9, 80),  # small pictures: the resized side
        ([(85, 60)] * 9, 90),  # rounded up to an eighth of it
        ([(60, 118)] * 9, 120),
        ([(900, 700)] * 9, 160),  # at most twice of it
        ([(40, 30)] * 19 + [(900, 700)], 80),  # one in twenty does not count
        ([(40, 30)] * 8 + [(900, 700)] * 2, 160),
        ([(100, 50)] * 5 + [(0, 0)], 100),
        ([(0, 0)], 80),
        ([], 80),
    ],
)
def test_a_canvas_is_as_large_as_the_pictures_of_its_collection(
    sizes: list[tuple[int, int]], side: int
) -> None:
    pictures = Sized(sizes)
    transform = Transform(size=70)
    assert transform.resize == 80 and pictures.side(transform) == side
    assert pictures.subset([]).side(transform) == side


def test_at_most_64_pictures_are_measured_once_and_none_is_decoded() -> None:
    pictures = Sized([(40, 30)] * 1000)
    for size in (8, 16):
        pictures.side(Transform(size=size))
    assert (pictures.measured, pictures.decoded) == (64, 0)


def test_files_are_measured_by_their_headers(
    tmp_path: Path, paint, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [File.at(paint(tmp_path / f"{i}.png", size=(50, 90))) for i in range(3)]
    monkeypatch.setattr(FilePictures, "reduced", None)
    assert FilePictures(files, list("abc")).side(Transform(size=40)) == 90


def test_joined_pictures_have_one_canvas(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    small, large = (
        ArrayPictures(random.integers(0, 256, (2, *shape, 3), dtype=np.uint8), list("ab"))
        for shape in ((6, 8), (9, 12))
    )
    both = join([small, large])
    transform = Transform(size=8, margin=1.0)
    canvas, shapes = both.canvas([2, 1, 0], transform)
    assert canvas.shape == (3, 3, 12, 12) and both.side(transform) == 12
    assert shapes.tolist() == [
        pytest.approx(row) for row in ([4 / 3, 1, 0.75], *[[4 / 3, 8 / 12, 6 / 12]] * 2)
    ]
    for square, index, member in (
        (canvas[0], 0, large),
        (canvas[1], 1, small),
        (canvas[2], 0, small),
    ):
        height, width = member.arrays.shape[1:3]
        assert torch.equal(square[:, :height, :width], pixels(member.decode(index)))
    assert torch.equal(both.plain([2, 1], transform)[1], small.plain([1], transform)[0])


def test_subsets_of_subsets_read_the_right_picture() -> None:
    arrays = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1).repeat(8, 1).repeat(8, 2).repeat(3, 3)
    inner = ArrayPictures(arrays, list("abcdef")).subset([5, 3, 1]).subset([2, 0])
    assert inner.labels == ["b", "f"]
    assert [inner.decode(i).getpixel((0, 0)) for i in (0, 1)] == [(1, 1, 1), (5, 5, 5)]
    assert inner.plain([1], Transform(size=8, margin=1.0)).unique().tolist() == [5]

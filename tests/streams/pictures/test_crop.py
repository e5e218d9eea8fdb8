"""The batched augmentation draws and cuts what torchvision draws and cuts picture by picture."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torchvision import transforms
from torchvision.transforms.v2.functional import resized_crop

from safecl.streams.pictures.crop import (
    cut_out,
    cut_out_dense,
    cut_out_sparse,
    random_boxes,
    random_crops,
)
from safecl.streams.pictures.images import Transform, canvas_view, pixels

NUMBER = 4000


def augment(
    canvas: torch.Tensor, shapes: torch.Tensor, transform: Transform, generator: torch.Generator
) -> torch.Tensor:
    return cut_out(canvas, random_crops(shapes, transform, generator), transform.size)


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def boxes_of_torchvision(width: int, height: int, transform: Transform) -> np.ndarray:
    """(left, top, width, height) as fractions."""
    torch.manual_seed(0)
    probe = torch.zeros(1, height, width)
    crop = transforms.RandomResizedCrop.get_params
    drawn = [crop(probe, list(transform.scale), list(transform.ratio)) for _ in range(NUMBER)]
    return np.array(
        [(left / width, top / height, w / width, h / height) for top, left, h, w in drawn]
    )


@pytest.mark.parametrize(("width", "height"), [(400, 400), (640, 400), (300, 900)])
def test_crop_boxes_have_torchvisions_distribution(width: int, height: int) -> None:
    transform = Transform()
    expected = boxes_of_torchvision(width, height, transform)
    generator = torch.Generator().manual_seed(1)
    got = random_boxes(torch.full((NUMBER,), width / height), transform, generator).double().numpy()

    def quantities(boxes: np.ndarray) -> dict[str, np.ndarray]:
        left, top, w, h = boxes.T
        # Where whole pixels decide (a box as long as the picture) there is no corner to compare.
        free_x = w < 0.98
        free_y = h < 0.98
        return {
            "area": w * h,
            "log aspect": np.log(w * width / (h * height)),
            "left": left[free_x] / (1 - w[free_x]),
            "top": top[free_y] / (1 - h[free_y]),
        }

    theirs = quantities(expected)
    ours = quantities(got)
    for name in theirs:
        # torchvision rounds to pixels; a shift of one pixel is not a difference.
        shift = 1 / min(width, height)
        noise = np.random.default_rng(0).uniform(-shift, shift, theirs[name].shape)
        assert stats.ks_2samp(theirs[name] + noise, ours[name]).statistic < 0.045, name


@settings(max_examples=50)
@given(st.floats(0.02, 50), st.integers(0, 100))
def test_boxes_lie_inside_the_picture(aspect: float, seed: int) -> None:
    boxes = random_boxes(
        torch.full((64,), aspect), Transform(), torch.Generator().manual_seed(seed)
    )
    left, top, width, height = boxes.unbind(1)
    assert (
        (boxes >= 0).all() and (left + width <= 1 + 1e-5).all() and (top + height <= 1 + 1e-5).all()
    )
    ratio = width * aspect / height
    assert ((ratio > 0.74) & (ratio < 1.34)).all()


def test_half_of_the_pictures_are_mirrored() -> None:
    ramp = torch.arange(32, dtype=torch.uint8).mul(8).expand(3, 32, 32)
    transform = Transform(size=32, margin=1.0, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    out = augment(
        ramp.expand(2000, 3, 32, 32),
        torch.ones(2000, 3),
        transform,
        torch.Generator().manual_seed(0),
    )
    mirrored = out[:, 0, 0, 0] > out[:, 0, 0, -1]
    assert 900 < int(mirrored.sum()) < 1100
    straight = out[~mirrored][0]
    assert torch.allclose(straight, ramp / 255, atol=1e-5)
    assert torch.allclose(out[mirrored][0], straight.flip(-1), atol=1e-5)


# Not below some 30 pixels: there it shows that torchvision's boxes are whole pixels (std 2.5 % off
# at 24 × 18).
@pytest.mark.parametrize(("width", "height"), [(90, 150), (40, 40)])
def test_pixels_have_torchvisions_moments(width: int, height: int) -> None:
    image = smooth(width, height)
    transform = Transform(size=56)
    cpu = transforms.Compose(
        [
            transforms.RandomResizedCrop(56, scale=transform.scale, ratio=transform.ratio),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    torch.manual_seed(0)
    theirs = torch.stack([cpu(image) for _ in range(1500)])
    canvas, shape = canvas_view(image, 2 * transform.resize)
    ours = augment(
        canvas.expand(1500, -1, -1, -1),
        shape.expand(1500, 3),
        transform,
        torch.Generator().manual_seed(0),
    )
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    error = theirs.std(0).mean().item() / 1500**0.5
    assert (ours.mean(0) - theirs.mean(0)).abs().mean() < 4 * error
    assert abs(ours.std() / theirs.std() - 1) < 0.02
    # contrast inside a crop
    spread = [batch.std(dim=(2, 3)).mean().item() for batch in (ours, theirs)]
    assert spread[0] == pytest.approx(spread[1], rel=0.04)
    # sharpness
    step = [(batch[..., 1:] - batch[..., :-1]).abs().mean().item() for batch in (ours, theirs)]
    assert step[0] == pytest.approx(step[1], rel=0.06)


def crops_at(
    boxes: list[tuple[int, int, int, int]], side: int, mirrored: bool = False
) -> torch.Tensor:
    """(n, 2, 2) of boxes (left, top, width, height) in pixels of a canvas."""
    left, top, width, height = torch.tensor(boxes, dtype=torch.float32).div(side).unbind(1)
    across = torch.stack([-width if mirrored else width, 2 * left + width - 1], dim=1)
    return torch.stack([across, torch.stack([height, 2 * top + height - 1], dim=1)], dim=1)


@settings(max_examples=60)
@given(st.data())
def test_crops_are_those_of_torchvision_with_antialiasing(data: st.DataObject) -> None:
    side = data.draw(st.integers(1, 90))
    size = data.draw(st.integers(1, 48))
    boxes = []
    for _ in range(3):
        width = data.draw(st.integers(1, side))
        height = data.draw(st.integers(1, side))
        boxes.append(
            (
                data.draw(st.integers(0, side - width)),
                data.draw(st.integers(0, side - height)),
                width,
                height,
            )
        )
    canvas = torch.randint(
        0, 256, (3, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    for mirrored in (False, True):
        ours = cut_out(canvas, crops_at(boxes, side, mirrored), size)
        for got, square, (left, top, width, height) in zip(ours, canvas, boxes, strict=True):
            theirs = resized_crop(
                square.float() / 255, top, left, height, width, [size, size], antialias=True
            )
            assert torch.allclose(got, theirs.flip(-1) if mirrored else theirs, atol=5e-5)


def test_one_crop_is_torchvisions_crop_of_the_same_box_of_the_file() -> None:
    image = smooth(120, 90)
    transform = Transform(size=60, margin=1.0, flip=0.0)
    canvas, shape = canvas_view(image, 2 * transform.resize)
    boxes = random_boxes(torch.full((20,), 120 / 90), transform, torch.Generator().manual_seed(3))
    whole = torch.tensor([120, 90, 120, 90])
    crops = random_crops(shape.expand(20, 3), transform, torch.Generator().manual_seed(3))
    assert torch.allclose(crops, crops_at((boxes * whole).tolist(), 120), atol=1e-6)
    rounded = (boxes * whole).round().int().tolist()
    for got, (left, top, width, height) in zip(
        cut_out(canvas.expand(20, -1, -1, -1), crops_at(rounded, 120), 60), rounded, strict=True
    ):
        theirs = resized_crop(
            pixels(image).float() / 255, top, left, height, width, [60, 60], antialias=True
        )
        assert torch.allclose(got, theirs, atol=5e-5)


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 99))
def test_the_way_of_a_cpu_is_the_way_of_other_devices(side: int, size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    crops = random_crops(torch.ones(8, 3), Transform(flip=0.5), generator)
    canvas = torch.randint(0, 256, (8, 3, side, side), dtype=torch.uint8, generator=generator)
    sparse = cut_out_sparse(canvas, crops, size)
    assert torch.allclose(cut_out_dense(canvas, crops, size), sparse, atol=5e-5)
    # 0.4 of a level
    assert torch.allclose(cut_out_dense(canvas, crops, size, torch.float16), sparse, atol=1.5e-3)


def test_what_lies_beside_a_picture_on_its_canvas_is_never_seen() -> None:
    square, shape = canvas_view(smooth(40, 30), 48)
    noise = torch.randint(0, 256, square.shape, dtype=torch.uint8)
    noise[:, :30, :40] = square[:, :30, :40]
    transform = Transform(size=24)
    one, other = (
        augment(
            canvas.expand(64, -1, -1, -1),
            shape.expand(64, 3),
            transform,
            torch.Generator().manual_seed(1),
        )
        for canvas in (square, noise)
    )
    assert torch.equal(one, other)


def test_crops_much_smaller_than_a_pixel_are_numbers() -> None:
    canvas = torch.randint(0, 256, (50, 3, 2, 2), dtype=torch.uint8)
    boxes = torch.rand(50, 2, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    out = cut_out(canvas, torch.cat([torch.full((50, 2, 1), 1e-5), boxes], dim=2), 5)
    assert out.isfinite().all() and (out <= 1).all()


def test_a_seed_means_the_same_crops() -> None:
    canvas = torch.randint(0, 256, (4, 3, 20, 20), dtype=torch.uint8)
    shapes = torch.ones(4, 3)
    transform = Transform(size=16)
    one, two = (
        augment(canvas, shapes, transform, torch.Generator().manual_seed(5)) for _ in range(2)
    )
    assert torch.equal(one, two)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_cuts_the_crops_it_is_given() -> None:
    canvas = torch.randint(0, 256, (4, 3, 40, 40), dtype=torch.uint8)
    first, second = (
        random_crops(torch.ones(4, 3), Transform(), torch.Generator().manual_seed(i))
        for i in (0, 1)
    )
    there = canvas.cuda()
    crops = first.cuda()
    cut_out(there, crops, 24)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cut_out(there, crops, 24)
    for wanted in (first, second):
        crops.copy_(wanted)
        graph.replay()
        assert torch.allclose(out.cpu(), cut_out(canvas, wanted, 24), atol=5e-5)

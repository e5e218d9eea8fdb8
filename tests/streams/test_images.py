"""The two views, and that the batched augmentation draws what torchvision draws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from safecl.streams.images import ArrayPictures, Transform, augment, plain_view, random_boxes, squash

NUMBER = 4000


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize(("size", "margin", "resize"), [(224, 256 / 224, 256), (224, 1.0, 224), (64, 256 / 224, 73)])
def test_the_plain_view_is_the_fields_test_transform(size: int, margin: float, resize: int) -> None:
    transform = Transform(size=size, margin=margin)
    reference = transforms.Compose(
        [
            transforms.Resize(resize, InterpolationMode.BICUBIC),
            transforms.CenterCrop(size),
            transforms.PILToTensor(),
        ]
    )
    image = smooth(300, 210)
    assert transform.resize == resize
    assert torch.equal(plain_view(image, transform), reference(image))


def test_the_training_transform_is_the_fields() -> None:
    assert Transform() == Transform(224, 256 / 224, (0.05, 1.0), (3 / 4, 4 / 3), 0.5)


def boxes_of_torchvision(width: int, height: int, transform: Transform) -> np.ndarray:
    """(left, top, width, height) as fractions."""
    torch.manual_seed(0)
    probe = torch.zeros(1, height, width)
    crop = transforms.RandomResizedCrop.get_params
    drawn = [crop(probe, list(transform.scale), list(transform.ratio)) for _ in range(NUMBER)]
    return np.array([(left / width, top / height, w / width, h / height) for top, left, h, w in drawn])


@pytest.mark.parametrize(("width", "height"), [(400, 400), (640, 400), (300, 900)])
def test_crop_boxes_have_torchvisions_distribution(width: int, height: int) -> None:
    transform = Transform()
    expected = boxes_of_torchvision(width, height, transform)
    generator = torch.Generator().manual_seed(1)
    got = random_boxes(torch.full((NUMBER,), width / height), transform, generator).double().numpy()

    def quantities(boxes: np.ndarray) -> dict[str, np.ndarray]:
        left, top, w, h = boxes.T
        # Where whole pixels decide (a box as long as the picture) there is no corner to compare.
        free_x, free_y = w < 0.98, h < 0.98
        return {
            "area": w * h,
            "log aspect": np.log(w * width / (h * height)),
            "left": left[free_x] / (1 - w[free_x]),
            "top": top[free_y] / (1 - h[free_y]),
        }

    theirs, ours = quantities(expected), quantities(got)
    for name in theirs:
        # torchvision rounds to pixels; a shift of one pixel is not a difference.
        shift = 1 / min(width, height)
        noise = np.random.default_rng(0).uniform(-shift, shift, theirs[name].shape)
        assert stats.ks_2samp(theirs[name] + noise, ours[name]).statistic < 0.045, name


@settings(max_examples=50)
@given(st.floats(0.02, 50), st.integers(0, 100))
def test_boxes_lie_inside_the_picture(aspect: float, seed: int) -> None:
    boxes = random_boxes(torch.full((64,), aspect), Transform(), torch.Generator().manual_seed(seed))
    left, top, width, height = boxes.unbind(1)
    assert (boxes >= 0).all() and (left + width <= 1 + 1e-5).all() and (top + height <= 1 + 1e-5).all()
    ratio = width * aspect / height
    assert ((ratio > 0.74) & (ratio < 1.34)).all()


def test_half_of_the_pictures_are_mirrored() -> None:
    ramp = torch.arange(32, dtype=torch.uint8).mul(8).expand(3, 32, 32)
    transform = Transform(size=32, margin=1.0, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    out = augment(ramp.expand(2000, 3, 32, 32), torch.ones(2000), transform, torch.Generator().manual_seed(0))
    mirrored = out[:, 0, 0, 0] > out[:, 0, 0, -1]
    assert 900 < int(mirrored.sum()) < 1100
    straight = out[~mirrored][0]
    assert torch.allclose(straight, ramp / 255, atol=1e-5)
    assert torch.allclose(out[mirrored][0], straight.flip(-1), atol=1e-5)


# Not below some 30 pixels: there it shows that torchvision's boxes are whole pixels (std 2.5 % off at 24 × 18).
@pytest.mark.parametrize(("width", "height"), [(160, 120), (90, 150), (40, 40)])
def test_pixels_have_torchvisions_moments(width: int, height: int) -> None:
    image, transform = smooth(width, height), Transform(size=56)
    cpu = transforms.Compose(
        [
            transforms.RandomResizedCrop(56, scale=transform.scale, ratio=transform.ratio),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    torch.manual_seed(0)
    theirs = torch.stack([cpu(image) for _ in range(1500)])
    canvas = squash(image, transform).expand(1500, -1, -1, -1)
    aspects = torch.full((1500,), width / height)
    ours = augment(canvas, aspects, transform, torch.Generator().manual_seed(0))
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    error = theirs.std(0).mean().item() / 1500**0.5
    assert (ours.mean(0) - theirs.mean(0)).abs().mean() < 4 * error
    assert abs(ours.std() / theirs.std() - 1) < 0.02
    spread = [batch.std(dim=(2, 3)).mean().item() for batch in (ours, theirs)]  # contrast inside a crop
    assert spread[0] == pytest.approx(spread[1], rel=0.04)
    step = [(batch[..., 1:] - batch[..., :-1]).abs().mean().item() for batch in (ours, theirs)]  # sharpness
    assert step[0] == pytest.approx(step[1], rel=0.06)


def test_one_crop_is_torchvisions_crop_of_the_same_box() -> None:
    image, transform = smooth(96, 96), Transform(size=48, margin=2.0, flip=0.0)
    boxes = random_boxes(torch.ones(20), transform, torch.Generator().manual_seed(3))
    crops = augment(
        squash(image, transform).expand(20, -1, -1, -1), torch.ones(20), transform, torch.Generator().manual_seed(3)
    )
    for crop, box in zip(crops, boxes, strict=True):
        left, top, w, h = (box * 96).round().int().tolist()
        theirs = transforms.functional.resized_crop(image, top, left, h, w, [48, 48])
        difference = crop - transforms.functional.to_tensor(theirs)
        assert difference.abs().mean() < 0.04


def test_a_seed_means_the_same_crops() -> None:
    canvas, aspects = torch.randint(0, 256, (4, 3, 20, 20), dtype=torch.uint8), torch.ones(4)
    transform = Transform(size=16)
    one, two = (augment(canvas, aspects, transform, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, two)


def test_small_squares_in_memory_are_their_own_canvas() -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    pictures = ArrayPictures(arrays, list("abcde"))
    canvas, aspects = pictures.canvas([3, 1], Transform(size=224, margin=1.0))
    assert canvas.shape == (2, 3, 32, 32) and aspects.tolist() == [1, 1]
    assert (canvas[0].permute(1, 2, 0).numpy() == arrays[3]).all()
    assert pictures.canvas([0], Transform(size=16))[0].shape == (1, 3, 18, 18)


def test_subsets_of_subsets_read_the_right_picture() -> None:
    arrays = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1).repeat(8, 1).repeat(8, 2).repeat(3, 3)
    inner = ArrayPictures(arrays, list("abcdef")).subset([5, 3, 1]).subset([2, 0])
    assert inner.labels == ["b", "f"]
    assert [inner.decode(i).getpixel((0, 0)) for i in (0, 1)] == [(1, 1, 1), (5, 5, 5)]
    assert inner.plain([1], Transform(size=8, margin=1.0)).unique().tolist() == [5]

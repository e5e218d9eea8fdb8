"""Pictures that a program holds: arrays, or a list of images, arrays or tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from safecl.errors import SafeclError
from safecl.streams.check import collect
from safecl.streams.collection import make_stream
from safecl.streams.labels import Label
from safecl.streams.pictures.decode import UnreadableError, check_shape, rgb
from safecl.streams.pictures.images import ArrayPictures, Pictures
from safecl.streams.stream import Stream


def from_arrays(
    images: Any,
    labels: Sequence[Any],
    test: tuple[Any, Sequence[Any]] | None = None,
    *,
    name: str = "arrays",
    test_fraction: float = 0.2,
    split_seed: int = 0,
    **options: Any,
) -> Stream:
    """A stream of arrays (N, H, W), (N, H, W, 3) or (N, 3, H, W): uint8, or floats in [0, 1].

    ``test``: another such pair; otherwise ``test_fraction`` of every class. ``options``: those of ``make_stream``.
    """
    held = None if test is None else array_pictures(*test)
    data = collect(name, array_pictures(images, labels), held, test_fraction=test_fraction, split_seed=split_seed)
    return make_stream(data, **options)


class Images(Pictures):
    """Images, arrays or tensors, each of its own size."""

    def __init__(self, items: Sequence[Any], labels: Sequence[Label]) -> None:
        self.items, self.labels = items, labels
        self._digests: dict[int, bytes] = {}

    def item(self, index: int) -> Any:
        return self.items[index]

    def decode(self, index: int) -> Image.Image:
        return as_image(self.item(index), self.where(index))

    def digest(self, index: int) -> bytes:
        """Of the pixels, whatever holds them. Computed once: making a picture may take long."""
        if index not in self._digests:
            self._digests[index] = super().digest(index)
        return self._digests[index]


def array_pictures(images: Any, labels: Sequence[Any]) -> ArrayPictures:
    array = np.asarray(images.cpu() if isinstance(images, torch.Tensor) else images)
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise SafeclError(f"Pictures must be (N, H, W), (N, H, W, 3) or (N, 3, H, W), not {tuple(array.shape)}.")
    if len(array) != len(labels):
        raise SafeclError(f"There are {len(array)} pictures and {len(labels)} labels; give one label per picture.")
    check_shape((array.shape[2], array.shape[1]), "arrays")
    array = as_bytes(array, "the pictures")
    named = [plain_label(label, f"picture {i}") for i, label in enumerate(labels)]
    return ArrayPictures(np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:3], 3))), named)


def as_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """uint8 as it is, floats in [0, 1] scaled to 0…255."""
    if array.dtype == np.uint8:
        return array
    if np.issubdtype(array.dtype, np.floating) and array.size and array.min() >= 0 and array.max() <= 1:
        return (array * 255).round().astype(np.uint8)
    raise SafeclError(f"The values of {name} must be uint8, or floats between 0 and 1; they are {array.dtype}.")


def as_image(item: Any, name: str) -> Image.Image:
    """An image, tensor (C, H, W) or array (H, W[, C]) as RGB."""
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        item = (item.permute(1, 2, 0) if item.ndim == 3 else item).numpy()
    if isinstance(item, np.ndarray):
        item = Image.fromarray(as_bytes(item, name).squeeze())
    if not isinstance(item, Image.Image):
        raise UnreadableError(name, f"a {type(item).__name__}", "give an image, a tensor or an array")
    check_shape(item.size, name)
    return rgb(item)


def plain_label(value: Any, name: str) -> Label:
    """The label as a word or a whole number; the types of numpy and torch are unwrapped."""
    value = value.item() if isinstance(value, np.generic | torch.Tensor) else value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SafeclError(f"The label of {name} is {value!r}; use words or whole numbers.")
    return value

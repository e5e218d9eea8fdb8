"""Streams of what a program already holds: arrays, a torch dataset, a Hugging Face dataset. One line each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from safecl.errors import SafeclError
from safecl.streams.collection import Collection, make_stream, with_test
from safecl.streams.labels import label_problems
from safecl.streams.pictures.clean import refuse
from safecl.streams.pictures.decode import check_shape, rgb
from safecl.streams.pictures.images import ArrayPictures, Label, Pictures
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
    train = array_pictures(images, labels)
    held = None if test is None else array_pictures(*test)
    return _stream(name, train, held, sorted_classes(train.labels), test_fraction, split_seed, options)


def from_torch(
    dataset: Any,
    test: Any | None = None,
    *,
    name: str | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    **options: Any,
) -> Stream:
    """A stream of a torch dataset of (picture, label); its ``classes``, where it has them, name the labels."""
    train = TorchPictures(dataset)
    held = None if test is None else TorchPictures(test)
    classes = train.classes or sorted_classes(train.labels)
    return _stream(name or type(dataset).__name__, train, held, classes, test_fraction, split_seed, options)


def from_hugging_face(
    dataset: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    name: str | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    **options: Any,
) -> Stream:
    """A stream of a Hugging Face dataset: its name on the hub, a folder of it, or the loaded object."""
    data = hugging_face(dataset, image, label, name, test_fraction, split_seed)
    return make_stream(data, **options)


def hugging_face(
    dataset: Any,
    image: str | None = None,
    label: str | None = None,
    name: str | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Collection:
    title = name or (dataset if isinstance(dataset, str) else "hugging-face")
    if isinstance(dataset, str):
        dataset = load_hugging_face(dataset)
    splits = dict(dataset) if isinstance(dataset, dict) else {"train": dataset}
    if "train" not in splits:
        raise SafeclError(f"The dataset {title} has no split train; it has: {', '.join(splits)}.")
    held = next((splits[k] for k in ("test", "validation", "valid", "val") if k in splits), None)
    train = HuggingFacePictures(splits["train"], title, image, label)
    test = None if held is None else HuggingFacePictures(held, title, image, label)
    classes = train.classes or sorted_classes(train.labels)
    return _collection(title, train, test, classes, test_fraction, split_seed)


def load_hugging_face(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise SafeclError("Hugging Face data needs the datasets package: pip install 'safecl[datasets]'.") from None
    try:
        return datasets.load_dataset(name)
    except Exception as error:  # the hub, the network and each dataset's own script raise their own
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SafeclError(f"The Hugging Face dataset {name!r} cannot be loaded: {reason}.") from None


class TorchPictures(Pictures):
    """The pictures of a map-style torch dataset; labels come from ``targets`` where there are any."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        names = list(getattr(dataset, "classes", None) or ())
        found = [plain_label(value, f"item {i}") for i, value in enumerate(targets(dataset))]
        named = bool(names) and all(isinstance(v, int) and 0 <= v < len(names) for v in found)
        self.classes: tuple[Label, ...] = tuple(names) if named else ()
        self.labels = [names[int(v)] for v in found] if named else found

    def decode(self, index: int) -> Image.Image:
        return as_image(self.dataset[index][0], f"item {index}")


class HuggingFacePictures(Pictures):
    """The pictures of a Hugging Face split; class names come from its features."""

    def __init__(self, split: Any, title: str, image: str | None, label: str | None) -> None:
        self.split = split
        self.image = image or column(split, title, "Image", ("image", "img", "picture"))
        chosen = label or column(split, title, "ClassLabel", ("label", "labels", "fine_label", "class"))
        for given in (self.image, chosen):
            if given not in split.features:
                raise SafeclError(f"The dataset {title} has no column {given!r}; it has: {', '.join(split.features)}.")
        names = getattr(split.features[chosen], "names", None)
        self.classes: tuple[Label, ...] = tuple(names or ())
        found = [plain_label(value, f"row {i} of {title}") for i, value in enumerate(split[chosen])]
        self.labels = [names[int(v)] for v in found] if names else found

    def identity(self) -> str | None:
        fingerprint = getattr(self.split, "_fingerprint", None)
        return None if fingerprint is None else f"{fingerprint} {self.image}"

    def trace(self, index: int) -> bytes:
        return f"{self.identity()} {index}".encode()

    def decode(self, index: int) -> Image.Image:
        return as_image(self.split[int(index)][self.image], f"row {index}")


def column(split: Any, title: str, kind: str, usual: Sequence[str]) -> str:
    """The column of a feature type, or of a usual name."""
    for name, feature in split.features.items():
        if type(feature).__name__ == kind:
            return str(name)
    for name in usual:
        if name in split.features:
            return name
    what = "image" if kind == "Image" else "label"
    raise SafeclError(
        f"The dataset {title} has no usual {what} column; set stream.{what}=NAME, one of: {', '.join(split.features)}."
    )


def targets(dataset: Any) -> list[Any]:
    """The labels of a torch dataset, read without its pictures where that is possible."""
    if isinstance(dataset, torch.utils.data.Subset):
        whole = targets(dataset.dataset)
        return [whole[i] for i in dataset.indices]
    for name in ("targets", "labels", "y"):
        found = getattr(dataset, name, None)
        if found is not None and len(found) == len(dataset):
            return list(found)
    return [dataset[i][1] for i in range(len(dataset))]


def array_pictures(images: Any, labels: Sequence[Any]) -> ArrayPictures:
    array = np.asarray(images.cpu() if isinstance(images, torch.Tensor) else images)
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise SafeclError(f"Pictures must be (N, H, W), (N, H, W, 3) or (N, 3, H, W), not {tuple(array.shape)}.")
    if len(array) != len(labels):
        raise SafeclError(f"There are {len(array)} pictures and {len(labels)} labels; give one label a picture.")
    array = as_bytes(array, "the pictures")
    named = [plain_label(label, f"picture {i}") for i, label in enumerate(labels)]
    return ArrayPictures(np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:3], 3))), named)


def as_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """uint8 as it is, floats in [0, 1] brought to 0…255."""
    if array.dtype == np.uint8:
        return array
    if np.issubdtype(array.dtype, np.floating) and array.size and array.min() >= 0 and array.max() <= 1:
        return (array * 255).round().astype(np.uint8)
    raise SafeclError(f"The values of {name} must be uint8, or floats between 0 and 1; they are {array.dtype}.")


def as_image(item: Any, name: str) -> Image.Image:
    """A picture, tensor (C, H, W) or array (H, W[, C]) as RGB."""
    if isinstance(item, Image.Image):
        check_shape(item, name)
        return rgb(item)
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        item = (item.permute(1, 2, 0) if item.ndim == 3 else item).numpy()
    if not isinstance(item, np.ndarray):
        raise SafeclError(f"The picture of {name} is a {type(item).__name__}; give an image, a tensor or an array.")
    return rgb(Image.fromarray(as_bytes(item, name).squeeze()))


def plain_label(value: Any, name: str) -> Label:
    """The label as a word or a whole number; the types of numpy and torch are unwrapped."""
    value = value.item() if isinstance(value, np.generic | torch.Tensor) else value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SafeclError(f"The label of {name} is {value!r}; use words or whole numbers.")
    return value


def sorted_classes(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Numbers by value, then words by spelling."""
    return tuple(sorted(set(labels), key=lambda label: (isinstance(label, str), label)))


def _collection(
    name: str, train: Pictures, test: Pictures | None, classes: Sequence[Label], fraction: float, split_seed: int
) -> Collection:
    for sentence in label_problems([*train.labels, *(test.labels if test else ())], name):
        refuse(sentence)
    shown = set(train.labels)
    classes = tuple(c for c in classes if c in shown)
    if test is None:
        return with_test(name, train, classes, fraction=fraction, seed=split_seed)
    for label in test.labels:
        if label not in shown:
            raise SafeclError(f"The class {label!r} of {name} has test pictures but no training picture.")
    return Collection(name, train, test, classes, split="the test pictures given")


def _stream(
    name: str,
    train: Pictures,
    test: Pictures | None,
    classes: Sequence[Label],
    fraction: float,
    split_seed: int,
    options: dict[str, Any],
) -> Stream:
    return make_stream(_collection(name, train, test, classes, fraction, split_seed), **options)

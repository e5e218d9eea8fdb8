"""Pictures that a program holds: arrays, a list of images, arrays or tensors, a torch or Hugging
Face dataset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Unpack, cast

import numpy as np
import torch
from PIL import Image

from safecl.errors import SafeclError
from safecl.lines import warn_omitted
from safecl.streams.check import Offered, Rules, collect
from safecl.streams.collection import Collection, make_stream
from safecl.streams.labels import Label
from safecl.streams.pictures.decode import as_arrays, as_image
from safecl.streams.pictures.images import ArrayPictures, Pictures
from safecl.streams.stream import Stream


def from_arrays(
    images: Any,
    labels: Sequence[Any],
    test: tuple[Any, Sequence[Any]] | None = None,
    *,
    name: str = "arrays",
    **options: Any,
) -> Stream:
    """A stream of ``images`` (N, H, W), (N, H, W, 3) or (N, 3, H, W), and ``labels`` (N,).

    ``images``: uint8, uint16, or floats in [0, 1]. ``test``: another such pair; otherwise
    ``test_fraction`` (0.2) of every class, drawn with ``split_seed`` (0). ``name``: for tables and
    folders. ``options``: those two, and protocol, first, step, order, order_seed, held_out, …
    """
    return _stream(
        name,
        array_pictures(images, labels),
        None if test is None else array_pictures(*test),
        options,
    )


def from_torch(
    dataset: Any, test: Any | None = None, *, name: str | None = None, **options: Any
) -> Stream:
    """A stream of a torch ``dataset`` of (picture, label); its ``classes``, where it has them, name
    the labels.

    It must return the same picture each time: a run reads every picture once to identify its data,
    and resumes only with the same. So omit random transforms; crops and flips are made during
    training. ``test``, ``name``, ``options``: as in ``from_arrays``.
    """
    held = None if test is None else torch_pictures(test)
    return _stream(name or type(dataset).__name__, torch_pictures(dataset), held, options)


def from_hugging_face(
    dataset: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    name: str | None = None,
    **options: Any,
) -> Stream:
    """A stream of a Hugging Face ``dataset``: its name on the hub, a folder of it, or the loaded
    object.

    ``image``, ``label``: the columns, or found by their types. ``name``, ``options``: as in
    ``from_arrays``.
    """
    return make_stream(hugging_face(dataset, image, label, name, **_drawn(options)), **options)


def _stream(
    name: str, train: "Images | ArrayPictures", test: Pictures | None, options: dict[str, Any]
) -> Stream:
    offered = Offered(name, train, test, classes=getattr(train, "classes", ()))
    data = collect(offered, **_drawn(options))
    return make_stream(data, **options)


def _drawn(options: dict[str, Any]) -> Rules:
    """How a test split is drawn, taken out of ``options``."""
    keys = ("test_fraction", "split_seed")
    return cast(Rules, {key: options.pop(key) for key in keys if key in options})


@dataclass(eq=False, repr=False)
class Images(Pictures):
    """Images, arrays or tensors, each of its own size: each of ``items``, or what it has at
    ``key``.

    ``word``: for an item in messages. Where there is one, ``classes``: in natural order, ``known``:
    a fingerprint.
    """

    items: Any
    labels: Sequence[Label]
    _: KW_ONLY
    key: str | int | None = None
    word: str = "picture"
    classes: tuple[Label, ...] = ()
    known: str | None = None
    _digests: dict[int, bytes] = field(default_factory=dict, init=False)

    def where(self, index: int) -> str:
        return f"{self.word} {index}"

    @property
    def cacheable(self) -> bool:
        return self.known is not None

    def traces(self, indices: Sequence[int]) -> Iterable[bytes]:
        return (
            super().traces(indices)
            if self.known is None
            else (f"{self.known} {i}".encode() for i in indices)
        )

    def decode(self, index: int) -> Image.Image:
        item = self.items[int(index)]
        return as_image(item if self.key is None else item[self.key], self.where(index))

    def digest(self, index: int) -> bytes:
        """Of the pixels, whatever holds them. Computed once: making a picture may take long."""
        if index not in self._digests:
            self._digests[index] = super().digest(index)
        return self._digests[index]


def torch_pictures(dataset: Any) -> Images:
    """The pictures of a map-style torch dataset."""
    labels = [plain_label(value, f"item {i}") for i, value in enumerate(targets(dataset))]
    # then they are no numbers of the names
    changed = getattr(dataset, "target_transform", None) is not None
    labels, classes = named(labels, None if changed else getattr(dataset, "classes", None))
    return Images(dataset, labels, key=0, word="item", classes=classes)


def targets(dataset: Any) -> list[Any]:
    """The labels of a torch dataset, read without its pictures where that is possible."""
    if isinstance(dataset, torch.utils.data.Subset):
        whole = targets(dataset.dataset)
        return [whole[i] for i in dataset.indices]
    for name in ("targets", "labels", "y"):
        found = getattr(dataset, name, None)
        if found is not None and len(found) == len(dataset):
            return list(
                map(getattr(dataset, "target_transform", None) or (lambda label: label), found)
            )
    return [dataset[i][1] for i in range(len(dataset))]


def hugging_face(
    name: Any,
    image: str | None,
    label: str | None,
    title: str | None = None,
    **rules: Unpack[Rules],
) -> Collection:
    """The pictures of a dataset ``name`` on the hub, or of a loaded one."""
    title = title or (name if isinstance(name, str) else "hugging-face")
    dataset = load_hugging_face(name) if isinstance(name, str) else name
    splits = dict(dataset) if isinstance(dataset, dict) else {"train": dataset}
    if "train" not in splits:
        raise SafeclError("hub.no-train", title=title, splits=", ".join(splits))
    own = next((k for k in ("test", "validation", "valid", "val") if k in splits), None)
    held = None if own is None else splits[own]
    warn_omitted([k for k in splits if k not in ("train", own)], "split", f"from {title}")
    train = hub_pictures(splits["train"], title, image, label)
    test = None if held is None else hub_pictures(held, title, image, label)
    return collect(Offered(title, train, test, classes=train.classes), **rules)


def load_hugging_face(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise SafeclError("hub.datasets.missing") from None
    try:
        return datasets.load_dataset(name)
    except Exception as error:  # the hub, the network and each dataset's own script raise their own
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SafeclError("hub.not-loaded", name=name, reason=reason) from None


def hub_pictures(
    split: Any, title: str = "the dataset", image: str | None = None, label: str | None = None
) -> Images:
    """The pictures of a Hugging Face split, whose features name the classes; its fingerprint
    changes with its rows.
    """
    image = image or column(split, title, "Image", ("image", "img", "picture"))
    label = label or column(split, title, "ClassLabel", ("label", "labels", "fine_label", "class"))
    for given in (image, label):
        if given not in split.features:
            raise SafeclError(
                "hub.column.missing", title=title, given=given, columns=", ".join(split.features)
            )
    labels = [plain_label(value, f"row {i} of {title}") for i, value in enumerate(split[label])]
    known = getattr(split, "_fingerprint", None) and f"{split._fingerprint} {image}"
    labels, classes = named(labels, getattr(split.features[label], "names", None))
    return Images(split, labels, key=image, word="row", classes=classes, known=known)


def column(split: Any, title: str, kind: str, usual: Sequence[str]) -> str:
    """The column of a feature type, or of a usual name."""
    by_type = (name for name, feature in split.features.items() if type(feature).__name__ == kind)
    for name in (*by_type, *(name for name in usual if name in split.features)):
        return str(name)
    what = "image" if kind == "Image" else "label"
    columns = ", ".join(split.features)
    raise SafeclError("hub.column.none", title=title, what=what, columns=columns)


def named(
    labels: list[Label], names: Sequence[str] | None
) -> tuple[list[Label], tuple[Label, ...]]:
    """The labels by name, and all names, if every label is the number of one."""
    if not names or not all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        return labels, ()
    return [names[int(label)] for label in labels], tuple(names)


def array_pictures(images: Any, labels: Sequence[Any]) -> ArrayPictures:
    array = as_arrays(images.cpu() if isinstance(images, torch.Tensor) else images)
    if len(array) != len(labels):
        raise SafeclError("pictures.labels.count", pictures=len(array), labels=len(labels))
    return ArrayPictures(
        array, [plain_label(label, f"picture {i}") for i, label in enumerate(labels)]
    )


def plain_label(value: Any, name: str) -> Label:
    """The label as a word or a whole number; the types of numpy and torch are unwrapped."""
    size = int(np.prod(np.shape(value)))
    if np.ndim(value) and size != 1:
        raise SafeclError("pictures.label.several", name=name, size=size)
    value = value.item() if isinstance(value, np.generic | np.ndarray | torch.Tensor) else value
    if isinstance(value, bool) or not isinstance(value, str | int):
        whole = isinstance(value, float) and value.is_integer()
        remedy = (
            f"give {int(value)}, as labels.astype(int) does"
            if whole
            else "use words or whole numbers"
        )
        raise SafeclError("pictures.label.type", name=name, value=value, remedy=remedy)
    return value

"""A Hugging Face dataset: by its name on the hub, from a folder, or loaded."""

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from safecl.errors import SafeclError
from safecl.streams.check import Rules, collect
from safecl.streams.collection import Collection, make_stream
from safecl.streams.labels import Label
from safecl.streams.sources.arrays import Images, plain_label
from safecl.streams.stream import Stream


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
    data = hugging_face(dataset, image, label, name, test_fraction=test_fraction, split_seed=split_seed)
    return make_stream(data, **options)


def hugging_face(
    dataset: Any, image: str | None, label: str | None, name: str | None = None, **rules: Unpack[Rules]
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
    return collect(title, train, test, classes=train.classes, **rules)


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


class HuggingFacePictures(Images):
    """The pictures of a Hugging Face split; class names come from its features."""

    def __init__(self, split: Any, title: str, image: str | None, label: str | None) -> None:
        self.image = image or column(split, title, "Image", ("image", "img", "picture"))
        chosen = label or column(split, title, "ClassLabel", ("label", "labels", "fine_label", "class"))
        for given in (self.image, chosen):
            if given not in split.features:
                raise SafeclError(f"The dataset {title} has no column {given!r}; it has: {', '.join(split.features)}.")
        names = getattr(split.features[chosen], "names", None)
        self.classes: tuple[Label, ...] = tuple(names or ())
        found = [plain_label(value, f"row {i} of {title}") for i, value in enumerate(split[chosen])]
        super().__init__(split, [names[int(v)] for v in found] if names else found)

    def identity(self) -> str | None:
        fingerprint = getattr(self.items, "_fingerprint", None)
        return None if fingerprint is None else f"{fingerprint} {self.image}"

    def traces(self, indices: Sequence[int]) -> Iterable[bytes]:
        """By the fingerprint of the dataset, which changes with its rows; by every picture where there is none."""
        known = self.identity()
        return super().traces(indices) if known is None else (f"{known} {i}".encode() for i in indices)

    def where(self, index: int) -> str:
        return f"row {index}"

    def item(self, index: int) -> Any:
        return self.items[int(index)][self.image]


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

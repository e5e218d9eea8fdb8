"""A torch dataset of (picture, label)."""

from typing import Any

import torch

from safecl.streams.check import collect
from safecl.streams.collection import make_stream
from safecl.streams.labels import Label
from safecl.streams.sources.arrays import Images, plain_label
from safecl.streams.stream import Stream


def from_torch(
    dataset: Any,
    test: Any | None = None,
    *,
    name: str | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    **options: Any,
) -> Stream:
    """A stream of a torch dataset of (picture, label); its ``classes``, where it has them, name the labels.

    It must return the same picture each time: a run reads every picture once to identify its data, and resumes only
    with the same. So omit random transforms; crops and flips are made during training. ``options``: of ``make_stream``.
    """
    train = TorchPictures(dataset)
    held = None if test is None else TorchPictures(test)
    title = name or type(dataset).__name__
    data = collect(title, train, held, classes=train.classes, test_fraction=test_fraction, split_seed=split_seed)
    return make_stream(data, **options)


class TorchPictures(Images):
    """The pictures of a map-style torch dataset; labels come from ``targets`` where there are any."""

    def __init__(self, dataset: Any) -> None:
        names = list(getattr(dataset, "classes", None) or ())
        found = [plain_label(value, f"item {i}") for i, value in enumerate(targets(dataset))]
        named = bool(names) and all(isinstance(v, int) and 0 <= v < len(names) for v in found)
        self.classes: tuple[Label, ...] = tuple(names) if named else ()
        super().__init__(dataset, [names[int(v)] for v in found] if named else found)

    def where(self, index: int) -> str:
        return f"item {index}"

    def item(self, index: int) -> Any:
        return self.items[index][0]


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

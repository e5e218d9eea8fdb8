"""One stream's pictures in other sessions: the parts of a stream that is harder than its own.

Each function takes training and test pictures and the classes in their order, and gives parts;
``Stream.recut`` makes a stream of them. What is drawn is drawn by the generator that is given.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from PIL import Image
from torch import Tensor

from safecl.streams.pictures.images import Label, Pictures, Transform
from safecl.streams.stream import Part, in_sizes, positions

Classes = Sequence[Label]
Random = np.random.Generator


def evenly(train: Pictures, test: Pictures, classes: Classes, sessions: int) -> list[Part]:
    """``sessions`` of as many classes each as fit; the first have one more where that is odd."""
    sizes = [len(some) for some in np.array_split(np.arange(len(classes)), sessions)]
    return in_sizes(train, test, classes, [size for size in sizes if size])


def unequal_sizes(classes: int, sessions: int, random: Random) -> list[int]:
    """``sessions`` sizes of at least one class that add up to ``classes``; every division is as
    likely as any other.
    """
    ends = sorted(random.choice(np.arange(1, classes), sessions - 1, replace=False).tolist())
    return [stop - start for start, stop in pairwise([0, *ends, classes])]


def blurry(
    train: Pictures,
    test: Pictures,
    classes: Classes,
    sessions: int,
    random: Random,
    *,
    disjoint: float = 0.5,
    moved: float = 0.1,
) -> list[Part]:
    """Si-Blurry: a part ``disjoint`` of the classes is shown in one session only; of the others,
    each picture is ``moved`` to another session with this probability. Sessions are of random
    sizes. A class is tested from the first session that shows it on.
    """
    order = [classes[i] for i in random.permutation(len(classes))]
    apart = max(1, min(len(order) - 1, round(disjoint * len(order))))
    home = dict.fromkeys(order, 0)
    for some in (order[:apart], order[apart:]):
        for label, number in zip(some, random.integers(0, sessions, len(some)), strict=True):
            home[label] = int(number)
    mixes = set(order[apart:])
    where = [
        int(random.integers(0, sessions))
        if label in mixes and random.random() < moved
        else home[label]
        for label in train.labels
    ]
    return by_session(train, test, classes, where)


def returning(
    train: Pictures, test: Pictures, classes: Classes, sessions: int, random: Random
) -> list[Part]:
    """New classes in each session, of which a half of the pictures comes; the others come two
    sessions later, or in the last one.
    """
    groups = np.array_split(np.arange(len(classes)), sessions)
    home = {classes[i]: number for number, some in enumerate(groups) for i in some}
    where = [home[label] for label in train.labels]
    for members in positions(train.labels).values():
        late = random.permutation(members)[: len(members) // 2]
        for i in late.tolist():
            where[i] = min(where[i] + 2, sessions - 1)
    return by_session(train, test, classes, where)


def by_session(
    train: Pictures, test: Pictures, classes: Classes, where: Sequence[int]
) -> list[Part]:
    """Parts of the training pictures by the session that each comes in; empty ones are left out."""
    held = positions(test.labels)
    shown: set[Label] = set()
    parts: list[Part] = []
    for _, mine in sorted(positions(where).items()):
        there = {train.labels[i] for i in mine}
        some = tuple(label for label in classes if label in there)
        tests = [i for label in some if label not in shown for i in held.get(label, [])]
        shown |= there
        name = f"session {len(parts) + 1}"
        parts.append(Part(name, some, train.subset(mine), test.subset(tests)))
    return parts


def few(train: Pictures, count: int, random: Random) -> Pictures:
    """At most ``count`` pictures of every class."""
    return of_counts(train, dict.fromkeys(train.labels, count), random)


def long_tail(train: Pictures, ratio: float, random: Random) -> Pictures:
    """The first class of a random order keeps all its pictures and the last one ``1 / ratio`` of
    them; between them the share falls exponentially.
    """
    where = positions(train.labels)
    labels = list(where)
    last = max(1, len(labels) - 1)
    counts = {}
    for place, i in enumerate(random.permutation(len(labels)).tolist()):
        share = ratio ** (-place / last)
        counts[labels[i]] = max(1, round(share * len(where[labels[i]])))
    return of_counts(train, counts, random)


def of_counts(train: Pictures, counts: dict[Label, int], random: Random) -> Pictures:
    kept: list[int] = []
    for label, members in positions(train.labels).items():
        kept += random.permutation(members)[: counts[label]].tolist()
    return train.subset(sorted(kept))


def mislabelled(part: Part, share: float, random: Random) -> Part:
    """A ``share`` of the training pictures has the label of another class of the session."""
    classes = part.classes
    labels = list(part.train.labels)
    if len(classes) < 2:
        return part
    for i in random.permutation(len(labels))[: round(share * len(labels))].tolist():
        others = [label for label in classes if label != labels[i]]
        labels[i] = others[int(random.integers(0, len(others)))]
    return part._replace(train=Relabelled(part.train, labels))


class Relabelled(Pictures):
    """The same pictures under other ``labels``."""

    def __init__(self, pictures: Pictures, labels: Sequence[Label]) -> None:
        self.pictures = pictures
        self.labels = labels

    @property
    def cacheable(self) -> bool:
        return self.pictures.cacheable

    def where(self, index: int) -> str:
        return self.pictures.where(index)

    def digest(self, index: int) -> bytes:
        return self.pictures.digest(index)

    def decode(self, index: int) -> Image.Image:
        return self.pictures.decode(index)

    def reduced(self, index: int, least: int) -> Image.Image:
        return self.pictures.reduced(index, least)

    def size_of(self, index: int) -> tuple[int, int]:
        return self.pictures.size_of(index)

    def side(self, transform: Transform) -> int:
        return self.pictures.side(transform)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        return self.pictures.plain(indices, transform)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        return self.pictures.canvas(indices, transform)

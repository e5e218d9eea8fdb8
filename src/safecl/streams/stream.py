"""A stream is an ordered list of sessions with test pictures; a session can be read only while it is current."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image
from torch import Tensor

from safecl.errors import SafeclError
from safecl.streams.images import Label, Pictures, Transform

Protocol: TypeAlias = Literal["class", "domain", "mixed"]


@dataclass(frozen=True)
class Part:
    """What one session is made of. ``classes`` fixes the order in which its labels are numbered."""

    name: str
    classes: tuple[Label, ...]
    train: Pictures
    test: Pictures


class Session:
    """One step of a stream: the training pictures it brings. Closed as soon as the next one is opened."""

    def __init__(self, number: int, part: Part, held_out: float = 0.0, seed: int = 0) -> None:
        self.number = number
        self.name = part.name
        self.classes = part.classes
        self._open = [True]  # shared with its parts
        keep, hold = split(part.train.labels, held_out, np.random.default_rng([seed, number]))
        self.train: Pictures = _WhileOpen(self, part.train.subset(keep))
        self.validation: Pictures = _WhileOpen(self, part.train.subset(hold))

    def part(self, classes: Sequence[Label]) -> "Session":
        """The pictures of some of its classes, readable as long as it is."""
        some, chosen = copy.copy(self), set(classes)
        some.classes = tuple(label for label in self.classes if label in chosen)
        for kind in ("train", "validation"):
            whole: Pictures = getattr(self, kind)
            here = [i for i, label in enumerate(whole.labels) if label in chosen]
            setattr(some, kind, whole.subset(here))
        return some

    def close(self) -> None:
        self._open[0] = False

    def check_open(self) -> None:
        if not self._open[0]:
            raise SessionClosedError(f"Session {self.number} ({self.name}) is over: its pictures cannot be read again.")


class SessionClosedError(RuntimeError):
    """A method tried to read the pictures of a finished session: a bug in the method, not of the user."""


class Stream:
    """Sessions in their order. ``open`` hands each out once and closes the one before it."""

    def __init__(
        self,
        name: str,
        parts: Sequence[Part],
        protocol: Protocol = "class",
        transform: Transform | None = None,
        held_out: float = 0.0,
        seed: int = 0,
        split: str = "",
    ) -> None:
        if not parts:
            raise SafeclError(f"The stream {name!r} has no sessions: there are no pictures to learn from.")
        self.name, self.protocol, self.transform = name, protocol, transform or Transform()
        self.split = split  # which split of the data the test numbers are on, in words
        self._parts, self._held_out, self._seed = list(parts), held_out, seed
        self._current: Session | None = None

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Session]:
        for number in range(1, len(self) + 1):
            yield self.open(number)

    def open(self, number: int) -> Session:
        """Session ``number`` (from 1). Only forward: an earlier or the same session is refused."""
        if not 1 <= number <= len(self):
            raise SafeclError(f"The stream {self.name!r} has sessions 1 to {len(self)}: there is no session {number}.")
        if self._current is not None:
            if number <= self._current.number:
                raise SessionClosedError(f"Session {number} was handed out already: a stream only goes forward.")
            self._current.close()
        self._current = Session(number, self._parts[number - 1], self._held_out, self._seed)
        return self._current

    def test(self, number: int) -> Pictures:
        """The test pictures that belong to session ``number``."""
        return self._parts[number - 1].test

    @property
    def labels(self) -> list[Label]:
        """Every class once, in the order in which the sessions bring them: position = index; stored with a model."""
        return list(dict.fromkeys(label for part in self._parts for label in part.classes))

    @property
    def sessions(self) -> list[tuple[str, tuple[Label, ...]]]:
        """Name and classes of every session, for reports; a method never sees it."""
        return [(part.name, part.classes) for part in self._parts]


def split(labels: Sequence[Label], fraction: float, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Positions to keep and positions to hold out, the same fraction of every class; a class keeps at least one."""
    if fraction <= 0:
        return list(range(len(labels))), []
    held: list[int] = []
    for members in positions(labels).values():
        count = min(round(fraction * len(members)), len(members) - 1)
        held.extend(int(p) for p in random.permutation(members)[:count])
    chosen = set(held)
    return [i for i in range(len(labels)) if i not in chosen], sorted(held)


def class_order(classes: Sequence[Label], seed: int | None = 1993) -> list[Label]:
    """The field's class order: numpy's legacy permutation under ``seed`` (1993 by habit); ``None`` keeps the order."""
    if seed is None:
        return list(classes)
    return [classes[int(i)] for i in np.random.RandomState(seed).permutation(len(classes))]


def class_incremental(train: Pictures, test: Pictures, order: Sequence[Label], first: int, step: int) -> list[Part]:
    """Sessions of new classes: ``first`` of them, then ``step`` each time, then what is left."""
    if first < 1 or step < 1:
        raise SafeclError(f"A session needs a class: stream.first={first} and stream.step={step} must be 1 or more.")
    bounds = [0, min(first, len(order))]
    while bounds[-1] < len(order):
        bounds.append(min(bounds[-1] + step, len(order)))
    where_train, where_test = positions(train.labels), positions(test.labels)
    parts = []
    for start, stop in pairwise(bounds):
        classes = tuple(order[start:stop])
        parts.append(
            Part(
                name=f"classes {start + 1}-{stop}",
                classes=classes,
                train=train.subset([i for c in classes for i in where_train.get(c, [])]),
                test=test.subset([i for c in classes for i in where_test.get(c, [])]),
            )
        )
    return parts


def positions(labels: Iterable[Label]) -> dict[Label, list[int]]:
    """The positions of each label."""
    found: dict[Label, list[int]] = {}
    for i, label in enumerate(labels):
        found.setdefault(label, []).append(i)
    return found


def domain_incremental(
    train: Pictures,
    test: Pictures,
    train_domains: Sequence[str],
    test_domains: Sequence[str],
    order: Sequence[str],
    classes: Sequence[Label],
) -> list[Part]:
    """One session a domain, in ``order``; its classes are those of ``classes`` that it shows, old, new or both."""
    parts = []
    where_train, where_test = positions(train_domains), positions(test_domains)
    for domain in order:
        mine = train.subset(where_train.get(domain, []))
        shown = set(mine.labels)
        parts.append(
            Part(
                name=domain,
                classes=tuple(c for c in classes if c in shown),
                train=mine,
                test=test.subset(where_test.get(domain, [])),
            )
        )
    return parts


class _WhileOpen(Pictures):
    """A session's pictures: every read asks whether the session is still the current one."""

    def __init__(self, session: Session, pictures: Pictures) -> None:
        self._session, self._pictures, self.labels = session, pictures, pictures.labels

    def where(self, index: int) -> str:
        return self._pictures.where(index)

    def decode(self, index: int) -> Image.Image:
        self._session.check_open()
        return self._pictures.decode(index)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        self._session.check_open()
        return self._pictures.plain(indices, transform)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        self._session.check_open()
        return self._pictures.canvas(indices, transform)

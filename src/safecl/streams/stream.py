"""A stream: an ordered list of sessions, each readable only while it is current, with test
pictures.
"""

import copy
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.pictures.images import Label, Pictures, Selection, Transform, join
from safecl.streams.settings import Protocol

L = TypeVar("L", bound=Hashable)


class Part(NamedTuple):
    """The pictures of one session. ``classes`` fixes the order in which its labels are numbered."""

    name: str
    classes: tuple[Label, ...]
    train: Pictures
    test: Pictures


class Session:
    """One step of a stream: the pictures to train on. Closed as soon as the next one is opened."""

    def __init__(self, number: int, name: str, classes: tuple[Label, ...], train: Pictures) -> None:
        self.number = number
        self.name = name
        self.classes = classes
        self._open = [True]  # shared with its parts
        # the session and the positions there, of a part
        self.part_of: tuple[Session, Sequence[int]] | None = None
        self.train: Pictures = Selection([train], check=self.check_open)

    def __repr__(self) -> str:
        there = f"{len(self.classes)} classes, {len(self.train)} pictures"
        return (
            f"<Session {self.number} ({self.name}): {there}, {'open' if self._open[0] else 'over'}>"
        )

    def part(self, classes: Sequence[Label]) -> "Session":
        """The pictures of some of its classes, readable as long as it is."""
        chosen = set(classes)
        return self.only([i for i, label in enumerate(self.train.labels) if label in chosen])

    def only(self, positions: Sequence[int]) -> "Session":
        """The pictures at some positions, readable as long as it is."""
        some = copy.copy(self)
        some.train = self.train.subset(positions)
        some.part_of = self, positions
        there = set(some.train.labels)
        some.classes = tuple(label for label in self.classes if label in there)
        return some

    def close(self) -> None:
        self._open[0] = False

    def check_open(self) -> None:
        if not self._open[0]:
            raise SessionClosedError(
                f"Session {self.number} ({self.name}) is over: its pictures cannot be read again."
            )


class SessionClosedError(RuntimeError):
    """A method tried to read the pictures of a finished session: a bug in the method, not of the
    user.
    """


class Stream:
    """Sessions in their order; ``open`` hands each out once and closes the one before it.

    Test and validation pictures belong to the stream, part by part. Each session brings one part,
    unless the stream is joint: then its only session brings all of them. ``name``: for tables.
    ``parts``: of the sessions in their order. ``protocol``: class, domain or mixed. ``transform``:
    how pictures become inputs. ``held_out``: part of each session's training pictures kept for
    validation, drawn with ``seed``. ``split``: which test split, in words.
    """

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
            raise SafeclError("stream.empty", name=name)
        self.name = name
        self.protocol = protocol
        self.transform = transform or Transform()
        # whether somebody has said for which size of inputs
        self.sized = self.transform.size != Transform.size
        self.split = split  # which split of the data the test numbers are on, in words
        self._parts = list(parts)
        self._held_out = held_out
        self._seed = seed
        self._joint = False
        self._ahead = protocol == "domain"
        self._current: Session | None = None

    def recut(
        self, parts: Sequence[Part], protocol: Protocol | None = None, *, ahead: bool = False
    ) -> "Stream":
        """The stream of other ``parts``, made of its ``pictures``; ``ahead``: sessions to come are
        tested as well.
        """
        other = Stream(
            self.name,
            parts,
            protocol or self.protocol,
            self.transform,
            self._held_out,
            self._seed,
            self.split,
        )
        other.sized = self.sized
        other._ahead |= ahead
        return other

    @property
    def pictures(self) -> tuple[Pictures, Pictures]:
        """All training and all test pictures, to cut the stream anew; a method never sees it."""
        return join([p.train for p in self._parts]), join([p.test for p in self._parts])

    def joint(self) -> "Stream":
        """The same stream with a single session that brings every class and training picture, for
        joint training.
        """
        same = self.copy()
        same._joint = True
        return same

    def copy(self, size: int | None = None) -> "Stream":
        """The same stream from its start; ``size``: for inputs of this side, which the backbone
        takes.
        """
        same = copy.copy(self)
        same._current = None
        if size is not None:
            if self.sized and size != (own := self.transform.size):
                raise SafeclError("stream.size.other", name=self.name, own=own, size=size)
            same.transform = replace(self.transform, size=size)
        return same

    def __repr__(self) -> str:
        classes = counted(len(self.labels), "class", "classes")
        sessions = counted(len(self), "session")
        pictures = (
            f"{sum(len(p.train) for p in self._parts)} training and"
            f" {sum(len(p.test) for p in self._parts)} test"
        )
        return (
            f"<Stream {self.name!r}: {self.protocol}-incremental, {sessions}, {classes}, {pictures}"
            " pictures>"
        )

    def __len__(self) -> int:
        return 1 if self._joint else len(self._parts)

    def __iter__(self) -> Iterator[Session]:
        for number in range(1, len(self) + 1):
            yield self.open(number)

    def open(self, number: int) -> Session:
        """Session ``number`` (from 1). Only forward: an earlier or the same session is refused."""
        if not 1 <= number <= len(self):
            raise SafeclError(
                "stream.session.unknown", name=self.name, last=len(self), number=number
            )
        if self._current is not None:
            if number <= self._current.number:
                raise SessionClosedError(
                    f"Session {number} was handed out already: a stream only goes forward."
                )
            self._current.close()
        brought = range(1, len(self._parts) + 1) if self._joint else [number]
        train = join([self._divided(part)[0] for part in brought])
        self._current = Session(number, *self.sessions[number - 1], train)
        return self._current

    def test(self, number: int) -> Pictures:
        """The test pictures of part ``number``: of session ``number``, unless the stream is
        joint.
        """
        return self._part(number).test

    def validation(self, number: int) -> Pictures:
        """The pictures of part ``number`` that are held out from training: to choose by, never to
        test on.
        """
        return self._divided(number)[1]

    def brought(self, number: int) -> range:
        """The parts that the sessions up to ``number`` have brought."""
        return range(1, (len(self._parts) if self._joint else number) + 1)

    def tested(self, number: int) -> range:
        """The parts to test on after session ``number``: a domain stream is tested on the domains
        to come as well.
        """
        return range(1, len(self._parts) + 1) if self._ahead else self.brought(number)

    @property
    def shorter_side(self) -> int:
        """The shorter side that half of the training pictures have at least, by a sample of
        them.
        """
        return join([part.train for part in self._parts]).shorter_side

    @property
    def labels(self) -> list[Label]:
        """Every class once, in the order in which the sessions bring them: position = index; stored
        with a model.
        """
        return list(dict.fromkeys(label for part in self._parts for label in part.classes))

    @property
    def sessions(self) -> list[tuple[str, tuple[Label, ...]]]:
        """Name and classes of every session, for reports; a method never sees it."""
        return [("joint", tuple(self.labels))] if self._joint else self.test_parts

    @property
    def test_parts(self) -> list[tuple[str, tuple[Label, ...]]]:
        """Name and classes of every part that ``test`` and ``validation`` know."""
        return [(part.name, part.classes) for part in self._parts]

    def fingerprint(self) -> list[dict[str, Any]]:
        """Each part's pictures by digest and the session that brings it, as JSON: to tell whether
        data has changed.
        """
        found = []
        for number, part in enumerate(self._parts, start=1):
            train, validation = self._divided(number)
            kinds = {"train": train, "validation": validation, "test": part.test}
            found.append(
                {
                    "session": 1 if self._joint else number,
                    "name": part.name,
                    "classes": list(part.classes),
                }
                | {kind: some.fingerprint() for kind, some in kinds.items()}
            )
        return found

    def _part(self, number: int) -> Part:
        if not 1 <= number <= len(self._parts):
            raise SafeclError(
                "stream.part.unknown", name=self.name, last=len(self._parts), number=number
            )
        return self._parts[number - 1]

    def _divided(self, number: int) -> tuple[Pictures, Pictures]:
        """The training pictures of a part to train on, and those held out."""
        train = self._part(number).train
        keep, hold = split(
            train.labels, self._held_out, np.random.default_rng([self._seed, number])
        )
        return (train.subset(keep) if hold else train), train.subset(hold)


def split(
    labels: Sequence[Hashable], fraction: float, random: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Positions to keep and positions to hold out, the same fraction of every class; a class keeps
    at least one.
    """
    held: set[int] = set()
    for members in positions(labels).values() if fraction > 0 else ():
        count = min(round(fraction * len(members)), len(members) - 1)
        held.update(random.permutation(members)[:count].tolist())
    return [i for i in range(len(labels)) if i not in held], sorted(held)


def class_order(classes: Sequence[Label], seed: int | None = 1993) -> list[Label]:
    """The class order of the literature: numpy's legacy permutation under ``seed``; ``None`` keeps
    the order.
    """
    if seed is None:
        return list(classes)
    return [classes[int(i)] for i in np.random.RandomState(seed).permutation(len(classes))]


def class_incremental(
    train: Pictures, test: Pictures, order: Sequence[Label], first: int, step: int
) -> list[Part]:
    """Sessions of new classes: ``first`` of them, then ``step`` each time, then what is left."""
    if first < 1 or step < 1:
        raise SafeclError("stream.session.no-class", first=first, step=step)
    ends = [*range(first, len(order), step), len(order)]
    return in_sizes(train, test, order, [end - start for start, end in pairwise([0, *ends])])


def in_sizes(
    train: Pictures, test: Pictures, order: Sequence[Label], sizes: Sequence[int]
) -> list[Part]:
    """Sessions of new classes in their ``order``, as many in each as ``sizes`` says."""
    learned = positions(train.labels)
    held = positions(test.labels)
    parts = []
    for start, stop in pairwise(accumulate(sizes, initial=0)):
        name = f"classes {start + 1}-{stop}" if stop > start + 1 else f"class {stop}"
        classes = tuple(order[start:stop])
        mine = train.subset([i for c in classes for i in learned.get(c, [])])
        tests = test.subset([i for c in classes for i in held.get(c, [])])
        parts.append(Part(name, classes, mine, tests))
    return parts


def positions(labels: Iterable[L]) -> dict[L, list[int]]:
    """The positions of each label."""
    found: dict[L, list[int]] = {}
    for i, label in enumerate(labels):
        found.setdefault(label, []).append(i)
    return found

"""What a method is put through: the same pictures, in sessions that are harder than the usual."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safecl.backbone.backbone import Backbone
from safecl.experiments.stress.orders import grouped, likeness
from safecl.streams import recut
from safecl.streams.stream import Part, Stream, in_sizes

SESSIONS = 10  # of the usual form and of every scenario that does not say otherwise
BLURRY_SESSIONS = 5


@dataclass(frozen=True)
class Base:
    """What scenarios are made of: a stream, the frozen network, and the seed of what is drawn."""

    stream: Stream
    backbone: Backbone
    seed: int

    @property
    def sessions(self) -> int:
        return min(SESSIONS, len(self.stream.labels))

    @cached_property
    def likeness(self) -> NDArray[np.float64]:
        train, _ = self.stream.pictures
        return likeness(self.backbone, train, self.stream.labels, self.stream.transform)

    def random(self, name: str) -> np.random.Generator:
        return self.drawing(self.seed, name)

    @staticmethod
    def drawing(seed: int, name: str) -> np.random.Generator:
        """The generator of what a scenario draws; no two share numbers."""
        return np.random.default_rng([seed, *name.encode()])


class Scenario(NamedTuple):
    """``make``: the stream, or None where there are too few classes. ``settings``: of the runs."""

    name: str
    title: str
    make: Callable[[Base], Stream | None]
    settings: Mapping[str, Any] = MappingProxyType({})


def usual(base: Base) -> Stream:
    train, test = base.stream.pictures
    parts = recut.evenly(train, test, base.stream.labels, base.sessions)
    return base.stream.recut(parts, "class")


def in_order(together: bool) -> Callable[[Base], Stream]:
    def make(base: Base) -> Stream:
        train, test = base.stream.pictures
        labels = base.stream.labels
        sizes = [len(some) for some in np.array_split(np.arange(len(labels)), base.sessions)]
        order = [labels[i] for i in grouped(base.likeness, sizes, together)]
        return base.stream.recut(in_sizes(train, test, order, sizes), "class")

    return make


def in_sessions(count: int | None) -> Callable[[Base], Stream | None]:
    """``count`` sessions; as many as there are classes without one."""

    def make(base: Base) -> Stream | None:
        labels = base.stream.labels
        if count is not None and count >= len(labels):
            return None
        train, test = base.stream.pictures
        return base.stream.recut(recut.evenly(train, test, labels, count or len(labels)), "class")

    return make


def unequal(base: Base) -> Stream:
    train, test = base.stream.pictures
    labels = base.stream.labels
    sizes = recut.unequal_sizes(len(labels), base.sessions, base.random("unequal"))
    return base.stream.recut(in_sizes(train, test, labels, sizes), "class")


def returning(base: Base) -> Stream:
    train, test = base.stream.pictures
    random = base.random("returning")
    parts = recut.returning(train, test, base.stream.labels, base.sessions, random)
    return base.stream.recut(parts, "mixed")


def blurry(base: Base) -> Stream:
    train, test = base.stream.pictures
    sessions = min(BLURRY_SESSIONS, len(base.stream.labels))
    parts = recut.blurry(train, test, base.stream.labels, sessions, base.random("blurry"))
    return base.stream.recut(parts, "mixed")


def noisy(share: float) -> Callable[[Base], Stream]:
    def make(base: Base) -> Stream:
        train, test = base.stream.pictures
        random = base.random(f"noise {share}")
        parts = recut.evenly(train, test, base.stream.labels, base.sessions)
        changed: Sequence[Part] = [recut.mislabelled(part, share, random) for part in parts]
        return base.stream.recut(changed, "class")

    return make


def few(count: int) -> Callable[[Base], Stream]:
    def make(base: Base) -> Stream:
        train, test = base.stream.pictures
        some = recut.few(train, count, base.random("few"))
        parts = recut.evenly(some, test, base.stream.labels, base.sessions)
        return base.stream.recut(parts, "class")

    return make


def long_tail(ratio: float) -> Callable[[Base], Stream]:
    def make(base: Base) -> Stream:
        train, test = base.stream.pictures
        some = recut.long_tail(train, ratio, base.random("tail"))
        parts = recut.evenly(some, test, base.stream.labels, base.sessions)
        return base.stream.recut(parts, "class")

    return make


def strangers(base: Base) -> Stream:
    train, test = base.stream.pictures
    parts = recut.evenly(train, test, base.stream.labels, base.sessions)
    return base.stream.recut(parts, "class", ahead=True)


ONE_PASS = {"train.epochs": 1, "train.later_epochs": None}
EVERY = (
    Scenario("usual", "ten equal sessions", usual),
    Scenario("like-together", "like classes in one session", in_order(True)),
    Scenario("like-apart", "like classes in different sessions", in_order(False)),
    *(Scenario(f"sessions-{n}", f"{n} sessions", in_sessions(n)) for n in (20, 50, 100, 300)),
    Scenario("one-class", "one class per session", in_sessions(None)),
    Scenario("unequal", "sessions of unequal size", unequal),
    Scenario("returning", "half of each class returns later", returning),
    Scenario("si-blurry", "Si-Blurry, one pass", blurry, ONE_PASS),
    Scenario("one-pass", "one pass over the pictures", usual, ONE_PASS),
    Scenario("noise-10", "10 % wrong labels", noisy(0.1)),
    Scenario("noise-20", "20 % wrong labels", noisy(0.2)),
    Scenario("few-shots", "5 pictures of each class", few(5)),
    Scenario("long-tail", "long tail, 20 : 1", long_tail(20.0)),
    Scenario("strangers", "strangers while learning", strangers),
)

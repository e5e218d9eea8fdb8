"""Training and test pictures with their labels, and how they are cut into a stream."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from safecl.errors import SafeclError, unknown
from safecl.streams.labels import meant
from safecl.streams.pictures.images import Label, Pictures, Transform
from safecl.streams.settings import Protocol
from safecl.streams.stream import Part, Stream, class_incremental, class_order, positions


@dataclass(frozen=True)
class Collection:
    """Training and test pictures. ``classes`` in their natural order; domains, where there are any,
    by position.
    """

    name: str
    train: Pictures
    test: Pictures
    classes: tuple[Label, ...]
    train_domains: tuple[str, ...] | None = None
    test_domains: tuple[str, ...] | None = None
    domains: tuple[str, ...] = ()
    split: str = ""  # which split this is, in words
    home: Path | None = None  # the folder of the data: its cache lies there

    def natural(self) -> Protocol:
        """The protocol the data suggests: domains that all show the same classes, domains that do
        not, or none.
        """
        if self.train_domains is None:
            return "class"
        shown = set(zip(self.train_domains, self.train.labels, strict=True))
        return (
            "domain" if len(shown) == len(set(self.train_domains)) * len(self.classes) else "mixed"
        )


def make_stream(
    data: Collection,
    *,
    protocol: str | None = None,
    first: int | None = None,
    step: int | None = None,
    order_seed: int | None = 1993,
    order: Sequence[Label] | None = None,
    domains: Sequence[str] | None = None,
    transform: Transform | None = None,
    held_out: float = 0.0,
    seed: int = 0,
) -> Stream:
    """The stream of ``data``.

    ``protocol``: what the data suggests unless given. ``first`` and ``step``: classes of the first
    and of every later session of a class-incremental stream (a tenth of the classes unless given).
    ``order``: the classes in the order wanted; otherwise the natural order permuted by
    ``order_seed``, or as it is with ``None``. ``domains``: the order of sessions of a
    domain-incremental or mixed stream. ``held_out``: part of training kept to validate, by
    ``seed``.
    """
    if protocol is not None and protocol not in get_args(Protocol):
        raise unknown("stream.protocol =", protocol, get_args(Protocol))
    if not 0 <= held_out < 1:
        raise SafeclError("stream.held-out.range", held_out=held_out)
    chosen: Protocol = protocol or data.natural()  # type: ignore[assignment]
    of_classes = {"first": first, "step": step, "order": order}
    of_domains = {"domains": domains}
    for key, value in (of_domains if chosen == "class" else of_classes).items():
        if value is not None:
            raise SafeclError("stream.key.idle", key=key, chosen=chosen, name=data.name)
    if chosen == "class":
        parts = class_sessions(data, first, step, order_seed, order)
    else:
        parts = domain_sessions(data, chosen, domains)
    return Stream(data.name, parts, chosen, transform, held_out, seed, data.split)


def class_sessions(
    data: Collection,
    first: int | None,
    step: int | None,
    order_seed: int | None,
    order: Sequence[Label] | None,
) -> list[Part]:
    step = (
        step
        if step is not None
        else first
        if first is not None
        else max(2, math.ceil(len(data.classes) / 10))
    )
    if order is None:
        chosen = class_order(data.classes, order_seed)
    else:
        # A class called 10 is a word in a folder and a number in YAML.
        known = {str(c): c for c in data.classes}
        for label in map(str, order):
            if label not in known:
                raise unknown(
                    f"class of {data.name} named by stream.order,",
                    label,
                    known,
                    meant(label, known),
                )
        chosen = [known[str(label)] for label in order]
        if twice := [label for label, where in positions(chosen).items() if len(where) > 1]:
            raise SafeclError("stream.order.twice", label=twice[0])
    return class_incremental(
        data.train, data.test, chosen, first if first is not None else step, step
    )


def domain_sessions(data: Collection, protocol: str, domains: Sequence[str] | None) -> list[Part]:
    if data.train_domains is None or data.test_domains is None:
        needed = "folders domain/class/picture, or a table with a domain column"
        raise SafeclError("stream.domains.none", protocol=protocol, needed=needed, name=data.name)
    known = data.domains or tuple(sorted(set(data.train_domains)))
    for domain in domains or ():
        if domain not in known:
            raise unknown(
                f"domain of {data.name} named by stream.domains,",
                domain,
                known,
                meant(domain, known),
            )
    if domains is not None and (not domains or len(set(domains)) != len(domains)):
        raise SafeclError("stream.domains.not-once")
    where_train = positions(data.train_domains)
    where_test = positions(data.test_domains)
    parts = []
    for domain in domains or known:
        mine = data.train.subset(where_train.get(domain, []))
        shown = set(mine.labels)  # old classes, new ones, or both
        classes = tuple(c for c in data.classes if c in shown)
        parts.append(Part(domain, classes, mine, data.test.subset(where_test.get(domain, []))))
    return parts

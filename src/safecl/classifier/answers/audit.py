"""Which learned pictures do harm: labels that look wrong, with what leaving each picture out does
to the errors of all others; pictures that are there under two labels; classes that hide others.

A model keeps features of some of its pictures, by which it judges itself; these are audited. It
keeps no names: pictures that are given are recognised by their hashes.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.answers.calibrate import (
    can_be_left_out,
    left_out_answers,
    once,
    probabilities,
    recalled,
)
from safecl.classifier.answers.queue import THUMBNAIL
from safecl.classifier.model import Model
from safecl.classifier.modelfile.history import check_auditable
from safecl.classifier.seen import learned_as
from safecl.heads.ridge import RidgeHead
from safecl.heads.solve import factors_kept
from safecl.methods.method import Method
from safecl.methods.parts import heads_of
from safecl.report.gallery import Card, thumbnail
from safecl.report.templates import render, write
from safecl.streams.pictures.images import Label, Pictures

MIN_OTHER = 0.7  # probability of another class, from which a label looks wrong
# share of the labels that look wrong that chance may explain, where all are right
MAX_BY_CHANCE = 0.5
# Cosine of centred features, from which two pictures are one: of pictures of different classes of
# Flowers-102 and CIFAR-100 none are that alike.
SAME = 0.98
MIN_HIDDEN = 3  # pictures of a class that another one hides
ABOUT = (
    "The first label is the least likely one, by a model that had not learned the picture. Harm:"
    " how much less all others would be mistaken without it."
)


@dataclass(frozen=True)
class Harmful:
    """A learned picture: its hash, where it was found (none: it was not among those given), what
    it was learned as and what it looks like when it is left out, with probabilities.

    ``harm``: by how much the squared errors of all others together would be less without it, each
    left out in turn; None: its method has no ridge head that tells. ``doubted``: its own class is
    too unlikely for chance.
    """

    mark: int
    where: str | None
    label: Label
    sure: float
    answer: Label
    other: float
    harm: float | None
    doubted: bool

    @property
    def told(self) -> str:
        name = self.where or f"picture {self.mark & (1 << 64) - 1:016x}"
        told = f"{name} is labelled {self.label}"
        if self.answer == self.label:
            told += f" ({100 * self.sure:.0f} %)"
        else:
            told += f" and looks like {self.answer} ({100 * self.other:.0f} %)"
        return told if self.harm is None else f"{told}; harm {self.harm:.2f}"

    def mends(self, model: str) -> str:
        """The command that mends it, if it is wrong."""
        how = ["--remove"] if self.answer == self.label else ["--label", str(self.answer)]
        return shlex.join(["safecl", "correct", model, self.where or "PICTURE", *how])


@dataclass(frozen=True)
class Twins:
    """One picture, or two that are all but equal, under two labels."""

    marks: tuple[int, int]
    where: tuple[str | None, str | None]
    labels: tuple[Label, Label]

    @property
    def told(self) -> str:
        one, other = self.labels
        names = [
            name or f"picture {mark & (1 << 64) - 1:016x}"
            for mark, name in zip(self.marks, self.where, strict=True)
        ]
        if self.marks[0] == self.marks[1]:
            return f"{names[0]} was learned as {one} and as {other}"
        return f"{names[0]} ({one}) and {names[1]} ({other}) are all but equal"

    def mends(self, model: str) -> str:
        where = self.where[1] or "PICTURE"
        return shlex.join(["safecl", "correct", model, where, "--label", str(self.labels[0])])


@dataclass(frozen=True)
class Hidden:
    """A class whose pictures, left out, are answered more often by ``behind`` than by it."""

    label: Label
    behind: Label
    count: int
    judged: int

    @property
    def told(self) -> str:
        return f"{self.label} hides behind {self.behind}: {self.count} of {self.judged} pictures"

    def mends(self, model: str) -> str:
        return shlex.join(["safecl", "join", model, str(self.behind), str(self.label)])


@dataclass(frozen=True)
class Audit:
    """``harmful``: every picture that was audited, the one of the least likely label first. Their
    harm to others alone finds fewer wrong labels (docs/results.md).
    """

    harmful: list[Harmful]
    twins: list[Twins]
    hidden: list[Hidden]

    def first(self, count: int) -> list[Harmful | Twins | Hidden]:
        """The ``count`` most harmful pictures, and all else."""
        return [*self.harmful[:count], *self.twins, *self.hidden]

    def fields(self, model: str, count: int) -> dict[str, Any]:
        """What JSON says of it, of the first ``count`` pictures."""
        return {
            "pictures": len(self.harmful),
            "harmful": [_fields(one, model) for one in self.harmful[:count]],
            "twins": [_fields(one, model) for one in self.twins],
            "hidden": [_fields(one, model) for one in self.hidden],
        }


def _fields(one: Harmful | Twins | Hidden, model: str) -> dict[str, Any]:
    return {**vars(one), "mends": one.mends(model)}


def suspects(p: Tensor, targets: Tensor) -> list[int]:
    """Positions of labels (n,) that are too unlikely by p (n, C) where another is likely, the most
    unlikely first.

    Of n right labels about n · x have a probability below x, some of them always: the k most
    unlikely ones are too unlikely if that is ``MAX_BY_CHANCE`` · k at most, as Benjamini and
    Hochberg bound the false discoveries.
    """
    own = p.gather(1, targets[:, None])[:, 0]
    order = own.argsort()
    few = own[order] * len(own) <= MAX_BY_CHANCE * torch.arange(1, len(own) + 1)
    found = order[: int(few.nonzero().max()) + 1 if few.any() else 0]
    doubted: list[int] = found[p.amax(dim=1)[found] > MIN_OTHER].tolist()
    return doubted


@torch.no_grad()
def audit(model: Model, backbone: Backbone, named: Mapping[int, str]) -> Audit:
    """What is wrong with the pictures of a model; ``named``: names of pictures by their hashes."""
    check_auditable(model.header)
    method = model.method(backbone, learning=True).eval()
    method.refresh()
    kept = model.state.kept
    rows = can_be_left_out(kept["targets"], model.state.seen)
    rows = rows[once(kept["hashes"][rows], kept["targets"][rows])]
    targets = kept["targets"][rows]
    marks = kept["hashes"][rows].tolist()
    features = recalled(method, kept, rows)
    logits, _, _ = left_out_answers(method, features, targets)
    p = probabilities(logits, model.header["calibration"])
    own = p.gather(1, targets[:, None])[:, 0]
    harms = harm_of(method, features, targets)
    names = model.classes
    doubted = {*suspects(p, targets)}
    harmful = [
        Harmful(
            mark=marks[i],
            where=named.get(marks[i]),
            label=names[int(targets[i])],
            sure=float(own[i]),
            answer=names[int(p[i].argmax())],
            other=float(p[i].amax()),
            harm=None if harms is None else float(harms[i]),
            doubted=i in doubted,
        )
        for i in own.argsort(stable=True).tolist()
    ]
    first = next(iter(features.values())).cpu()
    pairs = [((a, a), both) for a, both in _learned_twice(model)]
    pairs += [
        ((marks[i], marks[j]), (names[int(targets[i])], names[int(targets[j])]))
        for i, j in all_but_equal(first, targets)
        if marks[i] != marks[j]
    ]
    twins = [Twins(two, (named.get(two[0]), named.get(two[1])), labels) for two, labels in pairs]
    return Audit(harmful, twins, hidden(model.header["calibration"], names))


@factors_kept()
def harm_of(method: Method, features: Mapping[str, Tensor], targets: Tensor) -> Tensor | None:
    """By how much the squared errors of all others would be less without each picture: (n,), the
    mean over the ridge heads that have learned it and answer; None where there are none.
    """
    found = []
    for name, part in heads_of(method).items():
        head: Any = method.get_submodule(part)
        answers = isinstance(head, RidgeHead) and head.statistics.kept and head.weight.shape[1]
        if answers and name in features:
            here = features[name].float()
            found.append(head.harm(here, targets.to(here.device)).cpu())
    return torch.stack(found).mean(dim=0) if found else None


def _learned_twice(model: Model) -> list[tuple[int, tuple[Label, Label]]]:
    """Pictures that were learned as two classes."""
    found = []
    for mark, labels in learned_as(model.state.seen, model.classes).items():
        if len(labels) > 1:
            one, other, *_ = sorted(labels, key=str)
            found.append((mark, (one, other)))
    return found


def all_but_equal(features: Tensor, targets: Tensor) -> list[tuple[int, int]]:
    """Pairs of pictures of two classes whose features (n, d) all but coincide, the earlier
    first.
    """
    x = F.normalize(features - features.mean(dim=0), dim=1)
    other = targets[:, None] != targets
    alike = ((x @ x.T > SAME) & other).triu().nonzero()
    return [(i, j) for i, j in alike.tolist()]


def hidden(calibration: Mapping[str, Any], names: Sequence[Label]) -> list[Hidden]:
    """Classes that others hide, from the calibration of a model."""
    rows = calibration["classes"]
    return [
        Hidden(names[c], names[answer], count, rows[c][0])
        for c, answer, count in calibration["confused"]
        if count >= MIN_HIDDEN and count > rows[c][1]
    ]


def write_page(
    found: Audit,
    pictures: Pictures | None,
    kept: Iterable[Any],
    path: Path,
    name: str,
    model: str,
    count: int,
    force: bool = False,
) -> None:
    """A page of the first ``count``, with thumbnails of ``pictures`` that were given, or of those
    that the model has ``kept``.
    """
    places = {} if pictures is None else {pictures.where(i): i for i in range(len(pictures))}
    small = {one.picture: f"data:image/jpeg;base64,{one.jpeg}" for one in kept}

    def shown(mark: int, where: str | None) -> list[tuple[str, str]]:
        if pictures is not None and where in places:
            image = pictures.reduced(places[where], THUMBNAIL)
            return [(thumbnail(image, THUMBNAIL), where or "")]
        return [(small[mark], "")] if mark in small else []

    cards = [
        Card(shown(one.mark, one.where), f"{rank}. {one.told}", [one.mends(model)])
        for rank, one in enumerate(found.harmful[:count], start=1)
    ]
    for two in found.twins:
        both = [shown(mark, where) for mark, where in zip(two.marks, two.where, strict=True)]
        cards.append(Card([*both[0], *both[1]], two.told, [two.mends(model)]))
    cards += [Card([], one.told, [one.mends(model)]) for one in found.hidden]
    page = render("pictures.html", title=name, subject="What does harm", about=ABOUT, cards=cards)
    write(path, page, force=force)

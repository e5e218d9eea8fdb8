"""What to label next: pictures that the model is unsure of or does not know, and that differ from
each other.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.classifier.answers.snapshot import Snapshot
from safecl.classifier.answers.sort import put
from safecl.classifier.data import hashes
from safecl.errors import SafeclError
from safecl.report.gallery import Card, thumbnail
from safecl.report.templates import render, write
from safecl.runtime.answer import Answer
from safecl.streams.pictures.decode import decode
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import Pictures, spread

MAX_CANDIDATES = 8192  # pictures that may be chosen, those of the largest worth
MAX_COMPARED = 4096  # pictures that stand for all, evenly spread
TIE = 1e-6  # share of a picture's own worth that decides between equal gains
FEATURES = "features"  # beside the outputs of a method
THUMBNAIL = 320  # pixels of a picture on the page
ABOUT = (
    "Label the first one first: each is chosen for what the model does not know, and for being"
    " unlike those before."
)


@dataclass(frozen=True)
class Queued:
    """A picture worth a person's time: which of those that were given, where it is, what the model
    says of it.
    """

    index: int
    where: str
    answer: Answer

    @property
    def worth(self) -> float:
        """How little the model knows of it, from 0 to 1."""
        return 1.0 if self.answer.unknown else 1 - self.answer.nearest[0][1]


class Looking:
    """Collects pictures; those that the model has learned are only counted."""

    def __init__(self, now: Snapshot, unknown: float = 0.05) -> None:
        self.now = now
        self.limits = now.limits(unknown)
        self.learned = 0
        frozen = now.model.header["frozen"]  # such a file does not say which pictures were learned
        self._known = set() if frozen else set(now.model.state.seen["hashes"].tolist())
        self._found: list[Queued] = []
        self._features: list[Tensor] = []
        self._given = 0

    def look(self, pictures: Pictures) -> None:
        """Look at more pictures."""
        marks = hashes(pictures).tolist()
        new = [i for i, mark in enumerate(marks) if mark not in self._known]
        now = self.now
        method = self.now.method
        answers = list[Answer]()
        kept = list[Tensor]()

        def ask(images: Tensor) -> dict[str, Tensor]:
            features = method.embed(images)
            return {**now.answered(features), FEATURES: next(iter(features.values()))}

        for found in now.asked(ask, pictures.subset(new)):
            kept.append(found.pop(FEATURES))
            answers += now.answers_of(found, self.limits, True)
        for i, one in zip(new, answers, strict=True):
            self._found.append(
                Queued(self._given + i, pictures.where(i), replace(one, opinions={}))
            )
        self._features += kept
        self._given += len(marks)
        self.learned += len(marks) - len(new)

    def first(self, count: int) -> list[Queued]:
        """The ``count`` pictures to label first."""
        if count < 1:
            raise SafeclError("queue.count", count=count)
        if not self._found:
            return []
        worth = torch.tensor([one.worth for one in self._found])
        return [self._found[i] for i in order(worth, torch.cat(self._features), count)]


def order(worth: Tensor, features: Tensor, count: int) -> list[int]:
    """Positions of ``count`` pictures, by their worth (N,) and features (N, d).

    Greedily, the one that adds most to Σᵢ worthᵢ · max cos⁺(i, chosen): near to many that are worth
    it, and unlike those before. A gain only shrinks as more are chosen, so few of them are computed
    again.
    """
    f = F.normalize(features - features.mean(dim=0), dim=1)
    able = worth.argsort(descending=True, stable=True)[: max(count, MAX_CANDIDATES)]
    like = spread(len(worth), MAX_COMPARED)
    similar = (f[able] @ f[like].T).clamp(min=0)
    weight = worth[like]
    covered = torch.zeros(len(like))
    gains = similar @ weight + TIE * worth[able]
    found = list[int]()
    while len(found) < min(count, len(able)):
        best = int(gains.argmax())
        gains[best] = ((similar[best] - covered).clamp(min=0) * weight).sum() + TIE * worth[
            able[best]
        ]
        if int(gains.argmax()) == best:
            found.append(int(able[best]))
            covered, gains[best] = torch.maximum(covered, similar[best]), -1.0
    return found


def write_links(files: Sequence[File], folder: Path) -> None:
    """Links to pictures, numbered in their order."""
    for rank, file in enumerate(files, start=1):
        put(
            file.path,
            folder,
            "link",
            f"{rank:0{len(str(len(files)))}} {os.path.basename(file.path)}",
        )


def write_page(
    queue: Sequence[Queued], files: Sequence[File], path: Path, title: str, force: bool = False
) -> None:
    """A page of thumbnails; ``files``: of the pictures of the queue."""
    cards = [
        Card(
            [(thumbnail(decode(file.read(), one.where), THUMBNAIL), one.where)],
            f"{rank}. {one.answer.told}",
            [one.where],
        )
        for rank, (one, file) in enumerate(zip(queue, files, strict=True), start=1)
    ]
    write(
        path,
        render(
            "pictures.html", title=title, subject="What to label next", about=ABOUT, cards=cards
        ),
        force=force,
    )

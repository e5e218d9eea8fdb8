"""What a model has learned, picture by picture, and a change of it: some pictures become another
class, come in, or were never learned.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from safecl.classifier.model import Model
from safecl.classifier.modelfile.history import BRINGING
from safecl.errors import SafeclError
from safecl.streams.labels import Label


@dataclass(frozen=True)
class Ledger:
    """A row per learned picture, in the order of the steps that brought them.

    ``hashes`` (n,); ``classes`` (n,), −1: none; the rows of step i are ``ends[i]`` to
    ``ends[i + 1]``.
    """

    hashes: Tensor
    classes: Tensor
    steps: tuple[str, ...]
    ends: Tensor

    @classmethod
    def of(cls, model: Model) -> "Ledger":
        """That of a model; one whose history counts other pictures than it has is refused."""
        past = model.header["history"]
        bringing = [entry for entry in past if entry["what"] in BRINGING]
        sizes = [sum(count for _, count in entry["classes"]) for entry in bringing]
        named = {label for entry in past for label, _ in entry["classes"]}
        named |= {label for entry in past for label in entry["new"]}
        seen = model.state.seen
        if sum(sizes) != len(seen["classes"]) or not named <= set(model.classes):
            raise SafeclError("model.history.other")
        steps = tuple(entry["id"] for entry in bringing)
        ends = torch.tensor([0, *sizes]).cumsum(dim=0)
        return cls(seen["hashes"], seen["classes"], steps, ends)

    def with_step(self, step: str, hashes: Sequence[int]) -> "Ledger":
        """With rows of no class yet, which ``step`` brings."""
        more = torch.tensor(hashes, dtype=torch.int64)
        return Ledger(
            torch.cat([self.hashes, more]),
            torch.cat([self.classes, torch.full_like(more, -1)]),
            (*self.steps, step),
            torch.cat([self.ends, self.ends[-1:] + len(more)]),
        )

    def rows_of(self, step: str) -> slice:
        """The rows of a step."""
        n = self.steps.index(step)
        return slice(int(self.ends[n]), int(self.ends[n + 1]))

    def rows_since(self, shared: Container[str]) -> Tensor:
        """The rows of all steps but those in ``shared``, ascending: (n,)."""
        rows = torch.arange(len(self.classes))
        own = [rows[self.rows_of(step)] for step in self.steps if step not in shared]
        return torch.cat([rows[:0], *own])

    def places(self, rows: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """By step, which of ``rows`` (n,) are its own, and their positions in the step."""
        steps = torch.searchsorted(self.ends, rows, right=True) - 1
        found = {}
        for n in torch.unique(steps).tolist():
            here = (steps == n).nonzero()[:, 0]
            found[self.steps[n]] = here, rows[here] - self.ends[n]
        return found


@dataclass(frozen=True)
class Change:
    """The pictures at ``rows`` (n,) of a ledger, ascending, become classes ``new`` (n,), −1: were
    never learned.

    ``step``: its id, also of the pictures that come in with it, if any do. ``labels``: names of all
    classes, new ones behind the others. ``leaving``: classes that leave in any case; others leave
    with their last picture, unless they ``stay``.
    """

    step: str
    ledger: Ledger
    rows: Tensor
    new: Tensor
    labels: Sequence[Label]
    leaving: tuple[int, ...] = ()
    stay: bool = False

    @cached_property
    def old(self) -> Tensor:
        """The classes of the pictures before: (n,)."""
        return self.ledger.classes[self.rows]

    @cached_property
    def touched(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By step, which of ``rows`` are its own, and their positions in the step."""
        return self.ledger.places(self.rows)

    @cached_property
    def classes(self) -> Tensor:
        """Of all rows of the ledger afterwards, numbered as before."""
        return self.ledger.classes.index_copy(0, self.rows, self.new)

    @cached_property
    def gone(self) -> list[int]:
        """The classes that leave, ascending."""
        if self.stay:
            return []
        left = set(self.classes.tolist())
        empty = {c for c in self.old.tolist() if c >= 0 and c not in left}
        return sorted(empty | set(self.leaving))

    @cached_property
    def index(self) -> Tensor:
        """By class before, its number afterwards, −1: none; that of −1 is −1."""
        numbers = [
            -1 if c in self.gone else c - sum(g < c for g in self.gone)
            for c in range(len(self.labels))
        ]
        return torch.tensor([*numbers, -1])

    def removes(self, step: str) -> bool:
        """Whether pictures of a step are taken out."""
        here, _ = self.touched.get(step, (None, None))
        return here is not None and bool((self.new[here] < 0).any())

    def check(self) -> None:
        """Refuse a change that would leave no class."""
        if len(self.gone) == len(self.labels):
            raise SafeclError("correct.all-removed")

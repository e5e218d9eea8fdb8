"""What there is to measure, and means of it.

R: R_ti is the accuracy on the test pictures of session i after session t. Where there is no test
picture there is no accuracy: it is ``None``, and means are over what there is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Accuracy: TypeAlias = float | None
Row: TypeAlias = Sequence[Accuracy]
# row t − 1 holds R_t1, R_t2, … (as far as there are classes to test)
Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True)
class Measured:
    """What there is to measure one output of a method by, after session t.

    ``rows``: R so far, its last row after this session. ``counts``: test pictures of each entry of
    that row. ``learned``: how many of its entries are of what has been learned; in a
    domain-incremental stream the others are to come. ``targets``, ``predicted``: (n,), the class of
    each test picture and the answer to it; a target of −1 is a class that the method does not know.
    ``confidence``: (n,), the largest softmax of each answer's logits. ``classes``: how many the
    method knew after each session. ``seconds``: that each session took to learn.
    """

    rows: Rows
    counts: Sequence[int]
    learned: int
    targets: "Tensor | None" = None
    predicted: "Tensor | None" = None
    confidence: "Tensor | None" = None
    classes: Sequence[int] = ()
    seconds: Sequence[float] = ()

    @property
    def row(self) -> Row:
        return self.rows[-1]


Metric: TypeAlias = Callable[[Measured], Accuracy]


def mean(values: Iterable[Accuracy]) -> Accuracy:
    """Of those that there are; ``None`` where there are none."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def pooled(accuracies: Row, counts: Sequence[int]) -> Accuracy:
    """Acc_t: accuracy over all test pictures, Σ n_i R_ti / Σ n_i; ``None`` where there are none."""
    right = sum(n * r for n, r in zip(counts, accuracies, strict=True) if n and r is not None)
    return right / sum(counts) if sum(counts) else None

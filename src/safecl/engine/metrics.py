"""Numbers of a run, from R: R_ti is the accuracy on the test pictures of session i after session t.

Where there is no test picture there is no accuracy: it is ``None``, and means are over what there
is.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from safecl.entry_points import Catalog

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
    """

    rows: Rows
    counts: Sequence[int]
    learned: int
    targets: "Tensor | None" = None
    predicted: "Tensor | None" = None

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


def forgetting(measured: Measured) -> Accuracy:
    """F_t = 1/(t−1) Σ_{i<t} (max_{l ∈ i…t−1} R_li − R_ti); 0 after the first session."""
    *earlier, now = measured.rows
    since = [
        [known for row in earlier[i:] if (known := row[i]) is not None] for i in range(len(earlier))
    ]
    pairs = [
        (max(found), last)
        for found, last in zip(since, now, strict=False)
        if found and last is not None
    ]
    return mean(best - last for best, last in pairs) if earlier else 0.0


def seen(measured: Measured) -> Accuracy:
    """Acc_t over the test pictures of what has been learned."""
    learned = measured.learned
    return pooled(measured.row[:learned], measured.counts[:learned])


OWN: dict[str, Metric] = {
    "pooled": lambda measured: pooled(measured.row, measured.counts),
    "seen": seen,
    "task_mean": lambda measured: mean(measured.row),
    "forgetting": forgetting,
}


def _metric(name: str, found: Any) -> Metric:
    """Somebody's metric."""
    if not callable(found):
        raise METRICS.misfit(name, "a function of a safecl.engine.metrics.Measured")
    metric: Metric = found
    return metric


METRICS = Catalog[Metric]("metrics", OWN, _metric)


def measure(name: str, metric: Metric, measured: Measured) -> Accuracy:
    """The number that somebody's ``metric`` gives; ``None``, and a note, where it fails: it does
    not end a run.
    """
    try:
        value = metric(measured)
        found = None if value is None else float(value)
    except Exception as error:  # whatever somebody else's function does
        warnings.warn(
            f"The metric {name!r} of {METRICS.package(name)} failed ({type(error).__name__}:"
            f" {error}), so there is no number of it.",
            stacklevel=2,
        )
        return None
    if found is not None and not math.isfinite(found):
        warnings.warn(
            f"The metric {name!r} of {METRICS.package(name)} gave {found}, which is no result, so"
            " there is no number of it.",
            stacklevel=2,
        )
        return None
    return found


@dataclass
class History:
    """R for every output of a method, and what else is noted after each session."""

    outputs: tuple[str, ...]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        accuracy: dict[str, list[Accuracy]],
        counts: list[int],
        seen: int | None = None,
        validation: tuple[dict[str, list[Accuracy]], list[int]] | None = None,
        answers: Mapping[str, tuple["Tensor", "Tensor"]] | None = None,
        **notes: Any,
    ) -> dict[str, Any]:
        """Note the accuracies after a session, with the first ``seen`` parts learned; gives the
        line as written.

        ``answers``: by output, the targets and what was predicted, for metrics of other packages.
        """
        t = len(self.lines) + 1
        line = {"session": t, **notes, "test_counts": counts, "accuracy": accuracy}
        self.lines.append(line)
        measured = {
            output: Measured(
                [each["accuracy"][output] for each in self.lines],
                counts,
                t if seen is None else seen,
                *(answers or {}).get(output, ()),
            )
            for output in self.outputs
        }
        for name, metric in METRICS.own.items():
            line[name] = {output: metric(measured[output]) for output in self.outputs}
        foreign = {}
        for name, metric in METRICS.items():
            if name not in METRICS.own:
                foreign[name] = {
                    output: measure(name, metric, measured[output]) for output in self.outputs
                }
        if foreign:
            line["metrics"] = foreign
        if validation is not None:
            found, each = validation
            scores = self._each(lambda output: pooled(found[output], each))
            line["validation"] = {"counts": each, "accuracy": found, "pooled": scores}
        return line

    def summary(self) -> dict[str, Any]:
        """Final and average accuracy, and forgetting, by output."""
        last = self.lines[-1]
        summary = {
            "final": last["pooled"],
            "average": self._mean([line["pooled"] for line in self.lines]),
            "average_seen": self._mean([line["seen"] for line in self.lines]),
            "final_task_mean": last["task_mean"],
            "forgetting": last["forgetting"],
            "sessions": len(self.lines),
            "classes": last.get("classes_seen"),
            "test_pictures": sum(last["test_counts"]),
            "seconds": sum(line["seconds"]["total"] for line in self.lines if "seconds" in line),
        }
        if "metrics" in last:
            summary["metrics"] = last["metrics"]
        if all("validation" in line for line in self.lines):
            found = [line["validation"]["pooled"] for line in self.lines]
            summary["validation"] = {"final": found[-1], "average": self._mean(found)}
        return summary

    def _each(self, number: Callable[[str], Accuracy]) -> dict[str, Accuracy]:
        return {output: number(output) for output in self.outputs}

    def _mean(self, values: list[dict[str, Accuracy]]) -> dict[str, Accuracy]:
        return self._each(lambda output: mean(value[output] for value in values))

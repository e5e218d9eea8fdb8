"""Numbers of a run, from R: R_ti is the accuracy on the test pictures of session i after session t.

Where there is no test picture there is no accuracy: it is ``None``, and means are over what there is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Accuracy: TypeAlias = float | None
Row: TypeAlias = Sequence[Accuracy]
Rows: TypeAlias = Sequence[Row]  # row t − 1 holds R_t1, R_t2, … (as far as there are classes to test)


def mean(values: Iterable[Accuracy]) -> Accuracy:
    """Of those that there are; ``None`` where there are none."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def pooled(accuracies: Row, counts: Sequence[int]) -> Accuracy:
    """Acc_t: accuracy over all test pictures, Σ n_i R_ti / Σ n_i; ``None`` where there are none."""
    right = sum(n * r for n, r in zip(counts, accuracies, strict=True) if n and r is not None)
    return right / sum(counts) if sum(counts) else None


def forgetting(rows: Rows) -> Accuracy:
    """F_t = 1/(t−1) Σ_{i<t} (max_{l ∈ i…t−1} R_li − R_ti); 0 after the first session."""
    *earlier, now = rows
    since = [[best for row in earlier[i:] if (best := row[i]) is not None] for i in range(len(earlier))]
    return mean(_minus(max(found, default=None), now[i]) for i, found in enumerate(since)) if earlier else 0.0


def backward_transfer(rows: Rows) -> Accuracy:
    """BWT = 1/(t−1) Σ_{i<t} (R_ti − R_ii); 0 after the first session."""
    return mean(_minus(rows[-1][i], rows[i][i]) for i in range(len(rows) - 1)) if len(rows) > 1 else 0.0


def forward_transfer(rows: Rows, reference: Sequence[float]) -> Accuracy:
    """FWT = 1/(t−1) Σ_{i=2…t} (R_{i−1,i} − b_i), b the accuracy of an untrained reference on each session."""
    return mean(_minus(rows[i - 1][i], reference[i]) for i in range(1, len(rows))) if len(rows) > 1 else 0.0


def _minus(one: Accuracy, other: Accuracy) -> Accuracy:
    return None if one is None or other is None else one - other


@dataclass
class History:
    """R for every output of a method, and what else is noted after each session."""

    outputs: tuple[str, ...]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def rows(self, output: str) -> Rows:
        return [line["accuracy"][output] for line in self.lines]

    def add(
        self,
        accuracy: dict[str, list[Accuracy]],
        counts: list[int],
        seen: int | None = None,
        validation: tuple[dict[str, list[Accuracy]], list[int]] | None = None,
        **notes: Any,
    ) -> dict[str, Any]:
        """Note the accuracies after a session, with the first ``seen`` parts learned; gives the line as written."""
        t = len(self.lines) + 1
        learned = t if seen is None else seen
        line = {"session": t, **notes, "test_counts": counts, "accuracy": accuracy}
        self.lines.append(line)
        line["pooled"] = self._each(lambda output: pooled(accuracy[output], counts))
        line["seen"] = self._each(lambda output: pooled(accuracy[output][:learned], counts[:learned]))
        line["task_mean"] = self._each(lambda output: mean(accuracy[output]))
        line["forgetting"] = self._each(lambda output: forgetting(self.rows(output)))
        line["bwt"] = self._each(lambda output: backward_transfer(self.rows(output)))
        line["fwt"] = self._fwt()
        if validation is not None:
            found, each = validation
            scores = self._each(lambda output: pooled(found[output], each))
            line["validation"] = {"counts": each, "accuracy": found, "pooled": scores}
        return line

    def summary(self) -> dict[str, Any]:
        """Final and average accuracy, forgetting and transfer, by output."""
        last = self.lines[-1]
        summary = {
            "final": last["pooled"],
            "average": self._mean([line["pooled"] for line in self.lines]),
            "average_seen": self._mean([line["seen"] for line in self.lines]),
            "final_task_mean": last["task_mean"],
            **{name: last.get(name) for name in ("forgetting", "bwt", "fwt")},
            "sessions": len(self.lines),
            "classes": last.get("classes_seen"),
            "test_pictures": sum(last["test_counts"]),
            "seconds": sum(line["seconds"]["total"] for line in self.lines if "seconds" in line),
        }
        if all("validation" in line for line in self.lines):
            found = [line["validation"]["pooled"] for line in self.lines]
            summary["validation"] = {"final": found[-1], "average": self._mean(found)}
        return summary

    def _each(self, number: Callable[[str], Accuracy]) -> dict[str, Accuracy]:
        return {output: number(output) for output in self.outputs}

    def _mean(self, values: list[dict[str, Accuracy]]) -> dict[str, Accuracy]:
        return self._each(lambda output: mean(value[output] for value in values))

    def _fwt(self) -> dict[str, Accuracy] | None:
        """Where sessions were tested before they were learned; the reference is a guess among the classes known."""
        before = list(zip(self.lines, range(1, len(self.lines)), strict=False))
        if not before or any(len(line["test_counts"]) <= i or "classes_seen" not in line for line, i in before):
            return None
        guess = [0.0, *(1 / line["classes_seen"] for line, _ in before)]
        return self._each(lambda output: forward_transfer(self.rows(output), guess))

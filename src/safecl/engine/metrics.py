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
    since = [[known for row in earlier[i:] if (known := row[i]) is not None] for i in range(len(earlier))]
    pairs = [(max(found), last) for found, last in zip(since, now, strict=False) if found and last is not None]
    return mean(best - last for best, last in pairs) if earlier else 0.0


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
        line["forgetting"] = self._each(lambda output: forgetting([each["accuracy"][output] for each in self.lines]))
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
        if all("validation" in line for line in self.lines):
            found = [line["validation"]["pooled"] for line in self.lines]
            summary["validation"] = {"final": found[-1], "average": self._mean(found)}
        return summary

    def _each(self, number: Callable[[str], Accuracy]) -> dict[str, Accuracy]:
        return {output: number(output) for output in self.outputs}

    def _mean(self, values: list[dict[str, Accuracy]]) -> dict[str, Accuracy]:
        return self._each(lambda output: mean(value[output] for value in values))

"""Numbers of a run, from R: R_ti is the accuracy on the test pictures of session i after session t."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Rows = Sequence[Sequence[float]]  # row t − 1 holds R_t1, R_t2, … (as far as there are classes to test)


def pooled(accuracies: Sequence[float], counts: Sequence[int]) -> float:
    """Acc_t: accuracy over all test pictures, Σ n_i R_ti / Σ n_i."""
    return sum(n * r for n, r in zip(counts, accuracies, strict=True)) / max(sum(counts), 1)


def task_mean(accuracies: Sequence[float]) -> float:
    """A_t: the mean of the sessions' accuracies, whatever their sizes."""
    return sum(accuracies) / len(accuracies)


def forgetting(best: Sequence[float], now: Sequence[float]) -> float:
    """F_t = 1/(t−1) Σ_{i<t} (max_{l ∈ i…t−1} R_li − R_ti); 0 after the first session.

    ``best``: the largest accuracy on each earlier session since it was learned, (t − 1,); ``now``: row t of R.
    """
    return sum(most - after for most, after in zip(best, now, strict=False)) / len(best) if best else 0.0


def backward_transfer(rows: Rows) -> float:
    """BWT = 1/(t−1) Σ_{i<t} (R_ti − R_ii); 0 after the first session."""
    t = len(rows)
    return sum(rows[-1][i] - rows[i][i] for i in range(t - 1)) / (t - 1) if t > 1 else 0.0


def forward_transfer(rows: Rows, reference: Sequence[float]) -> float:
    """FWT = 1/(t−1) Σ_{i=2…t} (R_{i−1,i} − b_i), b the accuracy of an untrained reference on each session."""
    t = len(rows)
    return sum(rows[i - 1][i] - reference[i] for i in range(1, t)) / (t - 1) if t > 1 else 0.0


@dataclass
class History:
    """R for every output of a method, and what else is noted after each session."""

    outputs: tuple[str, ...]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._best: dict[str, list[float]] = {output: [] for output in self.outputs}
        for line in self.lines:
            self._remember(line["accuracy"])

    @classmethod
    def read(cls, folder: Path) -> "History":
        """The history that a run left in its folder."""
        lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
        return cls(tuple(lines[-1]["accuracy"]), lines)

    def rows(self, output: str) -> Rows:
        return [line["accuracy"][output] for line in self.lines]

    def add(
        self,
        accuracy: dict[str, list[float]],
        counts: list[int],
        seen: int | None = None,
        validation: tuple[dict[str, list[float]], list[int]] | None = None,
        **notes: Any,
    ) -> dict[str, Any]:
        """Note the accuracies after a session; gives the line as it is written.

        ``pooled`` is over all test pictures, ``seen`` over those of the first ``seen`` parts, which have been learned:
        the same but for domain-incremental streams, which are tested on the domains to come as well.
        """
        t = len(self.lines) + 1
        learned = t if seen is None else seen
        line = {"session": t, **notes, "test_counts": counts, "accuracy": accuracy}
        line["pooled"] = {output: pooled(accuracy[output], counts) for output in self.outputs}
        line["seen"] = {output: pooled(accuracy[output][:learned], counts[:learned]) for output in self.outputs}
        line["task_mean"] = {output: task_mean(accuracy[output]) for output in self.outputs}
        line["forgetting"] = {output: forgetting(self._best[output], accuracy[output]) for output in self.outputs}
        if validation is not None:
            found, each = validation
            line["validation"] = {
                "counts": each,
                "accuracy": found,
                "pooled": {output: pooled(found[output], each) for output in self.outputs},
            }
        self.lines.append(line)
        self._remember(accuracy)
        return line

    def summary(self) -> dict[str, Any]:
        """Final and average accuracy, forgetting and transfer, by output."""
        last = self.lines[-1]
        summary = {
            "final": last["pooled"],
            "average": self._mean([line["pooled"] for line in self.lines]),
            "average_seen": self._mean([line["seen"] for line in self.lines]),
            "final_task_mean": last["task_mean"],
            "forgetting": last["forgetting"],
            "bwt": {output: backward_transfer(self.rows(output)) for output in self.outputs},
            "fwt": self._fwt(),
            "sessions": len(self.lines),
            "classes": last.get("classes_seen"),
            "seconds": sum(line["seconds"]["total"] for line in self.lines if "seconds" in line),
        }
        if all("validation" in line for line in self.lines):
            found = [line["validation"]["pooled"] for line in self.lines]
            summary["validation"] = {"final": found[-1], "average": self._mean(found)}
        return summary

    def _mean(self, values: list[dict[str, float]]) -> dict[str, float]:
        return {output: sum(value[output] for value in values) / len(values) for output in self.outputs}

    def _remember(self, accuracy: dict[str, list[float]]) -> None:
        for output, best in self._best.items():
            row = accuracy[output]
            best[:] = [max(most, now) for most, now in zip(best, row, strict=False)]
            best.extend(row[len(best) : len(best) + 1])  # the session that was just learned

    def _fwt(self) -> dict[str, float] | None:
        """Where each session was tested before it was learned; the reference is a guess among the classes known then.

        None for class-incremental streams: classes that have not been shown cannot be answered.
        """
        before = list(zip(self.lines, range(1, len(self.lines)), strict=False))
        if not before or any(len(line["test_counts"]) <= i or "classes_seen" not in line for line, i in before):
            return None
        guess = [0.0, *(1 / line["classes_seen"] for line, _ in before)]
        return {output: forward_transfer(self.rows(output), guess) for output in self.outputs}

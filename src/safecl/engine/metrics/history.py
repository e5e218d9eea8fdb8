"""The numbers of a run, session after session."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safecl.engine.metrics import ALWAYS, METRICS
from safecl.engine.metrics.measured import Accuracy, Measured, Metric, mean, pooled

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class History:
    """R for every output of a method, and what else is noted after each session.

    ``metrics``: the names of those that are noted beside those of every run; of all that other
    packages bring, if not given.
    """

    outputs: tuple[str, ...]
    lines: list[dict[str, Any]] = field(default_factory=list)
    metrics: Sequence[str] | None = None

    def add(
        self,
        accuracy: dict[str, list[Accuracy]],
        counts: list[int],
        seen: int | None = None,
        validation: tuple[dict[str, list[Accuracy]], list[int]] | None = None,
        answers: Mapping[str, tuple["Tensor", "Tensor", "Tensor"]] | None = None,
        **notes: Any,
    ) -> dict[str, Any]:
        """Note the accuracies after a session, with the first ``seen`` parts learned; gives the
        line as written.

        ``answers``: by output, the targets, what was predicted, and the confidence in it.
        """
        t = len(self.lines) + 1
        line = {"session": t, **notes, "test_counts": counts, "accuracy": accuracy}
        self.lines.append(line)
        classes = [each.get("classes_seen", 0) for each in self.lines]
        seconds = [learning(each["seconds"]) for each in self.lines if "seconds" in each]
        measured = {}
        for output in self.outputs:
            targets, predicted, sure = (answers or {}).get(output, (None, None, None))
            measured[output] = Measured(
                [each["accuracy"][output] for each in self.lines],
                counts,
                t if seen is None else seen,
                targets,
                predicted,
                sure,
                classes,
                seconds,
            )
        for name, metric in ALWAYS.items():
            line[name] = {output: metric(measured[output]) for output in self.outputs}
        further = {
            name: {output: measure(name, metric, measured[output]) for output in self.outputs}
            for name, metric in self._further().items()
        }
        if further:
            line["metrics"] = further
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

    def _further(self) -> dict[str, Metric]:
        if self.metrics is not None:
            return {name: METRICS[name] for name in self.metrics}
        return {name: metric for name, metric in METRICS.items() if name not in METRICS.own}

    def _each(self, number: Callable[[str], Accuracy]) -> dict[str, Accuracy]:
        return {output: number(output) for output in self.outputs}

    def _mean(self, values: list[dict[str, Accuracy]]) -> dict[str, Accuracy]:
        return self._each(lambda output: mean(value[output] for value in values))


def learning(seconds: Mapping[str, float]) -> float:
    """Seconds of a session without its evaluation."""
    return seconds["total"] - seconds.get("evaluate", 0.0)


def measure(name: str, metric: Metric, measured: Measured) -> Accuracy:
    """The number that a ``metric`` gives; ``None``, and a note, where it fails: it does not end a
    run.
    """
    owner = METRICS.package(name) or "safecl"
    try:
        value = metric(measured)
        found = None if value is None else float(value)
    except Exception as error:  # whatever somebody else's function does
        warnings.warn(
            f"The metric {name!r} of {owner} failed ({type(error).__name__}:"
            f" {error}), so there is no number of it.",
            stacklevel=2,
        )
        return None
    if found is not None and not math.isfinite(found):
        warnings.warn(
            f"The metric {name!r} of {owner} gave {found}, which is no result, so"
            " there is no number of it.",
            stacklevel=2,
        )
        return None
    return found

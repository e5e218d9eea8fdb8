"""The number by which a sweep ranks configurations: a validation metric, never a test metric."""

from collections.abc import Callable, Sequence
from statistics import mean

from safecl.errors import SafeclError, unknown
from safecl.report.runs import Run

TEST = ("final", "average", "average_seen", "final_task_mean", "forgetting", "bwt", "fwt", "pooled", "accuracy", "seen")
# From the accuracies on the held-out pictures after each session.
OBJECTIVES: dict[str, Callable[[Sequence[float]], float]] = {
    "validation.final": lambda values: values[-1],
    "validation.average": mean,
}


def check_objective(name: str) -> None:
    """Refuse a test metric, and a name that is none."""
    if name in OBJECTIVES:
        return
    if name.partition(".")[0] in (*TEST, "test") or name.startswith("test_"):
        raise SafeclError(
            f"{name} is a test metric, and nothing is chosen by test pictures; choose one of: {', '.join(OBJECTIVES)}."
        )
    raise unknown("objective", name, OBJECTIVES)


def validation(run: Run, name: str) -> float | None:
    """The objective of a run, of its method's own output; None where nothing was held out."""
    parts = [line.validation.pooled.get(run.facts.main) for line in run.metrics if line.validation is not None]
    values = [value for value in parts if value is not None]
    return OBJECTIVES[name](values) if values else None

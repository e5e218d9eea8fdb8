"""The number by which a sweep ranks configurations: a validation metric, never a test metric."""

from collections.abc import Callable, Sequence

from safecl.errors import SafeclError, unknown
from safecl.report.runs import Run

TEST = ("final", "average", "average_seen", "final_task_mean", "forgetting", "bwt", "fwt", "pooled", "accuracy", "seen")


def final(values: Sequence[float]) -> float:
    """The accuracy on the held-out pictures after the last session."""
    return values[-1]


def average(values: Sequence[float]) -> float:
    """The mean over sessions of that accuracy."""
    return sum(values) / len(values)


OBJECTIVES: dict[str, Callable[[Sequence[float]], float]] = {
    "validation.final": final,
    "validation.average": average,
}


def check_objective(name: str) -> None:
    """Refuse a test metric, and a name that is none."""
    if name in OBJECTIVES:
        return
    if name.partition(".")[0] in (*TEST, "test") or name.partition("_")[0] == "test":
        raise SafeclError(
            f"{name} is a test metric, and nothing is chosen by test pictures; choose one of: {', '.join(OBJECTIVES)}."
        )
    raise unknown("objective", name, OBJECTIVES)


def check_held_out(name: str, part: float) -> None:
    """Without held-out pictures there is no validation metric."""
    if not part:
        raise SafeclError(f"{name} needs held-out training pictures; set stream.held_out=0.2.")


def validation(run: Run, name: str) -> float | None:
    """The objective of a run, of the output that its method answers with; None where nothing was held out."""
    parts = [line.validation.pooled.get(run.facts.main) for line in run.metrics if line.validation is not None]
    values = [value for value in parts if value is not None]
    return OBJECTIVES[name](values) if values else None

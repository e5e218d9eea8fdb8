"""Numbers of a run, from the accuracy on each session after each session: one function each.

A function of this table is known by its name; packages bring others (``safecl.metrics``).
"""

from typing import Any

from safecl.engine.metrics import accuracies, anytime, calibration, strangers, transfer
from safecl.engine.metrics.measured import Accuracy as Accuracy
from safecl.engine.metrics.measured import Measured as Measured
from safecl.engine.metrics.measured import Metric
from safecl.engine.metrics.measured import mean as mean
from safecl.engine.metrics.measured import pooled as pooled
from safecl.entry_points import Catalog

# of every run, each at the top of a line of the metrics
ALWAYS: dict[str, Metric] = {
    "pooled": accuracies.tested,
    "seen": accuracies.seen,
    "task_mean": accuracies.task_mean,
    "forgetting": transfer.forgetting,
}
# those that ``metrics=`` names
NAMED: dict[str, Metric] = {
    "backward_transfer": transfer.backward_transfer,
    "forward_transfer": transfer.forward_transfer,
    "plasticity": transfer.plasticity,
    "class_mean": accuracies.class_mean,
    "worst_class": accuracies.worst_class,
    "worst_session": accuracies.worst_session,
    "calibration_error": calibration.calibration_error,
    "auc_seconds": anytime.auc_seconds,
    "strangers": strangers.strangers,
}


def _metric(name: str, found: Any) -> Metric:
    """Somebody's metric."""
    if not callable(found):
        raise METRICS.misfit(name, "a function of a safecl.engine.metrics.Measured")
    metric: Metric = found
    return metric


METRICS = Catalog[Metric]("metrics", {**ALWAYS, **NAMED}, _metric)


def choices() -> list[str]:
    """What ``metrics=`` may name."""
    return [name for name in METRICS if name not in ALWAYS]

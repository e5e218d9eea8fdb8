"""How good the answers are on the way."""

from safecl.engine.metrics.accuracies import seen
from safecl.engine.metrics.measured import Accuracy, Measured


def auc_seconds(measured: Measured) -> Accuracy:
    """The mean accuracy on what has been learned over the seconds of learning: while a session is
    learned, the state before it answers, and before the first nothing is right.
    """
    seconds = measured.seconds
    if len(seconds) != len(measured.rows) or not sum(seconds):
        return None
    area = 0.0
    for t, row in enumerate(measured.rows[:-1], start=1):
        before = seen(Measured([row], measured.counts[: len(row)], t))
        area += seconds[t] * (before or 0.0)
    return area / sum(seconds)

"""Accuracies after a session: over pictures, sessions (or domains) and classes."""

from safecl.engine.metrics.measured import Accuracy, Measured, mean, pooled


def tested(measured: Measured) -> Accuracy:
    """Acc_t over all test pictures."""
    return pooled(measured.row, measured.counts)


def seen(measured: Measured) -> Accuracy:
    """Acc_t over the test pictures of what has been learned."""
    learned = measured.learned
    return pooled(measured.row[:learned], measured.counts[:learned])


def task_mean(measured: Measured) -> Accuracy:
    """A_t = 1/t Σ_i R_ti."""
    return mean(measured.row)


def worst_session(measured: Measured) -> Accuracy:
    """min_i R_ti, of the sessions or domains that have been learned."""
    return min((r for r in measured.row[: measured.learned] if r is not None), default=None)


def class_mean(measured: Measured) -> Accuracy:
    """The mean over known classes of the accuracy on their own test pictures."""
    return mean(by_class(measured))


def worst_class(measured: Measured) -> Accuracy:
    """The accuracy on the class that is answered worst."""
    return min(by_class(measured), default=None)


def by_class(measured: Measured) -> list[float]:
    """Of each known class that has test pictures."""
    targets = measured.targets
    predicted = measured.predicted
    if targets is None or predicted is None or not (targets >= 0).any():
        return []
    known = targets >= 0
    pictures = targets[known].bincount()
    right = targets[known & (targets == predicted)].bincount(minlength=len(pictures))
    return [int(r) / int(n) for r, n in zip(right, pictures, strict=True) if n]

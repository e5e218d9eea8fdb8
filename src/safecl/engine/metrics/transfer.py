"""What learning a session does to the accuracy on the others."""

from safecl.engine.metrics.measured import Accuracy, Measured, mean


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


def backward_transfer(measured: Measured) -> Accuracy:
    """BWT_t = 1/(t−1) Σ_{i<t} (R_ti − R_ii); none after the first session."""
    *earlier, now = measured.rows
    pairs = [(row[i], now[i]) for i, row in enumerate(earlier)]
    return mean(last - first for first, last in pairs if first is not None and last is not None)


def forward_transfer(measured: Measured) -> Accuracy:
    """FWT_t = 1/(t−1) Σ_{1<i≤t} (R_{i−1,i} − b_i), where b_i is the accuracy of guessing among the
    classes known by then; none where sessions to come are not tested.
    """
    pairs = []
    for i, row in enumerate(measured.rows[:-1], start=1):
        if len(row) > i and len(measured.classes) >= i:
            pairs.append((row[i], measured.classes[i - 1]))
    return mean(ahead - 1 / known for ahead, known in pairs if ahead is not None and known)


def plasticity(measured: Measured) -> Accuracy:
    """LA_t = 1/t Σ_{i≤t} R_ii: the accuracy on each session right after it was learned."""
    return mean(row[i] for i, row in enumerate(measured.rows) if len(row) > i)

"""Whether an answer is as sure as it is right."""

from safecl.engine.metrics.measured import Accuracy, Measured

BINS = 15


def calibration_error(measured: Measured) -> Accuracy:
    """ECE: the mean over test pictures of |accuracy − confidence| of the bin of equal width that
    the picture's confidence is in; a class that is not known is answered wrongly.
    """
    sure = measured.confidence
    if sure is None or measured.targets is None or measured.predicted is None or not len(sure):
        return None
    right = (measured.targets == measured.predicted).double()
    bins = (sure.double() * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = right.new_zeros(BINS).index_add_(0, bins, right - sure.double())
    return float(gaps.abs().sum()) / len(sure)

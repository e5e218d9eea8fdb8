"""Whether pictures of classes that are not known yet are told by how sure the answer is."""

from safecl.engine.metrics.measured import Accuracy, Measured


def strangers(measured: Measured) -> Accuracy:
    """AUROC: how often a picture of a known class is answered with more confidence than one of a
    class to come, a tie counting half; none where no class to come is tested.
    """
    if measured.targets is None or measured.confidence is None:
        return None
    import torch  # settings name metrics, and need no more

    known = measured.confidence[measured.targets >= 0]
    others = measured.confidence[measured.targets < 0].sort().values
    if not len(known) or not len(others):
        return None
    below = torch.searchsorted(others, known).double()
    upto = torch.searchsorted(others, known, right=True).double()
    return float((below + upto).mean()) / (2 * len(others))

"""Cross-classification: the features and prototypes of each learner are classified by the head of
the other.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Classifier: TypeAlias = Callable[[Tensor], Tensor]
Pooling: TypeAlias = Literal["two_means", "concat"]


def crossing(
    classify: Classifier,
    features: Tensor,
    targets: Tensor,
    prototypes: Tensor,
    pooling: Pooling = "two_means",
) -> Tensor:
    """One direction of Eq. (7), L_f2s or L_s2f.

    ``classify``: the other learner's cosine head, (n, d) → logits (n, C). ``features`` (N, d) with
    ``targets`` (N,). ``prototypes`` (K, d): this learner's weight vectors of the classes of earlier
    sessions, whose labels are 0…K−1. ``two_means`` adds the means over the batch and over the
    prototypes, as printed; ``concat`` is the mean over both.
    """
    labels = torch.arange(len(prototypes), device=targets.device)
    if pooling == "concat":
        return F.cross_entropy(
            classify(torch.cat([prototypes, features])), torch.cat([labels, targets])
        )
    loss = F.cross_entropy(classify(features), targets)
    if len(prototypes):
        loss = loss + F.cross_entropy(classify(prototypes), labels)
    return loss

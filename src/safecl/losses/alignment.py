"""The alignment loss: cosine distance between the features of the fast learner and of its
teacher.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def alignment(teacher: Tensor, fast: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """L_cos of Eq. (6): 1/N Σ_i (1 − cos(φ_slow(x_i), φ_fast(x_i))); features (N, d)."""
    terms = 1 - F.cosine_similarity(teacher, fast, dim=1)
    return terms.mean() if reduction == "mean" else terms.sum()

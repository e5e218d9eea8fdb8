"""Alternatives to the transfer loss: rows LA and SSA of the paper's ablation; row FA is the
alignment loss.

The paper names each in one phrase and prints no formula; these are the definitions used here.
"""

import torch.nn.functional as F
from torch import Tensor


def logit_alignment(
    ptm: Tensor, slow: Tensor, prototypes: Tensor, scale: float = 10.0, temperature: float = 2.0
) -> Tensor:
    """LA: τ² KL(softmax(s·cos(φ_PTM, P)/τ) ‖ softmax(s·cos(φ_slow, P)/τ)), P the PTM's class means
    (C, d).
    """
    rows = F.normalize(prototypes, dim=1).T * (scale / temperature)
    teacher = F.log_softmax(F.normalize(ptm, dim=1) @ rows, dim=1)
    student = F.log_softmax(F.normalize(slow, dim=1) @ rows, dim=1)
    return temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def covariance_alignment(ptm: Tensor, slow: Tensor) -> Tensor:
    """SSA: ‖Σ_PTM − Σ_slow‖²_F / 4 over the batch covariances of l2-normalised features (N, d).

    Unit features already make the entries of Σ of order 1/d, so CORAL's further 1/d² is left out.
    """
    return (covariance(ptm) - covariance(slow)).square().sum() / 4


def covariance(features: Tensor) -> Tensor:
    """Batch covariance of the l2-normalised rows: (d, d)."""
    unit = F.normalize(features, dim=1)
    centred = unit - unit.mean(dim=0)
    return centred.T @ centred / len(features)

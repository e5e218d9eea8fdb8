"""Sums in place of means, other weights of L_s↔f, and one mean over batch and prototypes."""

import torch
from torch import Tensor

from safecl import losses
from safecl.methods.method import Batch
from safecl.methods.safe import SAFE
from safecl.methods.slow_fast import Teacher


class Losses(SAFE):
    """As ``method.transfer`` and ``method.guide`` say."""

    def transfer(self, f: Tensor, cls: Tensor, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            g = batch.features(self.backbone)
        m = losses.cross_correlation(g, f)
        s = self.settings.transfer
        return {
            "diag": s.lambda_diag * losses.diagonal(m, s.reduction),
            "rdn": s.lambda_rdn * losses.redundancy(m, s.reduction),
        }

    def align(self, g: Tensor, f: Tensor) -> Tensor:
        return losses.alignment(g, f, self.settings.guide.cos_reduction)

    def cross(
        self, teacher: Teacher, known: int, f: Tensor, g: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        guide = self.settings.guide
        if not guide.lambda_cross:
            return {}
        pooling = guide.cross_pooling
        w_fast = self.w_fast.weight[:known]
        w_slow = teacher.head.weight[:known]
        terms = {
            "f2s": losses.crossing(teacher.head, f, targets, w_fast, pooling),
            "s2f": losses.crossing(self.w_fast, g, targets, w_slow, pooling),
        }
        return {name: guide.lambda_cross * term for name, term in terms.items()}

"""The paper's alternatives to L_diag and L_rdn (its table of the slow learner), or none of them."""

import torch
from torch import Tensor

from safecl import losses
from safecl.methods.method import Batch
from safecl.methods.safe import SAFE


class Transfers(SAFE):
    """FA holds features, SSA covariances, to those of the PTM."""

    def transfer(self, f: Tensor, cls: Tensor, batch: Batch) -> dict[str, Tensor]:
        kind = self.settings.transfer.loss
        if kind == "none":
            return {}
        with torch.no_grad():
            g = batch.features(self.backbone)
        return {kind: self.held(kind, g, f)}

    def held(self, kind: str, g: Tensor, f: Tensor) -> Tensor:
        """The term, from features (N, d) of the PTM and of the slow learner."""
        return losses.alignment(g, f) if kind == "fa" else losses.covariance_alignment(g, f)

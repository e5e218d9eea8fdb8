"""LA: a transfer of the PTM's logits, of the table of the slow learner."""

from torch import Tensor

from safecl import losses
from safecl.methods.variants.ptm_prototypes import PtmPrototypes
from safecl.methods.variants.transfers import Transfers


class LogitTransfer(Transfers, PtmPrototypes):
    """Logits are those of the PTM's prototypes."""

    def held(self, kind: str, g: Tensor, f: Tensor) -> Tensor:
        return losses.logit_alignment(g, f, self.w_ptm.weight)

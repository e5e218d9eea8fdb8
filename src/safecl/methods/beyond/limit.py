"""Decides: how strongly a transfer term may pull at the features.
By: the norm of its gradient, of which at most a share of that of L_cls is left.
Worth: not measured alone.
"""

from torch import Tensor

from safecl import losses
from safecl.methods.method import Batch
from safecl.methods.safe import SAFE


class Limit(SAFE):
    """The values of the paper suit one scale of features; this does any."""

    def transfer(self, f: Tensor, cls: Tensor, batch: Batch) -> dict[str, Tensor]:
        share = self.settings.limit.share
        terms = super().transfer(f, cls, batch)
        return {name: losses.limited(term, cls, f, share) for name, term in terms.items()}

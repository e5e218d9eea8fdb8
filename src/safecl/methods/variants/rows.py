"""Cosine heads as released: the slow rows that session 1 has trained stay, new ones are zero, and
σ goes back.
"""

import torch

from safecl.heads.cosine import CosineHead
from safecl.methods.safe import SAFE


class Rows(SAFE):
    """As ``method.cosine`` says."""

    def imprint(self, head: CosineHead) -> None:
        cosine = self.settings.cosine
        later = self.sessions > 0
        if cosine.slow_rows == "imprint" and (not later or cosine.new_rows == "imprint"):
            super().imprint(head)
        if cosine.reset_scale and not later:
            head.scale.data.fill_(self.settings.scale)

    def grow(self, head: CosineHead) -> None:
        if self.settings.cosine.new_rows == "imprint":
            super().grow(head)
        else:
            head.grow(torch.zeros_like(head.centroids()[head.classes :]))

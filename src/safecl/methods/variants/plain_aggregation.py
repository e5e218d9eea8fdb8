"""Plain aggregations, of the paper's table: the sum of both logits, or the larger of them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from safecl.methods.safe import SAFE


class PlainAggregation(SAFE):
    """As ``method.answer.aggregation`` says."""

    def combine(self, slow: Tensor, fast: Tensor) -> Tensor:
        add = self.settings.answer.aggregation == "add"
        return slow + fast if add else torch.maximum(slow, fast)

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {}

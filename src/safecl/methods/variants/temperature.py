"""The σ that the cosine heads have learned multiplies the ridge logits, as released."""

from collections.abc import Mapping

from torch import Tensor

from safecl.heads.left_out import LeftOut
from safecl.methods.experts import Expert
from safecl.methods.safe import SAFE


class LearnedTemperature(SAFE):
    """That of W_slow for who answers beside the fast learner."""

    def voiced(
        self,
        output: str,
        expert: Expert,
        features: Mapping[str, Tensor],
        left_out: LeftOut | None = None,
    ) -> Tensor:
        head = self.w_fast if output == "fast" else self.w_slow
        return expert.logits(features, left_out) * head.scale

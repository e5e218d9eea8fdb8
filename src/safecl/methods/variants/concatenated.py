"""One head on the features of both learners, side by side, of the paper's table of aggregations."""

from collections.abc import Mapping

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut
from safecl.heads.ridge import RidgeHead
from safecl.methods.ensemble import concatenate
from safecl.methods.experts import Expert
from safecl.methods.method import Fit, Included, More
from safecl.methods.parts import Parts, learned_from
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.methods.slow_fast import Features


class Concatenated(SAFE):
    """A third expert, which reads two networks and alone gives the answer of SAFE."""

    grams = 3

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.joint = RidgeHead(2 * backbone.width, settings.ridge, seed, backbone.device)

    @property
    def both(self) -> Expert:
        networks = {"slow": self.slow, "fast": self.fast}
        return Expert("joint", "joint", networks, self.joint, together=concatenate)

    def add(self, targets: Tensor, features: Mapping[str, Tensor], fit: Fit) -> Features:
        added = super().add(targets, features, fit)
        return {**added, "joint": self.both.add(self.both.of(features), targets, fit)}

    def settle(self, learned: int, more: More | None = None) -> Included:
        self.joint.solve()
        return super().settle(learned, more)

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {**super().answer(features, left_out), "safe": self.both.logits(features, left_out)}

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {}

    def parts(self) -> Parts:
        return learned_from(super().parts(), {"joint": ("slow", "fast")}, concatenate)

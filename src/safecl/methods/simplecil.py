"""SimpleCIL (nearest class mean): the mean feature of every class under the frozen backbone, compared by cosine."""

from collections.abc import Mapping

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.methods.method import Fit, Method
from safecl.methods.settings.simplecil import SimplecilSettings
from safecl.streams.stream import Session


class SimpleCIL(Method):
    """Nothing is trained. More pictures of a known class refine its mean."""

    outputs = ("simplecil",)
    anchor = "backbone"

    def __init__(self, backbone: Backbone, settings: SimplecilSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.prototypes = CosineHead(backbone.width, scale=1.0, unit=False).requires_grad_(False)
        self.to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        targets, features = fit.features(session, self.backbone)
        self.prototypes.observe(features, targets)
        self.prototypes.imprint()

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"backbone": self.backbone.features(images)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"simplecil": self.prototypes(features["backbone"])}

    def refresh(self) -> None:
        self.prototypes.imprint()

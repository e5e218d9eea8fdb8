"""The PTM's own prototypes: W_ptm, the centroids of its features."""

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.methods.method import Fit, Included, More, Network
from safecl.methods.parts import Parts, learned_from
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.streams.stream import Session


class PtmPrototypes(SAFE):
    """For a teacher that is the PTM, and for a transfer of its logits."""

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.w_ptm = CosineHead(backbone.width, settings.scale)
        self.w_ptm.requires_grad_(False)

    def learn(self, session: Session, fit: Fit) -> None:
        targets, features = fit.features(session, self.backbone)
        self.w_ptm.observe(features, targets)
        self.w_ptm.imprint()
        super().learn(session, fit)

    @property
    def networks(self) -> dict[str, Network]:
        return {**super().networks, "backbone": self.backbone}

    def parts(self) -> Parts:
        return learned_from(super().parts(), {"w_ptm": ("backbone",)})

    def refresh(self, more: More | None = None) -> Included:
        included = super().refresh(more)
        self.w_ptm.imprint()
        return included

"""SimpleCIL (nearest class mean): the mean feature of every class under the frozen backbone, compared by cosine."""

from collections.abc import Mapping

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.methods.method import Fit, Method, Network
from safecl.methods.settings.base import MethodSettings
from safecl.streams.stream import Session


class SimpleCIL(Method):
    """Nothing is trained. More pictures of a known class refine its mean."""

    outputs = ("simplecil",)
    anchor = "backbone"
    leaves_out = True

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0, networks: int = 1) -> None:
        super().__init__(backbone, settings, seed)
        self.prototypes = CosineHead(networks * backbone.width, scale=1.0, unit=False).requires_grad_(False)

    @property
    def networks(self) -> dict[str, Network]:
        """A class is the mean of their features side by side."""
        return {"backbone": self.backbone}

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        return {"prototypes": tuple(self.networks)}

    def learn(self, session: Session, fit: Fit) -> None:
        targets, *features = fit.features(session, *self.networks.values())
        self.prototypes.observe(torch.cat(features, dim=1), targets)
        self.prototypes.imprint()

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self.name: self.prototypes(torch.cat([features[name] for name in self.networks], dim=1))}

    def refresh(self) -> None:
        self.prototypes.imprint()

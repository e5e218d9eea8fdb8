"""A learner: one tuned view of the backbone, with its cosine head and its ridge head."""

from typing import Any

import torch
from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.heads import CosineHead, RidgeHead, RidgeSettings
from safecl.pet import PetSettings, attach, merge


class Learner(nn.Module):
    """PET + heads. Its state holds what was learned and nothing of the backbone."""

    def __init__(
        self, backbone: Backbone, pet: PetSettings, ridge: RidgeSettings, scale: float = 10.0, seed: int = 0
    ) -> None:
        super().__init__()
        self.backbone, self._options = backbone, (pet, ridge, scale, seed)
        # Kept out of the module tree: the view's frozen weights are the backbone's, not this learner's.
        view, self.pet = attach(backbone.vit, pet, seed)
        self._views = [view, view]  # with the PET in it, and as it is used: merged, once nothing changes any more
        self.cosine = CosineHead(backbone.width, scale)
        self.ridge = RidgeHead(backbone.width, ridge, seed, backbone.device)
        self.register_load_state_dict_post_hook(_merge_again)  # type: ignore[no-untyped-call]  # torch's own
        self.to(backbone.device).eval()  # only the engine, while it trains, turns dropout on

    def features(self, images: Tensor) -> Tensor:
        """φ(x): pictures in [0, 1], (N, 3, size, size) → (N, d)."""
        return self.backbone.features(images, self._views[1])

    def logits(self, images: Tensor) -> Tensor:
        """z of Eq. (9): (N, C)."""
        return self.ridge.logits(self.features(images))

    def remember(self, features: Tensor, targets: Tensor) -> None:
        """Add the plain features (N, d) of a session to the second-order statistics and solve for the weights."""
        self.ridge.add(features, targets)
        self.ridge.solve()

    def tuning(self) -> dict[str, Tensor]:
        """The values of the PET, to go back to."""
        return {name: value.detach().clone() for name, value in self.pet.state_dict().items()}

    def interpolate(self, start: dict[str, Tensor], end: dict[str, Tensor], share: float) -> None:
        """Set the PET between two of its ``tuning`` values: ``start`` at 0, ``end`` at 1."""
        self.pet.load_state_dict({name: torch.lerp(start[name], end[name], share) for name in start})

    def freeze(self) -> None:
        """No more training, neither of the PET nor of the cosine head; what can be merged into the weights is."""
        self.requires_grad_(False).eval()
        self._views[1] = merge(self._views[0])

    def copy(self) -> "Learner":
        """A learner of its own, trainable, that starts as this one."""
        twin = Learner(self.backbone, *self._options)
        twin.load_state_dict(self.state_dict())
        return twin


def _merge_again(learner: Learner, _: Any) -> None:
    """A frozen learner was given another state."""
    if learner._views[1] is not learner._views[0]:
        learner.freeze()

"""A learner: one tuned view of the backbone, that is backbone + PET. Heads belong to the method."""

from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.backbone.view import Inserted
from safecl.heads import protocol
from safecl.heads.reading import Reading
from safecl.pet.attach import attach, merge
from safecl.pet.settings import PetSettings

Tuning = dict[str, Tensor]  # the values of a PET by name


class Learner(protocol.Editable, nn.Module):
    """``pet``, initialised by ``seed``, on a view of ``backbone``. Its state holds the PET and
    nothing of the backbone.

    While nothing is trained, features come from a copy of the view with the PET merged into the
    weights, which is made on the first use and dropped when the PET changes.
    """

    kind: protocol.Kind = "trained"
    merges: protocol.Merge = "refuse"  # unless a method says more

    def __init__(self, backbone: Backbone, pet: PetSettings, seed: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        self.settings = pet
        self._seed = seed
        # Kept out of the module tree: the view's frozen weights are the backbone's, not this
        # learner's.
        view, self.pet = attach(backbone.network, pet, seed, backbone.family)
        self._view = [view]
        self._merged = [view]
        self._merged_at: tuple[Any, ...] | None = None
        self.to(backbone.device).eval()  # only the engine, while it trains, turns dropout on

    def __repr__(self) -> str:
        numbers = sum(parameter.numel() for parameter in self.pet.parameters())
        return f"<Learner: {self.settings.kind} of {numbers} numbers on {self.backbone.name}>"

    def features(self, images: Tensor, **inserted: Unpack[Inserted]) -> Tensor:
        """φ(x): pictures in [0, 1], (N, 3, size, size) → (N, d)."""
        return self.backbone.features(images, self._network(), **inserted)

    def read(self, images: Tensor, reading: Reading) -> Tensor:
        """As ``Backbone.read``: (N, d′)."""
        return self.backbone.read(images, reading, self._network())

    def tokens(self, images: Tensor, count: int, **inserted: Unpack[Inserted]) -> Tensor:
        """The first ``count`` tokens after the final norm, (N, count, d)."""
        return self.backbone.tokens(images, count, self._network(), **inserted)

    def tuning(self) -> Tuning:
        """A copy of the PET's values."""
        return {name: value.detach().clone() for name, value in self.pet.state_dict().items()}

    def interpolate(self, start: Tuning, end: Tuning, share: float) -> None:
        """Set the PET between two of its ``tuning`` values: ``start`` at 0, ``end`` at 1."""
        self.pet.load_state_dict(
            {name: torch.lerp(start[name], end[name], share) for name in start}
        )
        self._merged_at = None

    def merge(self, now: "Learner", before: "Learner", index: Tensor) -> None:
        """Average the tunings; where they are the same, nothing changes."""
        self.interpolate(self.tuning(), now.tuning(), protocol.SECOND_SHARE)

    def freeze(self) -> None:
        """No more training."""
        self.requires_grad_(False).eval()

    def copy(self) -> "Learner":
        """A learner of its own, trainable, that starts as this one."""
        twin = Learner(self.backbone, self.settings, self._seed)
        twin.load_state_dict(self.state_dict())
        return twin

    def fuse(self) -> None:
        """For export: from now on features come from a merged copy that is part of this module, and
        stays as it is.
        """
        self.add_module("fused", merge(self._view[0]))

    def train(self, mode: bool = True) -> "Learner":
        super().train(mode)
        self._merged_at = (
            None  # steps of a CUDA graph change the PET without a trace in its version counters
        )
        return self

    def _network(self) -> Any:
        """The view, or the merged copy of it where no gradient by the PET is wanted."""
        if "fused" in self._modules:
            return self._modules["fused"]
        trainable = any(parameter.requires_grad for parameter in self.pet.parameters())
        if self.training or (trainable and torch.is_grad_enabled()):
            return self._view[0]
        # Changes whenever a value of the PET or the precision of the backbone does, by any plain
        # operation.
        tensors = (*self.pet.parameters(), *self.pet.buffers())
        now = (
            self.backbone.dtype,
            *((id(tensor), tensor.data_ptr(), tensor._version) for tensor in tensors),
        )
        if self._merged_at != now:
            self._merged = [merge(self._view[0])]
            self._merged_at = now
        return self._merged[0]


@dataclass(frozen=True)
class Reader:
    """A network as a ridge head reads it."""

    network: Learner | Backbone
    reading: Reading

    def features(self, images: Tensor) -> Tensor:
        """Pictures in [0, 1], (N, 3, size, size) → (N, d′), the features of the network first."""
        return self.network.read(images, self.reading)

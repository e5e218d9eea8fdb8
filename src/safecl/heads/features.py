"""Features of pictures, a byte each: what a head can be made of anew."""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from safecl.heads.packing import rounded
from safecl.heads.precision import check_finite
from safecl.heads.statistics import CHUNK

NAMES = ("values", "scales", "targets")


class KeptFeatures(nn.Module):
    """Features (N, d) as int8 with a scale for each picture, and their class indices (N,): d + 8 bytes a picture."""

    by_difference: ClassVar[tuple[str, ...]] = NAMES
    values: Tensor
    scales: Tensor
    targets: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(0, width, dtype=torch.int8))
        self.register_buffer("scales", torch.zeros(0))
        self.register_buffer("targets", torch.zeros(0, dtype=torch.int32))

    @property
    def pictures(self) -> int:
        return len(self.targets)

    @torch.no_grad()
    def add(self, features: Tensor, targets: Tensor) -> None:
        """Keep features (N, d) with class indices (N,)."""
        check_finite(features)
        values, scales = rounded(features)
        self._append(values, scales[:, 0], targets.to(self.targets))

    @torch.no_grad()
    def remove(self, features: Tensor, targets: Tensor) -> None:
        """Take the pictures out that were added last: as many as ``targets`` (N,) has."""
        for name in NAMES:
            setattr(self, name, getattr(self, name)[: self.pictures - len(targets)].clone())

    @torch.no_grad()
    def merge(self, now: "KeptFeatures", before: "KeptFeatures", index: Tensor) -> None:
        """Add the pictures that ``now`` has behind those of ``before``; its class i is class ``index[i]`` here."""
        values, scales, targets = (getattr(now, name)[before.pictures :] for name in NAMES)
        self._append(values, scales, index.to(targets.device)[targets.long()].to(targets))

    @torch.no_grad()
    def drop_class(self, index: int) -> None:
        """Remove the pictures of a class; those after it move up by one."""
        stay = self.targets != index
        self.values, self.scales, targets = self.values[stay], self.scales[stay], self.targets[stay]
        self.targets = targets - (targets > index).to(targets)

    def recall(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features (n, d) and class indices (n,) of all pictures."""
        for values, scales, targets in zip(*(getattr(self, name).split(CHUNK) for name in NAMES), strict=True):
            yield values * scales[:, None], targets.long()

    def _append(self, *rows: Tensor) -> None:
        for name, more in zip(NAMES, rows, strict=True):
            own = getattr(self, name)
            setattr(self, name, torch.cat([own, more.to(own)]))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The number of pictures is part of the state, not of the constructor.
        for name in NAMES:
            setattr(self, name, getattr(self, name).new_zeros(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

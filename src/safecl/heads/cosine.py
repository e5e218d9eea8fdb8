"""The trained head: cosine similarity with one weight vector per class, grown by imprinting class
means.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.heads.left_out import LeftOut
from safecl.heads.protocol import Kind, Merge, PerClass
from safecl.heads.tensors import added, put


class CosineHead(PerClass):
    """logits = σ · norm(f) · norm(W)ᵀ, with W (C, d) and the learnable scale σ.

    ``sums`` (C, d) and ``counts`` (C,) are of the features observed, on the unit sphere unless
    ``unit`` is false. Without ``sums`` in the constructor they only serve to imprint new classes,
    and are dropped by ``grow``.
    """

    rows = ("weight", "sums", "counts")
    by_difference: ClassVar[tuple[str, ...]] = ("sums", "counts")
    weight: nn.Parameter

    def __init__(
        self, width: int, scale: float = 10.0, unit: bool = True, sums: bool = True
    ) -> None:
        super().__init__()
        self.unit = unit
        self.summing = sums
        self.weight = nn.Parameter(torch.zeros(0, width))
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.sums: Tensor = nn.Buffer(torch.zeros(0, width))
        self.counts: Tensor = nn.Buffer(torch.zeros(0))

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return "sum" if self.summing else "trained"

    @property
    def merges(self) -> Merge:  # type: ignore[override]
        """Rows that are trained in every session: those of new classes come from either model."""
        return "keep" if self.summing else "average"

    @property
    def classes(self) -> int:
        return len(self.weight)

    def forward(self, features: Tensor, left_out: LeftOut | None = None) -> Tensor:
        """features (N, d) → logits (N, C); with ``left_out`` as if these pictures had not been
        learned, where the weight vectors are centroids.
        """
        f = F.normalize(features, dim=1)
        z = self.scale * (f @ F.normalize(self.weight, dim=1).T)
        if left_out is None or self.sums.shape != self.weight.shape:
            return z
        if not torch.allclose(self.weight, self.centroids(), atol=1e-5):
            return z
        targets = left_out.targets
        together = left_out.together.to(f)
        rest = self.sums[targets] - together @ (f if self.unit else features)
        some = self.counts[targets] > together.sum(dim=1)  # of the class are left
        own = self.scale * (f * F.normalize(rest, dim=1)).sum(dim=1) * some
        return z.scatter(1, targets[:, None], own[:, None])

    def observe(self, features: Tensor, targets: Tensor, sign: int = 1) -> None:
        """Add features (N, d) with class indices (N,) to ``sums`` and ``counts``; a ``sign`` of −1
        takes them out.
        """
        seen = features.detach().to(self.sums)
        seen = F.normalize(seen, dim=1) if self.unit else seen
        missing = max(int(targets.max()) + 1 - len(self.sums), 0)
        self.sums = F.pad(self.sums, (0, 0, 0, missing)).index_add(0, targets, seen, alpha=sign)
        ones = torch.ones_like(seen[:, 0])
        self.counts = F.pad(self.counts, (0, missing)).index_add(0, targets, ones, alpha=sign)

    def centroids(self) -> Tensor:
        """Mean feature of every class observed: (C, d)."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def imprint(self) -> None:
        """Replace every weight vector by the centroid of its class."""
        put(self, "weight", self.centroids())

    @torch.no_grad()
    def grow(self, rows: Tensor) -> None:
        """Append weight vectors (new, d); the existing ones do not change."""
        put(self, "weight", torch.cat([self.weight, rows.to(self.weight)]))
        if not self.summing:
            self.sums = self.sums[:0]
            self.counts = self.counts[:0]

    def start_as(self, other: "CosineHead") -> None:
        """Rows and scale of ``other``; of its sums only what this head keeps."""
        self.load_state_dict(other.state_dict())
        self.grow(self.weight[:0])

    def grow_random(self, count: int, generator: torch.Generator) -> None:
        """Append ``count`` weight vectors drawn from U(±1/√d) with a generator of the CPU."""
        bound = self.weight.shape[1] ** -0.5
        self.grow(
            torch.empty(count, self.weight.shape[1]).uniform_(-bound, bound, generator=generator)
        )

    def clear(self) -> None:
        """Nothing was observed; the rows stay."""
        self.sums = torch.zeros_like(self.sums)
        self.counts = torch.zeros_like(self.counts)

    @torch.no_grad()
    def join(self, one: int, other: int) -> None:
        """Add up sums and counts; the row becomes the mean of both, unless it is imprinted
        again.
        """
        if not self.classes:
            return
        self.weight[one] = (self.weight[one] + self.weight[other]) / 2
        for sums in (self.sums, self.counts) if self.summing else ():
            sums[one] += sums[other]
            sums[other] = 0

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        """Move features (n, d), with others beside them or not, from the sums of the classes
        ``old`` to ``new``.

        The rows stay as they are.
        """
        if features is None:
            return
        features = features[:, : self.weight.shape[1]]
        fresh = new >= (0 if self.summing else self.classes)
        if fresh.any():
            self.observe(features[fresh], new[fresh])
        was = old >= 0
        if self.summing and was.any():
            self.observe(features[was], old[was], -1)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        for name in ("weight", "sums"):
            if state_dict[prefix + name].shape[1:] != self.weight.shape[1:]:
                raise ValueError(f"{prefix}{name} is of another width than the features")
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.no_grad()
    def merge(self, now: "CosineHead", before: "CosineHead", index: Tensor) -> None:
        """Add what ``now`` has observed since ``before``; its class i is class ``index[i]`` here,
        −1: none.
        """
        self.sums = added(self.sums, now.sums, before.sums, index)
        self.counts = added(self.counts, now.counts, before.counts, index)
        fresh = torch.where(index[: now.classes] >= self.classes, index[: now.classes], -1)
        put(self, "weight", added(self.weight, now.weight, now.weight[:0], fresh))

"""The sums behind a ridge head, G and those of the classes: how they grow, follow and merge, and
the memory that they need.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.errors import SafeclError
from safecl.heads.protocol import Editable, Kind
from safecl.heads.tensors import added, precise, without
from safecl.ram import free_memory

CHUNK = 1024  # pictures, or columns of G, that are worked on at a time
# of the operator by which statistics follow, in units of a projected feature's squared norm
RIDGE = 1e-3
# numbers for each random feature that chunks of pictures and of classes need beside G and its
# factor
THIN = 8000


class Movement(NamedTuple):
    """How projected features (n, M) move: by the linear operator I + Uᵀ V, with U and V (k, M)."""

    u: Tensor
    v: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, M) → (n, M)."""
        return torch.addmm(rows, rows @ self.u.T, self.v)


def movement(before: Tensor, after: Tensor) -> Movement:
    """I + Pᵀ (P Pᵀ + λI)⁻¹ (Q − P), which takes projected features (k, M) P, ``before``, nearly to
    Q, ``after``.

    U and V are of moderate size, so that float32 is enough for G.
    """
    kernel = sum(
        (part @ part.T for part in map(precise, torch.split(before, CHUNK, dim=1))),
        start=torch.zeros(()),
    )
    kernel.diagonal().add_(
        RIDGE * max(float(kernel.diagonal().mean()), torch.finfo(torch.float32).tiny)
    )
    factor = torch.linalg.cholesky(kernel)

    def whitened(rows: Tensor) -> Tensor:
        parts = map(precise, torch.split(rows, CHUNK, dim=1))
        return torch.cat(
            [torch.linalg.solve_triangular(factor, part, upper=False).to(rows) for part in parts],
            dim=1,
        )

    return Movement(whitened(before), whitened(after - before))


class Statistics(Editable, nn.Module):
    """G = Σ h hᵀ (M, M) and W̃ = Σ_c h (M, C) of Eq. (10); part of the state if ``kept``, else
    computed from it.
    """

    kind: Kind = "sum"
    # G follows from the features that were added to it
    by_difference: ClassVar[tuple[str, ...]] = (
        "sums",
        "count",
    )
    gram: Tensor
    sums: Tensor
    count: Tensor

    def __init__(self, size: int, device: torch.device | None = None, kept: bool = True) -> None:
        super().__init__()
        self.size = size
        self.kept = kept
        # G is allocated with the first pictures.
        self.register_buffer("gram", torch.zeros(0, 0, device=device), persistent=kept)
        self.register_buffer("sums", torch.zeros(size, 0, device=device), persistent=kept)
        self.register_buffer(
            "count", torch.zeros((), dtype=torch.int64, device=device), persistent=kept
        )

    @property
    def unit(self) -> float:
        """Mean squared norm of a projected feature; 1 without any, or where all are zero."""
        return float(self.gram.diagonal().sum()) / max(int(self.count), 1) or 1.0

    def add(self, projected: Tensor, targets: Tensor) -> None:
        """Add a chunk: projected features (n · v, M) of pictures with class indices (n,); v views
        are one picture.
        """
        self._allocate(projected)
        views = len(projected) // len(targets)
        for here, left, rows in self._lower_blocks():
            rows.addmm_(projected[:, here].T, projected[:, left], alpha=1 / views)
        self._add_sums(projected, targets, 1 / views)
        self.count = self.count + len(targets)

    def accumulate(
        self, project: Callable[[Tensor], Tensor], features: Tensor, targets: Tensor
    ) -> None:
        """Add features (n, d) of pictures with class indices (n,) a chunk at a time, as ``project``
        makes rows (n · v, M) of them.
        """
        for start in range(0, len(features), CHUNK):
            here = slice(start, start + CHUNK)
            self.add(project(features[here]), targets[here])

    def _add_sums(self, projected: Tensor, targets: Tensor, weight: float) -> None:
        """Add rows (n · v, M), with a weight, to the sums of the classes (n,) that are not −1."""
        of = targets.repeat_interleave(len(projected) // len(targets))
        missing = max(int(targets.max()) + 1 - self.sums.shape[1], 0)
        there = of >= 0
        self.sums = F.pad(self.sums.to(projected), (0, missing))
        self.sums.index_add_(1, of[there], projected[there].T, alpha=weight)

    def follow(self, source: "Statistics", movement: Movement) -> None:
        """Become ``source`` as it would be had its pictures moved: G to (I + UᵀV)ᵀ G (I + UᵀV)."""
        u, v = movement
        self._allocate(source.gram)
        gu = source.gram @ u.T  # (M, n)
        half = torch.addmm(gu, v.T, u @ gu)
        for here, left, rows in self._lower_blocks():
            torch.addmm(source.gram[here, left], half[here], v[:, left], out=rows)
            rows.addmm_(v[:, here].T, gu[left].T)
        self.sums = source.sums + v.T @ (u @ source.sums)
        self.count = source.count.clone()

    def _lower_blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Rows, columns and G there, of the lower half block by block; what is written is mirrored
        to the upper.
        """
        for start in range(0, self.size, CHUNK):
            here = slice(start, start + CHUNK)
            left = slice(start + CHUNK)
            yield here, left, self.gram[here, left]
            self.gram[:start, here] = self.gram[here, :start].T

    def _allocate(self, like: Tensor) -> None:
        """Make room for G, of the kind of ``like``, where there is none yet."""
        if not len(self.gram):
            require_memory(self.size, like.device, itemsize=like.element_size())
            self.gram = like.new_zeros(self.size, self.size)

    def clear(self) -> None:
        """No sums of classes; G stays."""
        self.sums = torch.zeros_like(self.sums)
        self.count = torch.zeros_like(self.count)

    def drop_class(self, index: int) -> None:
        """Remove the sum of a class; those after it move up by one. G, and ``count`` with it, keep
        its pictures.
        """
        self.sums = without(self.sums, index, dim=1)

    def join(self, one: int, other: int) -> None:
        """Add up the sums of two classes; G is that of all."""
        if self.kept and self.sums.shape[1]:
            self.sums[:, one] += self.sums[:, other]
            self.sums[:, other] = 0

    def relabel(self, projected: Tensor, old: Tensor, new: Tensor) -> None:
        """Move projected features (n · v, M) from the sums of the classes ``old`` (n,) to those of
        ``new``, −1: none.

        Its head calls it. G knows no classes: it follows from the features that are left and those
        that are new.
        """
        views = len(projected) // len(old)
        self._add_sums(projected, old, -1 / views)
        self._add_sums(projected, new, 1 / views)
        self.count = self.count + int((new >= 0).sum()) - int((old >= 0).sum())

    def come(self, projected: Tensor, old: Tensor, new: Tensor) -> None:
        """Add those of them to G that were not learned before; as ``relabel``."""
        views = len(projected) // len(old)
        rows = projected[((old < 0) & (new >= 0)).repeat_interleave(views)]
        self.gram.addmm_(rows.T, rows, alpha=1 / views)

    def subtract(self, other: "Statistics") -> None:
        """Take the G of ``other`` out of this one, in float64: two large sums may differ by
        little.
        """
        for start in range(0, len(other.gram), CHUNK):
            rows = slice(start, start + CHUNK)
            self.gram[rows] = (precise(self.gram[rows]) - precise(other.gram[rows])).to(self.gram)

    def merge(self, now: "Statistics", before: "Statistics", index: Tensor) -> None:
        """Add what ``now`` has more than ``before``; its class i is class ``index[i]`` here, −1:
        none.

        Where ``now`` has no G, that of this one stays as it is. Statistics that are not ``kept``
        are computed again.
        """
        if not self.kept:
            return
        if len(now.gram):
            self._allocate(now.gram)
        # in float64: two large sums may differ by little
        for start in range(0, len(now.gram), CHUNK):
            rows = slice(start, start + CHUNK)
            total = precise(self.gram[rows]) + precise(now.gram[rows])
            self.gram[rows] = (
                total - precise(before.gram[rows]) if len(before.gram) else total
            ).to(self.gram)
        self.sums = added(self.sums, now.sums, before.sums, index, dim=1)
        self.count = self.count + now.count - before.count

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        # Whether there is a G, and the number of classes, are part of the state, not of the
        # constructor.
        for name in ("gram", "sums") if self.kept else ():
            shape = state_dict[prefix + name].shape
            own = getattr(self, name)
            if shape != own.shape:
                if name == "gram" and shape.numel():
                    require_memory(self.size, own.device, itemsize=own.element_size())
                setattr(self, name, own.new_zeros(shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


def require_memory(
    size: int,
    device: torch.device,
    width: int = 0,
    grams: int = 1,
    itemsize: int = 4,
    free: int | None = None,
) -> None:
    """Raise where M = ``size`` does not fit into the ``free`` memory of ``device``, or what it now
    has; on MPS a solve works on a copy of G.
    """
    grams += device.type == "mps"
    needed = partial(memory_needed, width=width, grams=grams, itemsize=itemsize)
    free = free_memory(device) if free is None else free
    if needed(size) <= free:
        return
    fitting = bisect_right(range(size), free, key=needed) - 1
    unit = 10 ** max(len(str(fitting)) - 2, 0)
    advice = (
        f"set ridge.size to {fitting // unit * unit} or less"
        if fitting > 0
        else "free some memory first"
    )
    raise SafeclError(
        "ridge.memory",
        size=size,
        needed=needed(size) / 1e9,
        device=device,
        free=free / 1e9,
        advice=advice,
    )


def memory_needed(size: int, width: int, grams: int, itemsize: int) -> int:
    """Bytes for so many G, half a matrix for the factor of one, the projection, and thin
    tensors.
    """
    return itemsize * ((2 * grams + 1) * size * size // 2 + (width + THIN) * size)

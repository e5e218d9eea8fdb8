"""h = ReLU(W_randᵀ φ(x)) of Eq. (9): random features of what is read of a picture."""

from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from safecl.heads.gram import CHUNK
from safecl.heads.reading import PLAIN, Reading, Widths, widths_of
from safecl.randomness import derive


class RandomFeatures(nn.Module):
    """Pictures (N, v · d) with v views → (N · v, M), those of a picture one after the other.

    With ``size`` None nothing is projected: h = φ(x), and M = d. ``widths``: of the features that
    the ``reading`` puts side by side; one projection reads them all, or, ``apart``, each has its
    own, the network's own feature a third of M. W_rand follows from the ``seed``, and is no part
    of a state.
    """

    projection: Tensor

    def __init__(
        self,
        widths: Widths | int,
        size: int | None,
        seed: int = 0,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.widths = widths_of(widths)
        self.seed = seed
        self._size = size
        self.register_buffer("projection", torch.zeros(0, 0, device=device), persistent=False)
        self.read(PLAIN)

    @property
    def projects(self) -> bool:
        return self._size is not None

    @property
    def width(self) -> int:
        """d of one view."""
        return self.widths.total(self.reading)

    @property
    def size(self) -> int:
        """M."""
        return self.width if self._size is None else self._size

    def read(self, reading: Reading, drawn: Tensor | None = None, apart: bool = False) -> None:
        """Read this of every picture from now on, by a projection that is ``drawn`` already."""
        self.reading = reading
        self.apart = apart
        own = self.projection
        self.projection = (self.drawn(reading, apart) if drawn is None else drawn).to(own)

    @property
    def inputs(self) -> list[int]:
        """The widths of what each projection reads of a view."""
        return self.widths.parts(self.reading) if self.apart else [self.width]

    @property
    def sizes(self) -> list[int]:
        """Random features of each projection."""
        parts = len(self.inputs)
        if parts == 1 or not self.projects:
            return self.inputs if self.apart and not self.projects else [self.size]
        rest = (self.size - self.size // min(parts, 3)) // (parts - 1)
        return [self.size - rest * (parts - 1)] + [rest] * (parts - 1)

    def drawn(self, reading: Reading, apart: bool = False) -> Tensor:
        """W_rand (d, M) for a view read so; without a projection (d, 0). Of several projections
        each has columns, and as many of the first rows as it reads.
        """
        parts = self.widths.parts(reading)
        width = max(parts) if apart else sum(parts)
        if self._size is None:
            return torch.zeros(width, 0)
        seed = derive(self.seed, "projection", width, self._size)
        return random_projection(width, self._size, seed, self.projection.device)

    def forward(self, features: Tensor) -> Tensor:
        """(N, v · d) → (N · v, M)."""
        rows = features.reshape(-1, self.width).to(self.projection.dtype)
        if not self.projects:
            return rows
        parts = [x @ projection for x, projection in self._parts(rows)]
        return torch.relu(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))

    def kernel(self, features: Tensor) -> Tensor:
        """Inner products (n · v, n · v) of the rows, a chunk of random features at a time."""
        return self.kernels(features).sum(dim=0) if self.apart else self.kernels(features)[0]

    def kernels(self, features: Tensor) -> Tensor:
        """As ``kernel``, of each projection: (p, n · v, n · v)."""
        rows = features.reshape(-1, self.width).to(self.projection.dtype)
        if not self.projects:
            return torch.stack([x @ x.T for x in torch.split(rows, self.inputs, dim=1)])
        kernels = rows.new_zeros(len(self.inputs), len(rows), len(rows))
        for kernel, (x, projection) in zip(kernels, self._parts(rows), strict=True):
            for some in torch.split(projection, CHUNK, dim=1):
                h = torch.relu(x @ some)
                kernel.addmm_(h, h.T)
        return kernels

    def _parts(self, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """What each projection reads (n, d_p) of rows (n, d), and its columns (d_p, M_p)."""
        if not self.apart:
            return [(rows, self.projection)]
        parts = torch.split(rows, self.inputs, dim=1)
        columns = torch.split(self.projection, self.sizes, dim=1)
        return [(x, own[: x.shape[1]]) for x, own in zip(parts, columns, strict=True)]


_projections: WeakValueDictionary[tuple[int, int, int, str], Tensor] = WeakValueDictionary()


def random_projection(width: int, size: int, seed: int, device: torch.device) -> Tensor:
    """W_rand (d, M), standard normal. Shared by all heads: do not modify in place.

    It is not part of a state: numpy's legacy generator is frozen, so the seed gives the same
    numbers for good.
    """
    key = (width, size, seed, str(device))
    found = _projections.get(key)
    if found is None:
        found = torch.empty(width, size)
        random = np.random.RandomState(seed)
        for row in found:  # one at a time, because numpy draws float64
            row.copy_(torch.from_numpy(random.standard_normal(size)))
        found = _projections[key] = found.to(device)
    return found

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
    the ``reading`` puts side by side. W_rand follows from the ``seed``, and is no part of a state.
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

    def read(self, reading: Reading, drawn: Tensor | None = None) -> None:
        """Read this of every picture from now on, by a projection that is ``drawn`` already."""
        self.reading = reading
        own = self.projection
        self.projection = (self.drawn(reading) if drawn is None else drawn).to(own)

    def drawn(self, reading: Reading) -> Tensor:
        """W_rand (d, M) for a view read so; without a projection (d, 0)."""
        width = self.widths.total(reading)
        if self._size is None:
            return torch.zeros(width, 0)
        seed = derive(self.seed, "projection", width, self._size)
        return random_projection(width, self._size, seed, self.projection.device)

    def forward(self, features: Tensor) -> Tensor:
        """(N, v · d) → (N · v, M)."""
        rows = features.reshape(-1, self.width).to(self.projection.dtype)
        return torch.relu(rows @ self.projection) if self.projects else rows

    def kernel(self, features: Tensor) -> Tensor:
        """Inner products (n · v, n · v) of the rows, a chunk of random features at a time."""
        rows = features.reshape(-1, self.width).to(self.projection.dtype)
        if not self.projects:
            return rows @ rows.T
        kernel = rows.new_zeros(len(rows), len(rows))
        for start in range(0, self.size, CHUNK):
            h = torch.relu(rows @ self.projection[:, start : start + CHUNK])
            kernel.addmm_(h, h.T)
        return kernel


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

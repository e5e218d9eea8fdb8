"""How far features lie from the nearest class mean, in units of how far those of a class lie
apart.
"""

import torch
from torch import Tensor, nn

from safecl.heads.gaussians import SharedGaussians, cholesky
from safecl.heads.left_out import LeftOut
from safecl.heads.protocol import PerClass
from safecl.heads.tensors import precise

MIN_SPREAD = 1e-6  # of the mean variance, that every direction has at least
# that a picture must leave when it is left out: a covariance of less says nothing of distances
MIN_FREEDOM = 2


class NearestMean(PerClass):
    """min_c (x − μ_c)ᵀ Σ⁻¹ (x − μ_c), from Gaussians of the classes with one covariance.

    The covariance is drawn to a multiple of the identity as far as few pictures ask for (oracle
    approximating shrinkage: Chen, Wiesel, Eldar and Hero, 2010). Kept are the whitened means, so
    that Σ is not needed.
    """

    rows = ("means", "counts")

    def __init__(self, width: int) -> None:
        super().__init__()
        self.means: Tensor = nn.Buffer(torch.zeros(0, width))
        self.counts: Tensor = nn.Buffer(torch.zeros(0))
        self.centre: Tensor = nn.Buffer(torch.zeros(width))
        self.whitening: Tensor = nn.Buffer(torch.eye(width))
        self.shrinkage: Tensor = nn.Buffer(torch.zeros(()))
        self.freedom: Tensor = nn.Buffer(torch.ones(()))  # pictures less classes

    def follow(self, gaussians: SharedGaussians) -> None:
        """Take over the means and the covariance, of the first features if there are more."""
        n = gaussians.freedom
        d = len(self.centre)
        covariance = precise(gaussians.covariance())[:d, :d]
        means = precise(gaussians.means)[:, :d]
        if covariance.trace() / d <= torch.finfo(torch.float32).eps * means.square().mean():
            # pictures that are equal, or alone: the rest is rounding
            covariance = torch.eye(d).to(covariance)
        unit = covariance.trace() / d
        square = covariance.square().sum()
        beyond = ((n + 1 - 2 / d) * (square - d * unit**2)).clamp(
            min=torch.finfo(torch.float32).tiny
        )
        shrinkage = (((1 - 2 / d) * square + (d * unit) ** 2) / beyond).clamp(0, 1)
        spread = ((shrinkage + MIN_SPREAD) * unit).clamp(min=torch.finfo(torch.float32).tiny)
        factor = cholesky(
            ((1 - shrinkage) * covariance + spread * torch.eye(d).to(covariance))[None]
        )[0]
        whitening = torch.linalg.solve_triangular(
            factor, torch.eye(d).to(covariance), upper=False
        ).T
        means = means + precise(gaussians.remainders)[:, :d]
        centre = means.mean(dim=0)
        self.means = ((means - centre) @ whitening).to(self.means)
        self.counts = gaussians.counts.to(self.counts)
        self.centre = centre.to(self.centre)
        self.whitening = whitening.to(self.whitening)
        self.shrinkage = shrinkage.to(self.shrinkage)
        self.freedom = torch.full_like(self.freedom, n)

    def forward(self, features: Tensor, left_out: LeftOut | None = None) -> Tensor:
        """(N, d) → (N,); with ``left_out`` as if each picture had not been learned, or none of its
        class where the group has them all.
        """
        x = (features.to(self.means) - self.centre) @ self.whitening
        distances = (
            x.square().sum(dim=1, keepdim=True)
            - 2 * x @ self.means.T
            + self.means.square().sum(dim=1)
        )
        distances = distances.masked_fill(self.counts == 0, torch.inf)
        if left_out is not None:
            distances = self._without_itself(x, distances, left_out)
        found: Tensor = distances.amin(dim=1)
        return found

    def _without_itself(self, x: Tensor, distances: Tensor, left_out: LeftOut) -> Tensor:
        """``distances`` (N, C) of whitened features x (N, d) as if each had not been learned, with
        those equal to it.

        Of n pictures of a class, r at distance u from the mean leave: the mean is then at distance
        u n / (n − r), and the covariance has lost u uᵀ n r / (n − r) of its sum. Its inverse
        follows by Sherman and Morrison.
        """
        targets = left_out.targets
        n = self.counts[targets]
        r = left_out.together.sum(dim=1).to(n)
        u = x - self.means[targets]
        square = u.square().sum(dim=1)
        left = (n - r).clamp(min=1)
        lost = (1 - self.shrinkage) / self.freedom * n * r / left
        rest = (1 - lost * square).clamp(min=MIN_SPREAD)
        along = (x * u).sum(dim=1, keepdim=True) - u @ self.means.T
        own = torch.where(n > r, (n / left) ** 2 * square / rest, torch.inf)
        found = (distances + (lost / rest)[:, None] * along.square()).scatter(
            1, targets[:, None], own[:, None]
        )
        rest = (self.freedom - r)[:, None]
        found = torch.where(rest < MIN_FREEDOM, torch.inf, found * rest / self.freedom)
        for c in torch.unique(targets[(r >= n) & (n > 1)]).tolist():
            own = targets == c
            found[own] = self._without_class(x[own], distances[own], c)
        return found

    def _without_class(self, x: Tensor, distances: Tensor, c: int) -> Tensor:
        """``distances`` (n, C) of all pictures of class ``c``, whitened (n, d), as if none of them
        had been learned.

        At distances U from their mean, they take Uᵀ U from the sum of the covariance. Its inverse
        follows by Woodbury.
        """
        u = x - self.means[c]
        share = (1 - self.shrinkage) / self.freedom
        inner = (1 + MIN_SPREAD) * torch.eye(len(u)).to(u) - share * u @ u.T
        along = (x @ u.T)[:, None] - self.means @ u.T  # (n, C, n)
        lost = (along @ torch.linalg.inv(inner) * along).sum(dim=2)
        rest = self.freedom - (len(u) - 1)
        found = (distances + share * lost) * rest / self.freedom
        found[:, c] = torch.inf
        return found if rest >= MIN_FREEDOM else torch.full_like(found, torch.inf)

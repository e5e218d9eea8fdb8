"""A linear map between the features of two networks, fitted on pictures that went through both."""

import torch
from torch import Tensor, nn

from safecl.heads import protocol
from safecl.heads.leave_one_out import one_of_each
from safecl.heads.tensors import check_finite, precise, take_shapes

RIDGES = tuple(10.0 ** (k / 2) for k in range(-6, 7))  # in units of the mean eigenvalue of the covariance
JUDGING_PICTURES = 2048  # from which the ridge is chosen, about


class LinearMap(protocol.Editable, nn.Module):
    """x → x A + b with A (d, d): the identity at first. A fit starts from the map before, to which a ridge draws A."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix: Tensor = nn.Buffer(torch.eye(width))
        self.offset: Tensor = nn.Buffer(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """(N, v · d) → (N, v · d): each of v views."""
        rows = features.to(self.matrix).reshape(-1, len(self.offset))
        return torch.addmm(self.offset, rows, self.matrix).reshape(features.shape)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        take_shapes(self, state_dict, prefix, ("matrix", "offset"))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def merge(self, now: "LinearMap", before: "LinearMap", index: Tensor) -> None:
        """Become the map between two: of a tuning between two, about the map between theirs."""
        self.matrix = torch.lerp(self.matrix, now.matrix.to(self.matrix), protocol.SECOND_SHARE)
        self.offset = torch.lerp(self.offset, now.offset.to(self.offset), protocol.SECOND_SHARE)

    def fit(self, source: Tensor, target: Tensor, classes: Tensor) -> None:
        """Map features (N, v · d) of a network to another's, with the ridge of least error on classes (N,) left out."""
        check_finite(target)
        before, start = precise(self.matrix), precise(self.offset)
        x, y = (precise(each).reshape(-1, len(start)) for each in (source, target))
        classes, moved = classes.repeat_interleave(len(x) // len(classes)), y - torch.addmm(start, x, before)
        # One class says nothing of others: only its mean shift is taken.
        few = (one_of_each(classes) < max(1, JUDGING_PICTURES // len(torch.unique(classes)))).nonzero()[:, 0]
        ridge = choose_ridge(x[few], moved[few], classes[few])
        mean, shift, identity = x.mean(dim=0), moved.mean(dim=0), torch.eye(x.shape[1]).to(x)
        x = x - mean
        more = 0 * identity if ridge is None else torch.linalg.solve(x.T @ x + ridge * identity, x.T @ moved)
        self.matrix, self.offset = (before + more).to(self.matrix), (start + shift - mean @ more).to(self.offset)


def choose_ridge(x: Tensor, y: Tensor, classes: Tensor) -> float | None:
    """The ridge of y on x (N, d) with the least error on classes (N,) left out; None for one class or constant x."""
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    few = len(x) < x.shape[1]  # then XXᵀ is the smaller one of the two with these eigenvalues
    values, vectors = torch.linalg.eigh(x @ x.T if few else x.T @ x)
    values = values.clamp(min=0)
    if not values[-1] > 0 or len(torch.unique(classes)) < 2:
        return None
    ridges = values.sum() / x.shape[1] * torch.tensor(RIDGES).to(values)
    errors = left_out_errors(vectors * values.sqrt() if few else x @ vectors, y, values + ridges[:, None], classes)
    return float(ridges[errors.argmin()])


def left_out_errors(x: Tensor, y: Tensor, values: Tensor, groups: Tensor) -> Tensor:
    """Squared error of ridge regressions with a constant on rows whose group (N,) is left out of the fit: (r,).

    ``x`` (N, d), ``y`` (N, k): centred, ``x`` in the eigenvectors of XᵀX; ``values`` (r, d): its eigenvalues plus each
    ridge. With H = X diag(1 / values) Xᵀ + 1/N the errors of a group g are (I − H_gg)⁻¹ (y − Hy)_g.
    """
    along, errors = x.T @ y, torch.zeros_like(values[:, 0])
    for group in torch.unique(groups).tolist():  # of all ridges at once: small systems, of which each call waits
        own = groups == group
        some, weighted = x[own], x[own] / values[:, None]
        rest = torch.eye(len(some)).to(x) * (1 + 1e-9) - weighted @ some.T - 1 / len(x)
        errors += torch.linalg.solve(rest, y[own] - weighted @ along).square().sum(dim=(1, 2))
    return errors

"""A linear map between the features of two networks, fitted on pictures that went through both."""

import torch
from torch import Tensor, nn

from safecl.heads import protocol
from safecl.heads.left_out import one_of_each
from safecl.heads.tensors import check_finite, precise, take_shapes

# in units of the mean eigenvalue of the covariance
RIDGES = tuple(10.0 ** (k / 2) for k in range(-6, 7))
JUDGING_PICTURES = 2048  # from which the ridge is chosen, about


class LinearMap(protocol.Editable, nn.Module):
    """x → x A + b with A (d, d): the identity at first. A fit starts from the map before, to which
    a ridge draws A.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix: Tensor = nn.Buffer(torch.eye(width))
        self.offset: Tensor = nn.Buffer(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """(N, v · d) → (N, v · d): each of v views."""
        rows = features.to(self.matrix).reshape(-1, len(self.offset))
        return torch.addmm(self.offset, rows, self.matrix).reshape(features.shape)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        take_shapes(self, state_dict, prefix, ("matrix", "offset"))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def merge(self, now: "LinearMap", before: "LinearMap", index: Tensor) -> None:
        """Become the map between two: of a tuning between two, about the map between theirs."""
        self.matrix = torch.lerp(self.matrix, now.matrix.to(self.matrix), protocol.SECOND_SHARE)
        self.offset = torch.lerp(self.offset, now.offset.to(self.offset), protocol.SECOND_SHARE)

    def fit(self, source: Tensor, target: Tensor, classes: Tensor) -> None:
        """Map features (N, v · d) of a network to another's, as far as the change holds for classes
        (N,) left out.
        """
        check_finite(target)
        before = precise(self.matrix)
        start = precise(self.offset)
        x, y = (precise(each).reshape(-1, len(start)) for each in (source, target))
        classes = classes.to(x.device).repeat_interleave(len(x) // len(classes))
        moved = y - torch.addmm(start, x, before)
        few = (
            one_of_each(classes) < max(1, JUDGING_PICTURES // len(torch.unique(classes)))
        ).nonzero()[:, 0]
        ridge, share = choose_ridge(x[few], moved[few], classes[few])
        mean = x.mean(dim=0)
        shift = share * moved.mean(dim=0)
        identity = torch.eye(x.shape[1]).to(x)
        x = x - mean
        more = share * torch.linalg.solve(x.T @ x + ridge * identity, x.T @ moved)
        self.matrix = (before + more).to(self.matrix)
        self.offset = (start + shift - mean @ more).to(self.offset)


def choose_ridge(x: Tensor, y: Tensor, classes: Tensor) -> tuple[float, float]:
    """The ridge of y on x (N, d) with the least error on classes (N,) left out, and the best share
    of what it says.
    """
    if len(torch.unique(classes)) < 2:
        return 1.0, 0.0  # one class says nothing of others
    x = x - x.mean(dim=0)
    few = len(x) < x.shape[1]  # then XXᵀ is the smaller one of the two with these eigenvalues
    values, vectors = torch.linalg.eigh(x @ x.T if few else x.T @ x)
    values = values.clamp(min=0)
    # of constant x any will do
    ridges = (float(values.sum()) / x.shape[1] or 1.0) * torch.tensor(RIDGES).to(values)
    errors, shares = left_out(
        vectors * values.sqrt() if few else x @ vectors, y, values + ridges[:, None], classes
    )
    return float(ridges[errors.argmin()]), float(shares[errors.argmin()])


def left_out(x: Tensor, y: Tensor, values: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error of ridge regressions with a constant on rows whose group (N,) is left out of
    the fit: (r,).

    Also the share in [0, 1] of what each says of them, y − error, that is nearest to ``y`` (N, k):
    Σ said y / Σ said². ``x`` (N, d): centred, in the eigenvectors of XᵀX; ``values`` (r, d): its
    eigenvalues plus each ridge. With H = X diag(1 / values) Xᵀ + 1/N the errors of a group g are (I
    − H_gg)⁻¹ (y − Hy)_g.
    """
    errors = common = torch.zeros_like(values[:, 0])
    along = x.T @ y
    centred = y - y.mean(dim=0)
    whole = y.square().sum()
    for group in torch.unique(
        groups
    ).tolist():  # of all ridges at once: small systems, of which each call waits
        own = groups == group
        some = x[own]
        weighted = x[own] / values[:, None]
        rest = torch.eye(len(some)).to(x) * (1 + 1e-9) - weighted @ some.T - 1 / len(x)
        wrong = torch.linalg.solve(rest, centred[own] - weighted @ along)
        errors = errors + wrong.square().sum(dim=(1, 2))
        common = common + (wrong * y[own]).sum(dim=(1, 2))
    return errors, ((whole - common) / (whole - 2 * common + errors).clamp(min=1e-30)).clamp(0, 1)

"""Who is left out when heads answer to learned pictures as if they had not been learned, and which
pictures judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.heads.gram import Statistics
from safecl.heads.solve import Beta, solve, whitened
from safecl.heads.tensors import precise

MIN_JUDGING_PICTURES = 10  # below which nothing is decided
MAX_JUDGING_PICTURES = (
    256  # for pilots and the slow learner; or two per class if there are that many classes
)
# Share of a guess's error by which tuning must raise its own to be undone, and of a pilot's error
# by which it must be less without any of its tuning.
MIN_ERROR_CHANGE = 0.05
# Some pictures are left out with at least this β, in units of a projected feature's squared norm:
# with less, float16 cannot tell how much of a picture's logit is due to itself, and where β is that
# small, more of it hardly matters.
MIN_LEFT_OUT_BETA = 1e-3


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The pictures that a head is asked about, each answered as if those of its group had not been
    learned.

    ``targets`` (N,): class indices; ``groups`` (N,): numbers of groups; ``rows``: by the name of a
    ridge head, the rows (N · v, M) that its statistics have of these pictures, where these are not
    the projected features that it is asked about. Exact for ridge heads, given β and the rows: to
    1e-9 of sums in float64, to what float32 has of them otherwise (2e-4 at the least β).
    Cosine heads whose weights are centroids leave out the pictures of a group from their own class
    alone. A ``NearestMean`` leaves out each picture, and takes others of its class in the group for
    the same one, unless these are all of the class.
    """

    targets: Tensor
    groups: Tensor
    rows: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def together(self) -> Tensor:
        """Whether two pictures are of one group and one class: (N, N)."""
        same = self.groups[:, None] == self.groups
        return same & (self.targets[:, None] == self.targets)


def one_of_each(targets: Tensor) -> Tensor:
    """Groups (N,) with at most one picture of every class, so that leaving one out favours no
    class.
    """
    order = targets.argsort(stable=True)
    counts = targets.bincount()
    firsts = counts.cumsum(dim=0) - counts
    rank = torch.empty_like(targets)
    rank[order] = torch.arange(len(targets), device=targets.device) - firsts[targets[order]]
    return rank


def evenly(targets: Tensor, most: int) -> Tensor:
    """Positions (n,) of about ``most`` pictures, the first two or more of every class (N,) that has
    two.
    """
    counts = targets.bincount()
    each = max(2, most // max(1, int((counts > 1).sum())))
    return ((counts[targets] > 1) & (one_of_each(targets) < each)).nonzero()[:, 0]


def judges(targets: Tensor, most: int) -> Tensor:
    """As ``evenly``, but none where fewer than two classes or ``MIN_JUDGING_PICTURES`` pictures are
    left.
    """
    chosen = evenly(targets, most)
    return (
        chosen
        if len(chosen) >= MIN_JUDGING_PICTURES and len(torch.unique(targets[chosen])) > 1
        else chosen[:0]
    )


def ridge_logits(
    statistics: Statistics,
    weight: Tensor,
    beta: Beta,
    unit: Beta,
    projected: Tensor,
    views: int,
    left_out: LeftOut,
    rows: Tensor | None = None,
) -> Tensor:
    """Logits (N, C) of projected features (N · v, M) by the statistics without their own group.

    With A = G + βI, rows H of a group in G, its P = X A⁻¹ Hᵀ and K = H A⁻¹ Hᵀ: z + P (I − K)⁻¹ (H
    A⁻¹ W̃ − Y). ``rows``: H of all groups where it is not what is asked about; ``weight``:
    A⁻¹ W̃; ``views``: v; ``unit``: of β. As exact as G is, for a β of ``MIN_LEFT_OUT_BETA`` or more.
    """
    root = views**-0.5  # a row of G counts 1 / v
    h = root * (projected if rows is None else rows)
    x = projected[::views]
    groups = left_out.groups.repeat_interleave(views)
    y = F.one_hot(left_out.targets, weight.shape[1]).repeat_interleave(views, dim=0)
    y = root * y.to(x)
    if len(x) == int(statistics.count):
        return _dual_logits(x, h, y, groups, beta)
    if _less(beta, MIN_LEFT_OUT_BETA * unit):
        beta = MIN_LEFT_OUT_BETA * unit
        weight = solve(statistics.gram, statistics.sums, beta)
    # In float64: where a picture is nearly all that is known of itself, I − K is small.
    v = precise(whitened(statistics.gram, h, beta).T).contiguous()
    v_x = v[::views] / root
    if rows is not None:
        v_x = precise(whitened(statistics.gram, x, beta).T).contiguous()
    z = precise(x) @ precise(weight)
    residual = precise(h) @ precise(weight) - precise(y)
    for group in torch.unique(groups).tolist():
        own = (groups == group).nonzero()[:, 0].to(z.device)
        asked = (left_out.groups == group).nonzero()[:, 0].to(z.device)
        rest = torch.eye(len(own)).to(z) - v[own] @ v[own].T
        z[asked] += v_x[asked] @ (v[own].T @ torch.linalg.solve(rest, residual[own]))
    return z.to(x)


def _less(one: Beta, other: Beta) -> bool:
    """Of a β and another in the same units."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return bool((one < other).any())
    return bool(one < other)


def harm(
    statistics: Statistics,
    beta: Beta,
    unit: Beta,
    projected: Tensor,
    views: int,
    targets: Tensor,
) -> Tensor:
    """By how much the squared leave-one-out errors of all others together are less without each of
    N learned pictures: (N,), in float64.

    ``projected`` (N · v, M), as they are in the statistics; ``targets`` (N,). With A = G + βI, rows
    H, K = H A⁻¹ Hᵀ and residuals R = Y − H A⁻¹ W̃, picture j errs by (I − Kⱼⱼ)⁻¹ Rⱼ when it is left
    out. Without i, K becomes K + K·ᵢ (I − Kᵢᵢ)⁻¹ Kᵢ·, and R becomes R + K·ᵢ (I − Kᵢᵢ)⁻¹ Rᵢ.
    """
    least = MIN_LEFT_OUT_BETA * unit
    beta = least if _less(beta, least) else beta
    root = views**-0.5  # a row of G counts 1 / v
    rows = root * projected
    weight = precise(solve(statistics.gram, statistics.sums, beta))
    v = precise(whitened(statistics.gram, rows, beta).T).contiguous()
    y = F.one_hot(targets, weight.shape[1]).repeat_interleave(views, dim=0).to(v)
    n = len(targets)
    residual = (root * y - precise(rows).to(v) @ weight.to(v)).reshape(n, views, -1)
    kernel = (v @ v.T).reshape(n, views, n, views).transpose(1, 2)  # (n, n, v, v)
    unit = torch.eye(views).to(v)
    own = kernel.diagonal().permute(2, 0, 1)  # (n, v, v)
    before = _errors(unit - own, residual)
    found = torch.zeros(n).to(v)
    for i in range(n):
        to_i = kernel[:, i]  # (n, v, v)
        without = torch.linalg.solve(unit - own[i], to_i, left=False)
        without[i] = 0  # it does not change itself
        errors = _errors(
            unit - own - without @ to_i.transpose(1, 2), residual + without @ residual[i]
        )
        found[i] = (before - errors).sum()
    return found * views


def _errors(rest: Tensor, residual: Tensor) -> Tensor:
    """Squared errors (n,) of the first view, from I − K (n, v, v) and R (n, v, C) of each
    picture.
    """
    if rest.shape[1] == 1:
        found: Tensor = residual / rest
    else:
        found = torch.linalg.solve(rest, residual)
    return found[:, 0].square().sum(dim=1)


def _dual_logits(x: Tensor, h: Tensor, y: Tensor, groups: Tensor, beta: Beta) -> Tensor:
    """Logits (N, C) of x (N, M) by ridge regression on h (N · v, M) and y (N · v, C), without those
    of the same group.

    Rows v · i and those behind it are of picture i; ``groups``: (N · v,). In float64, by the
    kernel: precise for any β.
    """
    if isinstance(beta, Tensor):  # in units in which every β is 1
        scale = beta.double().rsqrt()
        x = x.double() * scale
        h = h.double() * scale
        beta = 1.0
    rows = h.double().cpu()
    groups = groups.cpu()
    views = len(h) // len(x)
    inverse = torch.linalg.inv(rows @ rows.T + beta * torch.eye(len(rows), dtype=torch.float64))
    kernel = x.double().cpu() @ rows.T
    dual = inverse @ y.double().cpu()
    z = torch.empty(len(x), y.shape[1], dtype=torch.float64)
    for group in torch.unique(groups).tolist():
        here = (groups == group).nonzero()[:, 0]
        without = dual - inverse[:, here] @ torch.linalg.solve(inverse[here][:, here], dual[here])
        asked = (groups[::views] == group).nonzero()[:, 0]
        z[asked] = kernel[asked] @ without
    return z.to(y)

"""The training-free head: ridge regression on random ReLU features, from statistics that are plain sums.

Projected features and statistics are float32, or float64 in a head converted with ``.double()``; matrix products must
not use TF32, as is torch's default. To choose β from more than ``MAX_DUAL_PICTURES`` or M pictures takes a second G.
"""

from collections.abc import Callable
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.heads.beta_selection import dual_errors, leave_one_out_errors, primal_errors
from safecl.heads.protocol import PerClass
from safecl.heads.reading import PLAIN, Reading
from safecl.heads.settings import RidgeSettings
from safecl.heads.solve import left_out_dual, solve, whitened
from safecl.heads.statistics import CHUNK, Statistics, require_memory
from safecl.heads.tensors import check_finite
from safecl.randomness import derive, generator

MAX_EVIDENCE_PICTURES = 2048  # of a session, where those of all sessions choose β
PRICE = 0.002  # squared error per held-out picture that a tenth of β must save: any β tells one or two classes apart
MAX_DUAL_PICTURES = 4096  # up to which β is chosen in the dual form: time n³, memory n²
# Some pictures are left out with at least this β, in units of a projected feature's squared norm: with less, float16
# cannot tell how much of a picture's logit is due to itself, and where β is that small, more of it hardly matters.
MIN_LEFT_OUT_BETA = 1e-3
MAX_LEFT_OUT_PICTURES = 2048  # in leave-one-out errors


class RidgeHead(PerClass):
    """z = W̃ᵀ (G + βI)⁻¹ h with h = ReLU(W_randᵀ φ(x)): Eq. (9) and (10).

    Without ``project`` in the settings h = φ(x), and M = d. ``kept``: the statistics are part of the state; false where
    they are computed from something else that is. The weights follow from the statistics, a module of its own. φ(x) is
    what the ``reading`` says, a part of the state; with its mirror image a picture is one row (N, 2d) outside the head,
    and two inside, of which it answers to the first.
    """

    rows, dim = ("weight",), 1
    by_difference: ClassVar[tuple[str, ...]] = ("errors",)
    weight: Tensor
    errors: Tensor
    projection: Tensor
    chosen: Tensor

    def __init__(
        self, width: int, settings: RidgeSettings, seed: int = 0, device: torch.device | None = None, kept: bool = True
    ) -> None:
        super().__init__()
        device = device or torch.device("cpu")
        self.settings, self.seed, self.token = settings, seed, width
        self.size = settings.size if settings.project else width
        require_memory(self.size, device, width, grams=1 if self._dual(self._most) else 2)
        self.statistics = Statistics(self.size, device, kept)
        self.register_buffer("projection", torch.zeros(0, 0, device=device), persistent=False)
        # Called with what ``add`` is given; its result is added in place of the features.
        self.before_add: Callable[[Tensor, Tensor], Tensor] | None = None
        self.left_out: tuple[Tensor, Tensor, Tensor | None] | None = None  # see ``leaving_out``
        self.register_buffer("weight", torch.zeros(self.size, 0, device=device))
        self.register_buffer("errors", torch.zeros(len(settings.betas), device=device))
        self.register_buffer("chosen", torch.zeros(3, dtype=torch.int64, device=device))
        self.read(PLAIN)

    def read(self, reading: Reading, drawn: Tensor | None = None) -> None:
        """Read this of every picture from now on, by a projection that is ``drawn``; nothing has been added yet."""
        self.reading, self.chosen, own = reading, torch.tensor(reading).to(self.chosen), self.projection
        self.width = reading.blocks * self.token  # d of one view
        if not self.settings.project and self.size != self.width:
            self.size = self.statistics.size = self.width
            self.weight, self.statistics.sums = self.weight.new_zeros(self.size, 0), own.new_zeros(self.size, 0)
        self.projection = (self.drawn(reading.blocks) if drawn is None else drawn).to(own)

    def drawn(self, blocks: int) -> Tensor:
        """W_rand (d, M) for a view of so many tokens; without a projection (d, 0)."""
        width, device = blocks * self.token, self.projection.device
        if not self.settings.project:
            return torch.zeros(width, 0)
        return random_projection(width, self.size, derive(self.seed, "projection", width, self.size), device)

    def views(self, features: Tensor) -> Tensor:
        """Pictures (N, v · d) with v views → (N · v, d), those of a picture one after the other."""
        return features.reshape(-1, self.width)

    def share(self, owner: "RidgeHead") -> None:
        """Use the statistics of ``owner``, which remain a part of its state alone, so that they have one name."""
        del self.statistics
        object.__setattr__(self, "statistics", owner.statistics)

    def project(self, features: Tensor) -> Tensor:
        """h = ReLU(W_randᵀ φ) of one view: (N, d) → (N, M)."""
        features = features.to(self.projection.dtype)
        return torch.relu(features @ self.projection) if self.settings.project else features

    def logits(self, features: Tensor) -> Tensor:
        """z of Eq. (9): (N, v · d) → (N, C)."""
        if self.left_out is None:
            return self.project(features[:, : self.width]) @ self.weight
        return self._without_groups(self.project(self.views(features)), features.shape[1] // self.width, *self.left_out)

    def _without_groups(
        self, x: Tensor, views: int, targets: Tensor, groups: Tensor, included: Tensor | None
    ) -> Tensor:
        """Logits (N, C) of projected features x (N · v, M) by the statistics without their own group.

        With A = G + βI, rows H of a group in G, its P = X A⁻¹ Hᵀ and K = H A⁻¹ Hᵀ: z + P (I − K)⁻¹ (H A⁻¹ W̃ − Y).
        """
        root = views**-0.5  # a row of G counts 1 / v
        h, x, beta, weight = root * (x if included is None else included), x[::views], self.beta, self.weight
        groups = groups.repeat_interleave(views)
        y = root * F.one_hot(targets, weight.shape[1]).repeat_interleave(views, dim=0).to(x)
        if len(x) == int(self.statistics.count):
            return left_out_dual(x, h, y, groups, beta)
        if beta < MIN_LEFT_OUT_BETA * self.statistics.unit:
            beta = MIN_LEFT_OUT_BETA * self.statistics.unit
            weight = solve(self.statistics.gram, self.statistics.sums, beta)
        z, residual, v = x @ weight, h @ weight - y, whitened(self.statistics.gram, h, beta)
        v_x = v[:, ::views] / root if included is None else whitened(self.statistics.gram, x, beta)
        for group in torch.unique(groups).tolist():
            rows, asked = (groups == group).nonzero()[:, 0], (groups[::views] == group).nonzero()[:, 0]
            rest = torch.eye(len(rows), device=z.device) * (1 + 1e-4) - v[:, rows].T @ v[:, rows]
            z[asked] += v_x[:, asked].T @ v[:, rows] @ torch.linalg.solve(rest, residual[rows])
        return z

    def add(self, features: Tensor, targets: Tensor) -> Tensor:
        """Add a session's features (N, v · d) and class indices (N,) to the evidence for β, and to statistics if kept.

        Gives the features that were added.
        """
        if self.before_add is not None:
            features = self.before_add(features, targets)
        if self.statistics.kept:
            self.accumulate(self.statistics, features, targets)
            check_finite(self.statistics.gram.diagonal())
        errors = self.evidence(features, targets)
        if errors is not None:
            self.errors = self.errors + errors if self.settings.evidence == "all" else errors
        return features

    def evidence(self, features: Tensor, targets: Tensor) -> Tensor | None:
        """What a session's features (N, v · d) and class indices (N,) say of every β: (B,); None of too few."""
        order = self._shuffled(len(features), self._most, "beta").to(features.device)
        if not len(order) // 5:
            return None
        numbers = torch.unique(targets[order], return_inverse=True)[1]  # no gaps: an absent class adds nothing
        # By the first view alone: with two that are much alike, a few classes ask for less β than all do.
        errors = self._held_out_errors(features[order, : self.width], numbers)
        if self.settings.evidence == "all":
            held_out = len(order) - 4 * len(order) // 5
            errors = errors - PRICE * held_out * torch.from_numpy(np.log10(self.settings.betas)).to(errors)
        return errors.to(self.errors)

    def correct_evidence(self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], latest: bool) -> None:
        """A session had features and class indices ``before``, and has those ``after``; ``latest``: the last one."""
        was, now = self.evidence(*before), self.evidence(*after)
        if self.settings.evidence == "all":
            for errors, sign in ((was, -1), (now, 1)):
                self.errors = self.errors if errors is None else self.errors + sign * errors
        elif latest and now is not None:
            self.errors = now

    def solve(self) -> None:
        """Make the weights (M, C) from the statistics."""
        rank = self.reading.views * int(self.statistics.count)
        self.weight = solve(self.statistics.gram, self.statistics.sums, self.beta, rank)

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        """Move features (n, v · d) from the class sums ``old`` to ``new``; weights, G and evidence are made after."""
        if features is None:
            return
        for start in range(0, len(features), CHUNK):
            here = slice(start, start + CHUNK)
            self.statistics.relabel(self.project(self.views(features[here])), old[here], new[here])

    def merge(self, now: "RidgeHead", before: "RidgeHead", index: Tensor) -> None:
        """Take over the evidence for β that ``now`` has collected since it was ``before``; see ``Statistics.merge``."""
        self.errors = self.errors + now.errors - before.errors if self.settings.evidence == "all" else now.errors

    @property
    def beta(self) -> float:
        """The value with the least evidence against it; the middle of the grid without any."""
        best = int(self.errors.argmin()) if self.errors.any() else len(self.errors) // 2
        return self._grid(self.statistics.unit)[best]

    def leave_one_out(self, features: Tensor, targets: Tensor) -> Tensor:
        """Squared error on each of the features (N, v · d) of a head fitted on all the others, at the best β: (n,)."""
        views = features.shape[1] // self.width
        order = self._shuffled(len(features), MAX_LEFT_OUT_PICTURES // views, "leave-one-out").to(features.device)
        numbers = torch.unique(targets[order], return_inverse=True)[1].repeat_interleave(views)
        kernel = self._kernel(self.views(features[order]))
        errors = leave_one_out_errors(kernel, F.one_hot(numbers), self._own_grid(kernel, views), views)
        return errors[int(errors.mean(dim=1).argmin())]

    def _held_out_errors(self, features: Tensor, targets: Tensor) -> Tensor:
        """Squared error of every β on the last fifth of the features (n, d), fitted on those before: (B,)."""
        fitted = 4 * len(features) // 5
        if self._dual(len(features)):
            kernel = self._kernel(features)
            return dual_errors(kernel, F.one_hot(targets), fitted, self._own_grid(kernel))
        statistics = Statistics(self.size, features.device)
        self.accumulate(statistics, features[:fitted], targets[:fitted])
        squares = [self.project(part).square().sum() for part in torch.split(features[fitted:], CHUNK)]
        unit = (float(statistics.gram.diagonal().sum()) + float(torch.stack(squares).sum())) / len(features)
        return primal_errors(statistics, self.project, features[fitted:], targets[fitted:], self._grid(unit or 1.0))

    @property
    def _most(self) -> int | None:
        """Pictures of a session from which β is chosen; None: all."""
        return MAX_EVIDENCE_PICTURES if self.settings.evidence == "all" else None

    def _dual(self, pictures: int | None) -> bool:
        """Whether β is chosen in the dual form for so many pictures; None: any number."""
        return pictures is not None and pictures <= min(self.size, MAX_DUAL_PICTURES)

    def accumulate(self, statistics: Statistics, features: Tensor, targets: Tensor) -> None:
        """Project features (n, v · d) with class indices (n,) a chunk at a time and add them to ``statistics``."""
        for start in range(0, len(features), CHUNK):
            here = slice(start, start + CHUNK)
            statistics.add(self.project(self.views(features[here])), targets[here])

    def _shuffled(self, count: int, most: int | None, name: str) -> Tensor:
        """At most ``most`` of ``count`` positions in random order, which is the same for every session: (n,)."""
        return torch.randperm(count, generator=generator(self.seed, name))[:most]

    def _kernel(self, features: Tensor) -> Tensor:
        """Inner products (n, n) of projected features, from (n, d)."""
        features = features.to(self.projection.dtype)
        if not self.settings.project:
            return features @ features.T
        kernel = features.new_zeros(len(features), len(features))
        for start in range(0, self.size, CHUNK):
            h = torch.relu(features @ self.projection[:, start : start + CHUNK])
            kernel.addmm_(h, h.T)
        return kernel

    def _grid(self, unit: float) -> list[float]:
        """The grid in absolute values."""
        return [beta * unit if self.settings.scale == "relative" else beta for beta in self.settings.betas]

    def _own_grid(self, kernel: Tensor, views: int = 1) -> list[float]:
        """The grid relative to the features of ``kernel`` alone, so that the sessions may come in any order.

        Rows of a kernel count 1, those of a picture in G together.
        """
        check_finite(kernel.diagonal())
        return [views * beta for beta in self._grid(float(kernel.diagonal().mean()) or 1.0)]

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        found = state_dict[prefix + "chosen"]
        self.read(Reading(int(found[0]), bool(found[1]), bool(found[2])))
        super()._load_from_state_dict(state_dict, prefix, *args)


_projections: WeakValueDictionary[tuple[int, int, int, str], Tensor] = WeakValueDictionary()


def random_projection(width: int, size: int, seed: int, device: torch.device) -> Tensor:
    """W_rand (d, M), standard normal. Shared by all heads: do not modify in place.

    It is not part of a state: numpy's legacy generator is frozen, so the seed gives the same numbers for good.
    """
    key = (width, size, seed, str(device))
    found = _projections.get(key)
    if found is None:
        found, random = torch.empty(width, size), np.random.RandomState(seed)
        for row in found:  # one at a time, because numpy draws float64
            row.copy_(torch.from_numpy(random.standard_normal(size)))
        found = _projections[key] = found.to(device)
    return found

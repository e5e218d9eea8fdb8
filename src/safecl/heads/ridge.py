"""The training-free head: ridge regression on random ReLU features, from statistics that are plain
sums.

Projected features and statistics are float32, or float64 in a head converted with ``.double()``;
matrix products must not use TF32, as is torch's default. To choose β from more than
``MAX_DUAL_PICTURES`` or M pictures takes a second G.
"""

from typing import ClassVar

import torch
from torch import Tensor

from safecl.errors import SafeclError
from safecl.heads import choose_beta
from safecl.heads.gram import CHUNK, Statistics, require_memory
from safecl.heads.left_out import LeftOut, harm, ridge_logits
from safecl.heads.protocol import Kind, PerClass
from safecl.heads.random_features import RandomFeatures
from safecl.heads.reading import Reading, Widths, widths_of
from safecl.heads.settings import RidgeSettings, weightings
from safecl.heads.solve import Beta, solve
from safecl.heads.tensors import check_finite


class RidgeHead(PerClass):
    """z = W̃ᵀ (G + βI)⁻¹ h with h = ReLU(W_randᵀ φ(x)): Eq. (9) and (10).

    Where blocks are read apart, each has a β of its own: that of all, in units of the block's mean
    squared norm, over the square of its weight. That is the same as blocks of equal norm times
    their weights, but the sums know no weights, so that these can change after any session.

    Without ``project`` in the settings h = φ(x), and M = d. ``kept``: the statistics are part of
    the state; false where they are computed from something else that is. The weights follow from
    the statistics, a module of its own. φ(x) is what the ``reading`` says, a part of the state;
    with its mirror image a picture is one row (N, 2d) outside the head, and two inside, of which it
    answers to the first.
    """

    rows = ("weight",)
    dim = 1
    by_difference: ClassVar[tuple[str, ...]] = ("errors",)
    weight: Tensor
    errors: Tensor  # (B,) or (W · B,), the evidence against each β, of each weighting of blocks
    chosen: Tensor  # the reading, as numbers; and how blocks are weighed that are read apart

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return "sum" if self.statistics.kept else "evidence"

    def __init__(
        self,
        widths: Widths | int,
        settings: RidgeSettings,
        seed: int = 0,
        device: torch.device | None = None,
        kept: bool = True,
    ) -> None:
        super().__init__()
        device = device or torch.device("cpu")
        self.settings = settings
        widths = widths_of(widths)
        size = settings.size if settings.project else widths.own
        require_memory(size, device, widths.own, grams=choose_beta.grams(settings, size))
        self.statistics = Statistics(size, device, kept)
        self.project = RandomFeatures(widths, size if settings.project else None, seed, device)
        self.register_buffer("weight", torch.zeros(size, 0, device=device))
        self.register_buffer("errors", torch.zeros(len(settings.betas), device=device))
        reading = torch.tensor(self.reading, dtype=torch.int64, device=device)
        self.register_buffer("chosen", reading)

    @property
    def reading(self) -> Reading:
        return self.project.reading

    @property
    def width(self) -> int:
        """d of one view."""
        return self.project.width

    def read(
        self, reading: Reading, drawn: Tensor | None = None, apart: bool | None = None
    ) -> None:
        """Read this of every picture from now on, by a projection that is ``drawn``; nothing has
        been added yet. ``apart``: with a projection for each block; None: as is set.
        """
        if apart is None:
            apart = self.settings.apart and reading.blocks > 1
        self.project.read(reading, drawn, apart)
        self.chosen = torch.tensor([*reading, *([0] if apart else [])]).to(self.chosen)
        rows = len(weightings(reading)) if apart else 1
        self.errors = self.errors.new_zeros(rows * len(self.settings.betas))
        size = self.project.size
        if size != len(self.weight):
            self.statistics.size = size
            self.statistics.sums = self.project.projection.new_zeros(size, 0)
            self.weight = self.weight.new_zeros(size, 0)

    def share(self, owner: "RidgeHead") -> None:
        """Use the statistics of ``owner``, which remain a part of its state alone, so that they
        have one name.
        """
        del self.statistics
        object.__setattr__(self, "statistics", owner.statistics)

    def logits(
        self, features: Tensor, left_out: LeftOut | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """z of Eq. (9): (N, v · d) → (N, C).

        With ``left_out`` as if each picture's group had not been learned; ``rows`` (N · v, M): what
        the statistics have of these pictures, where that is not what ``features`` are projected to.
        """
        if left_out is None:
            projected: Tensor = self.project(features[:, : self.width])
            return projected @ self.weight
        views = features.shape[1] // self.width
        projected = self.project(features)
        return ridge_logits(
            self.statistics, self.weight, self.beta, self.unit, projected, views, left_out, rows
        )

    def harm(self, features: Tensor, targets: Tensor) -> Tensor:
        """How much less all others err without each of these learned pictures; see
        ``left_out.harm``.
        """
        views = features.shape[1] // self.width
        rows = self.project(features)
        return harm(self.statistics, self.beta, self.unit, rows, views, targets)

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add a session's features (N, v · d) and class indices (N,) to the evidence for β, and to
        statistics if kept.
        """
        if self.statistics.kept:
            self.statistics.accumulate(self.project, features, targets)
            check_finite(self.statistics.gram.diagonal())
        errors = self.evidence(features, targets)
        if errors is not None:
            self.errors = self.errors + errors if self.settings.evidence == "all" else errors

    def evidence(self, features: Tensor, targets: Tensor) -> Tensor | None:
        """What a session's features (N, v · d) and class indices (N,) say of every β: (B,); None of
        too few.
        """
        found = choose_beta.evidence(self.settings, self.project, features, targets)
        return None if found is None else found.to(self.errors)

    def correct_evidence(
        self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], latest: bool
    ) -> None:
        """A session had features and class indices ``before``, and has those ``after``; ``latest``:
        the last one.
        """
        was = self.evidence(*before)
        now = self.evidence(*after)
        if self.settings.evidence == "all":
            for errors, sign in ((was, -1), (now, 1)):
                self.errors = self.errors if errors is None else self.errors + sign * errors
        elif latest and now is not None:
            self.errors = now

    def solve(self, weighting: int | None = None) -> None:
        """Make the weights (M, C) from the statistics, with blocks that are read apart weighed so;
        None: as the evidence asks for.
        """
        if self.project.apart:
            best = int(self.errors.argmin()) if self.errors.any() else 0
            asked = best // len(self.settings.betas)
            number = asked if weighting is None else weighting
            self.chosen = torch.tensor([*self.reading, number]).to(self.chosen)
        rank = self.reading.views * int(self.statistics.count)
        self.weight = solve(self.statistics.gram, self.statistics.sums, self.beta, rank)

    def clear(self) -> None:
        """No sums of classes, and no evidence; G and the weights are made after."""
        self.statistics.clear()
        self.errors = torch.zeros_like(self.errors)

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        """Move features (n, v · d) from the class sums ``old`` to ``new``; weights, G and evidence
        are made after.
        """
        if features is None:
            return
        for start in range(0, len(features), CHUNK):
            here = slice(start, start + CHUNK)
            self.statistics.relabel(self.project(features[here]), old[here], new[here])

    def merge(self, now: "RidgeHead", before: "RidgeHead", index: Tensor) -> None:
        """Take over the evidence for β that ``now`` has collected since it was ``before``; see
        ``Statistics.merge``.
        """
        if (self.reading, self.project.apart) != (now.reading, now.project.apart):
            raise SafeclError("merge.differ", what="what their heads read")
        if self.settings.evidence != "all":
            self.errors = now.errors
            return
        new = now.errors
        if before.reading == now.reading:  # otherwise nothing had been learned
            new = new - before.errors
        self.errors = self.errors + new

    @property
    def weighting(self) -> int:
        """The number of that of blocks; 0 where they are read together."""
        return int(self.chosen[3:].sum())

    @property
    def weights(self) -> tuple[float, ...]:
        """How much each block counts that is read apart."""
        return weightings(self.reading)[self.weighting]

    @property
    def unit(self) -> float | Tensor:
        """Of β, where it is relative: the mean squared norm of a projected feature; or what it is
        for each of them (M,), by its block.
        """
        if not self.project.apart:
            return self.statistics.unit
        sizes = torch.tensor(self.project.sizes).to(self.chosen)
        parts = torch.split(self.statistics.gram.diagonal(), self.project.sizes)
        squares = torch.stack([part.sum() for part in parts])
        squares = squares / self.statistics.count.clamp(min=1)
        weights = torch.tensor(self.weights).to(squares).square()
        each = torch.where(squares > 0, squares, 1) * weights.sum() / weights
        return each.repeat_interleave(sizes)

    @property
    def beta(self) -> Beta:
        """The value with the least evidence against it; the middle of the grid without any."""
        count = len(self.settings.betas)
        errors = self.errors.reshape(-1, count)[self.weighting]
        best = int(errors.argmin()) if errors.any() else count // 2
        if not self.project.apart:
            return choose_beta.grid(self.settings, self.statistics.unit)[best]
        # as ``smallest_beta``, in relative units
        least = torch.finfo(self.statistics.gram.dtype).eps * int(self.statistics.count)
        return max(self.settings.betas[best], least) * self.unit

    def leave_one_out(self, features: Tensor, targets: Tensor) -> Tensor:
        """Squared error on each of the features (N, v · d) of a head fitted on all the others, at
        the best β: (n,).
        """
        return choose_beta.leave_one_out(self.settings, self.project, features, targets)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        layers, patches, mirror, *weighting = state_dict[prefix + "chosen"].tolist()
        self.read(Reading(layers, bool(patches), bool(mirror)), apart=bool(weighting))
        super()._load_from_state_dict(state_dict, prefix, *args)

"""What SAFE is made of, and what the engine and edits ask of it; ``safe.py`` says how it learns."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple, TypeAlias

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.gram import require_memory
from safecl.heads.left_out import LeftOut
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner
from safecl.methods.ensemble import weights
from safecl.methods.experts import Ensemble, Expert
from safecl.methods.method import Fit, Included, Judging, More, Network
from safecl.methods.parts import Parts, learned_from
from safecl.methods.settings.safe import SafeSettings
from safecl.randomness import generator
from safecl.streams.stream import Session

Features: TypeAlias = dict[str, Tensor]
"""By network, what the heads read of a session's pictures: (N, d′) each."""


class Teacher(NamedTuple):
    """Who guides the fast learner through a session: features, and a row for every class."""

    network: Network
    head: CosineHead


class SlowAndFast(Ensemble):
    """Two learners, each with a cosine head to be tuned with and a ridge head to answer by."""

    outputs = ("slow", "fast", "safe")
    grams: ClassVar[int] = 2  # matrices G that are there at once
    settings: SafeSettings

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        d = backbone.width
        device = backbone.device
        size = settings.ridge.size if settings.ridge.project else d
        require_memory(size, device, d, grams=self.grams)
        self.slow = Learner(backbone, settings.pet, seed)  # φ_slow, by S-PET
        self.fast = Learner(backbone, settings.pet, seed)  # φ_fast, by F-PET
        self.w_slow = CosineHead(d, settings.scale)
        self.w_fast = CosineHead(d, settings.scale, sums=False)
        self.ridge_slow = RidgeHead(backbone.widths, settings.ridge, seed, device)
        self.ridge_fast = RidgeHead(backbone.widths, settings.ridge, seed, device)

    # -- Who answers ---------------------------------------------------------------------------

    def experts(self) -> dict[str, Expert]:
        reading = self.ridge_slow.reading
        slow = Expert("slow", "ridge_slow", {"slow": self.slow}, self.ridge_slow, reading)
        fast = Expert("fast", "ridge_fast", {"fast": self.fast}, self.ridge_fast, reading)
        return {"slow": slow, "fast": replace(fast, moves=True)}

    def voices(self, learned: int) -> dict[str, Expert]:
        """By output, the expert that answers after so many sessions."""
        return self.experts()

    def beside(self, learned: int) -> str:
        """The expert that answers beside the fast learner after so many sessions."""
        return self.voices(learned)["slow"].name

    def voiced(
        self,
        output: str,
        expert: Expert,
        features: Mapping[str, Tensor],
        left_out: LeftOut | None = None,
    ) -> Tensor:
        """z_l of Eq. (9), (N, C), at the temperature that is set: 1 in the paper."""
        return expert.logits(features, left_out) * float(self.settings.answer.temperature)

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """α of Eq. (11), (N,) each; after session 1 the two are one network."""
        gamma = self.settings.answer.gamma if self.sessions > 1 else 0.0
        alpha = weights(logits["slow"], logits["fast"], gamma)
        return {"slow": alpha[:, 0], "fast": alpha[:, 1]}

    # -- What a session begins and ends with ---------------------------------------------------

    def begin(self, session: Session, fit: Fit) -> None:
        """Session 1: random rows of W_slow, and what the ridge heads read."""
        self.w_slow.grow_random(len(self.classes), generator(self.seed, "head"))
        self.read(self.reading(session, fit))

    def pair(self, name: str) -> tuple[Learner, CosineHead]:
        """What is tuned under this name."""
        return {"slow": (self.slow, self.w_slow), "fast": (self.fast, self.w_fast)}[name]

    def features_of(self, session: Session, fit: Fit, **more: Network) -> tuple[Tensor, Features]:
        """Targets (N,), and what the frozen networks, and ``more``, give of the pictures."""
        asked = {**more, **self.frozen()}
        targets, *found = fit.features(session, *asked.values())
        return targets, dict(zip(asked, found, strict=True))

    def expand(self, head: CosineHead, features: Tensor, targets: Tensor) -> None:
        """W ∈ R^{d×|Y_1:t−1|} → R^{d×|Y_1:t|}: new classes get their centroids as rows."""
        head.observe(features, targets)
        self.grow(head)

    def grow(self, head: CosineHead) -> None:
        """Rows for classes that were observed and have none yet."""
        head.grow(head.centroids()[head.classes :])
        if head is self.w_slow:  # more pictures of a known class make its centroid better
            self.imprint(head)

    def imprint(self, head: CosineHead) -> None:
        """The rows of ``head`` become the centroids of all pictures so far."""
        head.imprint()

    def add(self, targets: Tensor, features: Mapping[str, Tensor], fit: Fit) -> Features:
        """G and W̃ of Eq. (10), for each expert; gives the features as they were added."""
        experts = self.experts()
        return {name: one.add(features[name], targets, fit) for name, one in experts.items()}

    def solve(self, targets: Tensor, added: Features) -> Included:
        """The heads after a session, given what it has ``added``; see ``included``."""
        return self.settle(self.sessions + 1)

    def settle(self, learned: int, more: More | None = None) -> Included:
        """(G + βI)⁻¹ W̃ of Eq. (9), for the experts that answer after so many sessions; ``more``:
        see ``refresh``.
        """
        for expert in self.experts().values():
            expert.head.solve()
        return Judging().included

    # -- What the engine and edits ask ---------------------------------------------------------

    def embed(self, images: Tensor) -> Features:
        voices = self.voices(self.sessions)
        found = voices["slow"].features(images)
        alone = self.sessions == 1
        return found | ({"fast": found["slow"]} if alone else voices["fast"].features(images))

    def parts(self) -> Parts:
        return learned_from(super().parts(), {"w_slow": ("slow",), "w_fast": ("fast",)})

    @property
    def judging(self) -> Judging | None:
        """While there is one network: later sums hold features as they once were."""
        return Judging() if self.sessions == 1 else None

    def refresh(self, more: More | None = None) -> Included:
        included = self.settle(self.sessions, more)
        for head in (self.w_slow, self.w_fast):
            self.grow(head)
        return included

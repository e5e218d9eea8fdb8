"""What the prompt methods share: a frozen network that takes prompts, its bare features as queries, a growing head."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.linear import LinearHead
from safecl.learner import Learner
from safecl.losses import local_cross_entropy
from safecl.methods.method import Batch, Fit, Judged, Method
from safecl.methods.settings.base import MethodSettings
from safecl.pet.settings import NoPetSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class PromptMethod(Method):
    """``prompts`` are trained with a linear head on cross-entropy over the session's classes.

    The head grows by the new classes of each session, where the originals have one for all classes from the start:
    the logits that these mask while training get no gradient, so it is the same head.
    """

    prompts: nn.Module  # all that is trained besides the head

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.network = Learner(backbone, NoPetSettings())
        self.head = LinearHead(backbone.width)

    def learn(self, session: Session, fit: Fit) -> None:
        current = self.current(session)
        self.head.begin(current, generator(self.seed, "head", self.head.classes))
        trained, judged = nn.ModuleList([self.prompts, self.head]), Judged(self.prompts, self.features)
        fit(self.name, trained, session, partial(self.loss, current), judged=judged)

    @torch.no_grad()
    def query(self, images: Tensor) -> Tensor:
        """The CLS feature of the bare backbone: (N, d)."""
        return self.backbone.features(images)

    @abstractmethod
    def terms(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Prompted features (N, d) of the whole batch, and the terms of the loss besides the cross-entropy."""

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """Prompted features (N, d) as the prompts are chosen for testing."""

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        features, terms = self.terms(batch)
        return {"cls": local_cross_entropy(self.head(features), batch.targets, current), **terms}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"prompted": self.features(images)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self.outputs[-1]: self.head(features["prompted"])}


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    """U(−1, 1), drawn on the CPU."""
    return torch.empty(*shape).uniform_(-1, 1, generator=generator)


def most_frequent(choices: Tensor, pool: int) -> Tensor:
    """The K indices that stand most often in ``choices`` (N, K), below ``pool``: (K,)."""
    counts = torch.zeros(pool, device=choices.device).index_add(
        0, choices.flatten(), torch.ones(choices.numel(), device=choices.device)
    )
    return counts.topk(choices.shape[1]).indices

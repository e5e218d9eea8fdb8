"""What the prompt methods share: a frozen network that takes prompts, its bare features as queries,
a growing head.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut
from safecl.heads.linear import LinearHead
from safecl.heads.protocol import Trained
from safecl.heads.tensors import GrowingList
from safecl.learner import Learner
from safecl.losses import local_cross_entropy
from safecl.methods.method import Batch, Fit, Judged, Method
from safecl.methods.settings.base import MethodSettings
from safecl.methods.tuning import begin
from safecl.pet.settings import NoPetSettings
from safecl.streams.stream import Session


class PromptMethod(Method):
    """``prompts`` are trained with a linear head on cross-entropy over the session's classes.

    The originals have a head of all classes from the start, and mask those to come: it is the same
    as one that grows.
    """

    prompts: nn.Module  # all that is trained besides the head

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        backbone.check_inserts()
        self.network = Learner(backbone, NoPetSettings())
        self.head = LinearHead(backbone.width)

    def learn(self, session: Session, fit: Fit) -> None:
        current = self.begin(session)
        trained = nn.ModuleList([self.prompts, self.head])
        judged = Judged(self.prompts, self.features)
        fit(self.settings.name, trained, session, partial(self.loss, current), judged=judged)

    def begin(self, session: Session) -> Tensor:
        """Make room in the head for the session; the indices of its classes, sorted: (K,)."""
        return begin(self, self.head, session)

    @torch.no_grad()
    def query(self, images: Tensor) -> Tensor:
        """The CLS feature of the bare backbone: (N, d)."""
        return self.backbone.features(images)

    @abstractmethod
    def terms(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Prompted features (N, d) of the whole batch, and the terms of the loss besides the
        cross-entropy.
        """

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """Prompted features (N, d) as the prompts are chosen for testing."""

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        features, terms = self.terms(batch)
        return {"cls": local_cross_entropy(self.head(features), batch.targets, current), **terms}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"prompted": self.features(images)}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {self.settings.name: self.head(features["prompted"])}


class GrowingParameters(Trained, GrowingList):
    """A list that gets a new entry per session, which alone is trained."""

    def grow(self, values: Tensor) -> None:
        """Append ``values``, trainable, and freeze those before."""
        self.requires_grad_(False)
        self.append(nn.Parameter(values))


class KeyedPrompts(Trained, nn.Module):
    """Prompts that are found by their keys."""

    keys: Any  # parameters (K, d)

    def similarity(self, query: Tensor) -> Tensor:
        """cos(q, K): (N, d) → (N, keys)."""
        return F.normalize(query, dim=1) @ F.normalize(torch.stack(list(self.keys)), dim=1).T


def uniform(*shape: int, generator: torch.Generator, bound: float = 1.0) -> Tensor:
    """U(−bound, bound), drawn on the CPU."""
    return torch.empty(*shape).uniform_(-bound, bound, generator=generator)


def most_frequent(choices: Tensor, pool: int) -> Tensor:
    """The K indices that stand most often in ``choices`` (N, K), below ``pool``: (K,)."""
    counts = (choices.flatten() == torch.arange(pool, device=choices.device)[:, None]).sum(dim=1)
    return counts.float().topk(choices.shape[1]).indices

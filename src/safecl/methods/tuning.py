"""What methods that train by cross-entropy share: a session's classes, and a head for them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.learner import Learner
from safecl.methods.method import Batch, Fit, Group, Method
from safecl.randomness import generator
from safecl.streams.stream import Session


def current_classes(method: Method, session: Session) -> Tensor:
    """The indices of the session's classes, sorted: (K,)."""
    index = {label: i for i, label in enumerate(method.classes)}
    current = sorted(index[label] for label in session.classes)
    return torch.tensor(current, device=method.backbone.device)


def begin(method: Method, head: LinearHead, session: Session) -> Tensor:
    """Let a session train the blocks of its classes alone; their indices, sorted: (K,)."""
    current = current_classes(method, session)
    head.begin(current, generator(method.seed, "head", head.classes))
    return current


def tune(
    method: Method,
    learner: Learner,
    scale: float,
    session: Session,
    fit: Fit,
    *names: int,
    rate: float = 1.0,
) -> None:
    """Tune ``learner`` on the session's classes, at ``rate``, with a cosine head (initial σ, names
    of its generator) that is not kept.
    """
    if not learner.tuning():  # without a PET there is nothing to train
        return
    width = method.backbone.width
    current = current_classes(method, session)
    head = CosineHead(width, scale).to(method.backbone.device)
    head.grow_random(len(current), generator(method.seed, "head", *names))

    def loss(batch: Batch) -> dict[str, Tensor]:
        targets = torch.searchsorted(current, batch.targets)
        return {"cls": F.cross_entropy(head(batch.features(learner)), targets)}

    body = Group(list(learner.parameters()), rate)
    fit(method.settings.name, nn.ModuleList([learner, head]), session, loss, groups=[body])
    learner.freeze()

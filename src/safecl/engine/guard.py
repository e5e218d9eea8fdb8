"""Has a phase of training made the features worse? The session's own pictures say so."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.engine.device_loader import DeviceLoader
from safecl.heads.leave_one_out import MIN_ERROR_CHANGE, judges, plain_errors
from safecl.learner import Learner
from safecl.methods.method import Judged

JUDGING_PICTURES = 64  # about


class Guard:
    """Compares the leave-one-out error of ridge regressions on what is tuned, on its own pictures, with that before."""

    def __init__(self, judged: list[Judged], images: list[Tensor], targets: Tensor) -> None:
        self._judged, self._images, self._targets = judged, images, targets
        self._start = [{k: v.clone() for k, v in each.tuned.state_dict().items()} for each in judged]
        self._before = [self._errors(each) for each in judged]
        trivial = F.one_hot(targets).float().var(dim=0, correction=0).sum()  # the error of an answer without a picture
        self._too_much = MIN_ERROR_CHANGE * float(trivial)

    @classmethod
    def make(cls, module: nn.Module, judged: Judged | None, loader: DeviceLoader, targets: Tensor) -> Self | None:
        """Of the tuned learners in ``module``, or what is ``judged``; None without any, or with too few pictures."""
        learners = [each for each in module.modules() if isinstance(each, Learner)]
        tuned = [each for each in learners if any(p.requires_grad for p in each.pet.parameters())]
        found = [Judged(each, each.features) for each in tuned] if judged is None else [judged]
        chosen = judges(targets, JUDGING_PICTURES)
        if not found or not len(chosen):
            return None
        return cls(found, list(loader.plain(chosen.tolist())), targets[chosen])

    def worse(self) -> bool:
        """Whether the features are worse now than before by more than a little, or not finite."""
        now = (self._errors(each).mean() for each in self._judged)
        limits = (before.mean() + self._too_much for before in self._before)
        return not all(error <= limit and error.isfinite() for error, limit in zip(now, limits, strict=True))

    @torch.no_grad()
    def hold(self) -> None:
        """Put all that is tuned back to what it was before the phase."""
        for each, start in zip(self._judged, self._start, strict=True):
            for name, value in each.tuned.state_dict().items():
                value.copy_(start[name])

    @torch.no_grad()
    def _errors(self, judged: Judged) -> Tensor:
        """Squared error on each picture that judges: (n,)."""
        training = judged.tuned.training
        judged.tuned.eval()
        errors = plain_errors(torch.cat([judged.features(images) for images in self._images]), self._targets)
        judged.tuned.train(training)
        return errors

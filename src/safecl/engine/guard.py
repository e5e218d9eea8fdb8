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
    """Compares the features of what is tuned with those before the phase.

    The measure is the squared error of a ridge regression on the features which leaves out one picture at a time. The
    networks are trained on these pictures, so an error that has risen means that they have lost what they knew.
    """

    def __init__(self, judged: list[Judged], images: list[Tensor], targets: Tensor) -> None:
        self._judged, self._images, self._targets = judged, images, targets
        self._start = [{k: v.clone() for k, v in each.tuned.state_dict().items()} for each in judged]
        self._before = [self._errors(each) for each in judged]
        trivial = F.one_hot(targets).float().var(dim=0, correction=0).sum()  # the error of an answer without a picture
        self._too_much = MIN_ERROR_CHANGE * float(trivial)

    @classmethod
    def make(cls, module: nn.Module, judged: Judged | None, loader: DeviceLoader, targets: Tensor) -> Self | None:
        """Of the tuned learners in ``module``, or what is ``judged`` in their place.

        None without any, or with too few pictures to leave one out.
        """
        learners = [each for each in module.modules() if isinstance(each, Learner)]
        tuned = [each for each in learners if any(p.requires_grad for p in each.pet.parameters())]
        found = [Judged(each, each.features) for each in tuned] if judged is None else [judged]
        chosen = judges(targets, JUDGING_PICTURES)
        if not found or not len(chosen):
            return None
        return cls(found, list(loader.plain(chosen.tolist())), targets[chosen])

    def worse(self) -> bool:
        """Whether the features are worse now than before by more than a little, or not finite."""
        for each, before in zip(self._judged, self._before, strict=True):
            now = self._errors(each)
            if not now.isfinite().all() or now.mean() > before.mean() + self._too_much:
                return True
        return False

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

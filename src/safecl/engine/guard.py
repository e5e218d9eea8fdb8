"""Has a phase of training made the features worse? The session's own pictures say so."""

from typing import Self

import torch
from torch import Tensor, nn

from safecl.engine.device_loader import DeviceLoader
from safecl.heads.left_out import judges, plain_errors, surely_less
from safecl.learner import Learner

ASKED = 512  # pictures that are looked at, about
MATTERS, SURE = 0.05, 1.0  # a rise of the error by this share of it, and by so many standard errors, is too much


class Guard:
    """Compares the features of tuned networks with those before the phase.

    The measure is the squared error of a ridge regression on the features which leaves out one picture at a time. The
    networks are trained on these pictures, so an error that has risen means that they have lost what they knew.
    """

    def __init__(self, learners: list[Learner], images: list[Tensor], targets: Tensor) -> None:
        self.learners, self._images, self._targets = learners, images, targets
        self.start = [learner.tuning() for learner in learners]
        self._before = [self._errors(learner) for learner in learners]

    @classmethod
    def make(cls, module: nn.Module, loader: DeviceLoader, targets: Tensor) -> Self | None:
        """Of the tuned networks in ``module``; None without any, or with too few pictures to leave one out."""
        found = [each for each in module.modules() if isinstance(each, Learner)]
        learners = [each for each in found if any(p.requires_grad for p in each.pet.parameters())]
        asked = judges(targets, ASKED)
        if not learners or not len(asked):
            return None
        return cls(learners, list(loader.plain(asked.tolist())), targets[asked])

    def worse(self) -> bool:
        """Whether a network gives worse features now than before, or some that are not finite."""
        for learner, before in zip(self.learners, self._before, strict=True):
            now = self._errors(learner)
            if not now.isfinite().all() or surely_less(before, now, by=MATTERS, sure=SURE):
                return True
        return False

    @torch.no_grad()
    def hold(self) -> None:
        """Put every PET back to what it was before the phase."""
        for learner, start in zip(self.learners, self.start, strict=True):
            for name, value in learner.pet.state_dict().items():
                value.copy_(start[name])

    @torch.no_grad()
    def _errors(self, learner: Learner) -> Tensor:
        """Squared error on each picture that is asked: (n,)."""
        training = learner.training
        learner.eval()
        errors = plain_errors(torch.cat([learner.features(images) for images in self._images]), self._targets)
        learner.train(training)
        return errors

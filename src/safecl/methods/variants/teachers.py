"""Other teachers of the fast learner: itself before the session, or none."""

import copy

import torch.nn.functional as F
from torch import Tensor

from safecl.methods.method import Batch
from safecl.methods.safe import SAFE
from safecl.methods.slow_fast import Teacher


class Teachers(SAFE):
    """As ``method.guide.teacher`` says."""

    def teacher(self, f_fast: Tensor, targets: Tensor) -> Teacher:
        if self.settings.guide.teacher != "previous":
            return super().teacher(f_fast, targets)
        network = self.fast.copy()
        network.freeze()
        head = copy.deepcopy(self.w_fast).requires_grad_(False)
        self.expand(head, f_fast, targets)
        return Teacher(network, head)

    def fast_loss(
        self, teacher: Teacher, known: int, guidance: float, batch: Batch
    ) -> dict[str, Tensor]:
        if self.settings.guide.teacher != "none":
            return super().fast_loss(teacher, known, guidance, batch)
        f = batch.features(self.fast)
        return {"cls": F.cross_entropy(self.w_fast(f), batch.targets)}

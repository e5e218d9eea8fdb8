"""The PTM guides the fast learner."""

from torch import Tensor

from safecl.methods.slow_fast import Teacher
from safecl.methods.variants.ptm_prototypes import PtmPrototypes


class PtmTeacher(PtmPrototypes):
    """Its head is W_ptm."""

    def teacher(self, f_fast: Tensor, targets: Tensor) -> Teacher:
        return Teacher(self.backbone, self.w_ptm)

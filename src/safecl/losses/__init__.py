"""The losses: one function for each equation of the paper, of its alternatives, and of the methods
beside it.
"""

from safecl.losses.alignment import alignment as alignment
from safecl.losses.balance import limited as limited
from safecl.losses.crossing import crossing as crossing
from safecl.losses.distillation import covariance_alignment as covariance_alignment
from safecl.losses.distillation import logit_alignment as logit_alignment
from safecl.losses.local import local_cosface as local_cosface
from safecl.losses.local import local_cross_entropy as local_cross_entropy
from safecl.losses.pairs import pairs as pairs
from safecl.losses.transfer import cross_correlation as cross_correlation
from safecl.losses.transfer import diagonal as diagonal
from safecl.losses.transfer import redundancy as redundancy

"""The choices of SAFE."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from safecl.heads.aggregate import Aggregation
from safecl.losses.crossing import Pooling
from safecl.losses.transfer import Normalisation, Reduction
from safecl.settings import Settings


class SafeSettings(Settings):
    """Every choice that the paper, its ablations and its released code make; the defaults are ours."""

    name: Literal["safe"] = "safe"
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine heads")
    # Phase 1: what the PTM hands to the slow learner
    transfer: Literal["correlation", "fa", "la", "ssa", "none"] = "correlation"
    transfer_normalisation: Normalisation = "l2"
    transfer_reduction: Reduction = "sum"
    lambda_diag: NonNegativeFloat = Field(0.01, description="weight of L_diag, Eq. (2)")
    lambda_rdn: NonNegativeFloat = Field(1.0, description="weight of L_rdn, Eq. (3)")
    lambda_distil: NonNegativeFloat = Field(1.0, description="weight of FA, LA or SSA, the paper's alternatives")
    transfer_share: float | None = Field(
        0.1, gt=0, description="the transfer gradient is at most this share of that of L_cls; null: no limit"
    )
    slow_rows: Literal["imprint", "keep"] = Field("imprint", description="W_slow after session 1: centroids or as is")
    pilot: bool = Field(
        True,
        description="transfer, or keep less of the tuning, only where pilots on half of the first classes show that "
        "the other half gains; in doubt, and with fewer than four classes, do neither",
    )
    reset_scale: bool = Field(False, description="set σ back to its initial value after session 1")
    # Phase 2: how the fast learner is guided
    teacher: Literal["none", "ptm", "previous", "slow"] = "slow"
    new_rows: Literal["imprint", "zero"] = Field("imprint", description="rows of new classes in both cosine heads")
    lambda_cross: NonNegativeFloat = Field(1.0, description="weight of L_s↔f, Eq. (7)")
    cross_pooling: Pooling = "two_means"
    lambda_cos: NonNegativeFloat = Field(25.0, description="weight of L_cos, Eq. (6)")
    cos_reduction: Literal["mean", "sum"] = "mean"
    release: bool = Field(
        True,
        description="drop L_cos for good once the pictures of a session, before anybody learns from them, show that "
        "the slow learner's tuning surely helps such pictures; only with teacher=slow",
    )
    average: bool = Field(
        True,
        description="the fast learner's tuning is the mean, over all pictures so far, of where their sessions took it; "
        "only with teacher=slow",
    )
    trust: float | None = Field(
        0.2,
        gt=0,
        description="how far from the slow learner a session may end, in units of how far pictures are apart; "
        "null: anywhere; only with teacher=slow",
    )
    # Inference
    statistics: Literal["separate", "shared"] = Field("separate", description="second-order statistics of the learners")
    aggregation: Aggregation = "entropy"
    gamma: NonNegativeFloat = Field(1.0, description="γ, how much the less certain learner is discounted")
    temperature: PositiveFloat | Literal["learned"] = Field(10.0, description="factor on the ridge logits; learned: σ")

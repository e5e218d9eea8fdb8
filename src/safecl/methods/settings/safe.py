"""The choices of SAFE: those of the paper and its ablations, those of its released code, and ours."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from safecl.heads.settings import RidgeSettings
from safecl.methods.settings.base import MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings
from safecl.settings import Settings


class CosineSettings(Settings):
    """The cosine heads W_slow and W_fast."""

    slow_rows: Literal["imprint", "keep"] = Field("imprint", description="W_slow after session 1: centroids or as is")
    new_rows: Literal["imprint", "zero"] = Field("imprint", description="rows of new classes in both cosine heads")
    reset_scale: bool = Field(False, description="set σ back to its initial value after session 1")


class TransferSettings(Settings):
    """Session 1: what the slow learner takes over from the PTM."""

    loss: Literal["correlation", "fa", "la", "ssa", "none"] = Field(
        "correlation", description="what keeps the slow learner near the PTM"
    )
    acts_with: ClassVar = dict.fromkeys(("reduction", "lambda_diag", "lambda_rdn"), ("loss", ("correlation",)))
    reduction: Literal["mean", "sum"] = Field("sum", description="over the entries of the correlation")
    lambda_diag: NonNegativeFloat = Field(0.01, description="weight of L_diag, Eq. (2)")
    lambda_rdn: NonNegativeFloat = Field(1.0, description="weight of L_rdn, Eq. (3)")


class GuideSettings(Settings):
    """Later sessions: how the fast learner is guided."""

    acts_with: ClassVar = dict.fromkeys(
        ("lambda_cross", "cross_pooling", "lambda_cos", "cos_reduction"), ("teacher", ("ptm", "previous", "slow"))
    )
    teacher: Literal["none", "ptm", "previous", "slow"] = Field("slow", description="who guides the fast learner")
    lambda_cross: NonNegativeFloat = Field(1.0, description="weight of L_s↔f, Eq. (7)")
    cross_pooling: Literal["two_means", "concat"] = Field("two_means", description="over batch and prototypes")
    lambda_cos: NonNegativeFloat = Field(25.0, description="weight of L_cos, Eq. (6)")
    cos_reduction: Literal["mean", "sum"] = Field("mean", description="of L_cos over the batch")


class AnswerSettings(Settings):
    """Inference."""

    acts_with: ClassVar = {"gamma": ("aggregation", ("entropy",))}
    statistics: Literal["following", "stale", "shared"] = Field(
        "following",
        description="of the fast learner's ridge head. following: the slow learner's, moved by means of class means, "
        "offsets and one covariance; stale: sums of features of their own time; shared: also one Gram matrix for both",
    )
    aggregation: Literal["errors", "entropy", "add", "max", "concat"] = Field(
        "errors",
        description="of both learners' logits. errors: by their leave-one-out errors in each session, which are taken "
        "for equal where statistics are shared",
    )
    gamma: NonNegativeFloat = Field(1.0, description="γ, how much the less certain learner is discounted")
    temperature: PositiveFloat | Literal["learned"] = Field(10.0, description="factor on the ridge logits; learned: σ")


class SafeSettings(MethodSettings):
    """Every choice that the paper, its ablations and its released code make; the defaults are ours."""

    title = "SAFE"
    paper = "Zhao et al., SAFE: Slow and Fast Parameter-Efficient Tuning for Continual Learning, NeurIPS 2024"
    kind = "continual"
    keeps = "two PETs, cosine heads, ridge heads with their sums, class means, offsets and one covariance of features"
    quick: ClassVar = {"transfer": {"loss": "none"}}  # one pilot less

    name: Literal["safe"] = "safe"
    pet: PetSettings = SsfSettings()
    ridge: RidgeSettings = RidgeSettings()
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine heads")
    cosine: CosineSettings = CosineSettings()
    transfer: TransferSettings = TransferSettings()
    guide: GuideSettings = GuideSettings()
    answer: AnswerSettings = AnswerSettings()
    pilot: float = Field(
        0.75,
        ge=0,
        le=1,
        description="all that we add to tuning. Pilots on half of the first classes choose whether to transfer, and "
        "the share of a tuning to keep, by the other half; where they gain under 20 %, the untuned backbone answers "
        "in the slow learner's place, and, with method.answer.aggregation=errors, the fast one where it helps with "
        "unseen pictures; the transfer gradient is limited; with method.guide.teacher=slow L_cos is dropped while "
        "unseen pictures show that the slow one's tuning helps, and the fast one's is a mean over sessions. A pilot's "
        "share of the epochs; 0: paper",
    )

    @model_validator(mode="after")
    def _concatenated_features(self) -> "SafeSettings":
        """Their statistics are sums of the last CLS token's features, as they were in each session."""
        more = self.ridge.layers not in (1, "auto") or True in (self.ridge.patches, self.ridge.mirror)
        if self.answer.aggregation == "concat" and (more or self.answer.statistics == "following"):
            raise ValueError("method.answer.aggregation=concat needs method.answer.statistics=stale and plain ridge.*")
        return self

    @property
    def kept_of_pictures(self) -> str:
        moved = ", and of the features the mean and an offset of each class and one covariance"
        return "sums over all pictures" + (moved if self.answer.statistics == "following" else "")

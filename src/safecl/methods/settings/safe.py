"""The choices of SAFE: those of the paper and its ablations, those of its released code, and
ours.
"""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from safecl.heads.settings import RidgeSettings
from safecl.methods.settings.base import MethodSettings
from safecl.methods.settings.ranpac import RanpacSettings
from safecl.pet.settings import PetSettings, SsfSettings
from safecl.settings import Settings, With, idle, inside

GUIDED = With("teacher", ("slow", "previous", "ptm"))


class CosineSettings(Settings):
    """The cosine heads W_slow and W_fast."""

    slow_rows: Literal["imprint", "keep"] = Field(
        "imprint", description="W_slow after session 1: centroids or as is"
    )
    new_rows: Literal["imprint", "zero"] = Field(
        "imprint", description="rows of new classes in both cosine heads"
    )
    reset_scale: bool = Field(False, description="set σ back to its initial value after session 1")


class TransferSettings(Settings):
    """Session 1: what the slow learner takes over from the PTM."""

    loss: Literal["correlation", "fa", "la", "ssa", "none"] = Field(
        "correlation", description="what keeps the slow learner near the PTM"
    )
    acts_with: ClassVar = dict.fromkeys(
        ("reduction", "lambda_diag", "lambda_rdn"), (With("loss", ("correlation",)),)
    )
    reduction: Literal["mean", "sum"] = Field(
        "sum", description="over the entries of the correlation"
    )
    lambda_diag: NonNegativeFloat = Field(0.01, description="weight of L_diag, Eq. (2)")
    lambda_rdn: NonNegativeFloat = Field(1.0, description="weight of L_rdn, Eq. (3)")


class GuideSettings(Settings):
    """Later sessions: how the fast learner is guided."""

    acts_with: ClassVar = {
        "lambda_cross": (GUIDED,),
        "cross_pooling": (GUIDED, With("lambda_cross")),
        "lambda_cos": (GUIDED,),
        "cos_reduction": (GUIDED, With("lambda_cos")),
    }
    teacher: Literal["none", "ptm", "previous", "slow"] = Field(
        "slow", description="who guides the fast learner"
    )
    lambda_cross: NonNegativeFloat = Field(1.0, description="weight of L_s↔f, Eq. (7)")
    cross_pooling: Literal["two_means", "concat"] = Field(
        "two_means", description="over batch and prototypes"
    )
    lambda_cos: NonNegativeFloat = Field(25.0, description="weight of L_cos, Eq. (6)")
    cos_reduction: Literal["mean", "sum"] = Field("mean", description="of L_cos over the batch")


class AnswerSettings(Settings):
    """Inference."""

    acts_with: ClassVar = {
        "gamma": (With("aggregation", ("entropy",)),),
        "likeness": (With("statistics", ("following",)),),
    }
    statistics: Literal["following", "stale", "shared"] = Field(
        "following",
        description=(
            "of the fast learner's ridge head. following: the slow learner's, moved by means of"
            " class means, offsets and one covariance; stale: sums of features of their own time;"
            " shared: also one Gram matrix for both"
        ),
    )
    aggregation: Literal["errors", "entropy", "add", "max", "concat"] = Field(
        "errors",
        description=(
            "of both learners' logits. errors: by their leave-one-out errors in each session, which"
            " are taken for equal where statistics are shared"
        ),
    )
    gamma: NonNegativeFloat = Field(
        1.0, description="γ, how much the less certain learner is discounted"
    )
    likeness: bool = Field(
        True, description="by class means too, tell how much a picture looks like those learned"
    )
    temperature: PositiveFloat | Literal["learned"] = Field(
        10.0, description="factor on the ridge logits; learned: σ"
    )


class PilotSettings(Settings):
    """Session 1: trials on half of the classes, judged by the other half."""

    acts_with: ClassVar = {"epochs": (With("use", (True,)),)}
    use: bool = Field(
        True,
        description="pilots choose whether to transfer, and the share of a tuning that is kept",
    )
    epochs: float = Field(0.75, gt=0, le=1, description="of a pilot, as a share of the session's")


class LimitSettings(Settings):
    """Session 1: the pull of the transfer loss."""

    acts_with: ClassVar = {"share": (With("use", (True,)),)}
    use: bool = Field(True, description="limit the gradient of a transfer term")
    share: PositiveFloat = Field(0.1, description="of that of L_cls, that it has at most")


class AverageSettings(Settings):
    """Later sessions: how much of a tuning is kept."""

    use: bool = Field(True, description="the fast learner's tuning is a mean over sessions")


class ReleaseSettings(Settings):
    """Later sessions: when the fast learner is let go."""

    use: bool = Field(
        True,
        description="drop L_cos while new pictures show that the slow learner's tuning helps",
    )


class UntunedSettings(Settings):
    """Inference: a third expert."""

    use: bool = Field(
        True,
        description=(
            "where pilots gain under 20 %, the untuned backbone answers in the slow learner's"
            " place, and, with method.answer.aggregation=errors, the fast one where it helps with"
            " new pictures"
        ),
    )


class SafeSettings(MethodSettings):
    """Every choice that the paper, its ablations and its released code make; the defaults are
    ours.
    """

    title = "SAFE"
    paper = (
        "Zhao et al., SAFE: Slow and Fast Parameter-Efficient Tuning for Continual Learning,"
        " NeurIPS 2024"
    )
    kind = "continual"
    keeps = (
        "two PETs, cosine heads, ridge heads with their sums, class means, offsets and one"
        " covariance of features"
    )
    quick: ClassVar = {"transfer": {"loss": "none"}}  # one pilot less

    name: Literal["safe"] = "safe"
    pet: PetSettings = SsfSettings()
    ridge: RidgeSettings = RidgeSettings()
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine heads")
    cosine: CosineSettings = CosineSettings()
    transfer: TransferSettings = TransferSettings()
    guide: GuideSettings = GuideSettings()
    answer: AnswerSettings = AnswerSettings()
    pilots: PilotSettings = PilotSettings()
    limit: LimitSettings = LimitSettings()
    average: AverageSettings = AverageSettings()
    release: ReleaseSettings = ReleaseSettings()
    untuned: UntunedSettings = UntunedSettings()

    acts_with: ClassVar = {
        "limit.use": (With("transfer.loss", ("correlation", "fa", "la", "ssa")),),
        "average.use": (With("guide.teacher", ("slow",)),),
        "release.use": (With("guide.teacher", ("slow",)), With("guide.lambda_cos")),
        "untuned.use": (
            With("pilots.use", (True,)),
            With("answer.statistics", ("following",)),
        ),
    }

    @model_validator(mode="after")
    def _concatenated_features(self) -> "SafeSettings":
        """Their statistics are sums of the last CLS token's features, as they were in each
        session.
        """
        read = self.ridge
        more = read.layers not in (1, "auto") or True in (read.apart, read.patches, read.mirror)
        if self.answer.aggregation == "concat" and (more or self.answer.statistics == "following"):
            raise ValueError(
                "method.answer.aggregation=concat needs method.answer.statistics=stale and plain"
                " ridge.*"
            )
        return self

    def before_tuning(self) -> MethodSettings:
        """Its untuned expert alone."""
        return RanpacSettings(ridge=self.ridge).before_tuning()

    def passes(self, first: bool) -> float:
        kinds = 1 if self.transfer.loss == "none" else 2
        return 1.0 + (kinds * self.pilots.epochs / 2 if first and self.pilots.use else 0.0)

    @property
    def kept_of_pictures(self) -> str:
        moved = ", and of the features the mean and an offset of each class and one covariance"
        return "sums over all pictures" + (moved if self.answer.statistics == "following" else "")

    @property
    def floors(self) -> tuple[str, ...]:
        """What goes beyond the paper, or beside it; none of it for the preset ``paper``."""
        answer = self.answer
        guide = self.guide
        combined = answer.aggregation
        untuned = self.acts("untuned.use")
        reduced = (self.transfer.reduction, guide.cos_reduction, guide.cross_pooling)
        as_printed = reduced == ("mean", "mean", "two_means") and guide.lambda_cross == 1
        wanted = {
            "beyond.release": self.acts("release.use"),
            "beyond.helps": untuned and combined == "errors",
            "beyond.by_errors": combined == "errors",
            "beyond.untuned": untuned,
            "beyond.pilots": self.pilots.use,
            "beyond.average": self.acts("average.use"),
            "beyond.likeness": self.acts("answer.likeness"),
            "beyond.following": answer.statistics == "following",
            "beyond.limit": self.acts("limit.use"),
            "beyond.readings": self.ridge.chooses and combined != "concat",
            "variants.concatenated": combined == "concat",
            "variants.plain_aggregation": combined in ("add", "max"),
            "variants.temperature": answer.temperature == "learned",
            "variants.shared_gram": answer.statistics == "shared",
            "variants.rows": self.cosine != CosineSettings(),
            "variants.teachers": guide.teacher in ("none", "previous"),
            "variants.ptm_teacher": guide.teacher == "ptm",
            "variants.logit_transfer": self.transfer.loss == "la",
            "variants.transfers": self.transfer.loss in ("fa", "ssa", "none"),
            "variants.losses": not as_printed,
        }
        return tuple(name for name, on in wanted.items() if on)

    def acts(self, switch: str) -> bool:
        """Whether a switch is on, and has what it needs of others."""
        return bool(inside(self, switch)) and not any(idle(self, [switch]))

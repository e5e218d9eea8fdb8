"""The choices of RSIAT. The defaults are the released ones for CIFAR-100, but for s, m and the
alignment.
"""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from safecl.methods.settings.ssiat import SsiatSettings
from safecl.settings import With


class RsiatSettings(SsiatSettings):
    title = "RSIAT"
    paper = (
        "Representation-Steered Incremental Adapter-Tuning for Class-Incremental Learning with"
        " PTMs, CVPR 2026"
    )
    keeps = "PET, cosine heads, residual map, mean and covariance of each class"
    acts_with: ClassVar = {
        **dict.fromkeys(("pairs_far", "pairs_margin", "pairs_warmup"), (With("pairs"),)),
        **dict.fromkeys(("apart", "map_width", "map_lr", "map_weight_decay"), (With("residual"),)),
    }

    name: Literal["rsiat"] = "rsiat"  # type: ignore[assignment]
    pairs: NonNegativeFloat = Field(0.2, description="λ: weight of the loss on pairs in session 1")
    pairs_far: NonNegativeFloat = Field(0.5, description="α: weight of pairs of two classes in it")
    pairs_margin: float = Field(0.3, description="δ: cosine that pairs of two classes may have")
    pairs_warmup: PositiveInt = Field(7, description="w: epochs over which λ rises from 0")
    residual: NonNegativeFloat = Field(
        1.0, description="β: holds features to the map of those before the session"
    )
    apart: NonNegativeFloat = Field(
        0.4, description="γ: weight of the cosine of mapped features and old means"
    )
    map_width: PositiveInt = Field(256, description="q: hidden units in the middle of the map")
    map_lr: PositiveFloat = Field(5.6e-4, description="learning rate of the map")
    map_weight_decay: NonNegativeFloat = Field(2.9e-3, description="weight decay of the map")

"""The choices of joint training: pet=none is a linear probe, pet=full full fine-tuning."""

from typing import Literal

from pydantic import Field

from safecl.methods.settings.ranpac import RanpacSettings


class JointSettings(RanpacSettings):
    title = "Joint training"
    paper = "the upper bound: all sessions at once"
    kind = "bound"  # type: ignore[assignment]
    joint = True

    name: Literal["joint"] = "joint"  # type: ignore[assignment]
    likeness: bool = Field(
        False, description="by class means too, tell how much a picture looks like those learned"
    )
    scale: float = Field(
        1.0, gt=0, description="initial σ of the cosine head that the PET is trained with"
    )

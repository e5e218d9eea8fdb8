"""The choices of a ridge head."""

from typing import Literal

from pydantic import Field, PositiveFloat

from safecl.settings import Settings


class RidgeSettings(Settings):
    """The random projection, and how β is chosen."""

    size: int = Field(5000, gt=0, description="M, the number of random features")
    project: bool = Field(True, description="false: no projection, ridge regression on the features themselves")
    betas: tuple[PositiveFloat, ...] = Field(
        tuple(10.0 ** (k / 2) for k in range(-12, 3)), min_length=1, description="the grid from which β is chosen"
    )
    scale: Literal["relative", "absolute"] = Field(
        "relative", description="relative: β is in units of the mean squared norm of a projected feature"
    )
    evidence: Literal["all", "session"] = Field(
        "all",
        description="β has the least held-out error over all sessions, or in the latest with five pictures or more",
    )
    evidence_pictures: int | None = Field(
        2048, ge=5, description="pictures of a session from which β is chosen, at most; null: all of them"
    )

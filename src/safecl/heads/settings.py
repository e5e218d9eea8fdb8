"""The choices of a ridge head."""

from itertools import product, starmap
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from safecl.errors import SafeclError
from safecl.heads.reading import Reading
from safecl.settings import Settings

MORE_LAYERS = 3  # that "auto" tries beside one


class RidgeSettings(Settings):
    """The random projection, and how β is chosen."""

    acts_with: ClassVar = {"size": ("project", (True,))}
    layers: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="read the CLS token of so many of the last blocks. auto, here and below: as leave-one-out errors "
        "of the untuned backbone on the first classes ask for; 1 or 3",
    )
    patches: bool | Literal["auto"] = Field("auto", description="read the mean of the patch tokens as well")
    mirror: bool | Literal["auto"] = Field(
        "auto", description="learn mirror images as well; auto: not where training mirrors none"
    )
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
        description="β has the least held-out error over all sessions, on at most 2048 pictures of each, a tenth of it "
        "saving 0.002 per picture; or on all pictures of the latest with five or more",
    )

    def readings(self, depth: int, mirrors: bool) -> list[Reading]:
        """What a network of ``depth`` blocks may give, the plainest first; ``mirrors``: whether training does."""
        layers = sorted({1, min(depth, MORE_LAYERS)}) if self.layers == "auto" else [self.layers]
        if max(layers) > depth:
            raise SafeclError(f"ridge.layers={self.layers}: the backbone has {depth} blocks.")
        patches = [False, True] if self.patches == "auto" else [self.patches]
        mirror = sorted({False, mirrors}) if self.mirror == "auto" else [self.mirror]
        found = starmap(Reading, product(layers, patches, mirror))
        return sorted(found, key=lambda one: (one.mirror, one.blocks))

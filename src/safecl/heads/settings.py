"""The choices of a ridge head."""

from itertools import product, starmap
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from safecl.errors import SafeclError
from safecl.heads.reading import Reading, Widths
from safecl.settings import Settings, With

MORE_LAYERS = 3  # that "auto" tries beside one
MANY_LAYERS = 6  # that "auto" reads apart
OWN_WEIGHTS = (1.0, 2.0, 4.0, 8.0)  # of the network's own feature beside others read apart


class RidgeSettings(Settings):
    """The random projection, and how β is chosen."""

    acts_with: ClassVar = {
        "blocks": (With("scale", ("relative",)),),
        "size": (With("project", (True,)),),
        "evidence": (With("betas", more=1),),
    }
    blocks: Literal["together", "apart"] = Field(
        "together",
        description=(
            "together: one projection of all that is read; apart: one for each block, a third of M"
            " for the last one, whose weight held-out errors of all sessions choose anew"
        ),
    )
    layers: PositiveInt | Literal["auto"] = Field(
        "auto",
        description=(
            "read the feature (CLS token or mean) of so many of the last blocks or stages. auto,"
            " here and below: as leave-one-out errors of the untuned backbone on the first classes"
            " ask for; 1 or 3. With blocks=apart auto is 6, and patches are read"
        ),
    )
    patches: bool | Literal["auto"] = Field(
        "auto",
        description=(
            "read the mean of the patch tokens as well; where the network's own feature is that,"
            " its CLS token"
        ),
    )
    mirror: bool | Literal["auto"] = Field(
        "auto", description="learn mirror images as well; auto: not where training mirrors none"
    )
    size: int = Field(5000, gt=0, description="M, the number of random features")
    project: bool = Field(
        True, description="false: no projection, ridge regression on the features themselves"
    )
    betas: tuple[PositiveFloat, ...] = Field(
        tuple(10.0 ** (k / 2) for k in range(-12, 3)),
        min_length=1,
        description="the grid from which β is chosen",
    )
    scale: Literal["relative", "absolute"] = Field(
        "relative",
        description="relative: β is in units of the mean squared norm of a projected feature",
    )
    evidence: Literal["all", "session"] = Field(
        "all",
        description=(
            "β has the least held-out error over all sessions, on at most 2048 pictures of each, a"
            " tenth of it saving 0.002 per picture; or on all pictures of the latest with five or"
            " more"
        ),
    )

    @property
    def apart(self) -> bool:
        """Whether each block has a projection of its own, if there are several."""
        return self.blocks == "apart" and self.scale == "relative"

    @property
    def chooses(self) -> bool:
        """Whether what is read is chosen by the first classes."""
        return "auto" in (self.layers, self.patches, self.mirror)

    def readings(self, widths: Widths, mirrors: bool) -> list[Reading]:
        """What may be read of a network that gives ``widths``, the plainest first; ``mirrors``:
        whether training does.
        """
        depth = widths.depth
        few = [min(depth, MANY_LAYERS)] if self.apart else sorted({1, min(depth, MORE_LAYERS)})
        layers = few if self.layers == "auto" else [self.layers]
        if max(layers) > depth:
            raise SafeclError("ridge.layers.range", layers=self.layers, depth=depth)
        either = [True] if self.apart else [False, True]
        patches = either if self.patches == "auto" else [self.patches]
        if widths.patches == 0:
            if self.patches is True:
                raise SafeclError("ridge.patches.none")
            patches = [False]
        mirror = sorted({False, mirrors}) if self.mirror == "auto" else [self.mirror]
        found = starmap(Reading, product(layers, patches, mirror))
        return sorted(found, key=lambda one: (one.mirror, one.blocks))


def weightings(reading: Reading) -> list[tuple[float, ...]]:
    """What may be chosen where blocks are read apart: how much each of them counts."""
    return [(own, *[1.0] * (reading.blocks - 1)) for own in OWN_WEIGHTS]

"""Which backbone: the settings, and the names that go with them."""

from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field

from safecl.errors import SafeclError
from safecl.settings import Settings

EMBEDDED = "safecl_micro"
Normalisation: TypeAlias = Literal["none", "half", "imagenet", "auto"]

# The two sets of weights of the paper, by the names it uses for them.
PAPER = {
    "ViT-B/16-IN1K": "vit_base_patch16_224.augreg_in21k_ft_in1k",
    "ViT-B/16-IN21K": "vit_base_patch16_224.augreg_in21k",
}
SUFFIXES = (".safetensors", ".npz", ".pth", ".pt", ".bin")


class BackboneSettings(Settings):
    """Which ViT, with which weights, at which size."""

    name: str = Field(EMBEDDED, description="a timm model name with its weight tag, or the embedded safecl_micro")
    weights: str | None = Field(None, description="a local weight file, or 'random'; the model's own if not given")
    image_size: int | None = Field(None, gt=0, description="side of the input; the model's own if not given")
    normalisation: Normalisation = Field("auto", description="of pixels in [0, 1]: none, half, imagenet, or auto")


def embedded_weights() -> Path:
    """The weights that ship inside the package."""
    file = Path(str(resources.files("safecl.backbone") / "weights" / f"{EMBEDDED}.safetensors"))
    if not file.is_file():
        raise SafeclError(f"The embedded weights are missing from the installation ({file}); install safecl again.")
    return file

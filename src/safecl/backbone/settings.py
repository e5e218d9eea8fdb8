"""Which backbone: the settings, and the names that go with them."""

from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from safecl.errors import SafeclError
from safecl.settings import Settings

EMBEDDED = "safecl_micro"
Normalisation: TypeAlias = Literal["none", "half", "imagenet", "auto"]

# The two sets of weights of the paper, by the names it uses for them.
PAPER = {
    "ViT-B/16-IN1K": "vit_base_patch16_224.augreg_in21k_ft_in1k",
    "ViT-B/16-IN21K": "vit_base_patch16_224.augreg_in21k",
}
# Backbones by size: the timm name with its weight tag, and the side of the input.
SIZES: dict[str, tuple[str, int | None]] = {
    "micro": (EMBEDDED, None),
    "tiny": ("vit_tiny_patch16_224.augreg_in21k_ft_in1k", None),
    "small": ("vit_small_patch14_dinov2.lvd142m", 224),
    "base": ("vit_base_patch14_dinov2.lvd142m", 224),
    "large": ("vit_large_patch14_dinov2.lvd142m", 224),
}
# A model chooses by its first pictures: "auto" among what is at hand, "auto:A,B" among these.
AUTO = "auto"
SUFFIXES = (".safetensors", ".npz", ".pth", ".pt", ".bin")


class BackboneSettings(Settings):
    """Which ViT, with which weights, at which size."""

    name: str = Field(
        EMBEDDED,
        description=(
            "micro (embedded), tiny, small, base, large, or a timm name with its weight tag"
        ),
    )
    weights: str | None = Field(
        None, description="a local weight file, or 'random'; the model's own if not given"
    )
    image_size: int | None = Field(
        None, gt=0, description="side of the input; the model's own if not given"
    )
    normalisation: Normalisation = Field(
        "auto", description="of pixels in [0, 1]: none, half, imagenet, or auto"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_size(cls, values: Any) -> Any:
        """``micro``, ``tiny``, ``small``, ``base`` and ``large`` stand for a name and a side."""
        if isinstance(values, dict) and is_auto(str(values.get("name"))):
            raise SafeclError("backbone.auto.unasked", name=values["name"])
        if not isinstance(values, dict) or str(values.get("name")) not in SIZES:
            return values
        name, side = SIZES[values["name"]]
        return {"image_size": side, **values, "name": name}


def is_auto(word: str) -> bool:
    """Whether the backbone is to be chosen by a model's first pictures."""
    return word.partition(":")[0] == AUTO


def short_form(text: str) -> dict[str, str]:
    """The settings that one word stands for: a weight file if it ends like one, else the name of a
    model.
    """
    return {"weights" if text.endswith(SUFFIXES) and not is_auto(text) else "name": text}


def embedded_weights() -> Path:
    """The weights that ship inside the package."""
    file = Path(str(resources.files("safecl.backbone") / "weights" / f"{EMBEDDED}.safetensors"))
    if not file.is_file():
        raise SafeclError("backbone.embedded.missing", file=file)
    return file

"""The kinds of PET and their settings: one class a kind, told apart by ``kind``."""

from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

from pydantic import Field

from safecl.errors import unknown
from safecl.settings import Settings


class AdapterSettings(Settings):
    """Defaults: those of the SAFE paper."""

    kind: Literal["adapter"] = "adapter"
    bottleneck: int = Field(64, gt=0, description="hidden units of the adapter")
    scale: float = Field(0.1, description="factor on the output of the adapter")
    learn_scale: bool = Field(False, description="train the factor of every block too")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on the hidden units of the adapter")
    activation: Literal["relu", "gelu"] = Field("relu", description="between the two layers of the adapter")
    place: Literal["mlp", "attention"] = Field("mlp", description="beside the norm and the MLP, or beside attention")
    blocks: int | None = Field(None, gt=0, description="how many of the first blocks have it; all if not given")


class SsfSettings(Settings):
    """A scale and a shift of every operation; the default starts as the network is."""

    kind: Literal["ssf"] = "ssf"
    deviation: float = Field(0.0, ge=0, description="spread of the scales around 1 and of the shifts around 0 at first")


class VptSettings(Settings):
    """Defaults: those of the paper, but for ``rate``, which is 1 there."""

    kind: Literal["vpt_deep", "vpt_shallow"] = "vpt_deep"
    tokens: int = Field(5, gt=0, description="prompt tokens of VPT")
    rate: float = Field(0.003, gt=0, description="factor on the gradient of prompts")


class LoraSettings(Settings):
    """Low-rank changes of two of query, key and value."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(8, gt=0, description="rank of LoRA")
    alpha: float = Field(8.0, gt=0, description="the change of LoRA is scaled by alpha / rank")
    learn_scale: bool = Field(False, description="train the scale of every change too, from alpha / rank on")
    projections: Literal["qv", "kv"] = Field("qv", description="what changes: query and value, or key and value")
    blocks: int | None = Field(None, gt=0, description="how many of the first blocks have it; all if not given")


class PrefixSettings(Settings):
    """Further keys and values of attention; defaults: those of LAE, but for ``compensate`` and ``blocks``."""

    kind: Literal["prefix"] = "prefix"
    length: int = Field(10, gt=0, description="keys and values that a block gets")
    compensate: bool = Field(False, description="weights on the prefix sum to 1, and those on tokens stay (LAE)")
    blocks: int | None = Field(None, gt=0, description="how many of the first blocks have it; all if not given")


class FullSettings(Settings):
    """Full fine-tuning has nothing to set."""

    kind: Literal["full"] = "full"


class NoPetSettings(Settings):
    """Nothing is trained."""

    kind: Literal["none"] = "none"


PetSettings: TypeAlias = Annotated[
    AdapterSettings | SsfSettings | VptSettings | LoraSettings | PrefixSettings | FullSettings | NoPetSettings,
    Field(discriminator="kind"),
]
PETS: dict[str, type[Settings]] = {  # the only list of kinds
    kind: settings
    for settings in get_args(get_args(PetSettings)[0])
    for kind in get_args(settings.model_fields["kind"].annotation)
}


def pet_settings(kind: str, **options: Any) -> PetSettings:
    """The settings of one kind of PET: ``pet_settings("adapter", bottleneck=4)``."""
    if kind not in PETS:
        raise unknown("PET", kind, PETS)
    return cast("PetSettings", PETS[kind].model_validate({"kind": kind, **options}))

"""The kinds of PET and their settings: one class a kind, told apart by ``kind``."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, SerializeAsAny

from safecl.entry_points import Catalog
from safecl.errors import unknown
from safecl.settings import Settings, of_kind

if TYPE_CHECKING:  # settings are read without torch
    import torch
    from timm.models.vision_transformer import VisionTransformer
    from torch import nn


class Pet(Settings):
    """What every kind of PET has: settings, and a way to attach it to a network. For ours this
    stands in ``attach.py``, so that settings are read without torch.
    """

    kind: str

    @classmethod
    def kinds(cls) -> list[type[Settings]]:
        return [*PETS.values()] if cls is Pet else [cls]

    def attach(self, view: "VisionTransformer", seed: int) -> "nn.ModuleDict":
        """Put it into ``view``, whose modules are its own and whose weights are frozen; gives what
        is trained, by place.
        """
        raise NotImplementedError


class BlockPet(Pet):
    """A PET that changes blocks one by one."""

    blocks: int | None = Field(
        None, gt=0, description="how many of the first blocks have it; all if not given"
    )

    def attach_block(self, block: Any, generator: "torch.Generator") -> "nn.Module":
        """Put it into ``block``, its values drawn from ``generator``; gives what is trained."""
        raise NotImplementedError


class AdapterSettings(BlockPet):
    """Defaults: those of the SAFE paper."""

    kind: Literal["adapter"] = "adapter"
    bottleneck: int = Field(64, gt=0, description="hidden units of the adapter")
    scale: float = Field(0.1, description="factor on the output of the adapter")
    learn_scale: bool = Field(False, description="train the factor of every block too")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout on the hidden units of the adapter"
    )
    activation: Literal["relu", "gelu"] = Field(
        "relu", description="between the two layers of the adapter"
    )
    place: Literal["mlp", "attention"] = Field(
        "mlp", description="beside the norm and the MLP, or beside attention"
    )


class SsfSettings(Pet):
    """A scale and a shift of every operation; the default starts as the network is."""

    kind: Literal["ssf"] = "ssf"
    deviation: float = Field(
        0.0, ge=0, description="spread of the scales around 1 and of the shifts around 0 at first"
    )


class VptSettings(Pet):
    """Defaults: those of the paper, but for ``rate``, which is 1 there."""

    kind: Literal["vpt_deep", "vpt_shallow"] = "vpt_deep"
    tokens: int = Field(5, gt=0, description="prompt tokens of VPT")
    rate: float = Field(0.003, gt=0, description="factor on the gradient of prompts")


class LoraSettings(BlockPet):
    """Low-rank changes of two of query, key and value."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(8, gt=0, description="rank of LoRA")
    alpha: float = Field(8.0, gt=0, description="the change of LoRA is scaled by alpha / rank")
    learn_scale: bool = Field(
        False, description="train the scale of every change too, from alpha / rank on"
    )
    projections: Literal["qv", "kv"] = Field(
        "qv", description="what changes: query and value, or key and value"
    )


class PrefixSettings(BlockPet):
    """Further keys and values of attention; defaults: those of LAE, but for ``compensate`` and
    ``blocks``.
    """

    kind: Literal["prefix"] = "prefix"
    length: int = Field(10, gt=0, description="keys and values that a block gets")
    compensate: bool = Field(
        False, description="weights on the prefix sum to 1, and those on tokens stay (LAE)"
    )


class FullSettings(Pet):
    """Full fine-tuning has nothing to set."""

    kind: Literal["full"] = "full"


class NoPetSettings(Pet):
    """Nothing is trained."""

    kind: Literal["none"] = "none"


def _kind_of(name: str, found: Any) -> type[Pet]:
    """The settings class of somebody's PET."""
    if not (isinstance(found, type) and issubclass(found, Pet)):
        raise PETS.misfit(name, "a class that extends safecl.pet.settings.Pet")
    if name not in get_args(found.model_fields["kind"].annotation):
        raise PETS.misfit(name, f"a PET with kind: Literal[{name!r}] = {name!r}")
    return found


OWN: tuple[type[Pet], ...] = (
    AdapterSettings,
    SsfSettings,
    VptSettings,
    LoraSettings,
    PrefixSettings,
    FullSettings,
    NoPetSettings,
)
PETS = Catalog[type[Pet]](
    "pets",
    {kind: pet for pet in OWN for kind in get_args(pet.model_fields["kind"].annotation)},
    _kind_of,
)
PetSettings: TypeAlias = Annotated[Pet, SerializeAsAny(), of_kind("kind", lambda: PETS)]


def pet_settings(kind: str, **options: Any) -> Pet:
    """The settings of one kind of PET: ``pet_settings("adapter", bottleneck=4)``."""
    if kind not in PETS:
        raise unknown("PET", kind, PETS)
    return PETS[kind].model_validate({"kind": kind, **options})

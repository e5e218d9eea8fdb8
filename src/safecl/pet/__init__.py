"""Parameter-efficient tuning: small trainable modules on a frozen backbone; and full fine-tuning of a copy of it."""

from safecl.pet.adapter import AdapterSettings
from safecl.pet.full import FullSettings
from safecl.pet.lora import LoraSettings
from safecl.pet.none import NoPetSettings
from safecl.pet.registry import PETS, PetSettings, attach, merge, pet_settings
from safecl.pet.ssf import SsfSettings
from safecl.pet.vpt import VptSettings

__all__ = [
    "PETS",
    "AdapterSettings",
    "FullSettings",
    "LoraSettings",
    "NoPetSettings",
    "PetSettings",
    "SsfSettings",
    "VptSettings",
    "attach",
    "merge",
    "pet_settings",
]

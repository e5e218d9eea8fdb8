"""Parameter-efficient tuning: small trainable modules on a backbone that stays as it is."""

from safecl.pet.registry import PetSettings, attach, merge

__all__ = ["PetSettings", "attach", "merge"]

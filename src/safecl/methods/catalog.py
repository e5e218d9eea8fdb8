"""Every method by its name."""

from typing import Annotated, Any, TypeAlias, cast

from pydantic import Field

from safecl.backbone import Backbone
from safecl.heads import RidgeSettings
from safecl.methods.finetune import Finetune, FinetuneSettings
from safecl.methods.method import Method
from safecl.methods.ranpac import RanPAC, RanpacSettings
from safecl.methods.safe import SAFE
from safecl.methods.safe_settings import SafeSettings
from safecl.pet import PetSettings

MethodSettings: TypeAlias = Annotated[SafeSettings | RanpacSettings | FinetuneSettings, Field(discriminator="name")]

METHODS = {"safe": SAFE, "ranpac": RanPAC, "finetune": Finetune}
SETTINGS = {"safe": SafeSettings, "ranpac": RanpacSettings, "finetune": FinetuneSettings}


def make_method(
    settings: SafeSettings | RanpacSettings | FinetuneSettings,
    backbone: Backbone,
    pet: PetSettings,
    ridge: RidgeSettings,
    seed: int,
) -> Method:
    """A method that has learned nothing yet."""
    kind: type[Any] = METHODS[settings.name]
    return cast(Method, kind(backbone, settings, pet, ridge, seed))

"""SimpleCIL has nothing to choose."""

from typing import ClassVar, Literal

from safecl.methods.settings.base import Kind, MethodSettings


class SimplecilSettings(MethodSettings):
    """No training, no choices."""

    title: ClassVar[str] = "SimpleCIL"
    paper: ClassVar[str] = (
        "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability and Adaptivity "
        "are All You Need, IJCV 2024"
    )
    kind: ClassVar[Kind] = "no training"
    keeps: ClassVar[str] = "class means"
    trains: ClassVar[bool] = False

    name: Literal["simplecil"] = "simplecil"

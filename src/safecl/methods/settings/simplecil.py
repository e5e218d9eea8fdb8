"""SimpleCIL has nothing to choose."""

from typing import Literal

from safecl.methods.settings.base import MethodSettings


class SimplecilSettings(MethodSettings):
    title = "SimpleCIL"
    paper = "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024"
    kind = "no training"
    keeps = "class means"
    trains = False

    name: Literal["simplecil"] = "simplecil"

"""Continual image classification on a frozen pre-trained Vision Transformer, by slow and fast
tuning (SAFE).
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pathlib import Path

    from safecl.backbone.backbone import Backbone as Backbone
    from safecl.backbone.load import load_backbone as load_backbone
    from safecl.classifier.classifier import ContinualClassifier as ContinualClassifier
    from safecl.classifier.classifier import Device
    from safecl.errors import SafeclError as SafeclError
    from safecl.experiments.config import RunSettings as RunSettings
    from safecl.experiments.launch import Result as Result
    from safecl.experiments.launch import run as run
    from safecl.learner import Learner as Learner
    from safecl.methods.method import Method as Method
    from safecl.methods.settings.base import MethodSettings

    METHODS: dict[str, type[MethodSettings]]
    from safecl.runtime.model import ExportedModel
    from safecl.streams.catalog import open_stream as open_stream
    from safecl.streams.sources.arrays import from_arrays as from_arrays
    from safecl.streams.sources.arrays import from_hugging_face as from_hugging_face
    from safecl.streams.sources.arrays import from_torch as from_torch
    from safecl.streams.stream import Stream as Stream

# The public names and where they come from; a module is imported when one of its names is first
# used.
_PUBLIC = {
    "Backbone": "safecl.backbone.backbone:Backbone",
    "ContinualClassifier": "safecl.classifier.classifier:ContinualClassifier",
    "Learner": "safecl.learner:Learner",
    "Method": "safecl.methods.method:Method",
    "Result": "safecl.experiments.launch:Result",
    "RunSettings": "safecl.experiments.config:RunSettings",
    "SafeclError": "safecl.errors:SafeclError",
    "Stream": "safecl.streams.stream:Stream",
    "from_arrays": "safecl.streams.sources.arrays:from_arrays",
    "from_hugging_face": "safecl.streams.sources.arrays:from_hugging_face",
    "from_torch": "safecl.streams.sources.arrays:from_torch",
    "load_backbone": "safecl.backbone.load:load_backbone",
    "open_stream": "safecl.streams.catalog:open_stream",
    "run": "safecl.experiments.launch:run",
}
__all__ = ["METHODS", "__version__", "load", *_PUBLIC]


def load(
    path: "str | Path", *, device: "Device" = "auto", trust: bool = False
) -> "ContinualClassifier | ExportedModel":
    """The model in a file: one that goes on learning, or an exported one (.onnx), which answers
    without torch.

    ``trust``: read an exported file also if another program has changed it; see ``ExportedModel``.
    """
    if os.fspath(path).lower().endswith(".onnx"):
        from safecl.runtime.model import ExportedModel

        return ExportedModel(path, device=device, trust=trust)
    if trust:
        from safecl.errors import SafeclError

        raise SafeclError("exported.trust-idle", path=path)
    found: ContinualClassifier = __getattr__("ContinualClassifier").load(path, device=device)
    return found


def __getattr__(name: str) -> Any:
    if name == "METHODS":  # the settings class of every method by its name
        return importlib.import_module("safecl.methods.catalog").method_settings()
    if name not in _PUBLIC:
        raise AttributeError(f"module 'safecl' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        from safecl.errors import not_installed

        raise not_installed(error) from None


def __dir__() -> list[str]:
    return sorted(__all__)

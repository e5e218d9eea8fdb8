"""A model: its header and its state, from a file or just learned. What only learning needs is read when it learns."""

import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safecl
from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.classifier import members
from safecl.classifier.history import check_not_frozen
from safecl.classifier.settings import ModelSettings, resolve
from safecl.classifier.state import State, build
from safecl.classifier.store import Header, ModelFile, write_model
from safecl.engine.device import choose_device, choose_precision
from safecl.errors import SafeclError
from safecl.methods.catalog import method_class
from safecl.methods.method import Method
from safecl.streams.pictures.images import Label, Transform


class Model:
    """Immutable but for what it has read from its file."""

    def __init__(self, header: Header, state: State | None = None, file: ModelFile | None = None) -> None:
        self.header, self.file = header, file
        self._state, self._predicting = state, state
        self.settings = settings_of(header)

    @classmethod
    def open(cls, path: str | Path) -> "Model":
        file = ModelFile(path)
        return cls(file.header, file=file)

    @property
    def state(self) -> State:
        """All of it."""
        if self._state is None:
            assert self.file is not None
            self._state = self._predicting = members.to_learn(self.file)
        return self._state

    @property
    def predicting(self) -> State:
        """As much as predictions need, at least."""
        if self._predicting is None:
            assert self.file is not None
            self._predicting = members.to_predict(self.file)
        return self._predicting

    @property
    def classes(self) -> list[Label]:
        return list(self.header["classes"])

    @property
    def frozen(self) -> bool:
        return bool(self.header["frozen"])

    @property
    def transform(self) -> Transform:
        return transform_of(self.header)

    def method(self, backbone: Backbone, *, learning: bool = False) -> Method:
        """The method in this state."""
        self.require(backbone)
        if learning:
            check_not_frozen(self.header)
        state = self.state if learning else self.predicting
        sizes = self.header["statistics"]
        return build(self.settings, backbone, state, self.classes, sizes, learning=learning)

    def require(self, backbone: Backbone) -> None:
        """Refuse another backbone than the one the model was taught with."""
        wanted, there = self.header["backbone"], describe(backbone, self.settings)
        for key in ("name", "size", "weights"):
            if wanted[key] != there[key]:
                raise SafeclError(
                    f"The model was taught with the backbone {wanted['name']} ({key} {wanted[key]}), and here is "
                    f"{there['name']} ({key} {there[key]}); {how_to_get(wanted)}."
                )

    def save(self, path: str | Path, *, frozen: bool = False) -> None:
        """Put it at ``path`` in one step. ``frozen``: only what predictions need."""
        sizes = self.header["statistics"]
        learning, frozen = method_class(self.settings.method).learning, frozen or self.frozen
        parts, said = members.to_members(self.predicting if self.frozen else self.state, sizes, learning, frozen)
        write_model(Path(path).expanduser(), {**self.header, **said, "frozen": frozen}, parts)


def settings_of(header: Header) -> ModelSettings:
    try:
        return resolve(header["settings"])
    except SafeclError as error:
        raise SafeclError(
            f"The settings of the model cannot be read: {error} A newer safecl may have made it."
        ) from error


def transform_of(header: Header) -> Transform:
    try:
        values: dict[str, Any] = header["transform"]
        return Transform(**values | {key: tuple(values[key]) for key in ("scale", "ratio")})
    except (KeyError, TypeError) as error:
        raise SafeclError(f"The header of the model is damaged: its transform cannot be read ({error}).") from error


def new_header(settings: ModelSettings, backbone: Backbone, transform: Transform) -> Header:
    """The header of a model that has learned nothing."""
    return {
        "safecl": safecl.__version__,
        "model": uuid.uuid4().hex,
        "settings": settings.model_dump(mode="json"),
        "backbone": describe(backbone, settings),
        "transform": asdict(transform),
        "classes": [],
        "history": [],
        "calibration": None,
        "statistics": {},
        "frozen": False,
    }


def describe(backbone: Backbone, settings: ModelSettings) -> dict[str, Any]:
    """Which backbone, by name, size and the hash of its weights."""
    return {
        "name": backbone.name,
        "size": backbone.size,
        "width": backbone.width,
        "weights": backbone.digest,
        "file": settings.backbone.weights,
    }


def how_to_get(wanted: dict[str, Any]) -> str:
    """Where the weights of a model's backbone come from."""
    if wanted.get("file") == "random":
        return "its weights were random, so only the same versions of torch and timm make them again"
    if wanted.get("file"):
        return f"its weights were in the file {wanted['file']}"
    return f"its weights come with safecl or from the Hugging Face hub as timm/{wanted['name']}"


def open_backbone(settings: ModelSettings, device: str) -> Backbone:
    place = choose_device(device)
    return load_backbone(settings.backbone).to(place, choose_precision("auto", place))

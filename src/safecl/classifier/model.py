"""A model: its header and its state, from a file or just learned; and its state as members of the
file.
"""

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor

import safecl
from safecl.backbone.backbone import Backbone
from safecl.backbone.licences import licence_of
from safecl.classifier.modelfile.fits import check_answer, check_state
from safecl.classifier.modelfile.history import check_not_frozen
from safecl.classifier.modelfile.place import digest_of, replaceable, write_model
from safecl.classifier.modelfile.rows import below
from safecl.classifier.modelfile.schema import (
    KEPT,
    LEARN,
    PREDICT,
    RECORDS,
    THUMBNAILS,
    Header,
    Thumbnails,
)
from safecl.classifier.modelfile.state import Added, State, Undo, set_grams
from safecl.classifier.modelfile.store import SUFFIX, ModelFile, fitting
from safecl.classifier.settings import ModelSettings, resolve
from safecl.engine.checkpoint import copied, encode
from safecl.errors import SafeclError
from safecl.heads.solve import Updated
from safecl.heads.tensors import not_finite
from safecl.methods.catalog import make_method, method_class
from safecl.methods.method import Included, Method, restore
from safecl.methods.settings.base import MethodSettings
from safecl.outputs import locked
from safecl.streams.pictures.images import Label, Transform

Known: TypeAlias = Mapping[Path, str | None]
NONE_KNOWN: Known = MappingProxyType({})


class Model:
    """Immutable but for what it has read from its file. What only learning needs is read when it
    learns.
    """

    warm: "Warm | None" = None  # what another edit begins with, if it is at hand; handed out once

    def __init__(
        self, header: Header, state: State | None = None, file: ModelFile | None = None
    ) -> None:
        self.header = header
        self.file = file
        self._state = state
        self._predicting = state
        self.settings = resolve(header["settings"])

    @classmethod
    def open(cls, path: str | Path | ModelFile) -> "Model":
        file = path if isinstance(path, ModelFile) else ModelFile(path)
        return cls(file.header, file=file)

    @property
    def state(self) -> State:
        """All of it; of a frozen model what predictions need."""
        if self.header["frozen"]:
            return self.predicting
        if self._state is None:
            assert self.file is not None
            with fitting(self.file):
                self._state = self._predicting = _read(self.file)
        return self._state

    @property
    def predicting(self) -> State:
        """As much as predictions need, at least."""
        if self._predicting is None:
            assert self.file is not None
            with fitting(self.file):
                self._predicting = State(tensors=self.file.tensors(PREDICT))
        return self._predicting

    @property
    def standing(self) -> dict[str, Any]:
        """What rolling back the next step must say again."""
        said: dict[str, Any] = {key: len(self.header[key]) for key in ("classes", "history")}
        said |= {
            "kept": len(self.state.kept.get("targets", ())),
            "seen": len(self.state.seen.get("hashes", ())),
        }
        return {**said, "calibration": self.header["calibration"]}

    @property
    def tuned(self) -> bool:
        """Whether its method is that of its settings; if not, what answers before it is tuned."""
        return bool(self.header.get("tuned", True))

    @property
    def answering(self) -> MethodSettings:
        """The settings of the method that answers."""
        return self.settings.answering(self.tuned)

    @property
    def classes(self) -> list[Label]:
        return list(self.header["classes"])

    @property
    def transform(self) -> Transform:
        values = self.header["transform"]
        return Transform(**values | {key: tuple(values[key]) for key in ("scale", "ratio")})

    def method(self, backbone: Backbone, *, learning: bool = False) -> Method:
        """The method in this state. ``learning``: with its Gram matrices, which predictions do not
        need.

        Another backbone than the one the model was taught with is refused.
        """
        wanted = self.header["backbone"]
        there = describe(backbone, self.settings)
        for key in ("name", "size", "weights"):
            if wanted[key] != there[key]:
                weights = (
                    wanted.get("file")
                    or f"those of safecl or of timm/{wanted['name']} on the Hugging Face hub"
                )
                raise SafeclError(
                    "model.other-backbone",
                    name=wanted["name"],
                    key=key,
                    wanted=wanted[key],
                    other=there["name"],
                    there=there[key],
                    weights=weights,
                )
        if learning:
            check_not_frozen(self.header)
        state = self.state if learning else self.predicting
        with fitting(self.file):
            method = self._made(backbone, state, learning)
            if self.file is not None:
                check_answer(method, len(self.classes), state.kept, learning)
            return method

    def at_hand(self, backbone: Backbone) -> "Warm":
        """What an edit begins with: the method in this state with its Gram matrices, for nobody
        else.
        """
        warm, self.warm = self.warm, None
        if warm is not None and warm.method.backbone is backbone:
            return warm
        return Warm(self.method(backbone, learning=True))

    def _made(self, backbone: Backbone, state: State, learning: bool) -> Method:
        method = make_method(self.answering, backbone, self.settings.seed)
        if not state.tensors:
            return method
        tensors = dict(state.tensors)
        for name, size in self.header["statistics"].items():
            tensors[f"{name}.gram"] = torch.zeros(0, 0)
            tensors.setdefault(f"{name}.sums", torch.zeros(size, 0))
        for name, own in method.state_dict().items():
            if name.startswith(method.learning):
                tensors.setdefault(name, own)
            if name in tensors and tensors[name].dtype != own.dtype:
                raise ValueError(f"{name} is of another type")
        restore(method, tensors, self.classes)
        if learning:
            set_grams(method, state)
        return method

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, and copied, as the file it would be."""
        with TemporaryDirectory() as folder:
            path = Path(folder, f"model{SUFFIX}")
            self.save(path)
            return _of_bytes, (zlib.compress(path.read_bytes(), 1),)

    def save(
        self,
        path: str | Path,
        *,
        frozen: bool = False,
        force: bool = False,
        known: Known = NONE_KNOWN,
    ) -> tuple[Path, str | None]:
        """Put it at ``path`` in one step; gives the real file and its digest. ``frozen``: only what
        predictions need.

        ``force``: over any file. ``known``: digests of files that are this model as it was, which
        it replaces.
        """
        with locked(path) as file:
            key = file.resolve()
            frozen = frozen or self.header["frozen"]
            own = key in known and not force and frozen == self.header["frozen"]
            self._write(file, frozen, known[key] if own else replaceable(file, force))
            return key, digest_of(file)

    def _write(self, file: Path, frozen: bool, before: str | None) -> None:
        state = self.state
        sizes = self.header["statistics"]
        learning = method_class(self.answering).learning
        sums = {f"{name}.sums" for name in sizes}
        predict = {
            name: t
            for name, t in state.tensors.items()
            if name not in sums and not name.startswith(learning)
        }
        if frozen:
            state = State(predict)
        members = {
            PREDICT: predict,
            LEARN: (
                {name: tensor for name, tensor in state.tensors.items() if name not in predict}
                | {f"base/{name}": gram for name, gram in state.base.items()}
            ),
            RECORDS: {
                f"{session}/{i}/{part}": value
                for session, added in state.records.items()
                for i, one in enumerate(added)
                for part, value in one.table.items()
            },
            KEPT: {**state.kept, **{f"seen/{name}": rows for name, rows in state.seen.items()}},
            **{
                f"undo_{i}.safetensors": (
                    one.tensors | {f"rows/{name}": rows for name, rows in one.rows.items()}
                )
                for i, one in enumerate(state.undo)
            },
        }
        header = {
            **self.header,
            "frozen": frozen,
            "memory_bytes": sum(
                each.nbytes for name, each in state.tensors.items() if name.startswith(learning)
            ),
            "chain": list(state.chain),
            "records": {
                session: [one.head for one in added] for session, added in state.records.items()
            },
            "undo": [
                {key: v for key, v in vars(one).items() if key not in ("tensors", "rows")}
                for one in state.undo
            ],
        }
        for tensors in members.values():
            if (name := not_finite(tensors)) is not None:
                raise SafeclError("model.not-finite", tensor=name)
        parts: dict[str, Any] = {
            name: encode(copied(each), {}) for name, each in members.items() if each or not frozen
        }
        if self.settings.thumbnails and not frozen:
            parts[THUMBNAILS] = [
                Thumbnails(pictures=list(state.thumbnails)).model_dump_json().encode()
            ]
        write_model(file, header, parts, before)


@dataclass(frozen=True)
class Warm:
    """A method in the state of a model, with what is known of its ridge heads.

    ``included``: what ``refresh`` has given, if it has been called. ``factors``: of their matrices,
    by the name of the head.
    """

    method: Method
    included: Included | None = None
    factors: Mapping[str, Updated] = field(default_factory=dict)


def _of_bytes(data: bytes) -> Model:
    with TemporaryDirectory() as folder:
        path = Path(folder, f"model{SUFFIX}")
        path.write_bytes(zlib.decompress(data))
        model = Model.open(path)
        _ = model.state
    model.file = None
    return model


def new_header(settings: ModelSettings, backbone: Backbone, transform: Transform) -> Header:
    """The header of a model that has learned nothing."""
    return {
        "safecl": safecl.__version__,
        "settings": settings.model_dump(mode="json"),
        "backbone": {
            **describe(backbone, settings),
            "licence": licence_of(settings.backbone),
        },
        "transform": asdict(transform),
        "classes": [],
        "history": [],
        "calibration": None,
        "statistics": {},
        "frozen": False,
        "tuned": True,
    }


def describe(backbone: Backbone, settings: ModelSettings) -> dict[str, Any]:
    """Which backbone, by name, size, the hash of its weights, the file that they are looked for in,
    and how its pixels are normalised.
    """
    return {
        "name": backbone.name,
        "size": backbone.size,
        "weights": backbone.digest,
        "file": settings.backbone.weights,
        "mean": list(backbone.mean),
        "std": list(backbone.std),
    }


def _read(file: ModelFile) -> State:
    """The whole state in a file."""
    header = file.header
    learned = file.tensors(LEARN)
    records = file.tensors(RECORDS)
    kept = file.tensors(KEPT)
    state = State(
        tensors={
            **file.tensors(PREDICT),
            **{n: t for n, t in learned.items() if not n.startswith("base/")},
        },
        base=below(learned, "base/"),
        chain=tuple(header["chain"]),
        records={
            session: [
                Added(head, **below(records, f"{session}/{i}/")) for i, head in enumerate(heads)
            ]
            for session, heads in header["records"].items()
        },
        undo=tuple(
            _undo(file.tensors(f"undo_{i}.safetensors"), one)
            for i, one in enumerate(header["undo"])
        ),
        kept={name: tensor for name, tensor in kept.items() if not name.startswith("seen/")},
        seen=below(kept, "seen/"),
        thumbnails=file.thumbnails(),
    )
    sessions = {entry["id"] for entry in header["history"] if entry["what"] == "learn"}
    check_state(state, len(header["classes"]), header["statistics"], sessions)
    return state


def _undo(tensors: dict[str, Tensor], said: Header) -> Undo:
    rows = below(tensors, "rows/")
    return Undo(
        tensors={name: t for name, t in tensors.items() if not name.startswith("rows/")},
        rows=rows,
        **said,
    )

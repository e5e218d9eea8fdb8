"""``ContinualClassifier``: teach it pictures session by session, and ask it. It has the face of scikit-learn."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.backbone.settings import EMBEDDED, SIZES
from safecl.classifier.calibrate import probabilities, threshold, unknown_score
from safecl.classifier.data import labelled, unlabelled
from safecl.classifier.model import Model, new_header, open_backbone
from safecl.classifier.settings import Memory, ModelSettings, nested, resolve
from safecl.classifier.state import State
from safecl.classifier.work import begin
from safecl.engine.device_loader import moved
from safecl.engine.progress import Progress, Quiet, Show, make_progress
from safecl.errors import SafeclError
from safecl.heads.aggregate import weights
from safecl.methods.method import Method
from safecl.streams.images import Label, Pictures, Transform
from safecl.streams.loader import batches
from safecl.streams.sources import plain_label

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson

BATCH = {"cpu": 32, "cuda": 256}  # pictures that go through the network at a time


@dataclass(frozen=True)
class Answer:
    """What a model says of one picture. ``opinions``: the likeliest classes of each output, with probabilities."""

    label: Label
    probability: float
    unknown: bool
    nearest: list[tuple[Label, float]]
    opinions: dict[str, list[tuple[Label, float]]]
    weights: dict[str, float]  # of the slow and the fast learner in the answer, where the method has them
    score: float  # how known the picture looks; unknown if below ``threshold``
    threshold: float


class ContinualClassifier:
    """A classifier of pictures that goes on learning: new classes, or more pictures of known ones, and no old ones.

    ``backbone``: micro (embedded), small, base, large, or any timm ViT by name. ``method``: of the catalogue. ``pet``:
    the kind of tuning; the method's own if not given. ``epochs``: chosen by the number of pictures if not given.
    ``memory``: with "features" the model also keeps a byte for each feature of each picture, and can forget a class
    wholly and merge at any time. ``keep``: sessions that can be rolled back. ``image_size``: side of the input; chosen
    by the backbone if not given. ``settings``: anything else by dotted key, such as
    {"train.lr": 0.02, "method.ridge.size": 2000}. ``show``: "auto" draws progress bars.
    """

    def __init__(
        self,
        backbone: str = "micro",
        method: str = "safe",
        pet: str | None = None,
        *,
        epochs: int | None = None,
        memory: Memory = "statistics",
        keep: int = 3,
        seed: int = 0,
        image_size: int | None = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        settings: Mapping[str, Any] | None = None,
        show: Show = "quiet",
    ) -> None:
        self.backbone, self.method, self.pet, self.epochs, self.memory = backbone, method, pet, epochs, memory
        self.keep, self.seed, self.image_size, self.device = keep, seed, image_size, device
        self.settings, self.show = settings, show

    # What is learned

    def learn(
        self,
        data: Any,
        labels: Sequence[Any] | None = None,
        *,
        name: str | None = None,
        again: bool = False,
        progress: Progress | None = None,
        folder: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> "Lesson":
        """Learn a session and give a ``Lesson``; where that fails, the model stays as it was.

        ``data``: a folder of class folders, a CSV or Parquet table, pairs (picture, label), a torch or Hugging Face
        dataset; or, with ``labels``, arrays or a list of paths, images, arrays or tensors. Pictures that were learned
        before are skipped, unless ``again``. ``folder``: keeps the steps of the training, so that the same call goes
        on there after a stop.
        """
        from safecl.classifier.teach import check_labels, new_pictures, teach

        pictures, source = labelled(data, labels)
        known, skipped = self._model, 0
        if known is not None:
            known.require_learning()
        check_labels(known.classes if known else [], pictures.labels, source)
        fresh, marks, skipped = new_pictures(None if again else known, pictures)
        if not len(fresh):
            raise SafeclError(
                f"There is nothing new in {source}: all of its {len(pictures)} pictures were learned before."
            )
        backbone, model = self._start()
        shown = progress or (make_progress(self.show) if self.show != "quiet" else Quiet())
        if folder is not None:
            begin(folder, self._identity(model, fresh), shown.say)
        home = Path(data).expanduser() if isinstance(data, str | Path) and Path(data).expanduser().is_dir() else None
        self._model, lesson = teach(
            model, backbone, fresh, marks, name=name or source, skipped=skipped, home=home, device=self.device,
            progress=shown, folder=folder, stop=stop,
        )  # fmt: skip
        self._asked = None
        self.prepare()
        return lesson

    @property
    def classes_(self) -> np.ndarray:
        """The classes in the order in which they were learned; columns of ``predict_proba`` are in this order."""
        classes = self._fitted.classes
        return np.array(classes, dtype=None if len({type(label) for label in classes}) == 1 else object)

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What was done to the model, the oldest first."""
        return list(self._fitted.header["history"])

    # What it answers

    def predict(self, pictures: Any, *, unknown: float | None = None) -> np.ndarray:
        """The class of each picture; None where it looks unknown, if ``unknown`` is given.

        ``unknown``: the share of known pictures that may be called unknown, for example 0.05.
        """
        limit, classes, found = self._limit(unknown), self.classes_, [np.zeros(0, dtype=int)]
        strange = [np.zeros(0, dtype=bool)]
        for _, main in self._logits(unlabelled(pictures)):
            found.append(main.argmax(dim=1).numpy())
            strange.append((unknown_score(main) < limit).numpy())
        answers: np.ndarray = classes[np.concatenate(found)]
        if unknown is not None:
            answers = answers.astype(object)
            answers[np.concatenate(strange)] = None
        return answers

    def predict_proba(self, pictures: Any) -> np.ndarray:
        """Calibrated probabilities: (N, C)."""
        found = [probabilities(main, self._calibration).numpy() for _, main in self._logits(unlabelled(pictures))]
        return np.concatenate(found) if found else np.zeros((0, len(self._fitted.classes)))

    def explain(self, pictures: Any, *, unknown: float = 0.05) -> list[Answer]:
        """For each picture the answer, the opinion of each output, and their weights."""
        return list(self.answers(pictures, unknown=unknown))

    def score(self, X: Any, y: Sequence[Any] | None = None) -> float:
        """The share of pictures that are answered rightly; pictures of classes that were not learned count as wrong."""
        pictures, _ = labelled(X, y)
        found = self.predict(pictures)
        return float(np.mean([a == b for a, b in zip(found.tolist(), pictures.labels, strict=True)]))

    def answers(self, pictures: Any, *, unknown: float | None = 0.05, detail: bool = True) -> Iterator[Answer]:
        """The answers one by one; only a few batches of pictures are in memory at a time."""
        model, method = self._fitted, self._predictor()
        limit, classes, main = self._limit(unknown), model.classes, method.outputs[-1]
        for logits, found in self._logits(unlabelled(pictures)):
            p = probabilities(found, self._calibration)
            best, known = p.max(dim=1), unknown_score(found)
            alpha = _weights(method, logits) if detail else None
            opinion = {name: probabilities(rows, self._calibration) for name, rows in logits.items()} if detail else {}
            for i in range(len(p)):
                opinions = {}
                if detail:
                    opinions = {output: _top(rows[i], classes) for output, rows in opinion.items()}
                yield Answer(
                    label=classes[int(best.indices[i])],
                    probability=float(best.values[i]),
                    unknown=bool(known[i] < limit),
                    nearest=opinions.get(main, []),
                    opinions=opinions,
                    weights={} if alpha is None else {name: float(rows[i]) for name, rows in alpha.items()},
                    score=float(known[i]),
                    threshold=limit,
                )

    def _limit(self, unknown: float | None) -> float:
        """The score below which a picture is unknown."""
        if unknown is None:
            return -float("inf")
        if not 0 <= unknown < 1:
            raise SafeclError(f"The share of known pictures that may be called unknown must be below 1, not {unknown}.")
        return threshold((self._calibration or {}).get("scores", []), unknown)

    @torch.no_grad()
    def _logits(self, pictures: Pictures) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """(logits by output, those of the answer) of a batch at a time, on the CPU."""
        method, transform = self._predictor(), self._fitted.transform
        device = method.backbone.device
        waiting: dict[str, Tensor] = {}  # answers that the device is working on while the next batch is made ready

        def arrived() -> tuple[dict[str, Tensor], Tensor]:
            logits = {name: rows.float().cpu() for name, rows in waiting.items()}
            return logits, logits[method.outputs[-1]]

        size, pin = BATCH.get(device.type, 64), device.type == "cuda"
        for batch in batches(pictures, range(len(pictures)), size, "plain", transform, pin=pin):
            answers = method.all_logits(moved(batch.pictures, device).float() / 255)
            if waiting:
                yield arrived()
            waiting = answers
        if waiting:
            yield arrived()

    # Files

    def save(self, path: str | Path, *, frozen: bool = False) -> None:
        """Keep the model in one file. ``frozen``: a small file that only predicts."""
        self._fitted.save(path, frozen=frozen)

    @classmethod
    def load(cls, path: str | Path, *, device: Literal["auto", "cpu", "cuda", "mps"] = "auto") -> "ContinualClassifier":
        """The model in a file; what only learning needs is read when it learns."""
        return cls.of(Model.open(path), device=device)

    @classmethod
    def of(cls, model: Model, *, device: Literal["auto", "cpu", "cuda", "mps"] = "auto") -> "ContinualClassifier":
        """A classifier that goes on with ``model``."""
        s = model.settings
        values = s.model_dump(mode="json")
        method = values["method"]
        rest = {"method": {k: v for k, v in method.items() if k not in ("name", "pet")}, "train": values["train"]}
        pet = getattr(getattr(s.method, "pet", None), "kind", None)
        if pet is not None:
            rest["method"]["pet"] = method["pet"]
        rest["backbone"] = {k: v for k, v in values["backbone"].items() if k not in ("name", "image_size")}
        found = cls(
            s.backbone.name, method["name"], pet, epochs=s.epochs, memory=s.memory, keep=s.keep, seed=s.seed,
            image_size=s.backbone.image_size, device=device, settings=rest,
        )  # fmt: skip
        found._model = model
        return found

    def rollback(self) -> None:
        """Go back to before the last session."""
        from safecl.classifier.change import rollback

        self._model, self._asked = rollback(self._fitted, self._backbone), None

    def forget(self, label: Label) -> str:
        """Remove a class; gives a sentence on what stays."""
        from safecl.classifier.change import forget

        self._model, said = forget(self._fitted, label, self._backbone)
        self._asked = None
        return said

    def rename(self, old: Label, new: Label) -> None:
        """Give a class another name."""
        from safecl.classifier.rename import find, renamed, renamed_undo

        model, old = self._fitted, find(self._fitted.header, old)
        undo = tuple(replace(one, header=renamed_undo(one.header, old, new)) for one in model.state.undo)
        self._model = Model(renamed(model.header, old, new), replace(model.state, undo=undo))
        self._asked = None

    def merged(self, other: "ContinualClassifier") -> "ContinualClassifier":
        """A model that knows what either knows; both went on from copies of one model."""
        from safecl.classifier.merge import merge

        return type(self).of(merge(self._fitted, other._fitted, self._backbone()), device=self.device)

    def prepare(self) -> None:
        """Read all that predictions need, so that the first one is as quick as the others."""
        self._predictor()

    # The face of scikit-learn

    def fit(self, X: Any, y: Sequence[Any] | None = None) -> "ContinualClassifier":
        """Forget everything and learn these pictures."""
        before = self.__dict__.pop("_trained", None)
        try:
            self.learn(X, y, again=True)
        except BaseException:
            self._model = before
            raise
        return self

    def partial_fit(
        self, X: Any, y: Sequence[Any] | None = None, classes: Sequence[Any] | None = None
    ) -> "ContinualClassifier":
        """Learn these pictures as a session; ``classes`` is not needed and only checked."""
        if classes is not None and y is not None:
            allowed = {plain_label(label, "classes") for label in classes}
            for label in y:
                if plain_label(label, "y") not in allowed:
                    raise ValueError(f"y holds {label!r}, which is not in classes")
        self.learn(X, y, again=True)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with."""
        return {name: getattr(self, name) for name in _arguments(type(self))}

    def set_params(self, **params: Any) -> "ContinualClassifier":
        """Change arguments. What decides what a model computes takes effect when it is fitted anew."""
        for name, value in params.items():
            if name not in _arguments(type(self)):
                raise ValueError(f"Invalid parameter {name!r} for {type(self).__name__}.")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, three_d_array=True)
        target = TargetTags(required=True)
        return Tags("classifier", target, classifier_tags=ClassifierTags(), input_tags=inputs, non_deterministic=False)

    _estimator_type = "classifier"

    def __repr__(self) -> str:
        model = self._model
        what = "nothing learned yet"
        if model is not None:
            what = f"{len(model.classes)} classes learned in {len(model.header['history'])} sessions"
        return f"<ContinualClassifier: {self.method} on {self.backbone}, {what}>"

    # Inside

    @property
    def _model(self) -> Model | None:
        found: Model | None = self.__dict__.get("_trained")
        return found

    @_model.setter
    def _model(self, model: Model | None) -> None:
        self.__dict__["_trained"] = model

    _asked: Method | None = None
    _loaded: tuple[Any, Backbone] | None = None

    @property
    def _fitted(self) -> Model:
        if self._model is None:
            raise _not_fitted()
        return self._model

    @property
    def _calibration(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._fitted.header.get("calibration")
        return found

    def _predictor(self) -> Method:
        """The method, ready to answer."""
        model = self._fitted
        if self._asked is None:
            self._asked = model.method(self._backbone())
            self._asked.eval()
        return self._asked

    def _backbone(self) -> Backbone:
        return self._open(self._fitted.settings)

    def _open(self, settings: ModelSettings) -> Backbone:
        key = settings.backbone, self.device
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = key, open_backbone(settings, self.device)
        return self._loaded[1]

    def _start(self) -> tuple[Backbone, Model]:
        """The backbone and the model to go on with; a new one where nothing was learned."""
        if self._model is not None:
            return self._backbone(), self._model
        settings = self._resolved()
        backbone = self._open(settings)
        header = new_header(settings, backbone, Transform(backbone.size))
        return backbone, Model(header, State())

    def _identity(self, model: Model, pictures: Pictures) -> dict[str, Any]:
        """What a session is learned from, so that what was saved of it is used for nothing else."""
        past = model.file.digest if model.file is not None else model.header["history"]
        made = {"model": past, "settings": model.header["settings"], "pictures": pictures.fingerprint()}
        again: dict[str, Any] = json.loads(json.dumps(made))  # as it will be read
        return again

    def _resolved(self) -> ModelSettings:
        """The settings of a new model."""
        more = nested(self.settings or {})
        size = {} if self.image_size is None else {"image_size": self.image_size}
        backbone = {"name": self.backbone, **size, **more.pop("backbone", {})}
        method = {"name": self.method, **more.pop("method", {})}
        if self.pet is not None:
            method.setdefault("pet", {"kind": self.pet})
        if self.method == "safe" and _embedded(self.backbone):
            method.setdefault("transfer", "none")  # with it, the pilots of the first session take twice as long
        values = {"epochs": self.epochs, "memory": self.memory, "keep": self.keep, "seed": self.seed}
        train = {"save_seconds": 10, **more.pop("train", {})}
        return resolve({**values, **more, "backbone": backbone, "method": method, "train": train})


def _embedded(backbone: str) -> bool:
    return SIZES.get(backbone, (backbone,))[0] == EMBEDDED


def _arguments(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind.__init__).parameters if name != "self"]  # type: ignore[misc]


def _top(p: Tensor, classes: Sequence[Label], count: int = 5) -> list[tuple[Label, float]]:
    found = p.topk(min(count, len(p)))
    return [(classes[int(i)], float(v)) for v, i in zip(found.values, found.indices, strict=True)]


def _weights(method: Method, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How much the slow and the fast learner count in the answer to each picture, (N,) each."""
    rule = getattr(method.settings, "aggregation", None)
    if rule != "entropy" or not {"slow", "fast"} <= logits.keys():
        return {}
    alpha = weights(logits["slow"], logits["fast"], getattr(method.settings, "gamma", 1.0))
    if method.sessions == 1:  # the two are one network
        alpha = torch.full_like(alpha, 0.5)
    return {"slow": alpha[:, 0], "fast": alpha[:, 1]}


def _not_fitted() -> Exception:
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return SafeclError("This model has learned nothing yet; call learn first.")

    class NothingLearned(NotFittedError, SafeclError):  # type: ignore[misc]
        """Nothing was learned yet."""

    return NothingLearned("This model has learned nothing yet; call learn first.")

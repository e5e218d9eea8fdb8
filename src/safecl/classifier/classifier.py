"""``ContinualClassifier``: taught pictures session by session. It is a scikit-learn classifier, too."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import EMBEDDED, SIZES
from safecl.classifier.answers import Snapshot
from safecl.classifier.calibrate import probabilities
from safecl.classifier.data import hashes, labelled, unlabelled
from safecl.classifier.history import check_labels, check_not_frozen, find, renamed, sessions
from safecl.classifier.model import NONE_KNOWN, Known, Model, new_header
from safecl.classifier.place import Replaced, check_path
from safecl.classifier.schema import check_sizes
from safecl.classifier.seen import nothing_new
from safecl.classifier.settings import Memory, ModelSettings, resolve
from safecl.classifier.state import State
from safecl.classifier.store import ModelFile
from safecl.configure.layers import canonical, overlay
from safecl.configure.words import nested
from safecl.engine.device import check_fork, choose_device, choose_precision
from safecl.engine.progress import Progress, Show, make_progress
from safecl.engine.stop import stoppable
from safecl.errors import NotCorrectable, NothingNew, SafeclError
from safecl.lines import counted
from safecl.methods.catalog import method_settings
from safecl.outputs import locked
from safecl.runtime.answer import Answer, as_array
from safecl.settings import flatten, refuse_idle
from safecl.streams.labels import MAX_NAME_LENGTH, check_name, sorted_classes
from safecl.streams.pictures.decode import listed
from safecl.streams.pictures.images import Label, Pictures, Transform
from safecl.streams.sources.arrays import plain_label

if TYPE_CHECKING:
    from safecl.classifier.queue import Queued
    from safecl.classifier.teach import Lesson

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]


class NothingLearned(NotFittedError, SafeclError):  # type: ignore[misc]
    """Nothing was learned yet."""


class ContinualClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of pictures that keeps learning: new classes, or more pictures of known ones, without the old ones.

    ``backbone``: micro (embedded), small, base, large, or any timm ViT by name. ``method``: of the catalogue. ``pet``:
    the kind of tuning; the method's own if not given. ``epochs``: chosen by the number of pictures if not given.
    ``memory``: with "features" the model also keeps a byte for each feature of each picture, and can forget a class
    wholly and merge with one that it parted from any number of sessions ago. ``keep``: steps (sessions,
    corrections) that can be rolled back. ``thumbnails``: keep two pictures of each class, 64 px. ``image_size``: side
    of the input; chosen by the backbone if not given. ``settings``: anything else by dotted key, such as {"train.lr":
    0.02, "method.ridge.size": 2000}. ``seed``: of everything random. ``device``: auto, cpu, cuda or mps. ``show``:
    "auto" draws progress bars.
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
        thumbnails: bool = False,
        seed: int = 0,
        image_size: int | None = None,
        device: Device = "auto",
        settings: Mapping[str, Any] | None = None,
        show: Show = "quiet",
    ) -> None:
        self.backbone, self.method, self.pet, self.epochs, self.memory = backbone, method, pet, epochs, memory
        self.keep, self.seed, self.image_size, self.device = keep, seed, image_size, device
        self.settings, self.show, self.thumbnails = settings, show, thumbnails

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

        ``data``: a folder of class folders, a CSV table, pairs (picture, label), a torch or Hugging Face
        dataset; or, with ``labels``, arrays or a list of paths, images, arrays or tensors. Unless ``again``, pictures
        that were learned before are skipped, and corrected if they have another label now. ``folder``: keeps the steps
        of the training, so that the same call resumes after a stop.
        """
        from safecl.classifier.correct import correct
        from safecl.classifier.photographs import with_thumbnails
        from safecl.classifier.teach import Lesson, begin, check_one_class, new_pictures, teach

        pictures, source = labelled(data, labels)
        known = self._model
        if known is not None:
            check_not_frozen(known.header)
            self._check_unchanged(known)
        check_labels(known.classes if known else [], pictures.labels, source)
        name = (source.strip()[:MAX_NAME_LENGTH] or "pictures") if name is None else name
        check_name(name, "session")
        marks, path = hashes(pictures), Path(data).expanduser() if isinstance(data, str | Path) else None
        if path is not None:
            check_one_class(pictures, marks)
        fresh, model = new_pictures(None if again else known, pictures, marks), known
        if known is not None and len(fresh.moved):
            try:
                model, _ = correct(known, self._backbone(), fresh.moved, fresh.moved.labels)
                model.header["history"][-1]["was"] = []  # what a folder has corrected, a folder may correct again
            except NotCorrectable as error:
                fresh = replace(fresh, refused=str(error), skipped=fresh.skipped + len(fresh.moved))
        if model is not None and model is not known and not len(fresh.pictures):
            self._model = model
            return Lesson(name, 0, fresh.skipped, {}, [], 0.0, 0, None, None, [], [], fresh.note())
        if not len(fresh.pictures):
            nothing = " ".join([str(nothing_new(source, len(pictures))), *fresh.note()])
            raise SafeclError(nothing) if fresh.relabelled else NothingNew(nothing)
        shown = progress or make_progress(self.show)
        model = model or self._new(fresh.pictures, shown.say)
        if folder is not None:  # what was saved of a session is used for nothing else
            past = (known or model).header["history"]  # the same for a model in a file and one that was saved there
            identity = {"model": past, **{key: model.header[key] for key in ("settings", "backbone")}}
            moved = fresh.moved.fingerprint()  # corrected before it learns
            begin(folder, {**identity, "pictures": fresh.pictures.fingerprint(), "moved": moved}, shown.say)
        backbone, home = self._backbone(model.settings), path if path is not None and path.is_dir() else None
        taught, lesson = teach(model, backbone, fresh, name, home, self.device, shown, folder, stop)
        if model.settings.thumbnails:
            taught = with_thumbnails(Snapshot(taught, taught.method(backbone)), fresh)
        self._model = taught
        self._snapshot()  # so that the first prediction is as quick as the others
        return lesson

    def fit(self, X: Any, y: Sequence[Any] | None = None) -> Self:
        """Forget everything and learn these pictures."""
        fresh = copy.copy(self)
        fresh._model = None
        fresh.learn(X, y, again=True)
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(self, X: Any, y: Sequence[Any] | None = None, classes: Sequence[Any] | None = None) -> Self:
        """Learn these pictures as a session; ``classes`` is not needed and only checked."""
        if classes is not None and y is not None:
            allowed = {plain_label(label, "classes") for label in classes}
            for label in y:
                if plain_label(label, "y") not in allowed:
                    raise ValueError(f"y holds {label!r}, which is not in classes")
        self.learn(X, y, again=True)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The classes, sorted: numbers by value, then words by spelling. So are the columns of ``predict_proba``."""
        return as_array(sorted_classes(self._fitted.classes))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What was done to the model, the oldest first."""
        return list(self._fitted.header["history"])

    # What it answers

    def predict(self, pictures: Any, *, unknown: float | None = None, careful: bool = False) -> np.ndarray:
        """The class of each picture; None where it looks unknown, if ``unknown`` is given.

        ``unknown``: the share of known pictures that may be called unknown. The command ``safecl predict`` answers as
        with 0.05 if nothing else is given; with ``--unknown 0`` as here without it. ``careful``: mirror images as well.
        """
        return self._snapshot().carefully(careful).predict(pictures, unknown=unknown)

    def predict_proba(self, pictures: Any) -> np.ndarray:
        """Calibrated probabilities: (N, C), a column per class in the order of ``classes_``."""
        now = self._snapshot()
        found = now.logits(unlabelled(pictures))
        return now.by_class(probabilities(logits, now.calibration).numpy() for logits in found)

    def decision_function(self, pictures: Any) -> np.ndarray:
        """Logits before calibration: (N, C), in the order of ``classes_``; with two classes (N,), second less first."""
        now = self._snapshot()
        found = now.by_class(logits.numpy() for logits in now.logits(unlabelled(pictures)))
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def transform(self, pictures: Any) -> np.ndarray:
        """What the heads read of every network that answers, side by side: of SAFE (N, 2 d′), the fast learner's last.

        Each begins with the network's features (N, d); ridge heads may read more, as ``Reading`` says.
        """
        now = self._snapshot()
        found = [rows.numpy() for rows in now.features(unlabelled(pictures))]
        return np.concatenate(found) if found else np.zeros((0, 0), dtype=np.float32)

    def explain(self, pictures: Any, *, unknown: float = 0.05, careful: bool = False) -> list[Answer]:
        """For each picture the answer, the opinion of each output, and their weights; ``careful``: see ``predict``."""
        return self._snapshot().carefully(careful).explain(pictures, unknown=unknown)

    def heat_map(self, picture: Any, label: Label | None = None) -> np.ndarray:
        """How much each pixel of one picture speaks for a class, or for the answer: (H, W) in [0, 1].

        The picture is upright, as its EXIF data say; what is cut off before the model looks at it is 0.
        """
        from safecl.classifier.explain import heat_map

        now, given = self._snapshot(), unlabelled(picture)
        if len(given) != 1:
            raise SafeclError(f"A heat map is made of one picture; {len(given)} were given.")
        index = None if label is None else now.model.classes.index(find(now.model.header, label))
        return heat_map(now.method, now.model.transform, given.decode(0), index).numpy()

    def queue(self, pictures: Any, count: int = 20, *, unknown: float = 0.05) -> list["Queued"]:
        """The pictures to label next: unsure or unknown ones, different from each other; learned ones are omitted."""
        from safecl.classifier.queue import Looking

        looking = Looking(self._snapshot(), unknown)
        looking.look(unlabelled(pictures))
        return looking.first(count)

    def score(self, X: Any, y: Sequence[Any] | None = None) -> float:
        """The share of pictures classified correctly; pictures of classes that were not learned count as wrong."""
        pictures, _ = labelled(X, y)
        found = self.predict(pictures)
        return float(np.mean([a == b for a, b in zip(found.tolist(), pictures.labels, strict=True)]))

    def answers(self, pictures: Any, *, unknown: float | None = 0.05, detail: bool = True) -> Iterator[Answer]:
        """The answers one by one; only a few batches of pictures are in RAM at a time.

        All are those of the model as it is when this is called.
        """
        return self._snapshot().answers(pictures, unknown=unknown, detail=detail)

    # Files

    def save(self, path: str | Path, *, frozen: bool = False, force: bool = False) -> None:
        """Keep the model in one file. ``frozen``: a small file that only predicts.

        A file that it was loaded from or saved to before is replaced, if nobody else has changed it, and so is a frozen
        one; any other file is only with ``force``.
        """
        file, digest = self._fitted.save(path, frozen=frozen, force=force, known=self._known)
        if not frozen or self._fitted.header["frozen"]:
            self._known = {**self._known, file: digest}

    @classmethod
    def load(cls, path: str | Path | ModelFile, *, device: Device = "auto") -> "ContinualClassifier":
        """The model in a file; what only learning needs is read when it learns."""
        return cls.of(Model.open(path), device=device)

    @classmethod
    def of(cls, model: Model, *, device: Device = "auto") -> "ContinualClassifier":
        """A classifier that continues ``model``."""
        values = model.settings.model_dump(mode="json")
        method, backbone, train = (values.pop(key) for key in ("method", "backbone", "train"))
        names, size = (backbone.pop("name"), method.pop("name")), backbone.pop("image_size")
        pet, rest = (method.get("pet") or {}).get("kind"), {"method": method, "backbone": backbone, "train": train}
        found = cls(*names, pet, image_size=size, device=device, settings=rest, **values)
        found._model = model
        if model.file is not None:
            found._known = {model.file.path.resolve(): model.file.digest}
        return found

    def rollback(self) -> str:
        """Go back to before the last session or correction; says what was taken back."""
        from safecl.classifier.correct import rollback

        self._model, said = rollback(self._fitted)
        return said

    def correct(
        self, pictures: Any, label: Label | Sequence[Label | None] | None = None, *, remove: bool = False
    ) -> str:
        """Give pictures the right label, or remove them: as if they had been learned so; gives a sentence on it.

        No network is tuned. ``pictures``: as for ``predict``; those that were never learned are added. ``label``: of
        all, or a sequence with that of each, None: it is removed.
        """
        from safecl.classifier.correct import correct

        if (label is None) is not remove:
            raise SafeclError("Give the pictures' label, or remove=True: one of the two.")
        found = unlabelled(pictures)
        each: Any = listed(label) if np.ndim(label) else [label] * len(found)  # type: ignore[arg-type]
        if len(each) != len(found):
            raise SafeclError(f"There are {len(found)} pictures and {len(each)} labels; give one label per picture.")
        labels = [None if one is None else plain_label(one, f"picture {i}") for i, one in enumerate(each)]
        self._model, said = correct(self._fitted, self._backbone(), found, labels)
        return said

    def split(self, label: Label, pictures: Any, into: Label) -> str:
        """Make a new class of some pictures of a class; gives a sentence on it."""
        from safecl.classifier.correct import correct

        label, into, found = find(self._fitted.header, label), plain_label(into, "into"), unlabelled(pictures)
        if into in self._fitted.classes:
            raise SafeclError(f"There is a class {into!r} already; correct moves pictures to a class that is there.")
        self._model, said = correct(self._fitted, self._backbone(), found, [into] * len(found), of=label)
        return said

    def join(self, one: Label, other: Label) -> str:
        """Make one class of two, called as the first, without any picture; gives a sentence on it."""
        from safecl.classifier.correct import join

        self._model, said = join(self._fitted, self._backbone(), one, other)
        return said

    def forget(self, label: Label) -> str:
        """Remove a class; gives a sentence on what stays."""
        from safecl.classifier.correct import forget

        self._model, said = forget(self._fitted, label, self._backbone())
        return said

    def rename(self, old: Label, new: Label) -> str:
        """Give a class another name; gives a sentence on it."""
        self._model = Model(renamed(self._fitted.header, old, new), self._fitted.state)
        return f"{old} is now called {new}."

    def merged(self, other: "ContinualClassifier") -> "ContinualClassifier":
        """A model that knows what either knows; both went on from copies of one model."""
        from safecl.classifier.merge import merge

        return type(self).of(merge(self._fitted, other._fitted, self._backbone()), device=self.device)

    def __repr__(self) -> str:
        what = "nothing learned yet"
        if (model := self._model) is not None:
            learned = counted(sessions(model.header), "session")
            what = f"{counted(len(model.classes), 'class')} learned in {learned}"
        return f"<ContinualClassifier: {self.method} on {self.backbone}, {what}>"

    # Inside

    _model: Model | None = None  # one assignment replaces it, so that another thread sees the old or the new one
    _known: Known = NONE_KNOWN  # files that are this model as it was, by the digests they had
    _ready: Snapshot | None = None  # of ``_model``, or of one before it
    _loaded: tuple[Any, Backbone] | None = None

    @property
    def _fitted(self) -> Model:
        model = self._model
        if model is None:
            raise NothingLearned("This model has learned nothing yet; call learn first.")
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Without the backbone, which is loaded again when it is needed, and the places of files."""
        state: dict[str, Any] = super().__getstate__()
        return {key: value for key, value in state.items() if key not in ("_ready", "_loaded", "_known")}

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = []  # features are float32, whatever pictures are
        return tags

    def _snapshot(self) -> Snapshot:
        """The model as it is now, ready to answer."""
        check_fork(self.device)
        model, ready = self._fitted, self._ready
        if ready is None or ready.model is not model:
            self._ready = ready = Snapshot(model, model.method(self._backbone(model.settings)))
        return ready

    def _backbone(self, settings: ModelSettings | None = None) -> Backbone:
        """That of ``settings``, or of the model."""
        chosen = (settings or self._fitted.settings).backbone
        check_fork(self.device)
        loaded = self._loaded
        if loaded is None or loaded[0] != (chosen, self.device):
            place = choose_device(self.device)
            backbone = load_backbone(chosen).to(place, choose_precision("auto", place))
            self._loaded = loaded = (chosen, self.device), backbone
        return loaded[1]

    def _new(self, pictures: Pictures, say: Callable[[str], None]) -> Model:
        """A model that has learned nothing, sized by its first pictures."""
        from safecl.backbone.micro import sized

        settings = self._resolved()
        check_sizes(settings.model_dump(mode="json"))
        chosen, note = sized(settings.backbone, pictures.shorter_side, "--set ")
        if note is not None:
            say(note)
        settings = settings.model_copy(update={"backbone": chosen})
        backbone = self._backbone(settings)
        return Model(new_header(settings, backbone, Transform(backbone.size)), State())

    def _check_unchanged(self, model: Model) -> None:
        """Refuse parameters of other values than those that ``model`` was made with."""
        made, name = ContinualClassifier.of(model), SIZES.get(self.backbone, (self.backbone,))[0]
        given: dict[str, Any] = {"backbone": name, "method": self.method, "pet": self.pet or made.pet}
        was = {key: getattr(made, key) for key in given}
        if given == was:  # else the other settings are of something else
            was, given = (flatten(each.model_dump(mode="json")) for each in (model.settings, self._resolved()))
            given["backbone.image_size"] = given["backbone.image_size"] or was["backbone.image_size"]  # it was chosen
        for key, value in given.items():
            if value != (there := was.get(key)):
                raise SafeclError(
                    f"The model was made with {key}={there}, which cannot be changed to {value}; omit it."
                )

    def _resolved(self) -> ModelSettings:
        """The settings of a new model."""
        method: dict[str, Any] = {"name": self.method}
        if self.pet is not None:
            method["pet"] = {"kind": self.pet}
        if self.method in method_settings() and SIZES.get(self.backbone, (self.backbone,))[0] == EMBEDDED:
            method |= method_settings()[self.method].quick  # the first session is what people wait for
        size = {} if self.image_size is None else {"image_size": self.image_size}
        values = {
            "epochs": self.epochs, "memory": self.memory, "keep": self.keep, "seed": self.seed, "method": method,
            "backbone": {"name": self.backbone, **size}, "train": {"save_seconds": 10}, "thumbnails": self.thumbnails,
        }  # fmt: skip
        found = resolve(overlay(values, given := canonical(nested(self.settings or {}))))
        refuse_idle(found, given)
        return found


def learn_file(
    data: Any, path: Path, progress: Progress, *, name: str | None, again: bool, device: Device, **params: Any
) -> "tuple[Lesson, ContinualClassifier]":
    """Teach the model at ``path`` what ``data`` holds, or make one with ``params``; gives the lesson and the model.

    Until the file is written, a folder beside it keeps steps of the training: the same call after a kill resumes there.
    """
    from safecl.classifier.teach import clear

    given = {key: value for key, value in params.items() if value is not None}
    with locked(path) as file, stoppable() as stop:
        check_path(file)
        work = file.with_name(f".{file.name}.work")
        if work.is_symlink():
            raise SafeclError(f"{work} is a link, and would be followed to another folder; delete it.")
        if file.exists():
            model = ContinualClassifier.load(file, device=device).set_params(**given)
        else:
            model = ContinualClassifier(**given, device=device)
            model._known = {file.resolve(): None}
        lesson = model.learn(data, name=name, again=again, progress=progress, folder=work, stop=stop)
        try:
            model.save(file)
        except Replaced:
            clear(work)
            raise
        with contextlib.suppress(OSError):
            clear(work)
    return lesson, model

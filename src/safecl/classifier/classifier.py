"""``ContinualClassifier``: taught pictures session by session. It is a scikit-learn classifier,
too.
"""

import contextlib
import copy
import html
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from safecl.backbone.settings import EMBEDDED, SIZES, BackboneSettings, is_auto
from safecl.classifier.data import as_meant, hashes, labelled, unlabelled
from safecl.classifier.estimator import Estimator
from safecl.classifier.modelfile.history import (
    as_label,
    as_labels,
    check_auditable,
    check_labels,
    check_not_frozen,
    find,
    renamed,
    sessions,
)
from safecl.classifier.modelfile.place import Replaced, check_path
from safecl.classifier.modelfile.schema import check_sizes
from safecl.classifier.modelfile.store import ModelFile
from safecl.classifier.pays import Look, NotWorth, Plan, Tune, expected, of_tuning, plan
from safecl.classifier.seen import answered, nothing_new, work_folder
from safecl.classifier.settings import EPOCHS, Memory, ModelSettings, Prefer, resolve, together
from safecl.configure.layers import Values, overlay
from safecl.engine.device import check_fork, choose_device, choose_precision
from safecl.engine.progress import Progress, Show, make_progress
from safecl.engine.stop import stoppable
from safecl.errors import NotCorrectable, SafeclError
from safecl.lines import counted
from safecl.methods.catalog import method_settings
from safecl.outputs import locked
from safecl.runtime.answer import Answer, as_array
from safecl.runtime.drift import Drift
from safecl.settings import flatten, refuse_idle
from safecl.streams.catalog import transform_of
from safecl.streams.labels import MAX_NAME_LENGTH, check_name, sorted_classes
from safecl.streams.pictures.decode import listed
from safecl.streams.pictures.images import Label, Pictures
from safecl.streams.sources.arrays import plain_label

if TYPE_CHECKING:
    from safecl.backbone.backbone import Backbone
    from safecl.classifier.answers.audit import Audit
    from safecl.classifier.answers.queue import Queued
    from safecl.classifier.answers.snapshot import Snapshot
    from safecl.classifier.model import Known, Model
    from safecl.classifier.teach import Lesson

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
Precision: TypeAlias = Literal["auto", "fp32", "bf16"]
INSIDE = {  # parameters that are settings in a group
    "backbone": "backbone.name",
    "image_size": "backbone.image_size",
    "method": "method.name",
    "pet": "method.pet.kind",
}


class ContinualClassifier(Estimator):
    """A classifier of pictures that keeps learning: new classes, or more pictures of known ones,
    without the old ones.

    ``backbone``: micro (embedded), tiny, small, base, large, or any timm network by name; auto: the
    first pictures choose among those at hand, and auto:A,B among these, by leave-one-out errors.
    ``prefer``: what auto goes by, accuracy (if not given), or speed: the fastest with at most 1.25
    times the least error. ``method``: of the catalogue. ``pet``: the kind of tuning; the method's
    own if not given. ``epochs``: chosen by the number of pictures if not given. ``memory``: with
    "features" the model also keeps a byte for each feature of each picture, and can forget a class
    completely and merge with one that it parted from any number of sessions ago. ``keep``: steps
    (sessions, corrections) that can be rolled back. ``thumbnails``: keep two pictures of each
    class, 64 px. ``image_size``: side of the input; chosen by the backbone if not given.
    ``settings``: anything else by dotted key, such as {"train.lr": 0.02, "method.ridge.size":
    2000}. ``seed``: of everything random. ``device``: auto, cpu, cuda or mps. ``precision``: of the
    networks: auto (bf16 on GPUs that have it), fp32 or bf16. ``show``: "auto" draws progress bars.
    """

    def __init__(
        self,
        backbone: str = "micro",
        method: str = "safe",
        pet: str | None = None,
        *,
        prefer: Prefer | None = None,
        epochs: int | None = None,
        memory: Memory = "statistics",
        keep: int = 3,
        thumbnails: bool = False,
        seed: int = 0,
        image_size: int | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
        settings: Mapping[str, Any] | None = None,
        show: Show = "quiet",
    ) -> None:
        self.backbone = backbone
        self.method = method
        self.pet = pet
        self.prefer = prefer
        self.epochs = epochs
        self.memory = memory
        self.keep = keep
        self.seed = seed
        self.image_size = image_size
        self.device = device
        self.precision = precision
        self.settings = settings
        self.show = show
        self.thumbnails = thumbnails

    # What is learned

    def learn(
        self,
        data: Any,
        labels: Sequence[Any] | None = None,
        *,
        name: str | None = None,
        again: bool = False,
        tune: Tune = "auto",
        progress: Progress | None = None,
        folder: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
        ready: Callable[["Lesson"], object] | None = None,
    ) -> "Lesson":
        """Learn a session and give a ``Lesson``, of 0 pictures if none is new; a failure leaves the
        model as it was, or as it was ``ready``.

        ``data``: a folder of class folders, a CSV table, pairs (picture, label), a torch or Hugging
        Face dataset; or, with ``labels``, arrays or a list of paths, images, arrays or tensors.
        Unless ``again``, pictures that were learned before are skipped, and corrected if they have
        another label now. ``tune``: "auto" tunes where that pays, or where a setting of the tuning
        was given; a model that was not tuned in its first session never is. ``folder``: keeps the
        steps of the training, so that the same call resumes after a stop. ``ready``: is called with
        a first lesson once the model can be asked, before it is tuned.
        """
        from safecl.backbone.licences import terms
        from safecl.classifier.edits.correct import correct
        from safecl.classifier.teach import Lesson, begin, is_of, new_pictures

        pictures, source = labelled(data, labels)
        known = self._model
        if known is not None:
            check_not_frozen(known.header)
            self._check_unchanged(known)
            pictures = as_meant(pictures, known.header)
        check_labels(known.classes if known else [], pictures.labels, source)
        name = (source.strip()[:MAX_NAME_LENGTH] or "pictures") if name is None else name
        check_name(name, "session")
        path = Path(data).expanduser() if isinstance(data, str | Path) else None
        marks = hashes(pictures)
        fresh = new_pictures(None if again else known, pictures, marks)
        model = known
        owed = self._before_tuning(folder)
        if owed is not None:  # the model answers, and its tuning was stopped
            past = owed if owed.classes and not again else None
            same = new_pictures(past, pictures, marks)
            if is_of(folder, same.pictures):
                fresh = same
                model = known = owed
            else:
                owed = None
        if known is not None and len(fresh.moved):
            try:
                model, _ = correct(known, self._backbone(), fresh.moved, fresh.moved.labels)
                model.header["history"][-1][
                    "was"
                ] = []  # what a folder has corrected, a folder may correct again
            except NotCorrectable as error:
                fresh = replace(fresh, refused=str(error), skipped=fresh.skipped + len(fresh.moved))
        if not len(fresh.pictures):
            nothing = nothing_new(source, len(pictures))
            told = fresh.note()
            if fresh.refused is not None:
                raise SafeclError("learn.not-corrected", nothing=nothing, notes=" ".join(told))
            if model is known:
                told = [nothing, *told]
            self._model = model
            return Lesson(name, 0, fresh.skipped, {}, [], 0.0, 0, None, None, [], [], told)
        shown = progress or make_progress(self.show)
        first = model is None
        model = model or self._new(fresh.pictures, shown)
        sure = tune == "always" or owed is not None or self._asks_tuning()
        facts = (model.settings.method, bool(model.classes), model.tuned)
        chosen = plan(*facts, tune, sure, waited=ready is not None)
        # what was saved of a session is used for nothing else
        if folder is not None and owed is None:
            # the same for a model in a file and one that was saved there
            past = (known or model).header["history"]
            identity = {
                "model": past,
                **{key: model.header[key] for key in ("settings", "backbone")},
                "precision": str(self._backbone(model.settings).dtype),
            }
            moved = fresh.moved.fingerprint()  # corrected before it learns
            begin(
                folder,
                {**identity, "pictures": fresh.pictures.fingerprint(), "moved": moved},
                shown.say,
            )
        home = path if path is not None and path.is_dir() else None
        about = (fresh, name, home, self.device, shown, folder, stop)
        lesson = self._taught(model, about, replace(chosen, answered=owed is not None), ready)
        network = model.header["backbone"]
        if first and (told_once := terms(network["name"], network["licence"])):
            lesson = replace(lesson, warnings=[*lesson.warnings, told_once])
        return lesson

    def _taught(
        self,
        model: "Model",
        about: tuple[Any, ...],
        chosen: Plan,
        ready: Callable[["Lesson"], object] | None,
    ) -> "Lesson":
        """Learn a session in one step or in two; ``about``: it, as ``teach`` wants it."""
        from safecl.classifier.answers.photographs import with_thumbnails
        from safecl.classifier.answers.snapshot import Snapshot
        from safecl.classifier.model import Model
        from safecl.classifier.teach import note_answer, teach

        backbone = self._backbone(model.settings)
        fresh, *_, shown, folder, _ = about

        def step(model: "Model", **how: Any) -> "Lesson":
            taught, lesson = teach(model, backbone, *about, **how)
            if model.settings.thumbnails:
                now = Snapshot(taught, taught.method(backbone))
                taught = with_thumbnails(now, fresh.pictures, fresh.marks)
            self._model = taught
            self._snapshot()  # so that the first prediction is as quick as the others
            return lesson

        if chosen.answers and not chosen.answered:
            tuned = model.tuned and not chosen.begins_untuned
            lesson = step(Model({**model.header, "tuned": tuned}, model.state), trains=False)
            if not chosen.tunes:
                return lesson
            note_answer(folder, self._fitted)
            if ready is not None:
                ready(lesson)
        if not chosen.asks:
            return step(model)
        train = model.settings.for_pictures(len(fresh.pictures))
        look = Look(len(fresh.pictures), lesson.look, lesson.accuracy)
        worth = partial(expected, look, model.settings.method, train, not model.classes)

        def check(gain: float | None = None) -> None:
            if not (found := worth(gain)).pays:
                raise NotWorth(found)

        try:
            check()
            shown.say(f"{worth(None).words}; it answers meanwhile.".capitalize())
            return step(model, pilots=check)
        except NotWorth as found:
            return replace(lesson, tuning=f"{found.worth.words}: skipped")

    def _before_tuning(self, folder: Path | None) -> "Model | None":
        """The model before its last session, if that was stopped between its answer and the end of
        its tuning.
        """
        from safecl.classifier.edits.steps import rollback
        from safecl.classifier.model import Model
        from safecl.classifier.modelfile.state import State

        model = self._model
        if model is None or folder is None or answered(folder) != model.header["history"][-1]["id"]:
            return None
        if sessions(model.header) > 1:
            with contextlib.suppress(SafeclError):  # no step is kept
                return rollback(model)[0]
            return None
        empty: dict[str, Any] = {"classes": [], "history": [], "statistics": {}}
        empty |= {"calibration": None, "tuned": True}
        return Model({**model.header, **empty}, State())

    def _asks_tuning(self) -> bool:
        """Whether a setting of the tuning was given."""
        plain = ContinualClassifier(self.backbone, self.method)._resolved()
        both = [flatten(each.model_dump(mode="json")) for each in (plain, self._resolved())]
        return any(both[0].get(key) != value for key, value in both[1].items() if of_tuning(key))

    def fit(self, X: Any, y: Sequence[Any] | None = None) -> Self:
        """Forget everything and learn these pictures."""
        fresh = copy.copy(self)
        fresh._model = None
        fresh.learn(X, y, again=True)
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(
        self, X: Any, y: Sequence[Any] | None = None, classes: Sequence[Any] | None = None
    ) -> Self:
        """Learn these pictures as a session; ``classes`` is not needed and only checked."""
        if classes is not None:
            # numbers and folders that are called by numbers are the same classes
            allowed = {str(plain_label(label, "classes")) for label in classes}
            for label in labelled(X)[0].labels if y is None else y:
                if str(plain_label(label, "y")) not in allowed:
                    holds = "X" if y is None else "y"
                    raise ValueError(f"{holds} holds {label!r}, which is not in classes")
        self.learn(X, y, again=True)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The classes, sorted: numbers by value, then words by spelling. So are the columns of
        ``predict_proba``.
        """
        return as_array(sorted_classes(self._fitted.classes))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What was done to the model, the oldest first."""
        return list(self._fitted.header["history"])

    # What it answers

    def predict(
        self, pictures: Any, *, unknown: float | None = None, careful: bool = False
    ) -> np.ndarray:
        """The class of each picture; None where it looks unknown, if ``unknown`` is given.

        ``unknown``: the share of known pictures that may be called unknown. The command ``safecl
        predict`` answers as with 0.05 if nothing else is given; with ``--unknown 0`` as here
        without it. ``careful``: mirror images as well.
        """
        return self._snapshot().carefully(careful).predict(pictures, unknown=unknown)

    def predict_sets(
        self, pictures: Any, coverage: float = 0.9, *, careful: bool = False
    ) -> list[tuple[Label, ...]]:
        """For each picture the smallest set of classes that holds its own in a share ``coverage``
        of pictures, the likeliest first; an empty one: none of these. ``careful``: see ``predict``.
        """
        return self._snapshot().carefully(careful).predict_sets(pictures, coverage)

    def predict_proba(self, pictures: Any) -> np.ndarray:
        """Calibrated probabilities: (N, C), a column per class in the order of ``classes_``."""
        now = self._snapshot()
        found = now.scored(unlabelled(pictures))
        return now.by_class(now.probabilities(one, now.outputs[-1:]).numpy() for one in found)

    def decision_function(self, pictures: Any) -> np.ndarray:
        """Logits before calibration: (N, C), in the order of ``classes_``; with two classes (N,),
        second less first.
        """
        now = self._snapshot()
        found = now.by_class(logits.numpy() for logits in now.logits(unlabelled(pictures)))
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def transform(self, pictures: Any) -> np.ndarray:
        """What the heads read of every network that answers, side by side: of SAFE (N, 2 d′), the
        fast learner's last.

        Each begins with the network's features (N, d); ridge heads may read more, as ``Reading``
        says.
        """
        now = self._snapshot()
        found = [rows.numpy() for rows in now.features(unlabelled(pictures))]
        return np.concatenate(found) if found else np.zeros((0, 0), dtype=np.float32)

    def explain(
        self, pictures: Any, *, unknown: float = 0.05, careful: bool = False
    ) -> list[Answer]:
        """For each picture the answer, the opinion of each output, and their weights; ``careful``:
        see ``predict``.
        """
        return self._snapshot().carefully(careful).explain(pictures, unknown=unknown)

    def heat_map(self, picture: Any, label: Label | None = None) -> np.ndarray:
        """How much each pixel of one picture speaks for a class, or for the answer: (H, W) in [0,
        1].

        The picture is upright, as its EXIF data say; what is cut off before the model looks at it
        is 0.
        """
        from safecl.classifier.answers.explain import heat_map

        now = self._snapshot()
        given = unlabelled(picture)
        if len(given) != 1:
            raise SafeclError("answer.heat-map.several", count=len(given))
        index = None if label is None else now.model.classes.index(find(now.model.header, label))
        return heat_map(now.method, now.model.transform, given.decode(0), index).numpy()

    def queue(self, pictures: Any, count: int = 20, *, unknown: float = 0.05) -> list["Queued"]:
        """The pictures to label next: unsure or unknown ones, different from each other; learned
        ones are omitted.
        """
        from safecl.classifier.answers.queue import Looking

        looking = Looking(self._snapshot(), unknown)
        looking.look(unlabelled(pictures))
        return looking.first(count)

    def drift(self, pictures: Any, before: Drift | None = None) -> Drift:
        """Whether pictures, in the order in which they came, look as those that were taught: see
        ``Drift``.

        ``before``: goes on with these, unless the model has learned since; then it begins anew.
        """
        return self._snapshot().drift(pictures, before)

    def audit(self, pictures: Any = None) -> "Audit":
        """Which learned pictures do harm, the worst first; pictures under two labels; classes that
        hide others.

        ``pictures``: where to look for learned ones, as for ``predict``: the model keeps no names.
        """
        from safecl.classifier.answers.audit import audit

        check_auditable(self._fitted.header)
        given = unlabelled([] if pictures is None else pictures)
        marks = hashes(given).tolist() if len(given) else []
        named = {mark: given.where(i) for i, mark in enumerate(marks)}
        return audit(self._fitted, self._backbone(), named)

    def score(self, X: Any, y: Sequence[Any] | None = None) -> float:
        """The share of pictures classified correctly; those of classes that were not learned count
        as wrong.

        ``X``: as for ``learn``; of a folder or a table that is split, the test half.
        """
        pictures, source = labelled(X, y, only="test")
        meant = as_labels(self._fitted.header, pictures.labels)
        check_labels(self._fitted.classes, meant, source)
        found = self.predict(pictures).tolist()
        return float(np.mean([a == b for a, b in zip(found, meant, strict=True)]))

    def answers(
        self,
        pictures: Any,
        *,
        unknown: float | None = 0.05,
        detail: bool = True,
        sets: float | None = None,
    ) -> Iterator[Answer]:
        """The answers one by one; only a few batches of pictures are in RAM at a time.

        All are those of the model as it is when this is called. ``sets``: with those of
        ``predict_sets``, of this coverage.
        """
        return self._snapshot().answers(pictures, unknown=unknown, detail=detail, sets=sets)

    # Files

    def save(self, path: str | Path, *, frozen: bool = False, force: bool = False) -> None:
        """Keep the model in one file. ``frozen``: a small file that only predicts.

        A file that it was loaded from or saved to before is replaced, if nobody else has changed
        it, and so is a frozen one; any other file is only with ``force``.
        """
        file, digest = self._fitted.save(path, frozen=frozen, force=force, known=self._known)
        if not frozen or self._fitted.header["frozen"]:
            self._known = {**self._known, file: digest}

    @classmethod
    def load(
        cls, path: str | Path | ModelFile, *, device: Device = "auto"
    ) -> "ContinualClassifier":
        """The model in a file; what only learning needs is read when it learns."""
        from safecl.classifier.model import Model

        return cls.of(Model.open(path), device=device)

    @classmethod
    def from_pretrained(
        cls, source: str, *, revision: str | None = None, device: Device = "auto"
    ) -> "ContinualClassifier":
        """The model in a repository of the Hugging Face hub, USER/NAME[/FILE], which goes on
        learning; without a network, what the hub's cache has of it. No pickle is read.
        """
        from safecl.classifier.answers.hub import fetch
        from safecl.classifier.modelfile.store import SUFFIX

        found = cls.load(fetch(source, revision, (SUFFIX,)), device=device)
        found._known = MappingProxyType({})  # the cache is no place to save to
        return found

    @classmethod
    def of(cls, model: "Model", *, device: Device = "auto") -> "ContinualClassifier":
        """A classifier that continues ``model``."""
        values = model.settings.model_dump(mode="json")
        method, backbone, train = (values.pop(key) for key in ("method", "backbone", "train"))
        del train["epochs"]  # a model has its own
        names = (backbone.pop("name"), method.pop("name"))
        size = backbone.pop("image_size")
        pet = (method.get("pet") or {}).get("kind")
        rest = {"method": method, "backbone": backbone, "train": train}
        found = cls(*names, pet, image_size=size, device=device, settings=rest, **values)
        found._model = model
        if model.file is not None:
            found._known = {model.file.path.resolve(): model.file.digest}
        return found

    def rollback(self) -> str:
        """Go back to before the last session or correction; says what was taken back."""
        from safecl.classifier.edits.steps import rollback

        self._model, said = rollback(self._fitted)
        return said

    def correct(
        self,
        pictures: Any,
        label: Label | Sequence[Label | None] | None = None,
        *,
        remove: bool = False,
    ) -> str:
        """Give pictures the right label, or remove them: as if they had been learned so; gives a
        sentence on it.

        No network is tuned. ``pictures``: as for ``predict``; those that were never learned are
        added. ``label``: of all, or a sequence with that of each, None: it is removed.
        """
        if (label is None) is not remove:
            raise SafeclError("correct.one-of-two")
        return self._corrected(pictures, label)

    def _corrected(
        self, pictures: Any, label: Label | Sequence[Label | None] | None, quick: bool = False
    ) -> str:
        from safecl.classifier.edits.correct import correct

        found = unlabelled(pictures)
        each: Any = listed(label) if np.ndim(label) else [label] * len(found)  # type: ignore[arg-type]
        if len(each) != len(found):
            raise SafeclError("pictures.labels.count", pictures=len(found), labels=len(each))
        model = self._fitted
        plain = {
            i: plain_label(one, f"picture {i}") for i, one in enumerate(each) if one is not None
        }
        meant = dict(zip(plain, as_labels(model.header, plain.values()), strict=True))
        labels = [meant.get(i) for i in range(len(found))]
        self._model, said = correct(model, self._backbone(), found, labels, quick=quick)
        return said

    def learn_one(self, picture: Any, label: Label | Sequence[Label]) -> str:
        """Learn one picture, or give a learned one another label; gives a sentence on it.
        ``picture``, ``label``: or a few, and that of each.

        The heads are updated, and are those that learning it with the others gives. No network is
        tuned. What a model fits to all of its pictures, its map to the fast learner and its
        calibration, follows with the next session or correction.
        """
        return self._corrected(picture, label, quick=True)

    def split(self, label: Label, pictures: Any, into: Label) -> str:
        """Make a new class of some pictures of a class; gives a sentence on it."""
        from safecl.classifier.edits.correct import correct

        header = self._fitted.header
        found = unlabelled(pictures)
        label = find(header, label)
        into = as_label(header, plain_label(into, "into"))
        if into in header["classes"]:
            raise SafeclError("correct.class.exists", label=into)
        self._model, said = correct(
            self._fitted, self._backbone(), found, [into] * len(found), of=label
        )
        return said

    def join(self, one: Label, other: Label) -> str:
        """Make one class of two, called as the first, without any picture; gives a sentence on
        it.
        """
        from safecl.classifier.edits.correct import join

        self._model, said = join(self._fitted, self._backbone(), one, other)
        return said

    def forget(self, label: Label) -> str:
        """Remove a class; gives a sentence on what stays."""
        from safecl.classifier.edits.forget import forget

        self._model, said = forget(self._fitted, label, self._backbone())
        return said

    def rename(self, old: Label, new: Label) -> str:
        """Give a class another name; gives a sentence on it."""
        from safecl.classifier.model import Model

        header = self._fitted.header
        self._model = Model(renamed(header, old, as_label(header, new)), self._fitted.state)
        return f"{old} is now called {new}."

    def merged(self, other: "ContinualClassifier") -> "ContinualClassifier":
        """A model that knows what either knows; both went on from copies of one model."""
        from safecl.classifier.edits.merge import merge

        return type(self).of(
            merge(self._fitted, other._fitted, self._backbone()), device=self.device
        )

    def __repr__(self) -> str:
        what = "nothing learned yet"
        if (model := self._model) is not None:
            learned = counted(sessions(model.header), "session")
            what = f"{counted(len(model.classes), 'class')} learned in {learned}"
        return f"<ContinualClassifier: {self.method} on {self.backbone}, {what}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the classes, how well they are answered, and what is confused."""
        from safecl.classifier.answers.page import notebook

        model = self._model
        if model is None:
            return html.escape(repr(self))
        kept = model.state.thumbnails if model.file is None else model.file.thumbnails()
        return notebook(model.header, kept)

    # Inside

    _model: "Model | None" = (
        None  # one assignment replaces it, so that another thread sees the old or the new one
    )
    # files that are this model as it was, by the digests they had
    _known: "Known" = MappingProxyType({})
    _ready: "Snapshot | None" = None  # of ``_model``, or of one before it
    _loaded: "tuple[Any, Backbone] | None" = None

    @property
    def _fitted(self) -> "Model":
        model = self._model
        if model is None:
            from safecl.classifier.scikit import NothingLearned

            raise NothingLearned("model.learned-nothing")
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Without the backbone, which is loaded again when it is needed, and the places of
        files.
        """
        left = ("_ready", "_loaded", "_known")
        return {key: value for key, value in self.__dict__.items() if key not in left}

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []  # features are float32, whatever pictures are
        return tags

    def _snapshot(self) -> "Snapshot":
        """The model as it is now, ready to answer."""
        from safecl.classifier.answers.snapshot import Snapshot

        check_fork(self.device)
        model = self._fitted
        ready = self._ready
        # another one where the device has been changed
        backbone = self._backbone(model.settings)
        if ready is None or ready.model is not model or ready.method.backbone is not backbone:
            self._ready = ready = Snapshot(model, model.method(backbone))
        return ready

    def _backbone(self, settings: ModelSettings | None = None) -> "Backbone":
        """That of ``settings``, or of the model."""
        from safecl.backbone.load import load_backbone

        chosen = (settings or self._fitted.settings).backbone
        check_fork(self.device)
        loaded = self._loaded
        wanted = (chosen, self.device, self.precision)
        if loaded is None or loaded[0] != wanted:
            place = choose_device(self.device)
            backbone = load_backbone(chosen).to(place, choose_precision(self.precision, place))
            self._loaded = loaded = wanted, backbone
        return loaded[1]

    def _new(self, pictures: Pictures, progress: Progress) -> "Model":
        """A model that has learned nothing, sized by its first pictures."""
        from safecl.backbone.micro import sized
        from safecl.classifier.model import Model, new_header
        from safecl.classifier.modelfile.state import State

        asked, choice = self._choice(pictures, progress)
        settings = self._resolved(asked)
        epochs = {} if self.epochs is None else {"epochs": self.epochs}
        check_sizes(settings.model_dump(mode="json"))
        refuse_idle(settings, {**epochs, **self._given()})
        chosen, note = sized(settings.backbone, pictures.shorter_side, "--set ")
        if note is not None:
            progress.say(note)
        settings = settings.model_copy(update={"backbone": chosen})
        backbone = self._backbone(settings)
        if chosen.name.split(".")[0] not in (EMBEDDED, backbone.name.split(".")[0]):
            raise SafeclError(
                "backbone.name.idle", weights=chosen.weights, held=backbone.name, name=chosen.name
            )
        transform = transform_of(None, backbone.size, backbone.margin)
        header = {**new_header(settings, backbone, transform), "choice": choice}
        return Model(header, State())

    def _choice(
        self, pictures: Pictures, progress: Progress
    ) -> tuple[BackboneSettings | None, dict[str, Any] | None]:
        """The backbone that the first pictures choose, and the evidence, where they are to."""
        from safecl.classifier.choose import choose

        if not is_auto(self.backbone):
            if self.prefer is not None:
                raise SafeclError(
                    "backbone.auto.prefer-idle", prefer=self.prefer, name=self.backbone
                )
            return None, None
        asked = self._resolved().backbone  # another wrong word is answered at once
        if asked.weights is not None:
            raise SafeclError("backbone.auto.weights", file=asked.weights)
        given = asked.model_dump(include={"image_size", "normalisation"}, exclude_none=True)
        place = choose_device(self.device)
        return choose(self.backbone, self.prefer or "accuracy", pictures, given, place, progress)

    def _check_unchanged(self, model: "Model") -> None:
        """Refuse parameters of other values than those that ``model`` was made with."""
        made = ContinualClassifier.of(model)
        chosen = self._chosen_before(model)
        name = chosen.name if chosen else SIZES.get(self.backbone, (self.backbone,))[0]
        given: dict[str, Any] = {
            "backbone": name,
            "method": self.method,
            "pet": self.pet or made.pet,
        }
        was = {key: getattr(made, key) for key in given}
        if given == was:  # else the other settings are of something else
            was, given = (
                flatten(each.model_dump(mode="json"))
                for each in (model.settings, self._resolved(chosen))
            )
            # it was chosen
            given["backbone.image_size"] = (
                given["backbone.image_size"] or was["backbone.image_size"]
            )
            given[EPOCHS] = was[EPOCHS]  # of the run that the model was made of
        for key, value in given.items():
            if value != (there := was.get(key)):
                raise SafeclError("model.setting.fixed", key=key, there=there, value=value)

    def _chosen_before(self, model: "Model") -> BackboneSettings | None:
        """That of ``model``, where auto is asked for again, as it was asked for before."""
        choice = model.header.get("choice") or {}
        was = {"backbone": model.settings.backbone.name, "prefer": None, **choice}
        again = is_auto(self.backbone)
        given = {"backbone": self.backbone if again else None, "prefer": self.prefer}
        for key, value in given.items():
            if value is not None and value != was[key]:
                raise SafeclError("model.setting.fixed", key=key, there=was[key], value=value)
        return model.settings.backbone if again else None

    def _resolved(self, chosen: BackboneSettings | None = None) -> ModelSettings:
        """The settings of a new model, on the backbone that its pictures have ``chosen``, if they
        are to.
        """
        word = EMBEDDED if is_auto(self.backbone) else self.backbone
        named = chosen.name if chosen else SIZES.get(word, (word,))[0]
        method: dict[str, Any] = {"name": self.method}
        if self.pet is not None:
            method["pet"] = {"kind": self.pet}
        if self.method in method_settings() and named == EMBEDDED:
            method |= method_settings()[
                self.method
            ].quick  # the first session is what people wait for
        size = {} if self.image_size is None else {"image_size": self.image_size}
        values = {
            "epochs": self.epochs,
            "memory": self.memory,
            "keep": self.keep,
            "seed": self.seed,
            "method": method,
            "backbone": chosen.model_dump() if chosen else {"name": word, **size},
            "train": {"save_seconds": 10},
            "thumbnails": self.thumbnails,
        }
        return resolve(overlay(values, self._given()))

    def _given(self) -> Values:
        """The values of ``settings``, nested."""
        every = inspect.signature(ContinualClassifier.__init__).parameters
        values = {name: getattr(self, name) for name in every if name not in ("self", "settings")}
        chosen = {name: value for name, value in values.items() if value != every[name].default}
        return together(
            self.settings or {}, {INSIDE.get(name, name): (name, chosen[name]) for name in chosen}
        )


def learn_file(
    data: Any,
    path: Path,
    progress: Progress,
    *,
    name: str | None,
    again: bool,
    device: Device,
    precision: Precision = "auto",
    tune: Tune = "auto",
    ready: "Callable[[Lesson, ContinualClassifier], object]" = lambda lesson, model: None,
    **params: Any,
) -> "tuple[Lesson, ContinualClassifier]":
    """Teach the model at ``path`` what ``data`` holds, or make one with ``params``; gives the
    lesson and the model.

    The file holds what answers before it is tuned, when ``ready`` is called, and then the tuned
    model. Until that is written, a folder beside it keeps steps of the training: the same call
    after a kill resumes there.
    """
    from safecl.classifier.teach import clear

    given = {key: value for key, value in params.items() if value is not None}
    with locked(path) as file, stoppable() as stop:
        check_path(file)
        work = work_folder(file)
        if work.is_symlink():
            raise SafeclError("folder.link", folder=work)
        if file.exists():
            model = ContinualClassifier.load(file, device=device)
            model.set_params(**given, precision=precision)
        else:
            model = ContinualClassifier(**given, device=device, precision=precision)
            model._known = {file.resolve(): None}
        there = model._model

        def save() -> None:
            nonlocal there
            if model._model is not there:
                model.save(file)
                there = model._model

        def answers(lesson: "Lesson") -> None:
            save()
            ready(lesson, model)

        shared: Any = {"folder": work, "stop": stop, "ready": answers}
        try:
            lesson = model.learn(
                data, name=name, again=again, tune=tune, progress=progress, **shared
            )
            save()
        except Replaced:
            clear(work)
            raise
        if lesson.pictures:  # else nothing was new
            with contextlib.suppress(OSError):
                clear(work)
    return lesson, model

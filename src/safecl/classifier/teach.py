"""A model learns a session: the next model, and what is worth knowing about it. The model before is
left as it was.
"""

import contextlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.atomic import read_json, write_json
from safecl.backbone.backbone import Backbone
from safecl.classifier.answers.audit import suspects
from safecl.classifier.answers.calibrate import (
    MAX_JUDGED,
    MIN_CALIBRATING,
    UNKNOWN,
    calibrate,
    can_be_left_out,
    chosen,
    left_out_answers,
    looked,
    once,
    probabilities,
    recalled,
    some,
    stranger_answers,
)
from safecl.classifier.answers.enough import needed
from safecl.classifier.data import hashes, ready
from safecl.classifier.model import Model, new_header
from safecl.classifier.modelfile.history import after, counts, step
from safecl.classifier.modelfile.rows import LABELS, LOOK, stacked
from safecl.classifier.modelfile.state import (
    Recording,
    State,
    advance,
    grams_of,
    sizes_of,
    tensors_of,
)
from safecl.classifier.seen import ANSWERED, JOB, job_in, learned_as
from safecl.classifier.settings import resolve
from safecl.engine.device import choose_device, make_accelerator
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.fit import Trainer
from safecl.engine.folder import restore_newest
from safecl.engine.identity import FILE, difference, identity
from safecl.engine.learn import learn
from safecl.engine.progress import Progress
from safecl.engine.untrained import Alone, Untrained
from safecl.errors import SafeclError, Stopped
from safecl.heads.tensors import not_finite
from safecl.lines import counted, naming
from safecl.methods.method import Method
from safecl.methods.parts import heads_of
from safecl.runtime.answer import is_calibrated, one_class
from safecl.runtime.drift import LOOKS
from safecl.streams.labels import sorted_classes
from safecl.streams.pictures.images import Label, Pictures, Transform, join, spread
from safecl.streams.stream import Session, Stream

FEW_PICTURES = 3
SMALL_SIDE = 32  # pictures of a class, and pixels of a shorter side, that are worth a warning
MAX_SUSPECTS = 10  # of labels that look wrong, the most unlikely ones


@dataclass(frozen=True)
class Lesson:
    """What a model has learned in a session, for a person to read; percentages are of pictures that
    are left out.
    """

    name: str
    pictures: int
    skipped: int
    classes: dict[Label, int]
    new: list[Label]
    seconds: float
    epochs: int
    accuracy: float | None  # leave-one-out accuracy: the mean over classes
    interval: tuple[float, float] | None  # in which that on new pictures lies, with 95 %
    confused: list[tuple[Label, Label, int]]  # true, answered, pictures
    suspects: list[tuple[str, Label, Label, float]]  # picture, label, answered, how sure
    warnings: list[str]
    look: float | None = None  # seconds of a network's look at a picture, before any tuning
    tuning: str = ""  # a sentence on whether it was tuned


@dataclass(frozen=True)
class Fresh:
    """The pictures of a session that the model has not learned yet, and their hashes (n,)."""

    pictures: Pictures
    marks: Tensor
    skipped: int  # learned before
    moved: Pictures  # of those: the ones that have another label now
    # each of them, the class it was learned as, the class it has now
    relabelled: list[tuple[str, Label, Label]]
    # as ``relabelled``: those that a person has corrected from that class
    held: list[tuple[str, Label, Label]]
    copies: list[str]  # exact copies of others of them, which are not learned
    refused: str | None = None  # why these cannot be corrected

    def note(self) -> list[str]:
        """Sentences on pictures whose class is another one now."""
        told = []
        if self.held:
            names = naming(
                f"{where} (corrected to {old}, still in {new})" for where, old, new in self.held
            )
            told = [
                f"Kept the correction of {counted(len(self.held), 'picture')}: {names}; move the"
                " file as well."
            ]
        if not self.relabelled:
            return told
        names = naming(
            f"{where} (learned as {old}, now in {new})" for where, old, new in self.relabelled
        )
        these = counted(len(self.relabelled), "picture that was", "pictures that were")
        if self.refused is None:
            back = "safecl rollback, twice," if len(self.pictures) else "safecl rollback"
            return [
                *told,
                f"Corrected {these} learned as another class: {names}. {back} takes that back.",
            ]
        skipped = f"Skipped {these} learned as another class: {names}. {self.refused}"
        return [*told, f"{skipped} --again learns them as that, too."]


def new_pictures(model: Model | None, pictures: Pictures, marks: Tensor) -> Fresh:
    """What is new of ``pictures``, whose hashes are ``marks``; each is learned once, and stands in
    one class.
    """
    first: dict[int, int] = {}
    firsts = [first.setdefault(mark, i) for i, mark in enumerate(marks.tolist())]
    _check_one_class(pictures, firsts)
    copies = [
        f"{pictures.where(i)} = {pictures.where(at)}" for i, at in enumerate(firsts) if at != i
    ]
    if copies:
        once = sorted(set(firsts))
        pictures = pictures.subset(once)
        marks = marks[once]
    known = {} if model is None else learned_as(model.state.seen, model.classes)
    numbers = marks.tolist()
    rows = [i for i, mark in enumerate(numbers) if mark not in known]
    other = [
        i
        for i, mark in enumerate(numbers)
        if mark in known and pictures.labels[i] not in known[mark]
    ]
    held = {
        (mark, was)
        for one in (model.header["history"] if model else ())
        for mark, was in one.get("was", ())
    }
    moved, kept = (
        [i for i in other if ((numbers[i], pictures.labels[i]) in held) is by]
        for by in (False, True)
    )
    relabelled, still = (
        [(pictures.where(i), min(known[numbers[i]], key=str), pictures.labels[i]) for i in these]
        for these in (moved, kept)
    )
    fresh = pictures if len(rows) == len(marks) else pictures.subset(rows)
    skipped = len(marks) - len(rows) - len(moved)
    return Fresh(fresh, marks[rows], skipped, pictures.subset(moved), relabelled, still, copies)


def _check_one_class(pictures: Pictures, firsts: Sequence[int]) -> None:
    """Refuse a picture that stands in two classes. ``firsts``: by picture, the position of the
    first that is equal.
    """
    pairs = [(i, at) for i, at in enumerate(firsts) if pictures.labels[i] != pictures.labels[at]]
    if pairs:
        named = (
            " and ".join(f"{pictures.where(i)} ({pictures.labels[i]})" for i in pair[::-1])
            for pair in pairs
        )
        way = "take the wrong one out and try again"
        raise SafeclError("pictures.two-classes", names=naming(named), way=way)


def teach(
    model: Model,
    backbone: Backbone,
    fresh: Fresh,
    name: str,
    home: Path | None,
    device: str,
    progress: Progress,
    folder: Path | None,
    stop: Callable[[], bool],
    *,
    trains: bool = True,
    pilots: Callable[[float], None] = lambda gain: None,
) -> tuple[Model, Lesson]:
    """The model after a session of ``fresh`` pictures, and what is worth knowing about it.

    ``folder``: where the phases of the training are saved; the same call goes on there after a
    stop. ``home``: of the pictures, for their cache. ``trains``: false for what can be asked before
    anything is tuned; ``pilots``: is told the share of the error that pilots gain.
    """
    began = time.monotonic()
    pictures = fresh.pictures
    settings = model.settings
    transform = model.transform
    train = settings.for_pictures(len(pictures))
    method = model.method(backbone, learning=True)
    views = ready(pictures, transform, home)
    classes = sorted_classes(pictures.labels)
    session = Session(method.sessions + 1, name, classes, views)
    recording = Recording(settings.memory)
    shared = (method, train, transform, settings.seed, progress, folder, stop)
    fit: Trainer
    if trains:
        fit = Trainer(make_accelerator(device), *shared, recorder=recording, pilots=pilots)
    else:
        fit = Untrained(Alone(choose_device(device)), *shared, recorder=recording)
    before = model.state
    identity = uuid.uuid4().hex[:12]
    learn(method, session, fit)
    learned_now = Counter(pictures.labels)
    learned_before = counts(model.header)
    state = advance(before, method, identity, recording.added, settings, model.standing)
    _check_finite({**state.tensors, **state.base})
    index = {label: i for i, label in enumerate(method.classes)}
    targets = torch.tensor([index[label] for label in pictures.labels])
    state = replace(state, seen=stacked(state.seen, {"hashes": fresh.marks, "classes": targets}))
    state, calibration, told = look_back(
        state, method, views, targets, transform, stop, recording.given
    )
    _check_finite(state.kept)
    judged = (calibration["pictures"] if calibration else 0) if method.judging else None
    new = [label for label in classes if label not in set(model.classes)]
    taught = {label: learned_now[label] + learned_before.get(label, 0) for label in classes}
    told["warnings"] = [*fresh.note(), *warnings(pictures, taught, method.classes, judged)]
    if fresh.copies:
        these = counted(len(fresh.copies), "exact copy", "exact copies")
        told["warnings"].append(f"Left out {these} of other pictures: {naming(fresh.copies)}.")
    per_class = {label: learned_now[label] for label in classes}
    seconds = time.monotonic() - began
    epochs = (train.later_epochs if session.number > 1 else None) or train.epochs
    epochs = epochs if trains else 0
    lesson = Lesson(name, len(pictures), fresh.skipped, per_class, new, seconds, epochs, **told)
    if isinstance(fit, Untrained):
        lesson = replace(lesson, look=fit.looked / max(fit.views_seen, 1))
    same = {key: getattr(lesson, key) for key in ("new", "epochs", "accuracy")}
    same["precision"] = "fp32" if backbone.dtype == torch.float32 else "bf16"
    same["classes"] = list(map(list, per_class.items()))
    entry = step("learn", name, id=identity, seconds=round(seconds, 1), notes=method.notes, **same)
    header = after(model.header, entry, method.classes, calibration, statistics=sizes_of(method))
    return Model(header, state), lesson


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse what a session has made of them, where any is no longer finite."""
    if (name := not_finite(tensors)) is not None:
        raise SafeclError("learn.diverged", tensor=name)


@torch.no_grad()
def embed(
    forward: Callable[[Tensor], dict[str, Tensor]],
    pictures: Pictures,
    indices: Sequence[int],
    transform: Transform,
    device: torch.device,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Tensor]:
    """Features (n, d) by network that ``forward`` gives of the plain views at ``indices``, on the
    CPU.
    """
    parts: dict[str, list[Tensor]] = {}
    for images in DeviceLoader(pictures, transform, device).plain(indices):
        if stop():
            raise Stopped
        for name, rows in forward(images).items():
            parts.setdefault(name, []).append(rows.float().cpu())
    return {name: torch.cat(rows) for name, rows in parts.items()}


def look_back(
    state: State,
    method: Method,
    views: Pictures,
    targets: Tensor,
    transform: Transform,
    stop: Callable[[], bool],
    given: Mapping[str, Tensor],
) -> tuple[State, dict[str, Any] | None, dict[str, Any]]:
    """(the state with some features kept, the calibration, what a lesson says), from pictures that
    are left out.

    ``state``: with the session's pictures among those seen. ``given``: by ridge head, their
    features (N, d).
    """
    judging = method.judging
    if judging is None:
        return state, None, {"accuracy": None, "interval": None, "confused": [], "suspects": []}
    here = (
        some(len(targets))
        if len(targets) <= MAX_JUDGED
        else chosen(targets)[some(len(chosen(targets)))]
    )
    heads = heads_of(method)
    if heads and given.keys() >= set(heads.values()):
        computed = {name: given[head] for name, head in heads.items()}
        features = {
            name: rows[here.to(rows.device)].float().cpu() for name, rows in computed.items()
        }
    else:
        features = embed(
            lambda x: (
                {name: method.networks[name].features(x) for name in heads} or method.embed(x)
            ),
            views,
            here.tolist(),
            transform,
            method.backbone.device,
            stop,
        )
    own = targets[here]
    keeping = judging.keep(features)
    kept = state.kept or dict.fromkeys(LABELS, targets[:0])
    older = some(len(kept["targets"]), max(MAX_JUDGED - len(here), 256))
    if len(older):
        before = recalled(method, kept, older)
        features = {name: torch.cat([before[name].cpu(), rows]) for name, rows in features.items()}
    every = torch.cat([kept["targets"][older], own])
    marks = state.seen["hashes"][len(state.seen["hashes"]) - len(targets) :][here]
    picked = chosen(own)
    rest = can_be_left_out(every, state.seen)
    judged = torch.isin(rest, torch.cat([torch.arange(len(older)), len(older) + picked]))
    judged &= once(torch.cat([kept["hashes"][older], marks]), every)[rest]
    # as they are kept, and judged later
    left = {name: rows[rest].half() for name, rows in features.items()}
    logits, halved, likeness = left_out_answers(method, left, every[rest])
    like = None if likeness is None else likeness[judged]
    strangers = stranger_answers(method, left, every[rest], state.seen)
    loader = DeviceLoader(views, transform, method.backbone.device)
    seen = torch.cat([looked(images).cpu() for images in loader.plain(here[picked].tolist())])
    look = torch.full((len(every), len(LOOKS)), torch.nan)
    look[: len(older)] = kept[LOOK][older] if LOOK in kept else torch.nan
    look[len(older) + picked] = seen
    calibration = calibrate(
        every[rest][judged], logits[judged], halved[judged], like, strangers, look[rest][judged]
    )
    recent = (rest >= len(older)) & is_calibrated(calibration)
    p = probabilities(logits, calibration)[recent]
    odd = suspects(p, every[rest][recent])[:MAX_SUSPECTS]
    at = here[rest[recent] - len(older)]
    names = method.classes
    told = {
        "accuracy": calibration and calibration["accuracy"],
        "interval": calibration and calibration["interval"],
        "confused": (
            [(names[a], names[b], n) for a, b, n in calibration["confused"]] if calibration else []
        ),
        "suspects": [
            (
                views.where(int(at[i])),
                names[int(every[rest][recent][i])],
                names[int(p[i].argmax())],
                float(p[i].amax()),
            )
            for i in odd
        ],
    }
    more = {name: rows[picked].half() for name, rows in keeping.items()}
    more |= {"targets": own[picked], "hashes": marks[picked], LOOK: seen}
    return replace(state, kept=stacked(state.kept, more)), calibration, told


def model_of_run(
    folder: Path,
    backbone: Backbone,
    stream: Stream,
    values: Mapping[str, Any],
    say: Callable[[str], None],
) -> Model:
    """The finished run in ``folder``, with settings ``values``; its pictures are read again, and
    none is learned.
    """
    backbone = backbone.to(choose_device("auto"))
    this = identity(values, backbone, stream)
    if found := difference(read_json(folder / FILE) or {}, this):
        raise SafeclError("model.run.other", folder=folder, found=found)
    settings = resolve({key: values[key] for key in ("method", "backbone", "train", "seed")})
    settings = settings.model_copy(
        update={"epochs": settings.train.later_epochs or settings.train.epochs}
    )
    header = new_header(settings, backbone, stream.transform)
    method = Model(header, State()).method(backbone)
    _, lines = restore_newest(folder, this, method, say)
    past = [stream.copy().open(line["session"]) for line in lines]
    pictures = join([session.train for session in past])
    index = {label: i for i, label in enumerate(method.classes)}
    targets = torch.tensor([index[label] for label in pictures.labels])
    state = State(
        tensors_of(method), grams_of(method), seen={"hashes": hashes(pictures), "classes": targets}
    )
    method.eval()
    method.refresh()  # a state does not say what follows from its statistics
    state, calibration, _ = look_back(
        state, method, pictures, targets, stream.transform, lambda: False, {}
    )
    for session, line in zip(past, lines, strict=True):
        count = Counter(session.train.labels)
        new = [c for c in session.classes if c not in header["classes"]]
        told: dict[str, Any] = {
            "seconds": round(line["seconds"]["total"], 1),
            "accuracy": None,
            "notes": {},
        }
        told["epochs"] = settings.epochs if header["history"] else settings.train.epochs
        entry = step(
            "learn", session.name, classes=[[c, count[c]] for c in session.classes], new=new, **told
        )
        header = after(
            header, entry, [*header["classes"], *new], calibration, statistics=sizes_of(method)
        )
    entry["accuracy"] = calibration and calibration["accuracy"]
    return Model(header, state)


def warnings(
    pictures: Pictures, counts: Mapping[Label, int], classes: Sequence[Label], judged: int | None
) -> list[str]:
    """Sentences that help. ``counts``: all pictures so far of this session's classes; ``judged``:
    left out in turn.
    """
    told = [one_class("The model", classes[0])] if len(classes) == 1 else []
    few = [label for label, count in counts.items() if count <= FEW_PICTURES]
    if few:
        told.append(
            f"{counted(len(few), 'class has', 'classes have')} {FEW_PICTURES} pictures or fewer "
            f"({naming(map(str, few))}): ten or more would be better."
            + " In the accuracy they count less"
            + (", and one with a single picture not at all." if 1 in counts.values() else ".")
        )
    if any(min(pictures.size_of(i)) < SMALL_SIDE for i in spread(len(pictures))):
        told.append(
            f"Some pictures are smaller than {SMALL_SIDE} pixels, so there is little to see in"
            " them."
        )
    if judged is None:
        told.append(
            "The method, as it is set, cannot judge itself by the pictures that it has learned: its"
            " accuracy is not estimated, its probabilities are not calibrated and no picture is"
            " called unknown; safecl eval measures it on other pictures."
        )
    elif judged < MIN_CALIBRATING:
        told.append(
            f"{counted(judged, 'picture is', 'pictures are')} too few to say how sure an answer is"
            " or whether a picture is unknown."
        )
    elif judged < needed(UNKNOWN):
        told.append(
            f"{counted(judged, 'picture is', 'pictures are')} too few to promise how many known"
            f" ones are called unknown: from {needed(UNKNOWN)} on at most {100 * UNKNOWN:g} %."
        )
    return told


def clear(folder: Path) -> None:
    """Delete what learning a session has written, and the folder if nothing else is in it."""
    for name in (".*.part", "fit_*.safetensors", JOB):  # the last one says that the others are ours
        for path in folder.glob(name):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def note_answer(folder: Path | None, model: Model) -> None:
    """The last step of ``model`` answers, and its tuning is owed."""
    if folder is not None:
        write_json(folder / JOB, {**job_in(folder), ANSWERED: model.header["history"][-1]["id"]})


def is_of(folder: Path | None, pictures: Pictures) -> bool:
    """Whether the lesson in ``folder`` is of these pictures."""
    return bool(job_in(folder).get("pictures") == pictures.fingerprint())


def begin(folder: Path, identity: dict[str, Any], say: Callable[[str], None]) -> None:
    """Make the folder in which a session is learned, or resume in it; what another command left
    there is dropped.
    """
    file = folder / JOB
    identity = json.loads(json.dumps(identity))  # as it is read
    try:
        folder.mkdir(exist_ok=True)
        # a kill leaves that
        there = [path for path in folder.iterdir() if not path.match(f".{JOB}.*.part")]
        if any(path.is_symlink() for path in there):
            raise ValueError
        before = json.loads(file.read_bytes()) if file in there else {}
        before = {key: value for key, value in before.items() if key != ANSWERED}
        if before == identity:
            say("Resuming where the same command was stopped.")
        elif there and before.keys() != identity.keys():
            raise ValueError
        elif there:
            clear(folder)
            say(
                "Another command was stopped here before it was finished; what it had begun is"
                " dropped."
            )
        folder.mkdir(exist_ok=True)
        write_json(file, identity)
    except (ValueError, AttributeError):
        raise SafeclError("learn.folder.other", folder=folder) from None
    except OSError as error:
        raise SafeclError(
            "file.place.not-writable", place=folder, reason=error.strerror or str(error)
        ) from error

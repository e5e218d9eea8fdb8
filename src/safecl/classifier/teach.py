"""A model learns a session: the next model, and what is worth knowing about it. The model before is left as it was."""

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
from safecl.classifier.calibrate import (
    MAX_JUDGED,
    MIN_CALIBRATING,
    calibrate,
    can_be_left_out,
    chosen,
    left_out_answers,
    probabilities,
    recalled,
    some,
)
from safecl.classifier.data import hashes, ready
from safecl.classifier.history import after, counts, step
from safecl.classifier.model import Model, new_header
from safecl.classifier.seen import learned_as
from safecl.classifier.settings import resolve
from safecl.classifier.state import State, advance, grams_of, recording, sizes_of, tensors_of
from safecl.engine.device import choose_device, make_accelerator
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.fit import Trainer
from safecl.engine.folder import restore_newest
from safecl.engine.identity import FILE, difference, identity
from safecl.engine.learn import learn
from safecl.engine.progress import Progress
from safecl.errors import SafeclError, Stopped
from safecl.heads.tensors import check_all_finite
from safecl.lines import counted, naming
from safecl.methods.method import Method
from safecl.runtime.answer import one_class
from safecl.streams.labels import sorted_classes
from safecl.streams.pictures.images import Label, Pictures, Transform, join, spread
from safecl.streams.stream import Session, Stream

JOB = "job.json"  # in the folder of a lesson: what it is
FEW_PICTURES, SMALL_SIDE = 3, 32  # pictures of a class, and pixels of a shorter side, that are worth a warning
MAX_SUSPECTS = 5  # of labels that look wrong, the most unlikely ones
MAX_OWN, MIN_OTHER = 0.1, 0.5  # probability of its own class and of another, at which a label looks wrong


@dataclass(frozen=True)
class Lesson:
    """What a model has learned in a session, for a person to read; percentages are of pictures that are left out."""

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


@dataclass(frozen=True)
class Fresh:
    """The pictures of a session that the model has not learned yet, and their hashes (n,)."""

    pictures: Pictures
    marks: Tensor
    skipped: int  # learned before
    moved: Pictures  # of those: the ones that have another label now
    relabelled: list[tuple[str, Label, Label]]  # each of them, the class it was learned as, the class it has now
    held: list[tuple[str, Label, Label]]  # as ``relabelled``: those that a person has corrected from that class
    refused: str | None = None  # why these cannot be corrected

    def note(self) -> list[str]:
        """Sentences on pictures whose class is another one now."""
        told = []
        if self.held:
            names = naming(f"{where} (corrected to {old}, still in {new})" for where, old, new in self.held)
            told = [f"Kept the correction of {counted(len(self.held), 'picture')}: {names}; move the file as well."]
        if not self.relabelled:
            return told
        names = naming(f"{where} (learned as {old}, now in {new})" for where, old, new in self.relabelled)
        these = counted(len(self.relabelled), "picture that was", "pictures that were")
        if self.refused is None:
            back = "safecl rollback, twice," if len(self.pictures) else "safecl rollback"
            return [*told, f"Corrected {these} learned as another class: {names}. {back} takes that back."]
        skipped = f"Skipped {these} learned as another class: {names}. {self.refused}"
        return [*told, f"{skipped} --again learns them as that, too."]


def new_pictures(model: Model | None, pictures: Pictures, marks: Tensor) -> Fresh:
    """What is new of ``pictures``, whose hashes are ``marks``."""
    known, numbers = {} if model is None else learned_as(model.state.seen, model.classes), marks.tolist()
    rows = [i for i, mark in enumerate(numbers) if mark not in known]
    other = [i for i, mark in enumerate(numbers) if mark in known and pictures.labels[i] not in known[mark]]
    held = {(mark, was) for one in (model.header["history"] if model else ()) for mark, was in one.get("was", ())}
    moved, kept = ([i for i in other if ((numbers[i], pictures.labels[i]) in held) is by] for by in (False, True))
    others, twice = pictures.subset(moved), {numbers[i] for i in moved}
    alike = [i for i, mark in enumerate(numbers) if mark in twice]
    check_one_class(pictures.subset(alike), marks[alike])
    relabelled, still = (
        [(pictures.where(i), min(known[numbers[i]], key=str), pictures.labels[i]) for i in these]
        for these in (moved, kept)
    )
    fresh = pictures if len(rows) == len(marks) else pictures.subset(rows)
    return Fresh(fresh, marks[rows], len(marks) - len(rows) - len(moved), others, relabelled, still)


def check_one_class(pictures: Pictures, marks: Tensor) -> None:
    """Refuse a picture that stands in two classes. ``marks``: the hashes of the pictures."""
    first: dict[int, int] = {}
    firsts = [first.setdefault(mark, i) for i, mark in enumerate(marks.tolist())]
    pairs = [pair for pair in enumerate(firsts) if len({pictures.labels[i] for i in pair}) == 2]
    if pairs:
        named = (" and ".join(f"{pictures.where(i)} ({pictures.labels[i]})" for i in pair[::-1]) for pair in pairs)
        raise SafeclError(f"The same picture is in two classes: {naming(named)}; delete the wrong one and try again.")


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
) -> tuple[Model, Lesson]:
    """The model after a session of ``fresh`` pictures, and what is worth knowing about it.

    ``folder``: where the phases of the training are saved; the same call goes on there after a stop. ``home``: of the
    pictures, for their cache.
    """
    began, pictures = time.monotonic(), fresh.pictures
    settings, transform = model.settings, model.transform
    train = settings.for_pictures(len(pictures))
    method = model.method(backbone, learning=True)
    views = ready(pictures, transform, home)
    classes = sorted_classes(pictures.labels)
    session = Session(method.sessions + 1, name, classes, views)
    fit = Trainer(make_accelerator(device), method, train, transform, settings.seed, progress, folder, stop)
    before, identity = model.state, uuid.uuid4().hex[:12]
    with recording(method, settings.memory) as (added, given):
        learn(method, session, fit)
    learned_now, learned_before = Counter(pictures.labels), counts(model.header)
    state = advance(before, method, identity, added, settings, model.standing)
    diverged = "{} is no longer finite after this session, so the model stays as it was; lower train.lr."
    check_all_finite({**state.tensors, **state.base}, diverged)
    index = {label: i for i, label in enumerate(method.classes)}
    targets = torch.tensor([index[label] for label in pictures.labels])
    state = replace(state, seen=_grown(state.seen, {"hashes": fresh.marks, "classes": targets}))
    state, calibration, told = look_back(state, method, views, targets, transform, stop, given)
    check_all_finite(state.kept, diverged)
    judged = (calibration["pictures"] if calibration else 0) if method.leaves_out else None
    new = [label for label in classes if label not in set(model.classes)]
    taught = {label: learned_now[label] + learned_before.get(label, 0) for label in classes}
    told["warnings"] = [*fresh.note(), *warnings(pictures, taught, method.classes, judged)]
    per_class, seconds = {label: learned_now[label] for label in classes}, time.monotonic() - began
    lesson = Lesson(name, len(pictures), fresh.skipped, per_class, new, seconds, train.epochs, **told)
    same = {key: getattr(lesson, key) for key in ("new", "epochs", "accuracy")}
    same["classes"] = list(map(list, per_class.items()))
    entry = step("learn", name, id=identity, seconds=round(seconds, 1), notes=method.notes, **same)
    header = after(model.header, entry, method.classes, calibration, statistics=sizes_of(method))
    return Model(header, state), lesson


def _grown(rows: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([rows[name], added]) if name in rows else added for name, added in more.items()}


@torch.no_grad()
def embed(
    forward: Callable[[Tensor], dict[str, Tensor]],
    pictures: Pictures,
    indices: Sequence[int],
    transform: Transform,
    device: torch.device,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Tensor]:
    """Features (n, d) by network that ``forward`` gives of the plain views at ``indices``, on the CPU."""
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
    """(the state with some features kept, the calibration, what a lesson says), from pictures that are left out.

    ``state``: with the session's pictures among those seen. ``given``: by ridge head, their features (N, d).
    """
    if not method.leaves_out:
        return state, None, {"accuracy": None, "interval": None, "confused": [], "suspects": []}
    here = some(len(targets)) if len(targets) <= MAX_JUDGED else chosen(targets)[some(len(chosen(targets)))]
    if method.heads and given.keys() >= set(method.heads.values()):
        computed = {name: given[head] for name, head in method.heads.items()}
        features = {name: rows[here.to(rows.device)].float().cpu() for name, rows in computed.items()}
    else:
        features = embed(
            lambda x: {name: method.networks[name].features(x) for name in method.heads} or method.embed(x),
            views, here.tolist(), transform, method.backbone.device, stop,
        )  # fmt: skip
    own, keeping, kept = targets[here], method.to_keep(features), state.kept or {"targets": targets[:0]}
    older = some(len(kept["targets"]), max(MAX_JUDGED - len(here), 256))
    if len(older):
        before = recalled(method, kept, older)
        features = {name: torch.cat([before[name].cpu(), rows]) for name, rows in features.items()}
    every = torch.cat([kept["targets"][older], own])
    picked, rest = chosen(own), can_be_left_out(every, state.seen["classes"])
    judged = torch.isin(rest, torch.cat([torch.arange(len(older)), len(older) + picked]))
    left = {name: rows[rest].half() for name, rows in features.items()}  # as they are kept, and judged later
    logits, halved, likeness = left_out_answers(method, left, every[rest])
    like = None if likeness is None else likeness[judged]
    calibration = calibrate(every[rest][judged], logits[judged], halved[judged], like)
    recent = rest >= len(older)
    odd, at = suspects(probabilities(logits, calibration)[recent], every[rest][recent]), here[rest[recent] - len(older)]
    marks, names = state.seen["hashes"][len(state.seen["hashes"]) - len(targets) :], method.classes
    told = {
        "accuracy": calibration and calibration["accuracy"],
        "interval": calibration and calibration["interval"],
        "confused": [(names[a], names[b], n) for a, b, n in calibration["confused"]] if calibration else [],
        "suspects": [(views.where(int(at[i])), names[c], names[answer], sure) for i, c, answer, sure in odd],
    }
    more = {name: rows[picked].half() for name, rows in keeping.items()}
    more |= {"targets": own[picked], "hashes": marks[here][picked]}
    return replace(state, kept=_grown(kept, more)), calibration, told


def model_of_run(
    folder: Path, backbone: Backbone, stream: Stream, values: Mapping[str, Any], say: Callable[[str], None]
) -> Model:
    """The finished run in ``folder``, with settings ``values``; its pictures are read again, and none is learned."""
    backbone = backbone.to(choose_device("auto"))
    this = identity(values, backbone, stream)
    if found := difference(read_json(folder / FILE) or {}, this):
        raise SafeclError(f"{folder} holds a run with {found}; export it with the weights and pictures it began with.")
    settings = resolve({key: values[key] for key in ("method", "backbone", "train", "seed")})
    settings = settings.model_copy(update={"epochs": settings.train.later_epochs or settings.train.epochs})
    header = new_header(settings, backbone, stream.transform)
    method = Model(header, State()).method(backbone)
    _, lines = restore_newest(folder, this, method, say)
    past = [stream.copy().open(line["session"]) for line in lines]
    pictures, index = join([session.train for session in past]), {label: i for i, label in enumerate(method.classes)}
    targets = torch.tensor([index[label] for label in pictures.labels])
    state = State(tensors_of(method), grams_of(method), seen={"hashes": hashes(pictures), "classes": targets})
    method.eval()
    method.refresh()  # a state does not say what follows from its statistics
    state, calibration, _ = look_back(state, method, pictures, targets, stream.transform, lambda: False, {})
    for session, line in zip(past, lines, strict=True):
        count, new = Counter(session.train.labels), [c for c in session.classes if c not in header["classes"]]
        told: dict[str, Any] = {"seconds": round(line["seconds"]["total"], 1), "accuracy": None, "notes": {}}
        told["epochs"] = settings.epochs if header["history"] else settings.train.epochs
        entry = step("learn", session.name, classes=[[c, count[c]] for c in session.classes], new=new, **told)
        header = after(header, entry, [*header["classes"], *new], calibration, statistics=sizes_of(method))
    entry["accuracy"] = calibration and calibration["accuracy"]
    return Model(header, state)


def suspects(p: Tensor, targets: Tensor) -> list[tuple[int, int, int, float]]:
    """(position, class, answer, probability) of labels (n,) that are unlikely by p (n, C) and another is not."""
    own, (sure, answers) = p.gather(1, targets[:, None])[:, 0], p.max(dim=1)
    found = ((own < MAX_OWN) & (sure > MIN_OTHER)).nonzero()[:, 0]
    found = found[own[found].argsort()][:MAX_SUSPECTS]
    return [(i, int(targets[i]), int(answers[i]), float(sure[i])) for i in found.tolist()]


def warnings(
    pictures: Pictures, counts: Mapping[Label, int], classes: Sequence[Label], judged: int | None
) -> list[str]:
    """Sentences that help. ``counts``: all pictures so far of this session's classes; ``judged``: left out in turn."""
    told = [one_class("The model", classes[0])] if len(classes) == 1 else []
    few = [label for label, count in counts.items() if count <= FEW_PICTURES]
    if few:
        told.append(
            f"{counted(len(few), 'class has', 'classes have')} {FEW_PICTURES} pictures or fewer "
            f"({naming(map(str, few))}): ten or more would be better."
            + (" One with a single picture is left out of the accuracy." if 1 in counts.values() else "")
        )
    if any(min(pictures.size_of(i)) < SMALL_SIDE for i in spread(len(pictures))):
        told.append(f"Some pictures are smaller than {SMALL_SIDE} pixels, so there is little to see in them.")
    if judged is None:
        told.append(
            "The method, as it is set, cannot judge itself by the pictures that it has learned: its accuracy is not "
            "estimated, its probabilities are not calibrated and no picture is called unknown; safecl eval measures it "
            "on other pictures."
        )
    elif judged < MIN_CALIBRATING:
        told.append(
            f"{counted(judged, 'picture is', 'pictures are')} too few to say how sure an answer is or whether a "
            "picture is unknown."
        )
    return told


def clear(folder: Path) -> None:
    """Delete what learning a session has written, and the folder if nothing else is in it."""
    for name in (".*.part", "fit_*.safetensors", JOB):  # the last one says that the others are ours
        for path in folder.glob(name):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def begin(folder: Path, identity: dict[str, Any], say: Callable[[str], None]) -> None:
    """Make the folder in which a session is learned, or resume in it; what another command left there is dropped."""
    file, identity = folder / JOB, json.loads(json.dumps(identity))  # as it is read
    try:
        folder.mkdir(exist_ok=True)
        there = [path for path in folder.iterdir() if not path.match(f".{JOB}.*.part")]  # a kill leaves that
        if any(path.is_symlink() for path in there):
            raise ValueError
        before = json.loads(file.read_bytes()) if file in there else {}
        if before == identity:
            say("Resuming where the same command was stopped.")
        elif there and before.keys() != identity.keys():
            raise ValueError
        elif there:
            clear(folder)
            say("Another command was stopped here before it was finished; what it had begun is dropped.")
        folder.mkdir(exist_ok=True)
        write_json(file, identity)
    except (ValueError, AttributeError):
        raise SafeclError(f"{folder} holds other files than those of a lesson; delete it, or move it away.") from None
    except OSError as error:
        raise SafeclError(f"{folder} cannot be written ({error.strerror or error}).") from error

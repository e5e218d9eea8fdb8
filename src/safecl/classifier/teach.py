"""A model learns a session: the next model, and what is worth knowing about it. The model before is left as it was."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.calibrate import calibrate, chosen, left_out_logits, probabilities, some
from safecl.classifier.data import hashes, ready
from safecl.classifier.model import Model, now
from safecl.classifier.state import State, advance, names, recording
from safecl.engine.device import make_accelerator
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.fit import Trainer
from safecl.engine.learn import learn
from safecl.engine.progress import Progress, Quiet
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.streams.images import Label, Pictures, Transform, spread
from safecl.streams.labels import check_name, label_problems
from safecl.streams.sources import sorted_classes
from safecl.streams.stream import Session

FEW, TINY = 3, 32  # pictures of a class, and pixels of a shorter side, that are worth a warning
TWINS = 0.95  # cosine of centred features from which two pictures look the same: saved again, or at another size
SHOWN = 5  # of what a summary lists
DOUBT, SURE = 0.1, 0.5  # probability of its own class below, and of another above which, a label looks wrong


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
    accuracy: float | None
    confused: list[tuple[Label, Label, int]] = field(default_factory=list)  # true, answered, pictures
    suspects: list[tuple[str, Label, Label, float]] = field(default_factory=list)  # picture, label, answered, how sure
    warnings: list[str] = field(default_factory=list)


def new_pictures(model: Model | None, pictures: Pictures) -> tuple[Pictures, Tensor, int]:
    """The pictures that the model has not learned yet, their hashes, and how many it has."""
    found = hashes(pictures)
    known = set() if model is None else set(model.state.seen.get("hashes", torch.zeros(0)).tolist())
    rows = [i for i, value in enumerate(found.tolist()) if value not in known]
    if len(rows) == len(found):
        return pictures, found, 0
    return pictures.subset(rows), found[rows], len(found) - len(rows)


def check_labels(known: Sequence[Label], labels: Sequence[Label], name: str) -> None:
    """Refuse names that no class should have, and two that a person would read as one."""
    for label in dict.fromkeys(labels):
        check_name(label)
    for sentence in label_problems([*known, *labels], name):
        raise SafeclError(sentence)


def teach(
    model: Model,
    backbone: Backbone,
    pictures: Pictures,
    marks: Tensor,
    *,
    name: str,
    skipped: int = 0,
    home: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    folder: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Model, Lesson]:
    """The model after a session of ``pictures``. ``marks``: their hashes.

    ``folder``: where the phases of the training are saved; the same call goes on there after a stop. ``home``: of the
    pictures, for their cache.
    """
    began = time.monotonic()
    settings, transform = model.settings, model.transform
    train = settings.for_pictures(len(pictures))
    method = model.method(backbone, learning=True) if model.classes else _fresh(model, backbone)
    views = ready(pictures, transform, home)
    classes = sorted_classes(pictures.labels)
    session = Session(method.sessions + 1, name, classes, views)
    fit = Trainer(make_accelerator(device), method, train, transform, settings.seed, progress or Quiet(), folder, stop)
    before, identity = model.state, uuid.uuid4().hex[:12]
    with recording(method, settings.memory) as added:
        learn(method, session, fit)
    counts = Counter(pictures.labels)
    said = {key: model.header[key] for key in ("classes", "calibration")}
    said |= {"history": len(model.header["history"]), **_lengths(before)}
    state = advance(before, method, identity, added, settings.keep, said)
    index = {label: i for i, label in enumerate(method.classes)}
    targets = torch.tensor([index[label] for label in pictures.labels])
    state, calibration, told = _look_back(state, method, views, targets, transform, stop)
    state = replace(state, seen=_grown(state.seen, {"hashes": marks, "classes": targets}))
    new = [label for label in classes if label not in set(model.classes)]
    lesson = Lesson(
        name=name,
        pictures=len(pictures),
        skipped=skipped,
        classes={label: counts[label] for label in classes},
        new=new,
        seconds=time.monotonic() - began,
        epochs=train.epochs,
        warnings=warnings(pictures, counts, method.classes, calibration["pictures"]) + told.pop("warnings"),
        **told,
    )
    entry = {
        "what": "learn",
        "id": identity,
        "name": name,
        "pictures": lesson.pictures,
        "classes": [[label, counts[label]] for label in classes],
        "new": new,
        "epochs": train.epochs,
        "seconds": round(lesson.seconds, 1),
        "accuracy": lesson.accuracy,
        "confused": [list(pair) for pair in lesson.confused],
        "notes": method.notes,
        **now(),
    }
    header = {
        **model.header,
        "classes": list(method.classes),
        "calibration": calibration,
        "statistics": names(method),
        "history": [*model.header["history"], entry],
        "changed": entry["date"],
    }
    return Model(header, state), lesson


def _fresh(model: Model, backbone: Backbone) -> Method:
    from safecl.methods.catalog import make_method

    return make_method(model.settings.method, backbone, model.settings.seed)


def _lengths(state: State) -> dict[str, int]:
    return {"kept": len(state.kept.get("targets", ())), "seen": len(state.seen.get("hashes", ()))}


def _grown(rows: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([rows[name], added]) if name in rows else added for name, added in more.items()}


def _widened(kept: dict[str, Tensor], features: dict[str, Tensor]) -> dict[str, Tensor]:
    """``kept`` with zeros for networks that were added after its pictures were seen."""
    if not kept:
        return kept
    count = len(kept["targets"])
    new = {name: rows.new_zeros(count, rows.shape[1]).half() for name, rows in features.items() if name not in kept}
    return {**kept, **new}


@torch.no_grad()
def embed(
    method: Method, pictures: Pictures, indices: Sequence[int], transform: Transform, stop: Callable[[], bool]
) -> dict[str, Tensor]:
    """Features (n, d) by network of the plain views at ``indices``, on the CPU."""
    from safecl.errors import Stopped

    parts: dict[str, list[Tensor]] = {}
    for images in DeviceLoader(pictures, transform, method.backbone.device).plain(indices):
        if stop():
            raise Stopped
        for name, rows in method.embed(images).items():
            parts.setdefault(name, []).append(rows.float().cpu())
    return {name: torch.cat(rows) for name, rows in parts.items()}


def _look_back(
    state: State,
    method: Method,
    views: Pictures,
    targets: Tensor,
    transform: Transform,
    stop: Callable[[], bool],
) -> tuple[State, dict[str, Any], dict[str, Any]]:
    """(the state with some features kept, the calibration, what a lesson says), from pictures that are left out."""
    here = some(len(targets)) if len(targets) <= 1024 else chosen(targets)[some(len(chosen(targets)))]
    features, own = embed(method, views, here.tolist(), transform, stop), targets[here]
    older = some(len(state.kept["targets"]), max(1024 - len(here), 256)) if state.kept else torch.zeros(0).long()
    state = replace(state, kept=_widened(state.kept, features))
    before = {name: state.kept[name][older] for name in features} if state.kept else {}
    together = {name: torch.cat([before[name].float(), rows]) if before else rows for name, rows in features.items()}
    every = torch.cat([state.kept["targets"][older], own]) if before else own
    logits = left_out_logits(method, together, every)
    picked = chosen(own)
    judged = torch.cat([torch.arange(len(older)), len(older) + picked])
    calibration = calibrate(logits[judged], every[judged])
    kept = {name: rows[picked].half() for name, rows in features.items()} | {"targets": own[picked]}
    p = probabilities(logits, calibration)
    told = {
        "accuracy": calibration["accuracy"],
        "confused": confused(p[judged].argmax(dim=1), every[judged], method.classes),
        "suspects": suspects(p[len(older) :], own, here, views, method.classes),
        "warnings": twins(next(iter(features.values())), own, here, views),
    }
    return replace(state, kept=_grown(state.kept, kept)), calibration, told


def confused(answers: Tensor, targets: Tensor, classes: Sequence[Label]) -> list[tuple[Label, Label, int]]:
    """The pairs (true class, answer) that are most often mixed up, with the number of pictures."""
    wrong = answers != targets
    pairs = Counter(zip(targets[wrong].tolist(), answers[wrong].tolist(), strict=True))
    return [(classes[a], classes[b], n) for (a, b), n in pairs.most_common(SHOWN)]


def suspects(
    p: Tensor, targets: Tensor, where: Tensor, pictures: Pictures, classes: Sequence[Label]
) -> list[tuple[str, Label, Label, float]]:
    """Pictures that look mislabelled: left out, another class is likely and their own is not."""
    own, (sure, answers) = p.gather(1, targets[:, None])[:, 0], p.max(dim=1)
    found = ((own < DOUBT) & (sure > SURE)).nonzero()[:, 0]
    found = found[own[found].argsort()][:SHOWN]
    return [
        (pictures.where(int(where[i])), classes[int(targets[i])], classes[int(answers[i])], float(sure[i]))
        for i in found.tolist()
    ]


def twins(features: Tensor, targets: Tensor, where: Tensor, pictures: Pictures) -> list[str]:
    """A sentence on pictures of different classes that look the same."""
    f = F.normalize(features - features.mean(dim=0), dim=1)
    alike = (
        (f @ f.T > TWINS) & (targets[:, None] != targets[None]) & (torch.arange(len(f))[:, None] < torch.arange(len(f)))
    )
    pairs = alike.nonzero().tolist()
    if not pairs:
        return []
    a, b = (pictures.where(int(where[i])) for i in pairs[0])
    more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
    return [f"{a} and {b} look the same and are in two classes{more}: is one of them in the wrong folder?"]


def warnings(pictures: Pictures, counts: Counter[Label], classes: Sequence[Label], judged: int) -> list[str]:
    """Sentences that help."""
    told = []
    if len(classes) == 1:
        told.append("The model knows one class, so it answers that class to every picture; teach it a second one.")
    few = [label for label, count in counts.items() if count <= FEW]
    if few:
        names = ", ".join(map(str, few[:SHOWN])) + (", …" if len(few) > SHOWN else "")
        told.append(f"{len(few)} of the classes have {FEW} pictures or fewer ({names}): ten or more would be better.")
    small = sum(min(pictures.size_of(i)) < TINY for i in spread(len(pictures)))
    if small:
        told.append(f"Some pictures are smaller than {TINY} pixels, so there is little to see in them.")
    if judged < 19:
        told.append(f"{judged} pictures are too few to say how sure an answer is or whether a picture is unknown.")
    return told

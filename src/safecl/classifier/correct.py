"""Change what a model has learned: labels, classes, its last step. No network is tuned."""

import copy
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.data import hashes
from safecl.classifier.enough import accuracy_text
from safecl.classifier.history import WHAT, check_labels, check_not_frozen, check_rollback, counts, find, step
from safecl.classifier.model import Model
from safecl.classifier.relabel import Change
from safecl.classifier.seen import learned_as
from safecl.classifier.state import grams_of, ridge_heads, roll_back, settled
from safecl.classifier.teach import embed
from safecl.errors import SafeclError
from safecl.lines import counted, naming
from safecl.methods.method import Method
from safecl.streams.labels import sorted_classes
from safecl.streams.pictures.images import Label, Pictures

MIN_LIKENESS = 0.65  # of the name of a new class to that of another, from which it may be a slip: dgo and dog


def correct(
    model: Model, backbone: Backbone, pictures: Pictures, labels: Sequence[Label | None], of: Label | None = None
) -> tuple[Model, str]:
    """The model as if ``pictures`` had been learned as ``labels``, None: never; and sentences on what has changed.

    ``of``: the class that all of them must have been learned as, which is split then.
    """
    check_not_frozen(model.header)
    check_labels(model.classes, _given(labels), "the model")
    seen, marks = model.state.seen, hashes(pictures).tolist()
    place, wanted = {mark: i for i, mark in enumerate(marks)}, dict(zip(marks, labels, strict=True))
    if twice := [pictures.where(i) for i, mark in enumerate(marks) if labels[i] != wanted[mark]]:
        raise SafeclError(f"A picture is given with two labels: {naming(twice)}; give each picture once.")
    learned, known = seen["hashes"].tolist(), learned_as(seen, model.classes)
    fresh = [mark for mark in wanted if mark not in known]
    if strange := [pictures.where(place[mark]) for mark in fresh if of is not None or wanted[mark] is None]:
        raise SafeclError(
            f"{counted(len(strange), 'picture was', 'pictures were')} never learned by this model: {naming(strange)}; "
            "only learned pictures can be removed, or split from a class."
        )
    if all(known.get(mark) == {label} for mark, label in wanted.items()):
        these = "the picture was" if len(wanted) == 1 else f"all {len(wanted)} pictures were"
        raise SafeclError(f"There is nothing to correct: {these} learned as that already.")
    method = model.method(backbone, learning=True)
    method.summed()
    classes = [model.classes[c] for c in seen["classes"].tolist()]
    rows = [row for row, mark in enumerate(learned) if mark in wanted]
    if of is not None and (others := sorted({str(classes[row]) for row in rows} - {str(of)})):
        raise SafeclError(f"Some of the pictures were not learned as {of!r} but as {naming(others)}; omit them.")
    rows = [row for row in rows if classes[row] != wanted[learned[row]]]
    every = [*(learned[row] for row in rows), *fresh]
    now = [wanted[mark] for mark in every]
    method.register_classes(_given(now))
    new = torch.tensor([-1 if label is None else method.classes.index(label) for label in now])
    where = torch.tensor([*rows, *range(len(learned), len(learned) + len(fresh))])
    change = Change(model, method, where, new, marks=fresh)
    change.move(_features(model, method, pictures, [place[mark] for mark in every]))
    told, names, moved = list[str](), list[str](), {learned[row] for row in rows}
    left = {mark for mark in moved if wanted[mark] is None}
    for verb, own in (("Added", {*fresh}), ("Moved", moved - left), ("Removed", left)):
        were = Counter(str(classes[row]) for row in rows if learned[row] in own)
        before = f", learned before: {', '.join(f'{n} as {label}' for label, n in were.items())}" if were else ""
        to = f" to {naming(map(str, _given(wanted[mark] for mark in own)))}" if own is not left else ""
        told += [f"{verb} {counted(len(own), 'picture')}{to}{before}."] if own else []
        names += [f"{counted(len(own), 'picture')} {verb.lower()}{to}"] if own else []
    if first := [str(label) for label in _given(now) if label not in model.classes]:
        told.append(f"{naming(first)}: {'a new class' if len(first) == 1 else 'new classes'}.")
        for near in {*(near for label in first if of is None for near in _near(label, model.classes))}:
            told.append(f"Did you mean {near!r}? safecl rollback takes this back.")
    entry = step("correct" if of is None else "split", ", ".join(names))
    entry["was"] = [[learned[row], classes[row]] for row in rows if learned[row] not in left]
    made = change.done(entry)
    made.grams = grams_of(method)  # another correction may follow
    return made, " ".join(told) + change.said


def join(model: Model, backbone: Backbone, one: Label, other: Label) -> tuple[Model, str]:
    """The model as if the pictures of ``other`` had been learned as ``one``."""
    check_not_frozen(model.header)
    one, other = find(model.header, one), find(model.header, other)
    if one == other:
        raise SafeclError(f"{one!r} cannot be joined with itself; give two classes.")
    method, i, j = model.method(backbone, learning=True), model.classes.index(one), model.classes.index(other)
    method.join(i, j)
    rows = (model.state.seen["classes"] == j).nonzero()[:, 0]
    change = Change(model, method, rows, torch.full_like(rows, i), gone=[j])
    made = change.done(step("join", f"{one} and {other}"))
    return made, f"{one} and {other} are one class now: {one}.{change.said}"


def rollback(model: Model) -> tuple[Model, str]:
    """The model before its last session or correction, to the bit, and a sentence."""
    gone = check_rollback({**model.header, "undo": [vars(one) for one in model.state.undo]})
    state, said = roll_back(model.state)
    past, classes = model.header["history"], model.classes
    for c, label in said.get("dropped", ()):
        classes.insert(c, label)
    classes = classes[: said["classes"]]
    if len(set(classes)) < len(classes):
        raise SafeclError(
            "A class has the name now that a class had before; give it another one (safecl rename) first."
        )
    stay = [e for e in past[said["history"] :] if e["what"] == "rename" and e["to"] in classes]  # it stays
    history = copy.deepcopy([*past[: said["history"]], *stay])
    for was in said.get("entries", ()):
        entry = history[was["number"]]
        entry["classes"] = [[classes[c], count] for c, count in was["classes"]]
        entry["new"] = [classes[c] for c in was["new"]]
    header = {**model.header, "classes": classes, "calibration": said["calibration"], "history": history}
    known = f"the model knows {counted(len(classes), 'class')} now"
    known += f", with leave-one-out accuracy {accuracy_text(judged)}" if (judged := said["calibration"]) else ""
    return Model(header, state), f"Took back what was {WHAT[gone['what']]}: {gone['name']}; {known}."


def forget(model: Model, label: Label, backbone: Backbone) -> tuple[Model, str]:
    """The model without a class, and a sentence on what stays of it. Earlier sessions cannot be rolled back then."""
    check_not_frozen(model.header)
    label = find(model.header, label)
    if len(model.classes) == 1:
        raise SafeclError(f"{label!r} is the only class of the model; delete the file to forget it.")
    method, index = model.method(backbone, learning=True), model.classes.index(label)
    rows = (model.state.seen["classes"] == index).nonzero()[:, 0]
    change, removed = Change(model, method, rows, torch.full_like(rows, -1), gone=[index]), Counter[str]()
    for session, (_, places) in change.touched.items():
        for one in (one for one in model.state.records.get(session, ()) if not one.taken):
            own = one.only(places.to(one.targets.device))
            removed[one.head] += len(places)
            if session not in model.state.chain:  # part of the Gram matrix for good, which it leaves by subtraction
                change.taken.append(replace(own, targets=torch.full_like(own.targets, -1)))
    every = {name: head.statistics for name, head in ridge_heads(method).items()}
    sums = {name: own_sums for name, own_sums in every.items() if own_sums.kept and own_sums.count}
    for name, own_sums in sums.items():
        own_sums.count -= removed[name]
    made = change.done(step("forget", str(label)))
    del made.header["history"][-1]["touched"]  # only a correction is asked for it when models are merged
    for entry in made.header["history"]:
        entry |= {"was": [one for one in entry["was"] if one[1] != label]} if "was" in entry else {}
    state = settled(replace(made.state, undo=()), method, model.settings)
    taught, least = counts(model.header)[label], min((removed[name] for name in sums), default=0)
    said = f"{label!r} is forgotten: it is no answer any more, and all that was kept of it by name is gone"
    tuned = "" if method.anchor == "backbone" else "; the tuning of the network was shaped by it and stays"
    if sums and least >= taught:
        said += f", and its {taught} pictures have left the sums over all classes"
    elif sums:
        stay = f"{taught - least} of its {taught} pictures stay in the sums over all classes"
        said += f"; {stay}, from which they cannot be read"
        tuned += ". A model made with --memory features forgets wholly"
    return Model(made.header, state), f"{said}{tuned}."


@torch.no_grad()
def _features(model: Model, method: Method, pictures: Pictures, which: Sequence[int]) -> dict[str, Tensor]:
    """By network, what it gives today for the pictures at ``which``: (n, d)."""
    names = {name for networks in method.reads.values() for name in networks} & method.networks.keys()
    each = sorted(set(which))

    def forward(images: Tensor) -> dict[str, Tensor]:
        return {name: method.networks[name].features(images) for name in names}

    found = embed(forward, pictures, each, model.transform, method.backbone.device)
    place = {i: n for n, i in enumerate(each)}
    return {name: rows[[place[i] for i in which]].to(method.backbone.device) for name, rows in found.items()}


def _near(label: str, known: Iterable[Label]) -> list[str]:
    """The class that a person may have meant; not one that differs in its number."""
    words = [str(one) for one in known if re.sub("[0-9]+", "", str(one)) != re.sub("[0-9]+", "", label)]
    return get_close_matches(label, words, n=1, cutoff=MIN_LIKENESS)


def _given(labels: Iterable[Label | None]) -> tuple[Label, ...]:
    return sorted_classes(label for label in labels if label is not None)

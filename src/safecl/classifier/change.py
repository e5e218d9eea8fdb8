"""Take the last session or correction back, or a class out."""

import copy
from dataclasses import replace

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.calibrate import recalibrate
from safecl.classifier.history import after, check_not_frozen, check_rollback, counts, find, now, renamed, step
from safecl.classifier.model import Model
from safecl.classifier.state import (
    State,
    ridge_heads,
    roll_back,
    set_grams,
    settled,
    statistics,
    tensors_of,
    with_added,
)
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.streams.pictures.images import Label


def rollback(model: Model) -> Model:
    """The model before its last session or correction, to the bit."""
    check_not_frozen(model.header)
    check_rollback(model.header, sum(one.whole for one in model.state.undo))
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
        if "pictures" in entry:
            entry["pictures"] = sum(count for _, count in was["classes"])
            entry["confused"] = [[classes[a], classes[b], n] for a, b, n in was["confused"]]
    told = {"classes": classes, "calibration": said["calibration"], "history": history, "changed": now()}
    header = {**model.header, **told}
    for c, label in said.get("names", ()):
        header = renamed(header, classes[c], label, told=False) if classes[c] != label else header
    return Model(header, state)


def forget(model: Model, label: Label, backbone: Backbone) -> tuple[Model, str]:
    """The model without a class, and a sentence on what stays of it. Earlier sessions cannot be rolled back then."""
    check_not_frozen(model.header, steps=1)
    label = find(model.header, label)
    if len(model.classes) == 1:
        raise SafeclError(f"{label!r} is the only class of the model; delete the file to forget it.")
    method, index = model.method(backbone, learning=True), model.classes.index(label)
    state, removed = _without(model.state, method, index)
    method.drop_class(index)
    set_grams(method, state)
    heads = ridge_heads(method)
    for name, count in removed.items():
        heads[name].statistics.count -= count
    method.classes.remove(label)
    method.refresh()
    side = backbone.size
    if method.logits(torch.zeros(1, 3, side, side, device=backbone.device)).shape[1] != len(method.classes):
        raise SafeclError(f"{method.settings.title} cannot forget a single class.")
    state = settled(replace(state, tensors=tensors_of(method), undo=()), method, model.settings)
    history = copy.deepcopy(model.header["history"])
    for past in history:
        past["classes"] = [pair for pair in past["classes"] if pair[0] != label]
        past["new"] = [one for one in past["new"] if one != label]
        past["pictures"] = sum(count for _, count in past["classes"])
        past["confused"] = [pair for pair in past.get("confused", []) if label not in pair[:2]]
    before, calibration = {**model.header, "history": history}, recalibrate(method, state.kept, state.seen)
    header, taught = after(before, step("forget", str(label)), method.classes, calibration), counts(model.header)[label]
    return Model(header, state), _sentence(label, taught, min(removed.values(), default=0), method)


def _without(state: State, method: Method, index: int) -> tuple[State, dict[str, int]]:
    """(the state without the features of a class, by ridge head how many of its pictures have left its Gram matrix)."""
    own = [(session, one.only(one.targets == index)) for session, added in state.records.items() for one in added]
    removed = {
        name: sum(len(one.targets) for _, one in own if one.head == name)
        for name, head in ridge_heads(method).items()
        if head.statistics.kept
    }
    base = state.base
    if base:  # sessions that are part of it leave it by subtraction
        gone = with_added(method, {}, [one for session, one in own if session not in state.chain])
        base = {
            name: (gram.double() - gone[name].to(gram).double()).to(gram) if len(gone[name]) else gram
            for name, gram in base.items()
        }
    records = {session: [one.without(index) for one in added] for session, added in state.records.items()}
    kept, seen = _dropped(state.kept, "targets", index), _dropped(state.seen, "classes", index)
    return replace(state, base=base, records=records, kept=kept, seen=seen), removed


def _dropped(rows: dict[str, Tensor], key: str, index: int) -> dict[str, Tensor]:
    """Rows that are not of a class; the classes after it move up by one."""
    if key not in rows:
        return rows
    stay = rows[key] != index
    found = {name: values[stay] for name, values in rows.items()}
    found[key] = found[key] - (found[key] > index).long()
    return found


def _sentence(label: Label, taught: int, removed: int, method: Method) -> str:
    gone = f"{label!r} is forgotten: it is no answer any more, and all that was kept of it by name is gone"
    tuned = "" if method.anchor == "backbone" else "; the tuning of the network was shaped by it and stays"
    if not statistics(method):
        return f"{gone}{tuned}."
    if removed >= taught:
        return f"{gone}, and its {taught} pictures have left the sums over all classes{tuned}."
    return (
        f"{gone}; {taught - removed} of its {taught} pictures stay in the sums over all classes, from which they "
        f"cannot be read{tuned}. A model made with --memory features forgets wholly."
    )

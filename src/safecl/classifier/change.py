"""Take the last session or correction back, or a class out."""

import copy
from collections import Counter
from dataclasses import replace

import torch

from safecl.backbone.backbone import Backbone
from safecl.classifier.enough import accuracy_text
from safecl.classifier.history import WHAT, check_not_frozen, check_rollback, counts, find, now, renamed, step
from safecl.classifier.model import Model
from safecl.classifier.relabel import Change
from safecl.classifier.state import ridge_heads, roll_back, settled
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.pictures.images import Label


def rollback(model: Model) -> tuple[Model, str]:
    """The model before its last session or correction, to the bit, and a sentence."""
    undo = () if model.header["frozen"] else model.state.undo
    gone = check_rollback({**model.header, "undo": [vars(one) for one in undo]})
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
    told = {"classes": classes, "calibration": said["calibration"], "history": history, "changed": now()}
    header = {**model.header, **told}
    for c, label in said.get("names", ()):
        header = renamed(header, classes[c], label, told=False) if classes[c] != label else header
    known = f"the model knows {counted(len(classes), 'class')} now"
    known += f", with leave-one-out accuracy {accuracy_text(judged)}" if (judged := said["calibration"]) else ""
    return Model(header, state), f"Took back what was {WHAT[gone['what']]}: {gone['name']}; {known}."


def forget(model: Model, label: Label, backbone: Backbone) -> tuple[Model, str]:
    """The model without a class, and a sentence on what stays of it. Earlier sessions cannot be rolled back then."""
    check_not_frozen(model.header, steps=1)
    label = find(model.header, label)
    if len(model.classes) == 1:
        raise SafeclError(f"{label!r} is the only class of the model; delete the file to forget it.")
    method, index = model.method(backbone, learning=True), model.classes.index(label)
    rows = (model.state.seen.get("classes", torch.zeros(0)) == index).nonzero()[:, 0]
    change, removed = Change(model, method, rows, torch.full_like(rows, -1), gone=[index]), Counter[str]()
    for session, (_, places) in change.touched.items():
        for one in (one for one in model.state.records.get(session, ()) if not one.taken):
            own = one.only(places.to(one.targets.device))
            removed[one.head] += len(places)
            if session not in model.state.chain:  # part of the Gram matrix for good, which it leaves by subtraction
                change.taken.append(replace(own, targets=torch.full_like(own.targets, -1)))
    sums = {name: head.statistics for name, head in ridge_heads(method).items() if head.statistics.kept}
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

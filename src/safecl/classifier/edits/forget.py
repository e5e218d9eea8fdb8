"""Forget a class: no answer any more, and out of all sums as far as features are kept."""

from dataclasses import replace
from typing import Any

import torch

from safecl.backbone.backbone import Backbone
from safecl.classifier.edits.ledger import Change, Ledger
from safecl.classifier.edits.steps import made
from safecl.classifier.edits.sums import Moved, feeds, record_of
from safecl.classifier.model import Model, Warm
from safecl.classifier.modelfile.history import check_not_frozen, counts, find, new_id, step
from safecl.classifier.modelfile.state import settled
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.methods.parts import tuned
from safecl.streams.pictures.images import Label


def forget(model: Model, label: Label, backbone: Backbone) -> tuple[Model, str]:
    """The model without a class, and a sentence on what stays of it. Earlier sessions cannot be
    rolled back then.
    """
    check_not_frozen(model.header)
    label = find(model.header, label)
    if len(model.classes) == 1:
        raise SafeclError("forget.only-class", label=label)
    method = model.method(backbone, learning=True)
    index = model.classes.index(label)
    ledger = Ledger.of(model)
    rows = (ledger.classes == index).nonzero()[:, 0]
    new = torch.full_like(rows, -1)
    change = Change(new_id(), ledger, rows, new, list(method.classes), leaving=(index,))
    moved, removed = _taken_out(model, method, change)
    found = made(model, Warm(method), change, moved, step("forget", str(label)))
    # Only a correction is asked for it when models are merged.
    del found.header["history"][-1]["touched"]
    for entry in found.header["history"]:
        if "was" in entry:
            entry["was"] = [one for one in entry["was"] if one[1] != label]
    state = settled(replace(found.state, undo=()), method, model.settings)
    taught = counts(model.header)[label]
    return Model(found.header, state), _said(method, label, taught, removed)


@torch.no_grad()
def _taken_out(model: Model, method: Method, change: Change) -> tuple[Moved, int | None]:
    """Correct the pictures whose features are recorded to no class at all.

    Gives what leaves Gram matrices for good, and how many pictures leave every sum over all
    classes; None where there is no such sum.
    """
    moved = Moved()
    fed = feeds(method)
    heads = {*fed.values()}
    removed = 0
    for session, (here, places) in change.touched.items():
        records = {head: record_of(model.state, session, head) for head in heads}
        found = {head: one for head, one in records.items() if one is not None}
        if len(found) < len(heads):
            continue
        removed += len(places)
        for part, head in fed.items():
            own = found[head].only(places.to(found[head].targets.device))
            values = own.values.to(method.backbone.device)
            old = change.old[here].to(values.device)
            module: Any = method.get_submodule(part)
            module.correct(values, old, torch.full_like(old, -1))
            if part == head and session not in model.state.chain:
                out = replace(own, targets=torch.full_like(own.targets, -1))
                moved.taken.append(out)
    return moved, removed if heads else None


def _said(method: Method, label: Label, taught: int, removed: int | None) -> str:
    told = f"{label!r} is forgotten: it is no answer any more, and all that was kept of it by name"
    told += " is gone"
    advice = ""
    if removed is not None and removed >= taught:
        told += f", and its {taught} pictures have left the sums over all classes"
    elif removed is not None:
        told += f"; {taught - removed} of its {taught} pictures stay in the sums over all classes,"
        told += " from which they cannot be read"
        advice = " A model made with --memory features forgets completely."
    if tuned(method):
        told += "; the tuning of the network was shaped by it and stays"
    return f"{told}.{advice}"

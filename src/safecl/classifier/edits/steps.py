"""A change of what was learned becomes a step of a model, and the last step is taken back."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from safecl.classifier.answers.calibrate import of_more, recalibrate
from safecl.classifier.answers.enough import accuracy_text
from safecl.classifier.edits import sums, tables
from safecl.classifier.edits.ledger import Change
from safecl.classifier.edits.sums import Features, Moved
from safecl.classifier.model import Model, Warm
from safecl.classifier.modelfile.history import BRINGING, WHAT, after, check_rollback, counts
from safecl.classifier.modelfile.state import (
    Added,
    State,
    add_to_grams,
    advance,
    ridge_heads,
    roll_back,
    set_grams,
)
from safecl.errors import SafeclError
from safecl.heads.ridge import RidgeHead
from safecl.heads.solve import MAX_UPDATES, Kept, Updated, factors_kept
from safecl.lines import counted, naming
from safecl.methods import parts
from safecl.methods.method import Method, More, Relabelled

MIN_JUDGING = 5  # pictures of a step, from which it says anything of β


def still(model: Model, step: str) -> set[str]:
    """The steps since any network has moved, and ``step``."""
    past = model.header["history"]
    moving = [n for n, entry in enumerate(past) if entry["what"] in ("learn", "merge")]
    return {step, *(entry["id"] for entry in past[max(moving, default=0) :])}


def ready(warm: Warm) -> Warm:
    """With all at hand that a quick change begins with."""
    if warm.included is not None:
        return warm
    method = warm.method
    with factors_kept() as kept:
        included = method.refresh()
        method.eval()
        return Warm(method, included, _factors(method, kept))


def made(
    model: Model,
    warm: Warm,
    change: Change,
    moved: Moved,
    entry: dict[str, Any],
    today: Features | None = None,
    quick: bool = False,
) -> Model:
    """The model after a change, which its method has ``moved`` by, with an ``entry`` in the
    history. ``quick``: what was fitted to all pictures stays where none leaves, and, where the
    classes stay, what it says of its own accuracy.
    """
    # the weights and the leave-one-out answers are of the same sums
    with factors_kept() as kept:
        return _made(model, warm, change, moved, entry, today or {}, quick, kept)


def _made(
    model: Model,
    warm: Warm,
    change: Change,
    moved: Moved,
    entry: dict[str, Any],
    today: Features,
    quick: bool,
    kept: Kept,
) -> Model:
    method = warm.method
    before = model.state
    features = dict(today)
    features |= {
        name: moved.heads[h] for name, h in parts.heads_of(method).items() if h in moved.heads
    }
    judges = method.judging is not None
    state, rows = tables.changed(before, change, features if judges else {})
    added = [replace(one, targets=change.index[one.targets]) for one in moved.added]
    more = None
    if quick and warm.included is not None and bool((change.new >= 0).all()) and not change.gone:
        places = change.old.to(method.backbone.device), change.new.to(method.backbone.device)
        read = warm.included(features)
        more = More(warm.included, {name: Relabelled(own, *places) for name, own in read.items()})
    state, added = _added_up(model, method, change, state, added, moved.taken, more is None)
    heads = ridge_heads(method)
    known = _updated(warm, heads, added, more.changed if more else {})
    kept.near += [(ref(heads[name].statistics.gram), one) for name, one in known.items()]
    included = method.refresh(more)
    method.eval()
    history = tables.history_after([*model.header["history"], {**entry, "id": change.step}], change)
    past = model.header["history"]
    said = {
        **model.standing,
        "dropped": [[c, model.classes[c]] for c in change.gone],
        "entries": tables.rewritten(past, history[:-1], model.classes),
    }
    state = advance(state, method, change.step, added, model.settings, said, rows)
    # those of the method may change in place
    state = replace(state, tensors={name: own.clone() for name, own in state.tensors.items()})
    calibration = model.header["calibration"]
    grown = more is not None and calibration is not None and len(model.classes) > 1
    if grown and method.classes != model.classes:
        calibration = of_more(calibration, len(method.classes))
    elif not quick or method.classes != model.classes:
        calibration = recalibrate(method, state.kept, state.seen)
    touched = [step for step in change.touched if step != change.step]
    last = {**history.pop(), "touched": touched}
    header = after({**model.header, "history": history}, last, method.classes, calibration)
    found = Model(header, state)
    found.warm = Warm(method, included, _factors(method, kept))  # another change may follow
    return found


def _factors(method: Method, kept: Kept) -> dict[str, Updated]:
    """By ridge head, what is known of its matrix."""
    every = {name: kept.of(head.statistics.gram) for name, head in ridge_heads(method).items()}
    return {name: one for name, one in every.items() if one is not None}


def _updated(
    warm: Warm,
    heads: Mapping[str, RidgeHead],
    added: Sequence[Added],
    changed: Mapping[str, Relabelled],
) -> dict[str, Updated]:
    """By ridge head, the factor that there was and what its matrix has got since, unless that is
    much.
    """
    found = dict[str, Updated]()
    for name, head in heads.items():
        known = warm.factors.get(name)
        views = head.reading.views
        more = list[tuple[Tensor, float]]()
        if head.statistics.kept:
            own = (one for one in added if one.head == name)
            more = [
                (head.project(one.values.to(head.weight)), -1.0 if one.taken else 1.0)
                for one in own
            ]
        elif name in changed:
            rows, old, _ = changed[name]
            more = [(rows[(old < 0).repeat_interleave(views)], 1.0)]
        else:
            continue
        if known is None or len(known.rows) + sum(len(rows) for rows, _ in more) > MAX_UPDATES:
            continue
        for rows, sign in more:
            known = known.and_then(rows / math.sqrt(views), torch.full_like(rows[:, 0], sign))
        found[name] = known
    return found


def _added_up(
    model: Model,
    method: Method,
    change: Change,
    state: State,
    added: list[Added],
    taken: list[Added],
    anew: bool,
) -> tuple[State, list[Added]]:
    """Make all sums of ``method`` without the classes that leave; ``anew``: as exact as what is
    recorded allows.

    Gives the state whose Gram matrices it has then, but for what the change itself has ``added`` or
    ``taken`` out; and these.
    """
    step = change.step
    after = replace(state, records={**state.records, step: added} if added else state.records)
    removing = [one for one in change.touched if change.removes(one)]
    exact = anew and sums.complete(method, change.ledger, after)
    steps = [one for one in change.ledger.steps if one in after.records]
    if exact:
        if not {*removing} <= {*state.chain}:  # what is folded is added up anew, without them
            state = replace(state, base={}, chain=tuple(one for one in steps if one != step))
    else:
        sums.evidence(method, change, model.state, after, _judged(model))
        added = [*added, *taken]
    if {*removing} & {*state.chain}:
        set_grams(method, state)  # otherwise the same sums in the same order come first
    if added:
        add_to_grams(method, added)
    for c in reversed(change.gone):
        parts.drop_class(method, c)
        del method.classes[c]
    if exact:
        sums.add_up(method, after, steps)
    return state, added


def _judged(model: Model) -> str:
    """The last step that says anything of β."""
    past = [entry for entry in model.header["history"] if entry["what"] in BRINGING]
    sizes = [(entry["id"], sum(count for _, count in entry["classes"])) for entry in past]
    return next((name for name, count in reversed(sizes) if count >= MIN_JUDGING), "")


def said(model: Model, made: Model, method: Method, change: Change) -> str:
    """What else a person should know of a change, behind a space."""
    told = ""
    if left := [str(change.labels[c]) for c in change.gone if c not in change.leaving]:
        these = "it is" if len(left) == 1 else "they are"
        told += f" No picture is left of {naming(left)}, so {these} gone."
    if parts.tuned(method):
        told += " The tuning of the network stays as it is."
    calibration = made.header["calibration"]
    pictures = counts(made.header)
    before = model.header["calibration"]
    judged = not before or calibration != of_more(before, len(made.classes))
    if calibration and judged and len(pictures) > 1:
        told += f" Leave-one-out accuracy {accuracy_text(calibration)}, the mean over classes."
    new = [change.labels[c] for c in {*change.new.tolist()} if c >= 0]
    single = [str(label) for label in new if pictures.get(label) == 1]
    if single and method.judging:
        told += f" With one picture a class has no leave-one-out accuracy: {naming(single)}."
    back = [sum(one.whole for one in each.state.undo) for each in (made, model)]
    if back[0] <= back[1]:
        steps = counted(model.settings.keep, "step")
        told += f" {steps} can be rolled back, so the oldest one no longer can."
    return told


def rollback(model: Model) -> tuple[Model, str]:
    """The model before its last session or correction, to the bit, and a sentence."""
    gone = check_rollback({**model.header, "undo": [vars(one) for one in model.state.undo]})
    state, was = roll_back(model.state)
    past = model.header["history"]
    classes = model.classes
    for c, label in was.get("dropped", ()):
        classes.insert(c, label)
    classes = classes[: was["classes"]]
    if len(set(classes)) < len(classes):
        raise SafeclError("model.name-taken")
    later = past[was["history"] :]
    renamings = [e for e in later if e["what"] == "rename" and e["to"] in classes]  # these stay
    history = copy.deepcopy([*past[: was["history"]], *renamings])
    for one in was.get("entries", ()):
        entry = history[one["number"]]
        entry["classes"] = [[classes[c], count] for c, count in one["classes"]]
        entry["new"] = [classes[c] for c in one["new"]]
    calibration = was["calibration"]
    header = {**model.header, "classes": classes, "calibration": calibration, "history": history}
    known = f"the model knows {counted(len(classes), 'class')} now"
    if calibration:
        known += f", with leave-one-out accuracy {accuracy_text(calibration)}"
    told = f"Took back what was {WHAT[gone['what']]}: {gone['name']}; {known}."
    return Model(header, state), told

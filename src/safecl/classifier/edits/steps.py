"""A change of what was learned becomes a step of a model, and the last step is taken back."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import torch

from safecl.classifier.answers.calibrate import recalibrate
from safecl.classifier.answers.enough import accuracy_text
from safecl.classifier.edits import sums, tables
from safecl.classifier.edits.ledger import Change
from safecl.classifier.edits.sums import Features, Moved
from safecl.classifier.model import Model
from safecl.classifier.modelfile.history import BRINGING, WHAT, after, check_rollback, counts
from safecl.classifier.modelfile.state import (
    Added,
    State,
    advance,
    grams_of,
    ridge_heads,
    roll_back,
    set_grams,
    statistics,
)
from safecl.errors import SafeclError
from safecl.heads.solve import MAX_UPDATES, Kept, Updated, factors_kept
from safecl.lines import counted, naming
from safecl.methods import parts
from safecl.methods.method import Method

MIN_JUDGING = 5  # pictures of a step, from which it says anything of β


def still(model: Model, step: str) -> set[str]:
    """The steps since any network has moved, and ``step``."""
    past = model.header["history"]
    moving = [n for n, entry in enumerate(past) if entry["what"] in ("learn", "merge")]
    return {step, *(entry["id"] for entry in past[max(moving, default=0) :])}


def made(
    model: Model,
    method: Method,
    change: Change,
    moved: Moved,
    entry: dict[str, Any],
    today: Features | None = None,
    quick: bool = False,
) -> Model:
    """The model after a change, which its ``method`` has ``moved`` by, with an ``entry`` in the
    history. ``quick``: where the classes stay, what it says of its own accuracy is that of before.
    """
    # the weights and the leave-one-out answers are of the same sums
    with factors_kept() as kept:
        return _made(model, method, change, moved, entry, today or {}, quick, kept)


def _made(
    model: Model,
    method: Method,
    change: Change,
    moved: Moved,
    entry: dict[str, Any],
    today: Features,
    quick: bool,
    kept: Kept,
) -> Model:
    before = model.state
    features = dict(today)
    features |= {
        name: moved.heads[h] for name, h in parts.heads_of(method).items() if h in moved.heads
    }
    judges = method.judging is not None
    state, rows = tables.changed(before, change, features if judges else {})
    added = [replace(one, targets=change.index[one.targets]) for one in moved.added]
    state, added = _added_up(model, method, change, state, added, moved.taken)
    known = _updated(model, method, added)
    grams = grams_of(method)
    kept.near += [(ref(grams[name]), one) for name, one in known.items()]
    method.refresh()
    method.eval()
    history = tables.history_after([*model.header["history"], {**entry, "id": change.step}], change)
    past = model.header["history"]
    said = {
        **model.standing,
        "dropped": [[c, model.classes[c]] for c in change.gone],
        "entries": tables.rewritten(past, history[:-1], model.classes),
    }
    state = advance(state, method, change.step, added, model.settings, said, rows)
    calibration = model.header["calibration"]
    if not quick or method.classes != model.classes:
        calibration = recalibrate(method, state.kept, state.seen)
    touched = [step for step in change.touched if step != change.step]
    last = {**history.pop(), "touched": touched}
    header = after({**model.header, "history": history}, last, method.classes, calibration)
    found = Model(header, state)
    factors = {name: kept.of(gram) for name, gram in grams.items()}
    found.factors = {name: one for name, one in factors.items() if one is not None}
    return found


def _updated(model: Model, method: Method, added: Sequence[Added]) -> dict[str, Updated]:
    """By statistics, the factor that ``model`` had and what was ``added``, unless that is much."""
    found = dict[str, Updated]()
    heads = ridge_heads(method)
    for name, own in statistics(method).items():
        known = model.factors.get(name)
        for one in added:
            head = heads[one.head]
            if known is None or head.statistics is not own:
                continue
            views = head.reading.views
            if len(known.rows) + len(one.targets) * views > MAX_UPDATES:
                known = None
                continue
            rows = head.project(one.values.to(own.sums)) / math.sqrt(views)
            known = known.and_then(rows, torch.full_like(rows[:, 0], -1.0 if one.taken else 1.0))
        if known is not None:
            found[name] = known
    return found


def _added_up(
    model: Model,
    method: Method,
    change: Change,
    state: State,
    added: list[Added],
    taken: list[Added],
) -> tuple[State, list[Added]]:
    """Make all sums of ``method`` as exact as what is recorded allows, without the classes that
    leave.

    Gives the state whose Gram matrices it has then, but for what the change itself has ``added`` or
    ``taken`` out; and these.
    """
    step = change.step
    after = replace(state, records={**state.records, step: added} if added else state.records)
    removing = [one for one in change.touched if change.removes(one)]
    exact = sums.complete(method, change.ledger, after)
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
        base = grams_of(method)
        set_grams(method, State(base=base, chain=(step,), records={step: added}))
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
    if calibration and calibration is not model.header["calibration"] and len(pictures) > 1:
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

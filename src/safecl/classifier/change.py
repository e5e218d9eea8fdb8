"""Take the last session back, or a class out."""

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.calibrate import calibrate, left_out_logits, some
from safecl.classifier.history import counts, step
from safecl.classifier.model import Model
from safecl.classifier.rename import find
from safecl.classifier.state import State, changed_by, grams, names, ridge_heads, roll_back, statistics
from safecl.errors import SafeclError
from safecl.methods.catalog import make_method
from safecl.methods.method import Method
from safecl.streams.pictures.images import Label


def rollback(model: Model, backbone: Callable[[], Backbone]) -> Model:
    """The model before its last session; its predictions are those it gave then, to the bit."""
    _check(model, "be rolled back")
    if not model.state.undo:
        learned = [entry for entry in model.header["history"] if entry["what"] == "learn"]
        why = "no earlier session is kept; take a copy of its file, or teach a new model"
        if len(learned) == 1:
            why = "it has learned one session only; delete its file to begin anew"
        raise SafeclError(f"The model cannot be rolled back: {why}.")
    settings = model.settings
    state, said = roll_back(model.state, lambda: make_method(settings.method, backbone(), settings.seed))
    past = model.header["history"]
    renamed = [e for e in past[said["history"] :] if e["what"] == "rename" and e["to"] in said["classes"]]  # it stays
    header = {
        **model.header,
        "classes": said["classes"],
        "calibration": said["calibration"],
        "history": [*past[: said["history"]], *renamed],
    }
    return Model(header, state)


def forget(model: Model, label: Label, backbone: Callable[[], Backbone]) -> tuple[Model, str]:
    """The model without a class, and a sentence on what stays of it. Earlier sessions cannot be rolled back then."""
    _check(model, "forget a class")
    label = find(model.header, label)
    if len(model.classes) == 1:
        raise SafeclError(f"{label!r} is the only class of the model; delete the file to forget it.")
    method, state, index = model.method(backbone(), learning=True), model.state, model.classes.index(label)
    state, removed = _without(state, method, index)
    taught = counts(model.header)[label]
    method.drop_class(index)
    for name, gram in grams(method, state).items():
        statistics(method)[name].gram = gram
        statistics(method)[name].count -= removed.get(name, 0)
    method.classes.remove(label)
    method.refresh()
    state = refreshed(state, method)
    if _answers(method, state).shape[1] != len(method.classes):
        raise SafeclError(f"{method.settings.title} cannot forget a single class.")
    entry = step("forget", str(label))
    history = copy.deepcopy(model.header["history"])
    for past in history:
        past["classes"] = [pair for pair in past["classes"] if pair[0] != label]
        past["new"] = [one for one in past["new"] if one != label]
        past["pictures"] = sum(count for _, count in past["classes"])
        past["confused"] = [pair for pair in past.get("confused", []) if label not in pair[:2]]
    header = {
        **model.header,
        "classes": list(method.classes),
        "calibration": recalibrated(method, state),
        "history": [*history, entry],
        "changed": entry["date"],
    }
    return Model(header, state), _sentence(label, taught, min(removed.values(), default=0), method)


def refreshed(state: State, method: Method) -> State:
    """The state with the tensors that ``method`` has now, and nothing to roll back."""
    tensors = {name: tensor.detach() for name, tensor in method.state_dict().items()}
    for name in names(method):
        del tensors[f"{name}.gram"]
    return replace(state, tensors=tensors, undo=())


def recalibrated(method: Method, state: State) -> dict[str, object] | None:
    """The calibration by the pictures of which features are kept."""
    if not len(state.kept.get("targets", ())):
        return None
    rows = some(len(state.kept["targets"]))
    features = {name: values[rows] for name, values in state.kept.items() if name != "targets"}
    targets = state.kept["targets"][rows]
    return calibrate(left_out_logits(method, features, targets), targets)


def _without(state: State, method: Method, index: int) -> tuple[State, dict[str, int]]:
    """(the state without the features of a class, how many of its pictures have left each Gram matrix)."""
    heads, unique = ridge_heads(method), statistics(method)
    base, removed = dict(state.base), dict.fromkeys(unique, 0)
    for session, added in state.records.items():
        own = [replace(one, features=one.features[rows], targets=one.targets[rows], scale=_rows(one.scale, rows))
               for one in added for rows in [one.targets == index]]  # fmt: skip
        own = [one for one in own if len(one.targets)]
        for one in own:
            name = next(name for name, module in unique.items() if module is heads[one.head].statistics)
            removed[name] += len(one.targets)
        if own and session not in state.chain and base:
            gone = changed_by(method, {name: torch.zeros(0, 0) for name in unique}, own)
            base = {
                name: (gram.double() - gone[name].to(gram).double()).float() if len(gone[name]) else gram
                for name, gram in base.items()
            }
    records = {session: [one.without(index) for one in added] for session, added in state.records.items()}
    kept, seen = _dropped(state.kept, "targets", index), _dropped(state.seen, "classes", index)
    return replace(state, base=base, records=records, kept=kept, seen=seen), removed


def _rows(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values[rows]


def _dropped(rows: dict[str, Tensor], key: str, index: int) -> dict[str, Tensor]:
    """Rows that are not of a class; the classes after it move up by one."""
    if key not in rows:
        return rows
    stay = rows[key] != index
    found = {name: values[stay] for name, values in rows.items()}
    found[key] = found[key] - (found[key] > index).long()
    return found


@torch.no_grad()
def _answers(method: Method, state: State) -> Tensor:
    side = method.backbone.size
    return method.logits(torch.zeros(1, 3, side, side, device=method.backbone.device))


def _sentence(label: Label, taught: int, removed: int, method: Method) -> str:
    gone = f"{label!r} is forgotten: its row in every head and its share of the class sums are gone"
    tuned = "" if method.anchor == "backbone" else "; the tuning of the network was shaped by it and stays"
    if not statistics(method):
        return f"{gone}{tuned}."
    if removed >= taught:
        return f"{gone}, and its {taught} pictures have left the Gram matrix{tuned}."
    return (
        f"{gone}; {taught - removed} of its {taught} pictures stay in the Gram matrix, a sum over all classes from "
        f"which they cannot be read{tuned}. A model made with --memory features forgets wholly."
    )


def _check(model: Model, what: str) -> None:
    if model.frozen:
        raise SafeclError(f"This model is frozen: it only predicts and cannot {what}; use the model it was made from.")

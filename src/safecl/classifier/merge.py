"""Two models that were taught apart from a common beginning become one.

Statistics are sums, so those of the sessions that one model has and the other lacks are added. Heads on a network that
both share, such as the slow learner of SAFE, are then those of one model that had learned everything. Of networks that
each model went on tuning, such as the fast learner, the tuning is averaged.
"""

import copy
import uuid
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.change import recalibrated, refreshed
from safecl.classifier.history import step
from safecl.classifier.model import Model
from safecl.classifier.state import (
    REPLAYED,
    Added,
    State,
    build,
    changed_by,
    grams,
    ridge_heads,
    roll_back,
    statistics,
)
from safecl.errors import SafeclError
from safecl.heads.cosine import CosineHead
from safecl.heads.features import KeptFeatures
from safecl.heads.linear_map import LinearMap
from safecl.heads.moments import ClassMoments
from safecl.heads.ridge import RidgeHead
from safecl.heads.statistics import Statistics
from safecl.learner import Learner
from safecl.lines import counted
from safecl.methods.catalog import make_method, method_class
from safecl.methods.memory import SlowMemory
from safecl.methods.method import Method
from safecl.methods.release import Release
from safecl.streams.labels import label_problems
from safecl.streams.pictures.images import Label

SHARE = 0.5  # of the second model's tuning in networks that both went on tuning; see benchmarks/merging.py


def merge(one: Model, other: Model, backbone: Backbone) -> Model:
    """A model that knows what either knows. Its sessions cannot be rolled back."""
    shared = _shared(one, other)
    mine, more = (_learned(model, shared) for model in (one, other))
    if not more:
        raise SafeclError("The second model has learned nothing that the first one lacks.")
    if not mine:
        raise SafeclError("The first model has learned nothing that the second one lacks; use the second one.")
    for a, b, added in ((one, other, more), (other, one, mine)):
        before = _before(b, shared, added, backbone)
        if before is not None:
            return _merged(a, b, before, shared, backbone)
    raise SafeclError(
        "Neither model still holds what it has learned since they parted; merge within the sessions that are kept "
        "(--keep), or make them with --memory features."
    )


def _learned(model: Model, shared: int) -> list[str]:
    """The sessions that a model has learned since the two parted."""
    return [entry["id"] for entry in model.header["history"][shared:] if entry["what"] == "learn"]


def _shared(one: Model, other: Model) -> int:
    """How many steps of their histories are the same; models that cannot be merged are refused."""
    for model in (one, other):
        if model.frozen:
            raise SafeclError("A frozen model only predicts; merge the models they were made from.")
    kind = method_class(one.settings.method)
    for key in ("method", "backbone", "seed", "memory"):
        if getattr(one.settings, key) != getattr(other.settings, key):
            raise SafeclError(f"The models differ in {key}, so they cannot be merged.")
    if one.header["backbone"]["weights"] != other.header["backbone"]["weights"]:
        raise SafeclError("The models were taught with different weights of the backbone, so they cannot be merged.")
    if one.transform != other.transform:
        raise SafeclError("The models see pictures at different sizes, so they cannot be merged.")
    if kind.anchor is None:
        title = one.settings.method.title
        raise SafeclError(f"{title} keeps no network the same from session to session, so its models cannot be merged.")
    pasts = [[entry["id"] for entry in model.header["history"]] for model in (one, other)]
    count = next((i for i, (a, b) in enumerate(zip(*pasts, strict=False)) if a != b), min(map(len, pasts)))
    common = [
        {label for entry in model.header["history"][:count] for label, _ in entry["classes"]} for model in (one, other)
    ]
    if common[0] != common[1]:
        names = ", ".join(sorted(map(str, common[0] ^ common[1])))
        raise SafeclError(
            f"The models differ in classes that both began with ({names}): rename or forget them in both alike."
        )
    tuned = [
        {k: v for k, v in model.state.tensors.items() if k.startswith(f"{kind.anchor}.")} for model in (one, other)
    ]
    same = tuned[0].keys() == tuned[1].keys() and all(torch.equal(v, tuned[1][k]) for k, v in tuned[0].items())
    if not same or (not count and tuned[0]):
        raise SafeclError(
            "The models do not share their first session, so their features differ; teach both from copies of one."
        )
    for sentence in label_problems(dict.fromkeys([*one.classes, *other.classes]), "the two models"):
        raise SafeclError(sentence)
    return count


def _before(model: Model, shared: int, added: Sequence[str], backbone: Backbone) -> Method | None:
    """The method of ``model`` as it was when the two parted, if that can still be known."""
    settings, state = model.settings, model.state
    if not shared:
        return make_method(settings.method, backbone, settings.seed)
    if len(state.undo) >= len(added):
        classes: list[Label] = []
        for _ in added:
            state, said = roll_back(state, lambda: make_method(settings.method, backbone, settings.seed))
            classes = said["classes"]
        return build(settings, backbone, state, classes, learning=True)
    if not all(session in state.records for session in added):
        return None
    method = model.method(backbone, learning=True)
    known = {label for entry in model.header["history"][:shared] for label, _ in entry["classes"]}
    count = sum(label in known for label in model.classes)
    _subtract(method, [item for session in added for item in state.records[session]])
    for module in method.modules():
        while isinstance(module, CosineHead) and module.classes > count:
            module.drop_class(module.classes - 1)
    return method


def _subtract(method: Method, added: Sequence[Added]) -> None:
    """Take additions out of the statistics."""
    none = {name: torch.zeros(0, 0) for name in statistics(method)}
    gone = changed_by(method, none, added)
    for name, own in statistics(method).items():
        if len(gone[name]):
            own.gram = (own.gram.double() - gone[name].double()).to(own.gram)
    heads = ridge_heads(method)
    for one in added:
        own, h = heads[one.head].statistics, heads[one.head].project(one.values.to(heads[one.head].projection))
        own.sums = own.sums.index_add(1, one.targets.to(h.device), h.T, alpha=-1)
        own.count = own.count - len(one.targets)
    device = method.backbone.device
    for memory in (module for module in method.modules() if isinstance(module, SlowMemory)):
        for one in added:
            if one.head == "ridge_slow":
                memory.kept.remove(one.values.to(device), one.targets.to(device))


@torch.no_grad()
def _merged(a: Model, b: Model, before: Method, shared: int, backbone: Backbone) -> Model:
    """``a`` with what ``b`` has learned since it was ``before``."""
    method, more = a.method(backbone, learning=True), b.method(backbone, learning=True)
    method.register_classes(tuple(b.classes))
    index = torch.tensor([method.classes.index(label) for label in b.classes])
    state, sessions = _together(a.state, b.state, index, _learned(b, shared))
    parts, other, base = (dict(each.named_modules()) for each in (method, more, before))
    for name, module in parts.items():
        place = index.to(backbone.device)
        if isinstance(module, Statistics) and not module.kept:
            continue  # made anew of the memory by ``refresh``
        if isinstance(module, Statistics | CosineHead | ClassMoments | KeptFeatures):
            module.merge(other[name], base[name], place)
        elif isinstance(module, RidgeHead | Release):
            module.merge(other[name], base[name])
        elif isinstance(module, Learner) and name in method.averaged:
            module.interpolate(module.tuning(), other[name].tuning(), SHARE)
        elif isinstance(module, LinearMap):  # of a tuning between two, about the map between theirs
            module.interpolate(other[name], SHARE)
    if sessions:  # additions in place of differences, which are exact
        for name, gram in grams(method, state).items():
            statistics(method)[name].gram = gram
    else:
        state = replace(state, base={name: own.gram for name, own in statistics(method).items()}, chain=())
    method.sessions += len(_learned(b, shared))
    method.refresh()
    method.eval()
    state = refreshed(state, method)
    entry = step("merge", f"a model of {counted(len(b.classes), 'class', 'classes')}")
    mine = {past["name"] for past in a.header["history"] if past["what"] == "rename"}  # both were renamed alike
    later = [past for past in b.header["history"][shared:] if past["what"] != "rename" or past["name"] not in mine]
    header = {
        **a.header,
        "model": uuid.uuid4().hex,
        "classes": list(method.classes),
        "calibration": recalibrated(method, state),
        "history": [*a.header["history"], *copy.deepcopy(later), entry],
        "changed": entry["date"],
    }
    return Model(header, state)


def _together(a: State, b: State, index: Tensor, sessions: Sequence[str]) -> tuple[State, bool]:
    """(``a`` with records and rows of ``b`` since they parted, whether the Gram matrices follow from the chain)."""
    here = {session: b.records[session] for session in sessions if session in b.records}
    records = {
        **a.records,
        **{session: [replace(one, targets=index[one.targets]) for one in added] for session, added in here.items()},
    }
    chain = (*a.chain, *sessions)
    count = sum(len(records[session][0].targets) for session in chain if records.get(session))
    whole = len(here) == len(sessions) and count <= REPLAYED
    kept = {name: torch.cat([a.kept[name], rows]) for name, rows in _since(a.kept, b.kept, "targets", index).items()}
    seen = {name: torch.cat([a.seen[name], rows]) for name, rows in _since(a.seen, b.seen, "classes", index).items()}
    return replace(a, records=records, chain=chain if whole else (), kept=kept, seen=seen), whole


def _since(a: dict[str, Tensor], b: dict[str, Tensor], key: str, index: Tensor) -> dict[str, Tensor]:
    """The rows of ``b`` behind the first ones, which both have, with the classes of ``a``."""
    if key not in b or key not in a:
        return {}
    count = 0
    while count < min(len(a[key]), len(b[key])) and all(torch.equal(a[n][count], b[n][count]) for n in b):
        count += 1
    found = {name: rows[count:] for name, rows in b.items()}
    found[key] = index[found[key]]
    return found

"""Two models that were taught apart from a common beginning become one.

Statistics are sums, so those of the sessions that one model has and the other lacks are added. Heads on a network that
both share, such as the slow learner of SAFE, are then those of one model that had learned everything. Of networks that
each model went on tuning, such as the fast learner, the tuning is averaged.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.calibrate import recalibrate
from safecl.classifier.history import BRINGING, CORRECTIONS, after, check_labels, check_not_frozen, step
from safecl.classifier.model import Model
from safecl.classifier.state import State, grams_of, set_grams, settled, tensors_of
from safecl.classifier.store import fitting
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.methods.catalog import method_class
from safecl.methods.method import Method


def merge(one: Model, other: Model, backbone: Backbone) -> Model:
    """A model that knows what either knows. Its sessions cannot be rolled back."""
    shared = _shared(one, other)
    mine, more = ([entry for entry in m.header["history"] if entry["id"] not in shared] for m in (one, other))
    mine, more = ([entry for entry in entries if entry["what"] in ("learn", *CORRECTIONS)] for entries in (mine, more))
    if not more:
        raise SafeclError("The second model has learned nothing that the first one lacks.")
    if not mine:
        raise SafeclError("The first model has learned nothing that the second one lacks; use the second one.")
    corrected = [shared & {name for entry in entries for name in entry.get("touched", ())} for entries in (mine, more)]
    if all(corrected):
        raise SafeclError(
            "Both models have corrected pictures that they began with since they parted, so these would be corrected "
            "twice; roll that back in one of them, and merge then."
        )
    for a, b, entries, twice in ((one, other, more, corrected[1]), (other, one, mine, corrected[0])):
        tensors = b.state.before([entry["id"] for entry in entries]) if shared else {}
        if tensors is not None and not twice:
            learned = [entry["id"] for entry in entries if entry["what"] in BRINGING]
            with fitting(a.file), fitting(b.file):
                earlier = Model({**b.header, "classes": []}, State(tensors)).method(backbone)  # without Gram matrices
                return _merged(a, b, earlier, shared, learned, backbone)
    raise SafeclError(
        "Neither model still holds what it has learned since they parted; merge within the sessions that are kept "
        "(--keep), or make them with --memory features and merge before both have forgotten a class or were merged."
    )


def _shared(one: Model, other: Model) -> set[str]:
    """The steps in both histories, also those of an earlier merge; models that cannot be merged are refused."""
    both, facts = (one, other), []
    for model in both:
        check_not_frozen(model.header)
        alike = {key: getattr(model.settings, key) for key in ("method", "backbone", "seed", "memory")}
        weights = model.header["backbone"]["weights"]
        facts.append({**alike, "the weights of the backbone": weights, "the size of pictures": model.transform})
    for key in facts[0]:
        if facts[0][key] != facts[1][key]:
            raise SafeclError(f"The models differ in {key}, so they cannot be merged.")
    kind = method_class(one.settings.method)
    if kind.anchor is None:
        title = one.settings.method.title
        raise SafeclError(f"{title} keeps no network the same from session to session, so its models cannot be merged.")
    histories = [{entry["id"]: entry["classes"] for entry in model.header["history"]} for model in both]
    shared = histories[0].keys() & histories[1].keys()
    common = [{label for past in shared for label, _ in history[past]} for history in histories]
    if common[0] != common[1]:
        names = ", ".join(sorted(map(str, common[0] ^ common[1])))
        own = [entry for model in both for entry in model.header["history"] if entry["id"] not in shared]
        if told := ", ".join(entry["name"] for entry in own if shared & {*entry.get("touched", ())}):
            raise SafeclError(
                f"Pictures that both models began with were corrected in one of them ({told}), so classes differ "
                f"({names}); roll that back, merge, and correct the merged model."
            )
        raise SafeclError(
            f"The models differ in classes that both began with ({names}): rename or forget them in both alike."
        )
    tuned = [{k: v for k, v in model.state.tensors.items() if k.startswith(f"{kind.anchor}.")} for model in both]
    same = tuned[0].keys() == tuned[1].keys() and all(torch.equal(v, tuned[1][k]) for k, v in tuned[0].items())
    if not same or (not shared and tuned[0]):
        raise SafeclError(
            "The models do not share their first session, so their features differ; teach both from copies of one."
        )
    check_labels([*one.classes, *other.classes], [], "the two models")
    return shared


def _merged(a: Model, b: Model, before: Method, shared: set[str], sessions: Sequence[str], backbone: Backbone) -> Model:
    """``a`` with the ``sessions`` that ``b`` has learned since it was ``before``."""
    method = a.method(backbone, learning=True)
    now = Model(b.header, b.state, b.file).method(backbone, learning=not shared)
    method.register_classes(tuple(b.classes))
    index = torch.tensor([method.classes.index(label) for label in b.classes])
    method.merge(now, before, index.to(backbone.device))
    state = _together(a.state, b.state, index, sessions)
    if a.settings.thumbnails:
        new = {*state.seen["hashes"].tolist()} - {*a.state.seen["hashes"].tolist()}
        state = replace(state, thumbnails=(*state.thumbnails, *(t for t in b.state.thumbnails if t.picture in new)))
    if shared:  # the features that were added since are at hand
        state = replace(state, chain=(*state.chain, *(name for name in sessions if name in state.records)))
        set_grams(method, state)
    else:
        state = replace(state, base=grams_of(method), chain=())
    method.refresh()
    method.eval()
    state = settled(replace(state, tensors=tensors_of(method), undo=()), method, a.settings)
    entry = step("merge", f"a model of {counted(len(b.classes), 'class', 'classes')}")
    mine = {past["name"] for past in a.header["history"] if past["what"] == "rename"}  # both were renamed alike
    fresh = [past for past in b.header["history"] if past["id"] not in shared]
    later = [past for past in fresh if past["what"] != "rename" or past["name"] not in mine]
    header = {**a.header, "history": [*a.header["history"], *copy.deepcopy(later)]}
    return Model(after(header, entry, method.classes, recalibrate(method, state.kept, state.seen)), state)


def _together(a: State, b: State, index: Tensor, sessions: Sequence[str]) -> State:
    """``a`` with the features and rows of ``b`` since they parted."""
    records = {
        session: [
            replace(one, targets=index.to(one.targets.device)[one.targets])
            for one in b.records[session]
            if not one.taken
        ]
        for session in sessions
        if session in b.records
    }
    start = next((undo.header for undo in b.undo if undo.session in sessions), {"kept": 0, "seen": 0})
    kept = _joined(a.kept, b.kept, "targets", index, start["kept"])
    seen = _joined(a.seen, b.seen, "classes", index, start["seen"])
    return replace(a, records=a.records | records, kept=kept, seen=seen)


def _joined(a: dict[str, Tensor], b: dict[str, Tensor], key: str, index: Tensor, count: int) -> dict[str, Tensor]:
    """The rows of ``a``, and those of ``b`` behind the first ``count``, which both have, with the classes of ``a``."""
    if key not in b or key not in a:
        return a
    more = {name: rows[count:] for name, rows in b.items()}
    more[key] = index[more[key]]
    return {name: torch.cat([a[name], rows]) for name, rows in more.items()}

"""Put right what a model has learned: labels of pictures, and two classes that are one. No network
is tuned.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.answers.calibrate import looked
from safecl.classifier.data import hashes
from safecl.classifier.edits.ledger import Change, Ledger
from safecl.classifier.edits.steps import made, ready, said, still
from safecl.classifier.edits.sums import Moved, check_correctable, move
from safecl.classifier.model import Model, Warm
from safecl.classifier.modelfile.history import (
    check_labels,
    check_not_frozen,
    find,
    new_id,
    step,
)
from safecl.classifier.modelfile.rows import LOOK
from safecl.classifier.seen import learned_as
from safecl.classifier.teach import embed
from safecl.errors import SafeclError
from safecl.lines import counted, naming
from safecl.methods import parts
from safecl.methods.method import Method, register_classes
from safecl.streams.labels import sorted_classes
from safecl.streams.pictures.images import Label, Pictures

# Of the name of a new class to that of another, from which it may be a slip: dgo and dog.
MIN_LIKENESS = 0.65
Wanted = Mapping[int, Label | None]
"""By hash of a picture, its right class; None: it was never learned."""


def correct(
    model: Model,
    backbone: Backbone,
    pictures: Pictures,
    labels: Sequence[Label | None],
    of: Label | None = None,
    quick: bool = False,
) -> tuple[Model, str]:
    """The model as if ``pictures`` had been learned as ``labels``, None: never; and sentences on
    what has changed.

    ``of``: the class that all of them must have been learned as, which is split then. ``quick``:
    see ``made``.
    """
    check_not_frozen(model.header)
    check_labels(model.classes, _given(labels), "the model")
    marks = hashes(pictures).tolist()
    wanted = dict(zip(marks, labels, strict=True))
    if twice := [pictures.where(i) for i, mark in enumerate(marks) if labels[i] != wanted[mark]]:
        raise SafeclError("correct.two-labels", pictures=naming(twice))
    place = {mark: i for i, mark in enumerate(marks)}
    _check_learned(model, wanted, of, lambda mark: pictures.where(place[mark]))
    warm = model.at_hand(backbone)
    method = warm.method
    check_correctable(method)
    warm = ready(warm) if quick else warm
    register_classes(method, _given(wanted.values()))
    change = _change(model, method, wanted)
    every = change.ledger.hashes[change.rows].tolist()
    today = _features(model, method, pictures, [place[mark] for mark in every])
    moved = move(
        method, change, model.state, today, model.settings.memory, still(model, change.step)
    )
    told, name = _told(model, change, split=of is not None)
    entry = step("correct" if of is None else "split", name)
    pairs = zip(every, change.old.tolist(), change.new.tolist(), strict=True)
    entry["was"] = [[mark, model.classes[c]] for mark, c, now in pairs if c >= 0 and now >= 0]
    found = made(model, warm, change, moved, entry, today, quick)
    return found, told + said(model, found, method, change)


def _check_learned(
    model: Model, wanted: Wanted, of: Label | None, where: Callable[[int], str]
) -> None:
    """Refuse to remove or to split what was not learned so, and to correct nothing."""
    known = learned_as(model.state.seen, model.classes)
    needed = [mark for mark, label in wanted.items() if of is not None or label is None]
    if strange := [where(mark) for mark in needed if mark not in known]:
        raise SafeclError(
            "correct.never-learned",
            count=counted(len(strange), "picture was", "pictures were"),
            pictures=naming(strange),
        )
    if all(known.get(mark) == {label} for mark, label in wanted.items()):
        these = "the picture was" if len(wanted) == 1 else f"all {len(wanted)} pictures were"
        raise SafeclError("correct.nothing", these=these)
    others = {str(label) for mark in wanted for label in known.get(mark, ())} - {str(of)}
    if of is not None and others:
        raise SafeclError("correct.learned-otherwise", label=of, others=naming(sorted(others)))


def _change(model: Model, method: Method, wanted: Wanted) -> Change:
    """What giving pictures their right classes changes; those that were never learned come in."""
    ledger = Ledger.of(model)
    number: dict[Label | None, int] = {label: c for c, label in enumerate(method.classes)}
    number[None] = -1
    learned = ledger.hashes.tolist()
    pairs = enumerate(zip(learned, ledger.classes.tolist(), strict=True))
    rows = [i for i, (mark, c) in pairs if mark in wanted and number[wanted[mark]] != c]
    fresh = [mark for mark in wanted if mark not in {*learned}]
    new = [number[wanted[mark]] for mark in (*(learned[i] for i in rows), *fresh)]
    rows += range(len(learned), len(learned) + len(fresh))
    id = new_id()
    change = Change(
        id,
        ledger.with_step(id, fresh),
        torch.tensor(rows, dtype=torch.int64),
        torch.tensor(new, dtype=torch.int64),
        list(method.classes),
    )
    change.check()
    return change


def _told(model: Model, change: Change, split: bool) -> tuple[str, str]:
    """(sentences on what has become of pictures and which classes are new, a name for the step)."""
    marks = change.ledger.hashes[change.rows].tolist()
    kinds: dict[str, list[tuple[int, int, int]]] = {"Added": [], "Moved": [], "Removed": []}
    for mark, was, now in zip(marks, change.old.tolist(), change.new.tolist(), strict=True):
        kinds["Added" if was < 0 else "Removed" if now < 0 else "Moved"].append((mark, was, now))
    told = list[str]()
    names = list[str]()
    for verb, own in ((verb, own) for verb, own in kinds.items() if own):
        pictures = counted(len({mark for mark, _, _ in own}), "picture")
        were = Counter(str(change.labels[was]) for _, was, _ in own if was >= 0)
        from_where = ", ".join(f"{n} as {label}" for label, n in were.items())
        before = f", learned before: {from_where}" if were else ""
        labels = sorted_classes({change.labels[now] for _, _, now in own if now >= 0})
        to = f" to {naming(map(str, labels))}" if labels else ""
        told.append(f"{verb} {pictures}{to}{before}.")
        names.append(f"{pictures} {verb.lower()}{to}")
    first = [str(label) for label in sorted_classes(change.labels[len(model.classes) :])]
    if first:
        told.append(f"{naming(first)}: {'a new class' if len(first) == 1 else 'new classes'}.")
    near = set() if split else {near for label in first for near in _near(label, model.classes)}
    told += [f"Did you mean {label!r}? safecl rollback takes this back." for label in near]
    return " ".join(told), ", ".join(names)


def join(model: Model, backbone: Backbone, one: Label, other: Label) -> tuple[Model, str]:
    """The model as if the pictures of ``other`` had been learned as ``one``."""
    check_not_frozen(model.header)
    one = find(model.header, one)
    other = find(model.header, other)
    if one == other:
        raise SafeclError("correct.join.itself", label=one)
    method = model.method(backbone, learning=True)
    i = model.classes.index(one)
    j = model.classes.index(other)
    check_correctable(method)
    parts.join(method, i, j)
    ledger = Ledger.of(model)
    rows = (ledger.classes == j).nonzero()[:, 0]
    new = torch.full_like(rows, i)
    change = Change(new_id(), ledger, rows, new, list(method.classes), leaving=(j,))
    entry = step("join", f"{one} and {other}")
    found = made(model, Warm(method), change, Moved(), entry)
    return found, f"{one} and {other} are one class now: {one}." + said(
        model, found, method, change
    )


@torch.no_grad()
def _features(
    model: Model, method: Method, pictures: Pictures, which: Sequence[int]
) -> dict[str, Tensor]:
    """By network, what it gives today for the pictures at ``which``: (n, d); and how they look."""
    read = {name for names in parts.reads_of(method).values() for name in names}
    names = read & method.networks.keys()
    each = sorted(set(which))

    def forward(images: Tensor) -> dict[str, Tensor]:
        found = {name: method.networks[name].features(images) for name in names}
        return found | {LOOK: looked(images)}

    found = embed(forward, pictures, each, model.transform, method.backbone.device)
    place = {i: n for n, i in enumerate(each)}
    return {
        name: rows[[place[i] for i in which]].to(method.backbone.device)
        for name, rows in found.items()
    }


def _near(label: str, known: Iterable[Label]) -> list[str]:
    """The class that a person may have meant; not one that differs in its number."""
    words = [
        str(one) for one in known if re.sub("[0-9]+", "", str(one)) != re.sub("[0-9]+", "", label)
    ]
    return get_close_matches(label, words, n=1, cutoff=MIN_LIKENESS)


def _given(labels: Iterable[Label | None]) -> tuple[Label, ...]:
    return sorted_classes(label for label in labels if label is not None)

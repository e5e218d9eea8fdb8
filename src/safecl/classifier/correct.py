"""Put a model right: pictures get another label or leave, two classes become one. No network is tuned."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.data import hashes
from safecl.classifier.history import check_labels, check_not_frozen, find, step
from safecl.classifier.model import Model
from safecl.classifier.relabel import Change
from safecl.classifier.seen import check_wanted, learned_as
from safecl.classifier.teach import embed
from safecl.errors import SafeclError
from safecl.lines import counted, naming
from safecl.methods.method import Method
from safecl.streams.labels import sorted_classes
from safecl.streams.pictures.images import Label, Pictures

MIN_LIKENESS = 0.65  # of the name of a new class to that of another, from which it may be a slip: dgo and dog


def correct(
    model: Model,
    backbone: Backbone,
    pictures: Pictures,
    labels: Sequence[Label | None],
    of: Label | None = None,
    by_hand: bool = True,
) -> tuple[Model, str]:
    """The model as if ``pictures`` had been learned as ``labels``, None: never; and sentences on what has changed.

    ``of``: the class that all of them must have been learned as, which is split then. ``by_hand``: a folder that has
    them in the old class still does not correct them back.
    """
    check_not_frozen(model.header, steps=1)
    check_labels(model.classes, _given(labels), "the model")
    seen, marks = model.state.seen, hashes(pictures).tolist()
    place, wanted = {mark: i for i, mark in enumerate(marks)}, dict(zip(marks, labels, strict=True))
    if twice := [pictures.where(i) for i, mark in enumerate(marks) if labels[i] != wanted[mark]]:
        raise SafeclError(f"A picture is given with two labels: {naming(twice)}; give each picture once.")
    learned, known = seen["hashes"].tolist() if seen else [], learned_as(seen, model.classes)
    fresh = [mark for mark in wanted if mark not in known]
    check_wanted(wanted, {mark: pictures.where(i) for mark, i in place.items()}, known, of is not None)
    method = model.method(backbone, learning=True)
    method.summed()
    classes = [model.classes[c] for c in seen["classes"].tolist()] if seen else []
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
    entry = step("correct" if of is None else "split", ", ".join(names), pictures=len(fresh), moved=len(moved))
    entry["was"] = [[learned[row], classes[row]] for row in rows if by_hand and learned[row] not in left]
    made = change.done(entry)
    return made, " ".join(told) + change.said


def join(model: Model, backbone: Backbone, one: Label, other: Label, name: Label | None = None) -> tuple[Model, str]:
    """The model as if the pictures of ``other`` had been learned as ``one``, which is then called ``name``."""
    check_not_frozen(model.header, steps=1)
    one, other = find(model.header, one), find(model.header, other)
    if one == other:
        raise SafeclError(f"{one!r} cannot be joined with itself; give two classes.")
    if name == other:
        one, other = other, one
    name = one if name is None else name
    if name != one:
        check_labels([label for label in model.classes if label not in (one, other)], [name], "the model")
    method, i, j = model.method(backbone, learning=True), model.classes.index(one), model.classes.index(other)
    method.join(i, j)
    rows = (model.state.seen.get("classes", torch.zeros(0)) == j).nonzero()[:, 0]
    change = Change(model, method, rows, torch.full_like(rows, i), gone=[j])
    made = change.done(step("join", f"{one} and {other}", moved=len(rows)), None if name == one else (one, name))
    return made, f"{one} and {other} are one class now: {name}.{change.said}"


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

"""Photographs on the page of a model: what its classes look like to it, and where it goes wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor

from safecl.classifier.answers.snapshot import Judged, Snapshot, evaluate
from safecl.classifier.model import Model
from safecl.classifier.modelfile.schema import Thumbnail
from safecl.lines import counted
from safecl.report.gallery import Card, thumbnail
from safecl.streams.pictures.images import Pictures

Galleries: TypeAlias = list[tuple[str, str, list[Card]]]  # title, a sentence, cards
SIDE = 160
KEPT_SIDE = 64  # pixels of a picture on the page, and of one that a model keeps
MAX_SHOWN_CLASSES = 24
MAX_OF_PAIR = 3
MAX_WRONG = 12  # with MAX_CONFUSIONS pairs 90 pictures, about 1 MB
ABOUT = (
    "Typical is the picture whose own class the model tells most clearly from the others, strangest"
    " the opposite."
)


def photographs(pictures: Pictures, judged: Sequence[Judged], numbers: dict[str, Any]) -> Galleries:
    """Each class's typical and strangest picture, the confusions, the surest mistakes; see
    ``evaluate``.
    """

    def card(name: str, shown: Sequence[Judged], *lines: str) -> Card:
        at = [one.place for one in shown]
        return Card(
            [(thumbnail(pictures.reduced(i, SIDE), SIDE), pictures.where(i)) for i in at],
            name,
            [*lines],
        )

    classes = list[Card]()
    confused = list[Card]()
    wrong = [one for one in judged if not one.right]
    # no probabilities: by the logits
    wrong.sort(key=lambda one: (-(one.answer.probability or 0), one.margin))
    for label, share, count in sorted(numbers["classes"], key=lambda row: float(row[1]))[
        :MAX_SHOWN_CLASSES
    ]:
        own = sorted((one for one in judged if one.label == label), key=lambda one: -one.margin)
        shown = own[:1] + own[1:][-1:]
        correct = f"{round(share * count)} of {counted(count, 'picture')} correct"
        told = (
            f"{word}: {one.answer.told}"
            for word, one in zip(("typical", "strangest"), shown, strict=False)
        )
        classes.append(card(str(label), shown, correct, *told))
    for label, other, count in numbers["confused"]:
        own = [one for one in wrong if (one.label, one.answer.label) == (label, other)][
            :MAX_OF_PAIR
        ]
        confused.append(card(f"{label}, taken for {other}", own, counted(count, "picture")))
    surest = [
        card(one.answer.told, [one], f"is {one.label}", pictures.where(one.place))
        for one in wrong[:MAX_WRONG]
    ]
    rest = len(numbers["classes"]) - len(classes)
    more = f" Not shown: {counted(rest, 'class', 'classes')} of a higher accuracy." if rest else ""
    return [
        ("Typical and strangest pictures", f"Lowest accuracy first. {ABOUT}{more}", classes),
        ("Confusions", "The most frequent first.", confused),
        (
            "Surest mistakes",
            "Wrong answers of the highest probability: a label may be wrong here.",
            surest,
        ),
    ]


def with_thumbnails(now: Snapshot, pictures: Pictures, marks: Tensor) -> Model:
    """The model with the typical and the strangest of the ``pictures`` that it has just learned,
    whose hashes are ``marks`` (n,).
    """
    own: dict[Any, list[Judged]] = {}
    for one in sorted(evaluate(now, pictures)[1], key=lambda one: -one.margin):
        own.setdefault(one.label, []).append(one)
    found = list(now.model.state.thumbnails)
    for one in (one for each in own.values() for one in each[:1] + each[1:][-1:]):
        jpeg = thumbnail(pictures.reduced(one.place, KEPT_SIDE), KEPT_SIDE).split(",")[1]
        found.append(
            Thumbnail(picture=int(marks[one.place]), place=0, margin=one.margin, jpeg=jpeg)
        )
    return Model(now.model.header, replace(now.model.state, thumbnails=tuple(found)))

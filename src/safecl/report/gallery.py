"""The pictures of a page: read from the run folders, and one card where runs show the same picture."""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from safecl.errors import SafeclError
from safecl.report.answers import pairs
from safecl.report.runs import Example, Run
from safecl.report.series import Series

TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


@dataclass(frozen=True)
class Answer:
    """What outputs of a run said about a picture: those that said the same have one answer.

    ``surer_than``: of the method's own answer, the share of its other answers with a smaller margin.
    """

    names: list[str]
    prediction: str
    right: bool
    surer_than: float | None


@dataclass
class Card:
    """A test picture (a data: address, empty where the file is gone) with all answers to it."""

    picture: str
    label: str
    session: int | None
    answers: list[Answer] = field(default_factory=list)


@dataclass(frozen=True)
class BadClass:
    """A class with a low accuracy; ``mistakes``: pictures (as in ``Card``) and the classes they are confused with."""

    label: str
    right: int
    tested: int
    mistakes: list[tuple[str, str]]


@dataclass(frozen=True)
class Pair:
    """A class and the one it is confused with: how often, its mistakes, and a picture of the other class."""

    label: str
    other: str
    times: int
    tested: int
    mistakes: list[str]
    like: str


def cards(series: Sequence[Series]) -> list[Card]:
    """One card for each distinct picture that was drawn by chance, in the order of the runs."""
    result: dict[tuple[str, str, int | None, str], Card] = {}
    for run in {id(one.runs[0]): one.runs[0] for one in series}.values():  # of the first seed
        mine = [one for one in series if one.runs[0] is run]
        for example in run.examples:
            if example.why != "chance":
                continue
            picture = _data_address(run, example)
            # Without a picture there is nothing to recognise a twin by: the file's own name keeps it apart.
            key = (picture, example.label, example.session, "" if picture else f"{run.folder}/{example.file}")
            card = result.setdefault(key, Card(picture, example.label, example.session))
            card.answers += _answers(example, mine)
    return list(result.values())


def bad_classes(run: Run) -> list[BadClass]:
    """The classes that the run's examples show the mistakes of, in their order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for example in run.examples:
        if example.why == "worst":
            said = example.predictions.get(run.facts.main, "")
            found.setdefault(example.label, []).append((_data_address(run, example), said))
    tested = Counter(one.label for one in run.predictions)
    right = Counter(one.label for one in run.predictions if one.predicted.get(run.facts.main) == one.label)
    return [BadClass(label, right[label], tested[label], mistakes) for label, mistakes in found.items()]


def confused_pairs(run: Run) -> list[Pair]:
    """The pairs that the run's examples show, the most frequent first."""
    shown: dict[tuple[str, str], list[str]] = {}
    like: dict[str, str] = {}
    for example in run.examples:
        if example.why == "pair":
            key = example.label, example.predictions.get(run.facts.main, "")
            shown.setdefault(key, []).append(_data_address(run, example))
        elif example.why == "like":
            like.setdefault(example.label, _data_address(run, example))
    tested = Counter(one.label for one in run.predictions)
    times = {(label, other): count for label, other, count in pairs(run)}
    return [
        Pair(label, other, times.get((label, other), 0), tested[label], pictures, like.get(other, ""))
        for (label, other), pictures in shown.items()
    ]


def _answers(example: Example, series: Sequence[Series]) -> list[Answer]:
    """The answers of a run's series, the method's own first."""
    names: dict[str, list[str]] = {}
    sure: dict[str, float | None] = {}
    for one in series:
        if one.output in example.predictions:
            said = example.predictions[one.output]
            names.setdefault(said, []).append(one.name)
            sure[said] = example.surer_than if one.main else sure.get(said)
    return [Answer(some, said, said == example.label, sure[said]) for said, some in names.items()]


def _data_address(run: Run, example: Example) -> str:
    path = (run.folder / example.file).resolve()
    kind = TYPES.get(path.suffix.lower())
    # A folder from elsewhere must not make the page carry files from outside it.
    if kind is None or not path.is_relative_to(run.folder.resolve()):
        raise SafeclError(f"{run.folder / 'examples.json'} is damaged: {example.file!r} is no picture in that folder.")
    try:
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SafeclError(f"Cannot read {path}: {error.strerror}.") from error

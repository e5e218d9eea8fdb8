"""The example pictures of a page: read from the run folders, and one card where runs show the same picture."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from safecl.errors import SafeclError
from safecl.report.runs import Example, Run
from safecl.report.series import Series

TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


@dataclass(frozen=True)
class Answer:
    """What one series said about a picture."""

    series: Series
    prediction: str
    right: bool
    confidence: float | None


@dataclass
class Card:
    """A test picture (a data: address, empty where the file is gone) with all answers to it."""

    picture: str
    label: str
    session: int | None
    answers: list[Answer] = field(default_factory=list)


def cards(series: Sequence[Series]) -> list[Card]:
    """One card for each distinct picture, in the order of the runs."""
    result: dict[tuple[str, str, int | None, str], Card] = {}
    for run in {id(one.run): one.run for one in series}.values():
        mine = [one for one in series if one.run is run]
        for example in run.examples:
            picture = _data_address(run, example)
            # Without a picture there is nothing to recognise a twin by: the file's own name keeps it apart.
            key = (picture, example.label, example.session, "" if picture else f"{run.folder}/{example.file}")
            card = result.setdefault(key, Card(picture, example.label, example.session))
            for one in mine:
                if one.output in example.predictions:
                    said = example.predictions[one.output]
                    sure = example.confidence if one.main else None
                    card.answers.append(Answer(one, said, said == example.label, sure))
    return list(result.values())


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

"""The pictures of a page as data: addresses; those of runs are read from their folders, empty where
a file is gone.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from PIL import Image

from safecl.errors import SafeclError
from safecl.report.runs import Example, Run, read_bytes
from safecl.report.series import Series

TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


class Card(NamedTuple):
    """Pictures, each as a data: address and what it shows in words, side by side; below them a name
    and sentences.
    """

    pictures: list[tuple[str, str]]
    name: str
    lines: list[str]


def thumbnail(image: Image.Image, side: int) -> str:
    """The picture as a JPEG of ``side`` pixels at most, as a data: address."""
    small = image.copy()
    file = io.BytesIO()
    small.thumbnail((side, side))
    small.save(file, "JPEG", quality=85, comment="")  # else that of the file
    return data_address("image/jpeg", file.getvalue())


def cards(series: Sequence[Series], why: str) -> list[dict[str, Any]]:
    """One card with all answers for each distinct picture that was kept for this reason, in the
    order of the runs.
    """
    result: dict[tuple[str, str, int | None, str], dict[str, Any]] = {}
    for run in {id(one.runs[0]): one.runs[0] for one in series}.values():  # of the first seed
        mine = [one for one in series if one.runs[0] is run]
        for example in run.examples:
            if example.why != why:
                continue
            picture = _picture(run, example)
            # Without a picture there is nothing to recognise a twin by: the file's own name keeps
            # it apart.
            key = (
                picture,
                example.label,
                example.session,
                "" if picture else f"{run.folder}/{example.file}",
            )
            card = result.setdefault(
                key, {"picture": picture, "label": example.label, "session": example.session}
            )
            card.setdefault("answers", []).extend(_answers(example, mine))
    return list(result.values())


def _answers(example: Example, series: Sequence[Series]) -> list[dict[str, Any]]:
    """What a run's outputs said, the method's own first: those that said the same have one
    answer.
    """
    found: dict[str, dict[str, Any]] = {}
    for one in series:
        if one.output in example.predictions:
            answer = example.predictions[one.output]
            about = {"names": [], "prediction": answer, "right": answer == example.label}
            found.setdefault(answer, about)["names"].append(one.name)
    return list(found.values())


def _picture(run: Run, example: Example) -> str:
    path = (run.folder / example.file).resolve()
    kind = TYPES.get(path.suffix.lower())
    # A folder from elsewhere must not make the page carry files from outside it.
    if kind is None or not path.is_relative_to(run.folder.resolve()):
        raise SafeclError(
            "report.examples.damaged", path=run.folder / "examples.json", file=example.file
        )
    data = read_bytes(path)
    return data_address(kind, data) if data else ""


def data_address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"

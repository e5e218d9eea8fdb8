"""An HTML page about a model, from the header of its file alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safecl.classifier.answers.enough import interval, range_text, unknown_text
from safecl.classifier.answers.tables import (
    advice,
    choice_table,
    class_table,
    history_table,
)
from safecl.classifier.modelfile.history import counts
from safecl.classifier.modelfile.schema import Header, Thumbnail
from safecl.classifier.modelfile.store import ModelFile
from safecl.report import words
from safecl.report.table import Table, make_table
from safecl.report.templates import Tile, render, write

MAX_ROWS = 30  # classes that a cell of a notebook shows


def write_page(
    file: ModelFile,
    path: Path,
    found: tuple[dict[str, Any], Any] | None = None,
    *,
    force: bool | None = None,
) -> Path:
    """Write the page of a model; ``found``: the numbers of ``evaluate`` and ``photographs``, if it
    was measured.
    """
    measured, galleries = found or (None, _kept(file))
    header = file.header
    backbone = file.header["backbone"]
    learned = f"learned from {words.plural(sum(counts(header).values()), 'picture')}"
    html = render(
        "model.html",
        title=file.path.name,
        subject=(
            f"{header['settings']['method']['name']} · backbone {backbone['name']} at"
            f" {backbone['size']} px, licence {backbone.get('licence', words.NONE)}"
        ),
        facts=[
            Tile(words.count(len(header["classes"])), "classes", learned),
            *_accuracies(header["calibration"], measured),
            Tile(words.size(file.size), "file", f"safecl {header.get('safecl')}"),
        ],
        measured=measured and _measured(measured),
        measured_on=measured and measured["folder"],
        measured_bins=measured and measured["bins"],
        galleries=galleries,
        calibration=header["calibration"],
        classes=class_table(header, measured),
        advice=[*advice(header, measured), *_unknown(header["calibration"])],
        history=history_table(header),
        choice=choice_table(header["choice"]) if header.get("choice") else None,
    )
    return write(path, html, force=force)


def notebook(header: Header, thumbnails: Sequence[Thumbnail]) -> str:
    """The HTML of a model in a cell of a notebook."""
    method = header["settings"]["method"]
    backbone = header["backbone"]
    calibration = header["calibration"]
    accuracy = None
    if calibration:
        new = range_text(*calibration["interval"])
        accuracy = (
            f"Leave-one-out accuracy {words.percent(calibration['accuracy'])} (new pictures: {new})"
        )
    return render(
        "notebook.html",
        title=(
            f"{words.plural(len(header['classes']), 'class')}, learned from"
            f" {words.plural(sum(counts(header).values()), 'picture')}"
        ),
        subject=f"{method['name']} on {backbone['name']} at {backbone['size']} px",
        accuracy=accuracy,
        table=class_table(header),
        most=MAX_ROWS,
        pictures=_by_class(header, thumbnails),
        advice=advice(header),
    )


def _accuracies(calibration: dict[str, Any] | None, measured: dict[str, Any] | None) -> list[Tile]:
    """What was measured on other pictures comes before what the model says of itself."""
    tiles = list[Tile]()
    errors = list[Tile]()
    if measured and measured["pictures"]:
        on = f"{words.plural(measured['pictures'], 'picture')} of {measured['folder']}"
        sure = range_text(*interval(measured["accuracy"], measured["pictures"]))
        tiles.append(
            Tile(words.percent(measured["accuracy"]), "accuracy, measured", f"on {on}: {sure}")
        )
        if measured["error"] is not None:
            errors.append(
                Tile(f"{measured['error']:.3f}", "calibration error, measured", f"on {on}")
            )
    if calibration:
        new = f"new pictures: {range_text(*calibration['interval'])}"
        tiles.append(Tile(words.percent(calibration["accuracy"]), "leave-one-out accuracy", new))
        if calibration["error"] is not None and not errors:
            on = f"on {words.plural(calibration['pictures'], 'picture')}"
            errors.append(Tile(f"{calibration['error']:.3f}", "calibration error", on))
    return tiles + errors


def _unknown(calibration: dict[str, Any] | None) -> list[str]:
    """A sentence on the answer unknown, where there is any."""
    if calibration is None or calibration["temperature"] is None:
        return []
    return [f"Unknown pictures: {unknown_text(calibration)}."]


def _measured(found: dict[str, Any]) -> Table:
    rows = [
        ("pictures of known classes", words.count(found["pictures"])),
        ("pictures that the model has learned", words.count(found["learned"])),
        ("accuracy", words.percent(found["accuracy"])),
        ("calibration error", words.NONE if found["error"] is None else f"{found['error']:.3f}"),
        ("known pictures called unknown", words.percent(found["false_alarms"])),
        ("pictures of unknown classes", words.count(found["unknown_pictures"])),
        ("of these called unknown", words.percent(found["found"])),
    ]
    return make_table("", ("measure", "value"), rows)


def _kept(file: ModelFile) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The thumbnails that a model keeps; a card for each class, made without ``report.gallery``,
    which needs numpy.
    """
    cards = [
        {"pictures": [(data, name) for data in pictures], "name": name, "lines": []}
        for name, pictures in _by_class(file.header, file.thumbnails()).items()
    ]
    about = "Of those that the model has learned; typical first."
    return [("Typical and strangest pictures", about, cards)]


def _by_class(header: Header, thumbnails: Sequence[Thumbnail]) -> dict[str, list[str]]:
    """The addresses of thumbnails by the names of their classes."""
    found: dict[str, list[str]] = {}
    for one in thumbnails:
        name = str(header["classes"][one.place])
        found.setdefault(name, []).append(f"data:image/jpeg;base64,{one.jpeg}")
    return found

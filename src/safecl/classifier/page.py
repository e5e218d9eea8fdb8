"""An HTML page about a model, from the header of its file alone."""

from pathlib import Path
from typing import Any

from safecl.classifier.enough import range_text
from safecl.classifier.history import advice, class_table, counts, history_table
from safecl.classifier.store import ModelFile
from safecl.report import words
from safecl.report.table import Table, make_table
from safecl.report.templates import Tile, render, write


def write_page(
    file: ModelFile, path: Path, found: tuple[dict[str, Any], Any] | None = None, *, force: bool | None = None
) -> Path:
    """Write the page of a model; ``found``: the numbers of ``evaluate`` and ``photographs``, if it was measured."""
    measured, galleries = found or (None, _kept(file))
    header, backbone = file.header, file.header["backbone"]
    calibration, pictures = header.get("calibration"), sum(counts(header).values())
    learned = f"learned from {words.plural(pictures, 'picture')}"
    facts = [Tile(words.count(len(header["classes"])), "classes", learned)]
    if calibration:
        on = f"on {words.plural(calibration['pictures'], 'picture')}"
        new = f"new pictures: {range_text(*calibration['interval'])}"
        facts.append(Tile(words.percent(calibration["accuracy"]), "leave-one-out accuracy", new))
        if calibration["error"] is not None:
            facts.append(Tile(f"{calibration['error']:.3f}", "calibration error", on))
    facts.append(Tile(words.size(file.size), "file", f"safecl {header.get('safecl')}"))
    html = render(
        "model.html",
        title=file.path.name,
        subject=f"{header['settings']['method']['name']} · backbone {backbone['name']} at {backbone['size']} px",
        facts=facts,
        measured=measured and _measured(measured),
        measured_bins=measured and measured["bins"],
        galleries=galleries,
        calibration=calibration,
        classes=class_table(header),
        advice=advice(header),
        history=history_table(header),
    )
    return write(path, html, force=force)


def _measured(found: dict[str, Any]) -> Table:
    rows = [
        ("pictures of known classes", words.count(found["pictures"])),
        ("accuracy", words.percent(found["accuracy"])),
        ("calibration error", words.NONE if found["error"] is None else f"{found['error']:.3f}"),
        ("known pictures called unknown", words.percent(found["false_alarms"])),
        ("pictures of unknown classes", words.count(found["unknown_pictures"])),
        ("of these called unknown", words.percent(found["found"])),
    ]
    return make_table("", ("measure", "value"), rows)


def _kept(file: ModelFile) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The thumbnails that a model keeps; a card for each class, made without ``report.gallery``, which needs numpy."""
    cards: dict[str, dict[str, Any]] = {}
    for one in file.thumbnails():
        name = str(file.header["classes"][one.place])
        card = cards.setdefault(name, {"pictures": [], "name": name, "lines": []})
        card["pictures"].append((f"data:image/jpeg;base64,{one.jpeg}", name))
    return [
        ("Typical and strangest pictures", "Of those that the model has learned; typical first.", list(cards.values()))
    ]

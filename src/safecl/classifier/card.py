"""The card of a model: what it knows, how it was made, what it rests on; Markdown with the head that the hub reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safecl.backbone.settings import EMBEDDED
from safecl.classifier.history import advice, class_table, counts, history_table, sessions
from safecl.classifier.schema import Header
from safecl.classifier.settings import ModelSettings
from safecl.lines import counted
from safecl.report.table import as_markdown

if TYPE_CHECKING:
    from safecl.backbone.backbone import Backbone


def licence(backbone: "Backbone", settings: ModelSettings) -> str:
    """That of the backbone's weights, in the hub's words; "unknown" of a local weight file."""
    if settings.backbone.weights is not None:
        return "unknown"
    if backbone.name == EMBEDDED:
        return "mit"
    facts: Any = backbone.vit.pretrained_cfg
    return str(facts.get("license") or "unknown")


def without_folders(header: Header) -> Header:
    """What may leave the machine: of a weight file the name alone, since its folders may name people."""
    settings, file = header["settings"], header["backbone"]["file"]
    name = file and Path(file).name
    given = {**settings, "backbone": {**settings["backbone"], "weights": name}}
    return {**header, "backbone": {**header["backbone"], "file": name}, "settings": given}


def model_card(header: Header, licence: str) -> str:
    """Facts, classes and history of a model."""
    method, backbone, calibration = header["settings"]["method"], header["backbone"], header["calibration"]
    pictures, pet = sum(counts(header).values()), (method.get("pet") or {}).get("kind")
    told = "not calibrated"
    if calibration:
        on = counted(calibration["pictures"], "picture")
        told = f"leave-one-out accuracy {100 * calibration['accuracy']:.1f} % on {on}"
    lines = [
        "---", "library_name: safecl", "pipeline_tag: image-classification", f"license: {licence}",
        *([] if backbone["name"] == EMBEDDED else [f"base_model: timm/{backbone['name']}"]), "---", "",
        f"# {counted(len(header['classes']), 'class')}, learned from {counted(pictures, 'picture')} in "
        f"{counted(sessions(header), 'session')}", "",
        f"- method: {method['name']}{f' with {pet}' if pet else ''}",
        f"- backbone: {backbone['name']} at {backbone['size']} px, weights {backbone['weights']}, licence {licence}",
        f"- {told}", *(f"- {sentence}" for sentence in advice(header)),
        "", as_markdown(class_table(header)), "", as_markdown(history_table(header)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"

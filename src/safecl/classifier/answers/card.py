"""The card of a model: what it knows, how it was made, what it rests on; Markdown with the head
that the hub reads.
"""

from pathlib import Path
from typing import Any

from safecl.backbone.licences import NOT_STATED, licence_of
from safecl.backbone.settings import EMBEDDED, BackboneSettings
from safecl.classifier.answers.tables import advice, class_table, history_table
from safecl.classifier.modelfile.history import counts, sessions
from safecl.classifier.modelfile.schema import Header
from safecl.lines import counted, slug
from safecl.report.table import as_markdown

HUB_LICENCES = (  # of those that weights have, the ones that the hub knows by name
    "apache-2.0",
    "bsd-3-clause",
    "cc-by-4.0",
    "cc-by-nc-4.0",
    "gemma",
    "mit",
)


def licence(header: Header) -> str:
    """Of the backbone's weights; a file of an earlier version does not say it."""
    known: str | None = header["backbone"].get("licence")
    return known or licence_of(BackboneSettings(**header["settings"]["backbone"]))


def without_folders(header: Header) -> Header:
    """What may leave the machine: of a weight file the name alone, since its folders may name
    people.
    """
    settings = header["settings"]
    file = header["backbone"]["file"]
    name = file and Path(file).name
    given = {**settings, "backbone": {**settings["backbone"], "weights": name}}
    return {**header, "backbone": {**header["backbone"], "file": name}, "settings": given}


def model_card(header: Header) -> str:
    """Facts, classes and history of a model."""
    terms = licence(header)
    method = header["settings"]["method"]
    backbone = header["backbone"]
    calibration = header["calibration"]
    pictures = sum(counts(header).values())
    pet = (method.get("pet") or {}).get("kind")
    told = "not calibrated"
    if calibration:
        on = counted(calibration["pictures"], "picture")
        told = f"leave-one-out accuracy {100 * calibration['accuracy']:.1f} % on {on}"
    lines = [
        "---",
        "library_name: safecl",
        "pipeline_tag: image-classification",
        "tags: [safecl, continual-learning]",
        *_licence_lines(terms),
        *([] if backbone["name"] == EMBEDDED else [f"base_model: timm/{backbone['name']}"]),
        *(_measured_lines(calibration) if calibration else []),
        "---",
        "",
        (
            f"# {counted(len(header['classes']), 'class')}, learned from"
            f" {counted(pictures, 'picture')} in {counted(sessions(header), 'session')}"
        ),
        "",
        f"- method: {method['name']}{f' with {pet}' if pet else ''}",
        (
            f"- backbone: {backbone['name']} at {backbone['size']} px, weights"
            f" {backbone['weights']}, licence {terms}"
        ),
        f"- {told}",
        *(f"- {sentence}" for sentence in advice(header)),
        "",
        as_markdown(class_table(header)),
        "",
        as_markdown(history_table(header)),
    ]
    return "\n".join(lines) + "\n"


def _measured_lines(calibration: dict[str, Any]) -> list[str]:
    """What was measured, as the hub shows it beside a model."""
    return [
        "model-index:",
        "- name: safecl",
        "  results:",
        "  - task: {type: image-classification}",
        "    dataset: {name: the pictures that it has learned, type: imagefolder}",
        "    metrics:",
        "    - type: accuracy",
        "      name: leave-one-out accuracy, the mean over classes",
        f"      value: {calibration['accuracy']:.4f}",
    ]


def _licence_lines(terms: str) -> list[str]:
    """In the words that the hub takes."""
    if terms == NOT_STATED:
        return ["license: unknown"]
    if terms in HUB_LICENCES:
        return [f"license: {terms}"]
    return ["license: other", f"license_name: {slug(terms)}"]

"""What ``safecl inspect`` prints, from the header of a model file alone."""

from rich.console import Console

from safecl.classifier.history import class_table, counts, history_table
from safecl.classifier.store import ModelFile
from safecl.cli.terminal import print_facts
from safecl.lines import counted
from safecl.report import words
from safecl.report.table import print_table

# By method.answer.statistics: what is kept of the pictures of earlier sessions. No picture in any case.
KEPT = {
    "following": "sums over all pictures, and of the features the mean of each class and one covariance",
    "stale": "sums over all pictures",
    "shared": "sums over all pictures",
}


def print_model(file: ModelFile, console: Console) -> None:
    """Facts, classes and history."""
    print_facts(console, facts(file))
    console.print()
    print_table(console, class_table(file.header))
    caption = "accuracy: leave-one-out accuracy, over the pictures of all classes so far"
    print_table(console, history_table(file.header), drop=("seconds", "date"), caption=caption)


def facts(file: ModelFile) -> list[tuple[str, str]]:
    """Lines of a key and what there is."""
    header, settings = file.header, file.header["settings"]
    pet, calibration = settings["method"].get("pet", {}).get("kind"), header.get("calibration")
    backbone, pictures = header["backbone"], sum(counts(header).values())
    undo = sum(one["whole"] for one in header.get("undo", []))
    told = "not yet: too few pictures, or made from a run"
    if calibration:
        told = f"temperature {calibration['temperature']:.2f}, calibration error {calibration['error']:.3f} on "
        told += f"{counted(calibration['pictures'], 'picture')}, each left out in turn"
    kept = KEPT.get(settings["method"].get("answer", {}).get("statistics"), "")
    if header.get("memory_bytes"):
        kept += f", {words.size(header['memory_bytes'])}"
    frozen = " (frozen)" if header.get("frozen") else ""
    learned = f", learned from {counted(pictures, 'picture')}" if pictures else ""
    return [
        ("model", f"{file.path}, {words.size(file.path.stat().st_size)}{frozen}"),
        ("classes", f"{len(header['classes'])}{learned}"),
        ("method", settings["method"]["name"] + (f" with {pet}" if pet else "")),
        ("backbone", f"{backbone['name']} at {backbone['size']} px, weights {backbone['weights'][:12]}…"),
        ("calibrated", told),
        ("memory", settings["memory"] + (f"; {_last(undo)} can be rolled back" if undo else "")),
        *([("keeps", kept)] if kept and not header.get("frozen") else []),
        ("made by", f"safecl {header.get('safecl')}, format {header['format']}"),
        ("inside", ", ".join(f"{name} {words.size(count)}" for name, count in file.sizes.items())),
    ]


def _last(count: int) -> str:
    return "the last session" if count == 1 else f"the last {count} sessions"

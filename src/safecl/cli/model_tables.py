"""What ``safecl inspect`` prints, from the header of a model file alone."""

from rich.console import Console

from safecl.classifier.history import class_rows, counts, history_rows
from safecl.classifier.store import ModelFile
from safecl.cli.terminal import Column, print_table
from safecl.lines import counted

# By method.answer.statistics: what is kept of the pictures of earlier sessions. No picture in any case.
KEPT = {
    "following": "sums over all pictures, and of the features the mean of each class and one covariance",
    "stale": "sums over all pictures",
    "shared": "sums over all pictures",
}


def print_model(file: ModelFile, console: Console) -> None:
    """Facts, classes and history."""
    for key, value in facts(file):
        console.print(f"{key:<12} {value}", highlight=False, markup=False, soft_wrap=True)
    console.print()
    columns = [Column("class", folds=True), Column("learned in", folds=True), Column("pictures", right=True)]
    print_table(console, "Classes", columns, class_rows(file.header))
    heads = ("", "what", "name", "date", "pictures", "new classes", "seconds", "accuracy")
    right = ("pictures", "new classes", "seconds", "accuracy")
    columns = [Column(head, head in right, head == "name") for head in heads]
    caption = "accuracy: in percent, on pictures that are left out in turn"
    print_table(console, "History", columns, history_rows(file.header), drop=("seconds", "date"), caption=caption)


def facts(file: ModelFile) -> list[tuple[str, str]]:
    """Lines of a key and what there is."""
    header, settings = file.header, file.header["settings"]
    pet, calibration = settings["method"].get("pet", {}).get("kind"), header.get("calibration")
    backbone, pictures = header["backbone"], sum(counts(header).values())
    undo = sum(one["whole"] for one in header.get("undo", []))
    told = "not yet: too few pictures, or made from a run"
    if calibration:
        told = f"temperature {calibration['temperature']:.2f}, calibration error {calibration['error']:.3f} on "
        told += f"{calibration['pictures']} pictures that are left out in turn"
    kept = KEPT.get(settings["method"].get("answer", {}).get("statistics"), "")
    if header.get("memory_bytes"):
        kept += f", {size(header['memory_bytes'])}"
    return [
        ("model", f"{file.path}, {size(file.path.stat().st_size)}" + (" (frozen)" if header.get("frozen") else "")),
        (
            "classes",
            f"{len(header['classes'])}" + (f", learned from {counted(pictures, 'picture')}" if pictures else ""),
        ),
        ("method", settings["method"]["name"] + (f" with {pet}" if pet else "")),
        ("backbone", f"{backbone['name']} at {backbone['size']} px, weights {backbone['weights'][:12]}…"),
        ("calibrated", told),
        ("memory", settings["memory"] + (f"; {_last(undo)} can be rolled back" if undo else "")),
        *([("keeps", kept)] if kept and not header.get("frozen") else []),
        ("made by", f"safecl {header.get('safecl')}, format {header['format']}"),
        ("inside", ", ".join(f"{name} {size(count)}" for name, count in file.sizes.items())),
    ]


def size(count: int) -> str:
    """Bytes for a person."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _last(count: int) -> str:
    return "the last session" if count == 1 else f"the last {count} sessions"

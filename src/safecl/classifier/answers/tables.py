"""What a model says of its classes and its past, as tables and sentences; from its header, without
torch.
"""

from pathlib import Path
from typing import Any

from safecl.classifier.answers.enough import interval, range_text, sentences
from safecl.classifier.modelfile.history import WHAT, counts
from safecl.classifier.modelfile.schema import Header
from safecl.report import words
from safecl.report.table import NONE, Table, make_table
from safecl.streams.labels import Label

MAX_PAIRS = 3  # of confused classes that are named


def class_table(header: Header, measured: dict[str, Any] | None = None) -> Table:
    """Each class: the session in which it was first learned, its pictures in all, and how well it
    is answered.

    ``measured``: what ``evaluate`` has found on other pictures, which comes first.
    """
    first: dict[Label, str] = {}
    for number, entry in enumerate(header["history"], 1):
        for label, _ in entry["classes"]:
            first.setdefault(label, f"{number} {entry['name']} ({entry['date'][:10]})")
    rows = [[str(label), first.get(label, NONE), f"{n:,}"] for label, n in counts(header).items()]
    heads = ["class", "learned in", "pictures"]
    if measured is not None:
        heads += ["measured", "95 % interval"]
        shares = {
            label: (count, round(share * count)) for label, share, count in measured["classes"]
        }
        for row, label in zip(rows, header["classes"], strict=True):
            row += _right_of(*shares.get(label, (0, 0)))
    if calibration := header["calibration"]:
        heads += ["leave-one-out", "95 % interval"]
        for row, (judged, right, _) in zip(rows, calibration["classes"], strict=True):
            row += _right_of(judged, right)
    return make_table("Classes", heads, rows, words=["learned in"])


def _right_of(judged: int, right: int) -> list[str]:
    return (
        [f"{right} of {judged}", range_text(*interval(right / judged, judged))]
        if judged
        else [NONE, NONE]
    )


def advice(header: Header, measured: dict[str, Any] | None = None) -> list[str]:
    """Sentences: what is confused, of which classes more pictures would help; ``measured``: as in
    ``class_table``.
    """
    names = header["classes"]
    told = list[str]()
    calibration = header["calibration"]
    if measured is not None:
        judged = {label: count for label, _, count in measured["classes"]}
        pairs = [(true, said, n, judged[true]) for true, said, n in measured["confused"]]
    else:
        every = calibration["confused"] if calibration else []
        pairs = [(names[a], names[b], n, calibration["classes"][a][0]) for a, b, n in every]
    for true, said, n, count in pairs[:MAX_PAIRS]:
        told.append(f"{true} is confused with {said} ({n} of {count} pictures).")
    return told + sentences(calibration, counts(header)) if calibration else told


def choice_table(choice: dict[str, Any]) -> Table:
    """The backbones that the first pictures were to choose from, the chosen one first."""
    rows = [
        [
            Path(one["file"] or one["name"]).name,
            f"{one['size']} px",
            f"{one['error']:.3f}",
            f"{one['seconds']:.1f}",
        ]
        for one in choice["candidates"]
    ]
    by = f"by {choice['prefer']} on {words.plural(choice['pictures'], 'picture')}"
    heads = ("backbone", "input", "leave-one-out error", "s per 100 pictures")
    return make_table(f"Backbones asked, the first chosen {by}", heads, rows, words=heads[:1])


def history_table(header: Header) -> Table:
    """What was done to the model."""
    rows = []
    for number, entry in enumerate(header["history"], 1):
        learned = entry["what"] == "learn"
        row = [
            str(number),
            WHAT[entry["what"]],
            str(entry["name"]),
            entry["date"].replace("T", " ")[:16],
        ]
        row.append(words.count(sum(count for _, count in entry["classes"]) if learned else None))
        row.append(words.count(len(entry["new"]) if learned else None))
        rows.append(
            [*row, words.count(entry.get("seconds")), words.bare_percent(entry.get("accuracy"))]
        )
    heads = ("", "what", "name", "date", "pictures", "new classes", "seconds", "accuracy, %")
    return make_table("History", heads, rows, words=["what", "name", "date"])

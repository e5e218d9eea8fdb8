"""The history of a model: what was done to it, and the counts that follow. Nothing heavy is imported."""

import platform
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import safecl
from safecl.classifier.store import Header
from safecl.errors import SafeclError
from safecl.report.table import NONE, Table, make_table
from safecl.streams.labels import Label

LIBRARIES = ("torch", "torchvision", "timm", "numpy", "safetensors")
WHAT = {"learn": "learned", "run": "made from a run", "forget": "forgot", "rename": "renamed", "merge": "merged with"}


def now() -> dict[str, Any]:
    """When and with what something was done."""
    libraries = {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "safecl": safecl.__version__, **libraries}


def step(what: str, name: str, **more: Any) -> dict[str, Any]:
    """An entry of the history; ``what``: a key of ``WHAT``."""
    return {"what": what, "id": uuid.uuid4().hex[:12], "name": name, "classes": [], "new": [], **more, **now()}


def sessions(header: Header) -> int:
    """How many sessions were learned; those of a run count, too."""
    return sum(entry.get("sessions", 1) for entry in header["history"] if entry["what"] in ("learn", "run"))


def check_not_frozen(header: Header) -> None:
    """Refuse a change of a model that only predicts."""
    if header["frozen"]:
        raise SafeclError("This model is frozen: it only predicts; use the model it was made from.")


def check_rollback(header: Header, kept: int | None = None) -> None:
    """Refuse a model without a session to roll back. ``kept``: how many there are; as the file says if not given."""
    if kept is None:
        kept = sum(one["whole"] for one in header["undo"])
    if kept:
        return
    why = "no earlier session is kept; take a copy of its file, or teach a new model"
    if sum(entry["what"] == "learn" for entry in header["history"]) == 1:
        why = "it has learned one session only; delete its file to start over"
    raise SafeclError(f"The model cannot be rolled back: {why}.")


def counts(header: Header) -> dict[Label, int]:
    """The pictures of each class that the model knows; 0 where a run did not say."""
    found: dict[Label, int] = dict.fromkeys(header["classes"], 0)
    for entry in header["history"]:
        for label, count in entry["classes"]:
            if label in found:
                found[label] += count
    return found


def class_table(header: Header) -> Table:
    """Each class: the session in which it was first learned, and its pictures in all."""
    first: dict[Label, str] = {}
    for number, entry in enumerate(header["history"], 1):
        for label, _ in entry["classes"]:
            first.setdefault(label, f"{number} {entry['name']} ({entry['date'][:10]})")
    rows = [[str(label), first.get(label, NONE), f"{n:,}" if n else NONE] for label, n in counts(header).items()]
    return make_table("Classes", ("class", "learned in", "pictures"), rows, words=["learned in"])


def history_table(header: Header) -> Table:
    """What was done to the model."""
    rows = []
    for number, entry in enumerate(header["history"], 1):
        learned = entry["what"] == "learn"
        seconds, accuracy = entry.get("seconds"), entry.get("accuracy")
        rows.append(
            [
                str(number),
                WHAT.get(entry["what"], entry["what"]),
                str(entry["name"]),
                entry["date"].replace("T", " ")[:16],
                f"{sum(count for _, count in entry['classes']):,}" if learned else NONE,
                str(len(entry["new"])) if learned or entry["what"] == "run" else NONE,
                NONE if seconds is None else f"{seconds:.0f}",
                NONE if accuracy is None else f"{100 * accuracy:.1f}",
            ]
        )
    heads = ("", "what", "name", "date", "pictures", "new classes", "seconds", "accuracy, %")
    return make_table("History", heads, rows, words=["what", "name", "date"])

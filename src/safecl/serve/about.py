"""What a model says of itself and of pictures, as JSON, from the header of its file. No torch is
imported.
"""

from typing import Any

from safecl.classifier.answers.enough import interval, wanted
from safecl.classifier.modelfile.history import counts, sessions, steps_back
from safecl.classifier.modelfile.store import ModelFile
from safecl.runtime.answer import Answer


def answer_of(answer: Answer, detail: bool) -> dict[str, Any]:
    """``detail``: with all opinions."""
    return {**answer.fields(detail), "nearest": answer.nearest}


def brief(name: str, file: ModelFile | None, fault: str | None) -> dict[str, Any]:
    """A line about a model; ``fault``: why it answers as before, if its file could not be read
    anew.

    Without a ``file`` it has learned nothing yet: its version is empty.
    """
    if file is None:
        nothing = {"version": "", "classes": 0, "sessions": 0, "frozen": False}
        return {"name": name, "fault": fault, **nothing}
    header = file.header
    said = {"name": name, "version": file.version, "fault": fault}
    return {
        **said,
        "classes": len(header["classes"]),
        "sessions": sessions(header),
        "frozen": header["frozen"],
    }


def describe(
    name: str, file: ModelFile | None, fault: str | None, may_change: bool
) -> dict[str, Any]:
    """All that the page shows of a model."""
    if file is None:
        lists: dict[str, Any] = {"classes": [], "confusions": [], "history": [], "thumbnails": {}}
        none = dict.fromkeys(("rolls_back", "backbone", "method", "accuracy"))
        said = {**brief(name, file, fault), **none, **lists}
        return {**said, "size": 0, "may_change": may_change}
    header = file.header
    calibration = file.header["calibration"]
    thumbnails = dict[str, list[str]]()
    rows = calibration["classes"] if calibration else [[0, 0, 0]] * len(header["classes"])
    gains = {place: round(then - now, 4) for place, now, then in wanted(rows)}
    classes = []
    for place, ((label, pictures), (judged, right, _)) in enumerate(
        zip(counts(header).items(), rows, strict=True)
    ):
        low, high = interval(right / judged, judged) if judged else (None, None)
        known = {
            "label": label,
            "pictures": pictures,
            "judged": judged,
            "correct": right,
            "low": low,
            "high": high,
        }
        classes.append({**known, "gain": gains.get(place)})
    for one in file.thumbnails():
        thumbnails.setdefault(str(header["classes"][one.place]), []).append(
            f"data:image/jpeg;base64,{one.jpeg}"
        )
    steps = ("id", "what", "name", "date", "new", "pictures")
    back = steps_back(header)
    history = [{**one, "pictures": sum(n for _, n in one["classes"])} for one in header["history"]]
    labels = header["classes"]
    pairs = calibration["confused"] if calibration else []
    numbers = (calibration["accuracy"], *calibration["interval"]) if calibration else ()
    return {
        **brief(name, file, fault),
        "rolls_back": back[-1]["id"] if back else None,
        "backbone": header["backbone"]["name"],
        "method": header["settings"]["method"]["name"],
        "size": file.size,
        "accuracy": dict(zip(("value", "low", "high"), numbers, strict=False)) or None,
        "classes": classes,
        "confusions": [{"label": labels[a], "answer": labels[b], "count": n} for a, b, n in pairs],
        "history": [{key: one[key] for key in steps} for one in history],
        "thumbnails": thumbnails,
        "may_change": may_change,
    }

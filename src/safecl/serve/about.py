"""What a model says of itself and of pictures, as JSON, from the header of its file. No torch is imported."""

from typing import Any

from safecl.classifier.enough import interval, wanted
from safecl.classifier.history import counts, sessions, steps_back
from safecl.classifier.store import ModelFile
from safecl.runtime.answer import Answer


def answer_of(answer: Answer, detail: bool) -> dict[str, Any]:
    """``detail``: with all opinions."""
    return {**answer.fields(detail), "nearest": answer.nearest}


def brief(name: str, file: ModelFile) -> dict[str, Any]:
    """A line about a model."""
    header, said = file.header, {"name": name, "version": file.version}
    return {**said, "classes": len(header["classes"]), "sessions": sessions(header), "frozen": header["frozen"]}


def describe(name: str, file: ModelFile, may_change: bool) -> dict[str, Any]:
    """All that the page shows of a model."""
    header, calibration, thumbnails = file.header, file.header["calibration"], dict[str, list[str]]()
    rows = calibration["classes"] if calibration else [[0, 0, 0]] * len(header["classes"])
    gains, classes = {place: round(then - now, 4) for place, now, then in wanted(rows)}, []
    for place, ((label, pictures), (judged, right, _)) in enumerate(zip(counts(header).items(), rows, strict=True)):
        low, high = interval(right / judged, judged) if judged else (None, None)
        known = {"label": label, "pictures": pictures, "judged": judged, "correct": right, "low": low, "high": high}
        classes.append({**known, "gain": gains.get(place)})
    for one in file.thumbnails():
        thumbnails.setdefault(str(header["classes"][one.place]), []).append(f"data:image/jpeg;base64,{one.jpeg}")
    said, back = ("id", "what", "name", "date", "new", "pictures"), steps_back(header)
    history = [{**one, "pictures": sum(n for _, n in one["classes"])} for one in header["history"]]
    labels, pairs = header["classes"], calibration["confused"] if calibration else []
    numbers = (calibration["accuracy"], *calibration["interval"]) if calibration else ()
    return {
        **brief(name, file), "rolls_back": back[-1]["id"] if back else None,
        "backbone": header["backbone"]["name"], "method": header["settings"]["method"]["name"], "size": file.size,
        "accuracy": dict(zip(("value", "low", "high"), numbers, strict=False)) or None, "classes": classes,
        "confusions": [{"label": labels[a], "answer": labels[b], "count": n} for a, b, n in pairs],
        "history": [{key: one[key] for key in said} for one in history], "thumbnails": thumbnails,
        "may_change": may_change,
    }  # fmt: skip

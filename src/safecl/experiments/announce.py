"""What to know of a stream before a run on it starts, in sentences."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from safecl.lines import counted
from safecl.streams.settings import FolderSettings, HuggingFaceSettings, StreamSettings, TableSettings
from safecl.streams.stream import Stream

FEW = 5  # test pictures of a class below which its accuracy is rough


def announce(stream: Stream, settings: StreamSettings | None = None) -> Iterator[str]:
    """How ``stream`` is cut into sessions, and what will make its numbers rough.

    ``settings``: those it was opened with, to say how it could be cut otherwise.
    """
    yield f"{stream.name}: {cut(stream)}{_otherwise(stream, settings)}."
    labels = stream.labels
    if len(labels) == 1:
        yield f"Note: there is a single class, {labels[0]!r}, so every answer will be right; add another class."
    parts = range(1, len(stream.test_parts) + 1)
    tested = Counter(label for part in parts for label in stream.test(part).labels)
    few = sorted((tested[label], str(label)) for label in labels if tested[label] < FEW)
    if few and not tested:
        yield "Note: no class has a test picture, so there will be no accuracy; a class needs at least two pictures."
    elif few:
        least, name = few[0]
        pictures = counted(least, "test picture") if least else "no test picture"
        yield (
            f"Note: {len(few)} of {len(labels)} classes have fewer than {FEW} test pictures ({name!r} has {pictures}), "
            "so accuracies will be rough."
        )


def cut(stream: Stream) -> str:
    """The sessions in words: "12 classes in 6 sessions of 2", "5 classes in 3 sessions, 2 a session, 1 in the last"."""
    labels, sessions = len(stream.labels), [len(classes) for _, classes in stream.sessions]
    classes = counted(labels, "class", "classes")
    if len(sessions) == 1:
        return f"{classes} in 1 session"
    if stream.protocol != "class":
        names = ", ".join(name for name, _ in stream.sessions)
        kind = "the same in each" if stream.protocol == "domain" else "known and new ones in each"
        return f"{classes}, {kind} of {len(sessions)} sessions: {names}"
    runs = [(size, len(list(some))) for size, some in groupby(sessions)]
    if len(runs) == 1:
        return f"{classes} in {len(sessions)} sessions of {sessions[0]}"
    start = f"{classes} in {len(sessions)} sessions"
    match runs:
        case [(first, 1), (last, 1)]:
            return f"{start}, {first} in the first, {last} in the last"
        case [(first, 1), (later, _)]:
            return f"{start}, {first} in the first, then {later} a session"
        case [(each, _), (last, 1)]:
            return f"{start}, {each} a session, {last} in the last"
        case [(first, 1), (later, _), (last, 1)]:
            return f"{start}, {first} in the first, then {later} a session, {last} in the last"
    return f"{start} of {', '.join(map(str, sessions[:-1]))} and {sessions[-1]}"


def _otherwise(stream: Stream, settings: StreamSettings | None) -> str:
    """The setting for other sessions, where the cut is the default one."""
    if not isinstance(settings, FolderSettings | TableSettings | HuggingFaceSettings):
        return ""
    if stream.protocol != "class" or settings.first is not None or settings.step is not None:
        return ""
    classes, step = len(stream.labels), len(stream.sessions[0][1])
    other = 2 * step if 2 * step < classes else 1
    count = math.ceil(classes / other)
    return f"; stream.step={other} makes {count} sessions" if count not in (1, len(stream)) else ""

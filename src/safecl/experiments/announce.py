"""What to know of a stream before a run on it starts, in sentences."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from safecl.lines import counted
from safecl.streams.settings import FolderSettings, HuggingFaceSettings, StreamSettings, TableSettings
from safecl.streams.stream import Stream

MIN_TEST_PICTURES = 5  # per class, below which its accuracy is rough


def announce(stream: Stream, settings: StreamSettings | None = None) -> Iterator[str]:
    """How ``stream``, opened with ``settings``, is cut into sessions, and what will make its numbers rough."""
    yield f"{stream.name}: {cut(stream)}{_otherwise(stream, settings)}."
    labels = stream.labels
    if len(labels) == 1:
        yield f"Note: there is a single class, {labels[0]!r}, so every answer will be right; add another class."
    parts = range(1, len(stream.test_parts) + 1)
    tested = Counter(label for part in parts for label in stream.test(part).labels)
    few = sorted((tested[label], str(label)) for label in labels if tested[label] < MIN_TEST_PICTURES)
    if few and not tested:
        yield "Note: no class has a test picture, so there will be no accuracy; a class needs at least two pictures."
    elif few:
        least = f"{few[0][1]!r} has {counted(few[0][0], 'test picture')}"
        share = f"{len(few)} of {len(labels)} classes have fewer than {MIN_TEST_PICTURES} test pictures"
        yield f"Note: {share} ({least}), so accuracies will be rough."


def cut(stream: Stream) -> str:
    """The sessions in words: "12 classes in 6 sessions of 2", "196 classes in 10 sessions of 16 and 9 × 20"."""
    classes, sizes = counted(len(stream.labels), "class", "classes"), [len(labels) for _, labels in stream.sessions]
    if len(sizes) == 1:
        return f"{classes} in 1 session"
    if stream.protocol != "class":
        kind = "the same in each" if stream.protocol == "domain" else "known and new ones in each"
        return f"{classes}, {kind} of {len(sizes)} sessions: {', '.join(name for name, _ in stream.sessions)}"
    runs = [(size, len(list(some))) for size, some in groupby(sizes)]
    *first, last = [f"{count} × {size}" if count > 1 and len(runs) > 1 else str(size) for size, count in runs]
    return f"{classes} in {len(sizes)} sessions of {', '.join(first)}{' and ' if first else ''}{last}"


def _otherwise(stream: Stream, settings: StreamSettings | None) -> str:
    """The setting for other sessions, where the cut is the default one."""
    cuttable = isinstance(settings, FolderSettings | TableSettings | HuggingFaceSettings) and stream.protocol == "class"
    if not cuttable or settings.first is not None or settings.step is not None:
        return ""
    classes, step = len(stream.labels), len(stream.sessions[0][1])
    other = 2 * step if 2 * step < classes else 1
    count = math.ceil(classes / other)
    return f"; stream.step={other} makes {count} sessions" if count not in (1, len(stream)) else ""

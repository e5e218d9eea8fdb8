"""Food-101: 101 dishes."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Plan


def plan(sources: Sequence[Source]) -> Plan:
    """The archive with its lists ``meta/train.txt`` and ``meta/test.txt`` of ``class/number``."""
    for source in sources:
        names = set(source.names())
        top = next((PurePosixPath(n).parents[1] for n in sorted(names) if n.endswith("meta/train.txt")), None)
        if top is None:
            continue
        moves = {}
        for part in ("train", "test"):
            for line in source.read(str(top / "meta" / f"{part}.txt")).decode("utf-8").split():
                name = str(top / "images" / f"{line}.jpg")
                if name not in names:
                    raise SafeclError(f"{source.path} lists {line}, but the picture is missing; fetch it again.")
                moves[name] = f"{part}/{line}.jpg"
        return Plan(OFFICIAL, [(source, moves)])
    raise SafeclError(f"{sources[0].path} has no list meta/train.txt: it is not Food-101 as it is published.")

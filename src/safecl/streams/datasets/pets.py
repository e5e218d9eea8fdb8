"""Oxford-IIIT Pets: 37 breeds of cats and dogs."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Plan, moved

LISTS = {"trainval.txt": "train", "test.txt": "test"}


def plan(sources: Sequence[Source]) -> Plan:
    """Two archives: pictures ``breed_number.jpg``, and the lists ``trainval.txt`` and ``test.txt`` of their names."""
    part_of: dict[str, str] = {}
    for source in sources:
        for name in source.names():
            part = LISTS.get(PurePosixPath(name).name)
            if part is not None:
                lines = source.read(name).decode("utf-8").splitlines()
                part_of |= {line.split()[0]: part for line in lines if line.strip() and not line.startswith("#")}
    if set(part_of.values()) != {"train", "test"}:
        raise SafeclError(
            "Oxford-IIIT Pets is prepared from one folder with images.tar.gz and annotations.tar.gz; the lists "
            "trainval.txt and test.txt are missing."
        )
    places = {f"{stem}.jpg": f"{part}/{stem.rpartition('_')[0]}/{stem}.jpg" for stem, part in part_of.items()}
    moves = moved(sources, lambda name: places.get(PurePosixPath(name).name))
    missing = part_of.keys() - {PurePosixPath(to).stem for _, found in moves for to in found.values()}
    if missing:
        raise SafeclError(f"{sources[0].path} lists {min(missing)}, but the picture is missing; fetch it again.")
    return Plan(OFFICIAL, moves)

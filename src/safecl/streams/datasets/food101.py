"""Food-101: 101 dishes."""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Archive, Dataset, Plan
from safecl.streams.datasets.layout import read_image_folder


def plan_food101(sources: Sequence[Source]) -> Plan:
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


FOOD101 = Dataset(
    name="food101",
    title="Food-101",
    folder="food-101",
    home="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101",
    classes=101,
    counts={OFFICIAL: (75_750, 25_250)},
    first=11,
    step=10,
    archives=(
        Archive(
            "food-101.tar.gz",
            "85eeb15f3717b99a5da872d97d918f87",
            "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
        ),
    ),
    fetch="run `safecl data prepare food101 --download` (5 GB), or fetch food-101.tar.gz and run "
    "`safecl data prepare food101 --from food-101.tar.gz`.",
    licence="research; the pictures belong to their makers",
    plan=plan_food101,
    read=partial(read_image_folder, name="food101"),
    pitfalls=(
        "Some training labels are wrong, on purpose; the test labels are clean.",
        "There is no common division into sessions: 11 classes, then 10 at a time.",
    ),
)

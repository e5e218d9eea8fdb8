"""Stanford Cars: 196 makes, models and years of cars."""

from collections.abc import Sequence
from functools import partial

from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Dataset, Plan
from safecl.streams.datasets.layout import plan_processed, read_image_folder


def plan_cars(sources: Sequence[Source]) -> Plan:
    """Mirrors give the pictures in folders train/CLASS and test/CLASS, by the flag of the official annotations."""
    return Plan(OFFICIAL, plan_processed(sources).moves)


CARS = Dataset(
    name="cars",
    title="Stanford Cars",
    folder="cars",
    home="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    classes=196,
    counts={OFFICIAL: (8_144, 8_041)},
    first=16,
    step=20,
    archives=(),
    fetch="fetch a mirror that has the pictures in folders train/CLASS and test/CLASS (the official site is off-line) "
    "and run `safecl data prepare cars --from ARCHIVE_OR_FOLDER`.",
    licence="non-commercial research",
    plan=plan_cars,
    read=partial(read_image_folder, name="cars"),
    pitfalls=(
        "The official site is off-line: compare the counts of a mirror with the published ones.",
        "The first session has 16 classes, as in RanPAC; others begin with 20 and end with 16.",
        "A few pictures are grey.",
    ),
)

"""Flowers-102: 102 flowers that are common in Britain."""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Archive, Dataset, Plan
from safecl.streams.datasets.layout import pictures_of, read_image_folder
from safecl.streams.datasets.matlab import read_arrays

SITE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
LISTS = ("imagelabels.mat", "setid.mat")
PARTS = {"trnid": "train", "valid": "train", "tstid": "test"}


def plan_flowers102(sources: Sequence[Source]) -> Plan:
    """The archive of pictures, the labels and the sets; a class is the number of its label, with three digits."""
    arrays: dict[str, NDArray[np.float64]] = {}
    for source in sources:
        for name in source.names():
            if PurePosixPath(name).name in LISTS:
                arrays |= read_arrays(source.read(name), f"{source.path}/{name}")
    missing = [name for name in ("labels", *PARTS) if name not in arrays]
    if missing:
        raise SafeclError(
            "Flowers-102 is prepared from one folder with 102flowers.tgz, imagelabels.mat and setid.mat; missing: "
            f"{', '.join(missing)}."
        )
    places = {}
    for array, part in PARTS.items():
        for number in arrays[array].astype(int).tolist():
            label = int(arrays["labels"][number - 1])
            places[f"image_{number:05d}.jpg"] = f"{part}/{label:03d}/image_{number:05d}.jpg"
    moves = [
        (
            source,
            {name: places[at] for name in pictures_of(source.names()) if (at := PurePosixPath(name).name) in places},
        )
        for source in sources
    ]
    absent = set(places.values()) - {to for _, found in moves for to in found.values()}
    if absent:
        raise SafeclError(f"{PurePosixPath(min(absent)).name} is listed but missing; fetch 102flowers.tgz again.")
    return Plan(OFFICIAL, moves)


FLOWERS102 = Dataset(
    name="flowers102",
    title="Flowers-102",
    folder="flowers102",
    home=SITE,
    classes=102,
    counts={OFFICIAL: (2_040, 6_149)},
    first=12,
    step=10,
    archives=(
        Archive("102flowers.tgz", "52808999861908f626f3c1f4e79d11fa", f"{SITE}/102flowers.tgz"),
        Archive("imagelabels.mat", "e0620be6f572b9609742df49c70aed4d", f"{SITE}/imagelabels.mat"),
        Archive("setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c", f"{SITE}/setid.mat"),
    ),
    fetch="run `safecl data prepare flowers102 --download`, or fetch 102flowers.tgz, imagelabels.mat and setid.mat "
    "into one folder and run `safecl data prepare flowers102 --from FOLDER`.",
    licence="research; the pictures belong to their makers",
    plan=plan_flowers102,
    read=partial(read_image_folder, name="flowers102"),
    pitfalls=(
        "Training pictures are those of the training and the validation set: 20 a class; the test set is the larger.",
        "There is no common division into sessions: 12 classes, then 10 at a time.",
    ),
)

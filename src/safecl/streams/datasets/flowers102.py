"""Flowers-102: 102 flowers that are common in Britain."""

import io
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Plan, moved

LISTS = ("imagelabels.mat", "setid.mat")
PARTS = {"trnid": "train", "valid": "train", "tstid": "test"}


def plan(sources: Sequence[Source]) -> Plan:
    """The archive of pictures, the labels and the sets; a class is the number of its label, with three digits."""
    arrays: dict[str, Any] = {}
    for source in sources:
        for name in source.names():
            if PurePosixPath(name).name in LISTS:
                arrays |= read_matlab(source.read(name), f"{source.path}/{name}")
    missing = [name for name in ("labels", *PARTS) if name not in arrays]
    if missing:
        raise SafeclError(
            "Flowers-102 is prepared from one folder with 102flowers.tgz, imagelabels.mat and setid.mat; missing: "
            f"{', '.join(missing)}."
        )
    places = {}
    for array, part in PARTS.items():
        for number in arrays[array].ravel().tolist():
            label = int(arrays["labels"].ravel()[number - 1])
            places[f"image_{number:05d}.jpg"] = f"{part}/{label:03d}/image_{number:05d}.jpg"
    moves = moved(sources, lambda name: places.get(PurePosixPath(name).name))
    absent = set(places.values()) - {to for _, found in moves for to in found.values()}
    if absent:
        raise SafeclError(f"{PurePosixPath(min(absent)).name} is listed but missing; fetch 102flowers.tgz again.")
    return Plan(OFFICIAL, moves)


def read_matlab(data: bytes, where: str) -> dict[str, Any]:
    """The variables of a MATLAB file by name; ``where`` names the file."""
    from scipy.io import loadmat

    try:
        found: dict[str, Any] = loadmat(io.BytesIO(data))
        return found
    except Exception as error:  # scipy's reader raises almost anything on broken data
        raise SafeclError(f"{where} cannot be read as a MATLAB file ({error}); fetch it again.") from None

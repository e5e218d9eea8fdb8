"""Numeric arrays of a MATLAB 5 file, in which the lists of Flowers-102 are published."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from safecl.errors import SafeclError

NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
HEADER = 128  # bytes before the first element
LARGEST = 1 << 26  # bytes that a compressed element may unpack to


def read_arrays(data: bytes, where: str) -> dict[str, NDArray[np.float64]]:
    """Every real numeric array by its name, flat; other variables are left out. ``where`` names the file."""
    try:
        if data[126:128] != b"IM":
            raise ValueError("it is no little-endian MATLAB 5 file")
        return dict(_arrays(data[HEADER:]))
    except (ValueError, KeyError, StopIteration, struct.error, zlib.error) as error:
        raise SafeclError(f"{where} cannot be read as a MATLAB 5 file ({error}); fetch it again.") from error


def _arrays(data: bytes) -> Iterator[tuple[str, NDArray[np.float64]]]:
    for kind, content in _elements(data):
        if kind == COMPRESSED:
            unpacking = zlib.decompressobj()
            yield from _arrays(unpacking.decompress(content, LARGEST))
        elif kind == MATRIX:
            parts = _elements(content)
            flags = next(parts)[1]
            next(parts)  # the dimensions
            name = next(parts)[1].decode("ascii", "replace")
            if 6 <= flags[0] <= 15:  # classes of numbers; others are cells, structures, text
                number, values = next(parts)
                yield name, np.frombuffer(values, "<" + NUMBERS[number]).astype(np.float64)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each element; one of at most four bytes stands inside its tag."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            yield kind, data[at + 4 : at + 4 + size]
            at += 8
            continue
        content = data[at + 8 : at + 8 + size]
        if len(content) < size:
            raise ValueError("it breaks off")
        yield kind, content
        at += 8 + (size if kind == COMPRESSED else -(-size // 8) * 8)

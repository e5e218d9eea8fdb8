"""Which files are pictures, by their names and how they begin, and what reads those of phones."""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from PIL import UnidentifiedImageError

EXTENSIONS = frozenset(
    (
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".bmp",
        ".gif",
        ".webp",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
    )
)
LEFTOVERS = ("__MACOSX", "Thumbs.db", "desktop.ini")
# Endings of what not every installation reads, and by format: the module, its class of pictures,
# and what reads it.
FURTHER = {".heic": "HEIC", ".heif": "HEIC", ".hif": "HEIC", ".avif": "AVIF", ".jxl": "JPEG XL"}
READERS = {
    "HEIC": ("pillow_heif", "HeifImageFile", "pip install 'safecl[heic]'"),
    "AVIF": ("PIL.AvifImagePlugin", "AvifImageFile", "Pillow 11.3 or newer"),
    "JPEG XL": ("pillow_jxl.JpegXLImagePlugin", "JXLImageFile", "pip install 'safecl[jxl]'"),
}
# Endings of pictures that are never read; files with any other ending are not taken for pictures.
UNREAD = frozenset(
    (
        ".jp2",
        ".j2k",
        ".svg",
        ".psd",
        ".eps",
        ".ico",
        ".tga",
        ".exr",
        ".hdr",
        ".dng",
        ".raw",
        ".cr2",
        ".cr3",
        ".nef",
        ".arw",
        ".orf",
        ".rw2",
        ".raf",
        ".pef",
        ".srw",
    )
)


def further_format(data: bytes) -> str:
    """Which of ``READERS`` a file is for, by how it begins; empty if for none."""
    if data[:2] == b"\xff\x0a" or data[:12] == b"\0\0\0\x0cJXL \r\n\x87\n":
        return "JPEG XL"
    if data[4:8] != b"ftyp":
        return ""
    brands = data[8 : min(int.from_bytes(data[:4], "big"), 256)]
    return (
        "AVIF"
        if b"avif" in brands or b"avis" in brands
        else "HEIC"
        if b"he" in brands or b"mif1" in brands
        else ""
    )


@cache
def reader(kind: str) -> Callable[..., Any] | None:
    """What opens pictures of one of ``READERS``; None where it is not installed."""
    module, name, _ = READERS[kind]
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ImportError:
        return None
    return found


def unread_because(kind: str) -> str:
    """What would read one of ``READERS``, in a few words."""
    return f"{kind}, which {READERS[kind][2]} reads"


def hidden(*parts: str) -> bool:
    """Whether one of the parts of a name is hidden, or what a system leaves in folders."""
    return any(part.startswith(".") or part in LEFTOVERS for part in parts)


def readable(ending: str) -> bool:
    """Whether files with this ending are pictures that can be read here."""
    return ending in EXTENSIONS or (ending in FURTHER and reader(FURTHER[ending]) is not None)


def jpeg_xl_size(data: bytes) -> tuple[int, int]:
    """Width and height in the header of a JPEG XL picture: a codestream, or boxes of which one
    begins with it.
    """
    at = 0
    while data[at : at + 2] != b"\xff\x0a":
        size = int.from_bytes(data[at : at + 4], "big")
        box = data[at + 4 : at + 8]
        head = 8
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
            head = 16
        at += {b"jxlc": head, b"jxlp": head + 4}.get(box, max(size, head))
        if not size or at >= len(data):
            raise UnidentifiedImageError
    bits = int.from_bytes(data[at + 2 : at + 12], "little")

    def take(count: int) -> int:
        nonlocal bits
        value = bits & ((1 << count) - 1)
        bits = bits >> count
        return value

    eights = take(1)

    def side() -> int:
        return 8 * (1 + take(5)) if eights else 1 + take((9, 13, 18, 30)[take(2)])

    height = side()
    ratio = (None, (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))[take(3)]
    return (height * ratio[0] // ratio[1] if ratio else side()), height

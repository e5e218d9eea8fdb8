"""From the bytes of a picture file to an RGB image, or to one sentence on why that is not possible."""

import importlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from safecl.errors import SafeclError

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
)
# Endings of what not every installation reads, and by format: the module, its class of pictures, and what reads it.
FURTHER = {".heic": "HEIC", ".heif": "HEIC", ".hif": "HEIC", ".avif": "AVIF", ".jxl": "JPEG XL"}
READERS = {
    "HEIC": ("pillow_heif", "HeifImageFile", "pip install 'safecl[heic]'"),
    "AVIF": ("PIL.AvifImagePlugin", "AvifImageFile", "Pillow 11.3 or newer"),
    "JPEG XL": ("pillow_jxl.JpegXLImagePlugin", "JXLImageFile", "pip install 'safecl[jxl]'"),
}
# Endings of pictures that are never read; files with any other ending are not taken for pictures.
UNREAD = frozenset(
    (".jp2", ".j2k", ".svg", ".psd", ".eps", ".ico", ".tga", ".exr", ".hdr", ".dng", ".raw", ".cr2", ".cr3", ".nef",
     ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw")
)  # fmt: skip
MAX_PIXELS = 178_956_970  # where Pillow, as it is shipped, refuses a picture as a decompression bomb
COLOUR_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}  # of colour profiles, by mode
ENOUGH = 4  # times the side that a shorter side is resized to: with these pixels the result is that of all of them
NOT_FINITE = "pixels that are not finite numbers"
MAX_ASPECT = 64  # a 1 × 10 000 strip resized to 256 × 2 560 000 would exhaust the RAM

# All that is tried, whatever a file is called: Pillow's reader of EPS, for one, starts Ghostscript.
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "GIF", "TIFF", "WEBP")


class UnreadableError(SafeclError):
    """A picture that cannot be used: ``where`` it is, the ``reason`` in a few words, and the ``remedy``."""

    def __init__(self, where: str, reason: str, remedy: str = "remove it or fetch it again") -> None:
        super().__init__(where, reason, remedy)
        self.where, self.reason, self.remedy = where, reason, remedy

    def __str__(self) -> str:
        return f"The picture {self.where.removeprefix('picture ')} cannot be read ({self.reason}); {self.remedy}."


def decode(
    data: bytes, name: str, *, upright: bool = True, forgiving: bool = False, least: int | None = None
) -> Image.Image:
    """The picture in ``data`` as RGB; whatever is not a picture is an UnreadableError that names ``name``.

    ``upright``: as the camera meant it, turned by the EXIF orientation and its colours in sRGB; otherwise as it is
    stored. ``forgiving``: fill up a JPEG that breaks off with grey. ``least``: pixels of the shorter side that are
    enough; a large JPEG is decoded at a half, a quarter or an eighth where that is a whole number of pixels.
    """
    if not data:
        raise UnreadableError(name, "an empty file")
    if forgiving and data[:2] == b"\xff\xd8":
        # An end marker: what is missing before it becomes grey; after a whole picture it is ignored.
        data += b"\xff\xd9"
    with explained(name):
        image = opened(data, name)
        if least is not None and image.format == "JPEG":
            (width, height), enough = image.size, min(image.size) // max(least, 1)
            # Only by what divides both sides: a part of a pixel at the edges would stretch the whole picture.
            by = next((n for n in (8, 4, 2) if n <= enough and width % n == height % n == 0), 1)
            image.draft(None, (width // by, height // by))
        with _limiting:
            most = Image.MAX_IMAGE_PIXELS  # that Pillow reads without a word, as other code has left it
        if most is not None and image.width * image.height > most:
            with limited(MAX_PIXELS):  # one at a time, since the limit is the whole process's
                image.load()
        return as_meant(image) if upright else rgb(image)


def size_of(data: bytes, name: str) -> tuple[int, int]:
    """The sides of the picture in ``data`` as it is stored, read from its header alone."""
    with explained(name):
        return opened(data, name).size


def opened(data: bytes, name: str) -> Image.Image:
    """The picture with its header read and nothing decoded."""
    kind = further_format(data)
    read = reader(kind) if kind else partial(Image.open, formats=FORMATS)
    if read is None:
        raise UnreadableError(name, unread_because(kind), "install that, or convert the picture to JPEG")
    if kind == "JPEG XL":
        check_shape(jpeg_xl_size(data), name)  # its reader decodes at once
    with limited(None):  # a limit makes Pillow warn before ``check_shape`` refuses
        image: Any = read(io.BytesIO(data))
    if kind == "JPEG XL" and not image.jpeg:
        image.info.pop("exif", None)  # it is upright already, whatever that says
    check_shape(image.size, name)
    found: Image.Image = image
    return found


def further_format(data: bytes) -> str:
    """Which of ``READERS`` a file is for, by how it begins; empty if for none."""
    if data[:2] == b"\xff\x0a" or data[:12] == b"\0\0\0\x0cJXL \r\n\x87\n":
        return "JPEG XL"
    if data[4:8] != b"ftyp":
        return ""
    brands = data[8 : min(int.from_bytes(data[:4], "big"), 256)]
    return "AVIF" if b"avif" in brands or b"avis" in brands else "HEIC" if b"he" in brands or b"mif1" in brands else ""


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
    """Whether one of the parts of a name is hidden, or a folder that macOS adds to archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)


def readable(ending: str) -> bool:
    """Whether files with this ending are pictures that can be read here."""
    return ending in EXTENSIONS or (ending in FURTHER and reader(FURTHER[ending]) is not None)


def jpeg_xl_size(data: bytes) -> tuple[int, int]:
    """Width and height in the header of a JPEG XL picture: a codestream, or boxes of which one begins with it."""
    at = 0
    while data[at : at + 2] != b"\xff\x0a":
        size, box, head = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        at += {b"jxlc": head, b"jxlp": head + 4}.get(box, max(size, head))
        if not size or at >= len(data):
            raise UnidentifiedImageError
    bits = int.from_bytes(data[at + 2 : at + 12], "little")

    def take(count: int) -> int:
        nonlocal bits
        value, bits = bits & ((1 << count) - 1), bits >> count
        return value

    eights = take(1)

    def side() -> int:
        return 8 * (1 + take(5)) if eights else 1 + take((9, 13, 18, 30)[take(2)])

    height = side()
    ratio = (None, (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))[take(3)]
    return (height * ratio[0] // ratio[1] if ratio else side()), height


_limiting = threading.Lock()
# A fork in the middle would leave the child with our limit and a lock that nobody opens.
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_limiting.acquire, after_in_parent=_limiting.release, after_in_child=_limiting.release)


@contextmanager
def limited(pixels: int | None) -> Iterator[None]:
    """Puts a limit in place of Pillow's, which other code may have set to anything, and that back."""
    with _limiting:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, pixels
        try:
            yield
        finally:
            if pixels == Image.MAX_IMAGE_PIXELS:  # otherwise other code has set it meanwhile
                Image.MAX_IMAGE_PIXELS = before


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Pillow's errors as one sentence."""
    try:
        yield
    except (SafeclError, MemoryError):  # a lack of RAM says nothing about the picture
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise too_large(name) from None
    except Exception as error:  # Pillow's readers raise almost anything on broken data
        said = re.split(r"\.?\s*\n|\. ", str(error).strip())[0].rstrip(".")
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else said or type(error).__name__
        raise UnreadableError(name, reason) from None


def check_shape(size: tuple[int, int], name: str) -> None:
    """Refuse a width and height that would exhaust the RAM."""
    width, height = size
    if width * height > MAX_PIXELS:
        raise too_large(name)
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UnreadableError(name, f"a strip of {width} × {height} pixels", "crop it to a usual shape first")


def too_large(name: str) -> UnreadableError:
    return UnreadableError(name, f"more than {MAX_PIXELS:,} pixels", "make it smaller first")


def as_meant(image: Image.Image) -> Image.Image:
    """Turned by its EXIF orientation, and its colours brought from its own profile, where it has one, to sRGB."""
    profile = image.info.get("icc_profile")
    image = ImageOps.exif_transpose(image)
    if not profile:
        return rgb(image)
    from PIL import ImageCms

    image = image if image.mode in COLOUR_SPACES else rgb(image)
    change = _to_srgb(profile, image.mode)
    return rgb(image) if change is None else ImageCms.applyTransform(image, change) or image


@lru_cache(16)
def _to_srgb(profile: bytes, mode: str) -> Any:
    """The change of colours that a profile asks for; None where it is of sRGB, of another mode, or broken."""
    from PIL import ImageCms

    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if given.profile.xcolor_space.strip() != COLOUR_SPACES[mode] or "sRGB" in ImageCms.getProfileDescription(given):
            return None
        return ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError):
        return None


def rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB: the first frame of an animation, 16 bits and floats brought to 8, transparency dropped."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError(NOT_FINITE)
        # 16-bit scans fill 0…65535; floats are 0…1 by habit; anything within 0…255 is taken as it is.
        scale = 1 / 257 if values.max() > 255 else 255 if image.mode == "F" and values.max() <= 1 else 1
        image = Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def listed(data: Any) -> Any:
    """A list, where ``data`` is an array or a column of a table that holds paths, images or words; else ``data``."""
    if hasattr(data, "to_numpy"):  # of pandas or polars
        data = data.to_numpy()
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "OUT":
        return data
    return (data[:, 0] if data.ndim == 2 and data.shape[1] == 1 else data).tolist()


def is_one(data: Any) -> bool:
    """Whether it is one picture: an image, or an array or tensor (H, W, C) or (C, H, W) with C = 1 or 3."""
    shape: tuple[int, ...] = getattr(data, "shape", ())
    return isinstance(data, Image.Image) or (len(shape) == 3 and (shape[-1] in (1, 3) or shape[0] in (1, 3)))


def as_arrays(images: Any) -> np.ndarray:
    """Arrays (N, H, W), (N, H, W, 3) or (N, 3, H, W), uint8 or floats in [0, 1], as uint8 (N, H, W, 3)."""
    array = np.asarray(images)
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise SafeclError(f"Pictures must be (N, H, W), (N, H, W, 3) or (N, 3, H, W), not {tuple(array.shape)}.")
    check_shape((array.shape[2], array.shape[1]), "arrays")
    array = as_bytes(array, "the pictures")
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:3], 3)))


def as_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """uint8 as it is, floats in [0, 1] scaled to 0…255."""
    if array.dtype == np.uint8:
        return array
    floats = np.issubdtype(array.dtype, np.floating)
    if floats and not (finite := np.isfinite(array)).all():
        raise UnreadableError(f"picture {finite.all((1, 2, 3)).argmin()}" if array.ndim == 4 else name, NOT_FINITE)
    if floats and array.size and array.min() >= 0 and array.max() <= 1:
        return (array * 255).round().astype(np.uint8)
    raise SafeclError(f"The values of {name} must be uint8, or floats between 0 and 1; they are {array.dtype}.")


def as_image(item: Any, name: str) -> Image.Image:
    """An image, array or tensor (H, W), (H, W, C) or (C, H, W) as RGB; an image is turned and coloured as its file."""
    if hasattr(item, "detach"):
        item = item.detach().cpu().numpy()
    if isinstance(item, np.ndarray):
        if item.ndim == 3 and item.shape[0] in (1, 3) and item.shape[2] not in (1, 3, 4):
            item = item.transpose(1, 2, 0)
        with explained(name):
            pixels = as_bytes(item, name)
            item = Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    if not isinstance(item, Image.Image):
        raise UnreadableError(name, f"a {type(item).__name__}", "give an image, a tensor or an array")
    check_shape(item.size, name)
    with explained(name):
        return as_meant(item)

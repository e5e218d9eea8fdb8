"""From the bytes of a picture file to an RGB image, or to one sentence on why that is not
possible.
"""

import io
import math
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from safecl.errors import SafeclError
from safecl.streams.pictures import kinds

# where Pillow, as it is shipped, refuses a picture as a decompression bomb
MAX_PIXELS = 178_956_970
COLOUR_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}  # of colour profiles, by mode
# times the side that a shorter side is resized to: with these pixels the result is that of all of
# them
ENOUGH = 4
NOT_FINITE = "pixels that are not finite numbers"
NO_SCALE = (
    "Grey pictures of floats are read as 0 to 1, and of 32-bit integers as 0 to 65535: "
    "their format does not say what is white."
)
AT_A_TIME = 1 << 20  # values that are scaled at a time
BITS = 258  # the tag of TIFF for the bits of each value
LARGE = 1 << 24  # pixels of a picture that is reduced as soon as it is decoded, if fewer are enough
BYTES_PER_PIXEL = 16  # of memory while a picture is decoded: WebP takes that, most formats half
MAX_BYTES = 2 << 30  # of memory for all pictures that are decoded at a time in a process
JPEG = b"\xff\xd8"  # its first bytes
MAX_SCANS = 100  # each goes over the whole picture, and usual JPEGs have ten
MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")  # of a JPEG, and followed by a length
START_OF_SCAN = 0xDA
END_OF_IMAGE = 0xD9
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of a frame; the last bits say its sort
MAX_ASPECT = 64  # a 1 × 10 000 strip resized to 256 × 2 560 000 would exhaust the RAM

# All that is tried, whatever a file is called: Pillow's reader of EPS, for one, starts Ghostscript.
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "GIF", "TIFF", "WEBP")


class UnreadableError(SafeclError):
    """A picture that cannot be used: ``where`` it is, the ``reason`` in a few words, and the
    ``remedy``.
    """

    def __init__(
        self, where: str, reason: str, remedy: str = "remove it or fetch it again"
    ) -> None:
        super().__init__(
            "picture.unreadable", where=where.removeprefix("picture "), reason=reason, remedy=remedy
        )
        self.where = where
        self.reason = reason
        self.remedy = remedy


def decode(
    data: bytes,
    name: str,
    *,
    upright: bool = True,
    forgiving: bool = False,
    least: int | None = None,
) -> Image.Image:
    """The picture in ``data`` as RGB; whatever is not a picture is an UnreadableError that names
    ``name``.

    ``upright``: as the camera meant it, turned by the EXIF orientation and its colours in sRGB;
    otherwise as it is stored. ``forgiving``: fill up a JPEG that breaks off with grey. ``least``:
    pixels of the shorter side that are enough; a large JPEG is decoded at a half, a quarter or an
    eighth where that is a whole number of pixels, and anything of more than ``LARGE`` pixels is
    reduced.
    """
    if not data:
        raise UnreadableError(name, "an empty file")
    if forgiving and data[:2] == JPEG:
        # An end marker: what is missing before it becomes grey; after a whole picture it is
        # ignored.
        data += b"\xff\xd9"
    scans = count_scans(data) if data[:2] == JPEG else 1
    if scans > MAX_SCANS:
        raise UnreadableError(name, f"a JPEG of more than {MAX_SCANS} scans", "save it again")
    with explained(name):
        image = opened(data, name)
    say_scale(image)
    pixels = image.width * image.height
    with explained(name):
        if least is not None and image.format == "JPEG":
            (width, height), enough = image.size, min(image.size) // max(least, 1)
            # Only by what divides both sides: a part of a pixel at the edges would stretch the
            # whole picture.
            by = next((n for n in (8, 4, 2) if n <= enough and width % n == height % n == 0), 1)
            image.draft(None, (width // by, height // by))
        if scans == 1:  # of several, all that they say is in memory before one pixel is decoded
            pixels = image.width * image.height
        with ROOM.taken(BYTES_PER_PIXEL * pixels):
            with _limiting:
                # that Pillow reads without a word, as other code has left it
                most = Image.MAX_IMAGE_PIXELS
            if most is not None and image.width * image.height > most:
                with limited(MAX_PIXELS):  # one at a time, since the limit is the whole process's
                    image.load()
            image = as_meant(image, name) if upright else rgb(image, white_of(image), name)
            return image if least is None else reduced(image, least)


def reduced(image: Image.Image, least: int) -> Image.Image:
    """A picture of more than ``LARGE`` pixels with about ``least`` pixels of its shorter side."""
    by = min(image.size) // max(least, 1)
    if by < 2 or image.width * image.height <= LARGE:
        return image
    return image.resize((round(image.width / by), round(image.height / by)), Image.Resampling.BOX)


def size_of(data: bytes, name: str) -> tuple[int, int]:
    """The sides of the picture in ``data`` as it is stored, read from its header alone."""
    with explained(name):
        return opened(data, name).size


def opened(data: bytes, name: str) -> Image.Image:
    """The picture with its header read and nothing decoded."""
    kind = kinds.further_format(data)
    read = kinds.reader(kind) if kind else partial(Image.open, formats=FORMATS)
    if read is None:
        raise UnreadableError(
            name, kinds.unread_because(kind), "install that, or convert the picture to JPEG"
        )
    if kind == "JPEG XL":
        check_shape(size := kinds.jpeg_xl_size(data), name)
        with ROOM.taken(BYTES_PER_PIXEL * math.prod(size)):  # its reader decodes at once
            image: Any = read(io.BytesIO(data))
        if not image.jpeg:
            image.info.pop("exif", None)  # it is upright already, whatever that says
    else:
        with limited(None):  # a limit makes Pillow warn before ``check_shape`` refuses
            image = read(io.BytesIO(data))
    check_shape(image.size, name)
    found: Image.Image = image
    return found


def count_scans(data: bytes) -> int:
    """How many scans of a JPEG would be decoded; counting ends one beyond ``MAX_SCANS``."""
    at = 2
    found = 0
    parts = 0
    progressive = False
    while found <= MAX_SCANS and (marker := MARKER.search(data, at)):
        code = marker[0][1]
        at = marker.end()
        if code == END_OF_IMAGE:
            break
        if code in FRAMES:
            progressive = code & 3 == 2
            parts = data[at + 7] if len(data) > at + 7 else 0
        elif code == START_OF_SCAN:
            found += 1
            if not progressive and data[at + 2 : at + 3] == bytes([parts]):  # all colours are in it
                break
        at += max(int.from_bytes(data[at : at + 2], "big"), 2)
    return found


_limiting = threading.Lock()
# A fork in the middle would leave the child with our limit and a lock that nobody opens.
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=_limiting.acquire,
        after_in_parent=_limiting.release,
        after_in_child=_limiting.release,
    )


class Room:
    """``most`` bytes of memory that threads share: who needs more than is left waits."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._empty()

    def _empty(self) -> None:
        """As at first; after a fork the other threads, which had taken some, are gone."""
        self._left = self.most
        self._given_back = threading.Condition()
        self._turn = threading.Lock()

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Take ``count`` bytes, or all there are where that is fewer, and give them back."""
        count = min(count, self.most)
        with self._turn, self._given_back:  # small ones would overtake a large one for ever
            self._given_back.wait_for(lambda: self._left >= count)
            self._left -= count
        try:
            yield
        finally:
            with self._given_back:
                self._left += count
                self._given_back.notify_all()


ROOM = Room(MAX_BYTES)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ROOM._empty)


@contextmanager
def limited(pixels: int | None) -> Iterator[None]:
    """Puts a limit in place of Pillow's, which other code may have set to anything, and that
    back.
    """
    with _limiting:
        before = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = pixels
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
        reason = (
            "not a picture"
            if isinstance(error, UnidentifiedImageError)
            else said or type(error).__name__
        )
        raise UnreadableError(name, reason) from None


def check_shape(size: tuple[int, int], name: str) -> None:
    """Refuse a width and height that would exhaust the RAM."""
    width, height = size
    if width * height > MAX_PIXELS:
        raise too_large(name)
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UnreadableError(
            name, f"a strip of {width} × {height} pixels", "crop it to a usual shape first"
        )


def too_large(name: str) -> UnreadableError:
    return UnreadableError(name, f"more than {MAX_PIXELS:,} pixels", "make it smaller first")


def as_meant(image: Image.Image, name: str) -> Image.Image:
    """Turned by its EXIF orientation, and its colours brought from its own profile, where it has
    one, to sRGB.
    """
    profile = image.info.get("icc_profile")
    white = white_of(image)
    image.load()
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if not profile:
        return rgb(image, white, name)
    from PIL import ImageCms

    image = image if image.mode in COLOUR_SPACES else rgb(image, white, name)
    change = _to_srgb(profile, image.mode)
    return (
        rgb(image, None, name)
        if change is None
        else ImageCms.applyTransform(image, change) or image
    )


@lru_cache(16)
def _to_srgb(profile: bytes, mode: str) -> Any:
    """The change of colours that a profile asks for; None where it is of sRGB, of another mode, or
    broken.
    """
    from PIL import ImageCms

    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if given.profile.xcolor_space.strip() != COLOUR_SPACES[
            mode
        ] or "sRGB" in ImageCms.getProfileDescription(given):
            return None
        return ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError):
        return None


def white_of(image: Image.Image) -> int | None:
    """What white is in a grey picture of more than 8 bits, as its format says; its values never do.

    Where the format cannot, one rule holds for all: floats are 0 to 1, 32-bit integers 0 to 65535.
    """
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        return None
    if image.mode == "F":
        return 1
    bits = image.tag_v2.get(BITS, (16,))[0] if isinstance(image, TiffImageFile) else 16
    return (1 << min(int(bits), 16)) - 1


def say_scale(image: Image.Image) -> None:
    """Warn, once in a process, where ``white_of`` is not what the format says."""
    if image.mode in ("I", "F") and image.format not in ("PNG", "PPM"):
        warnings.warn(NO_SCALE, stacklevel=2)


def rgb(image: Image.Image, white: int | None, name: str) -> Image.Image:
    """Any mode as RGB: of an animation the first frame, of deep values 8 bits, no transparency.

    ``white``: see ``white_of``.
    """
    if white is not None:
        image = Image.fromarray(as_bytes(np.asarray(image), white, name))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def listed(data: Any) -> Any:
    """A list, where ``data`` is an array or a column of a table that holds paths, images or words;
    else ``data``.
    """
    if hasattr(data, "to_numpy"):  # of pandas or polars
        data = data.to_numpy()
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "OUT":
        return data
    return (data[:, 0] if data.ndim == 2 and data.shape[1] == 1 else data).tolist()


def is_one(data: Any) -> bool:
    """Whether it is one picture: an image, or an array or tensor (H, W, C) or (C, H, W) with C = 1
    or 3.
    """
    shape: tuple[int, ...] = getattr(data, "shape", ())
    return isinstance(data, Image.Image) or (
        len(shape) == 3 and (shape[-1] in (1, 3) or shape[0] in (1, 3))
    )


def as_arrays(images: Any) -> np.ndarray:
    """Arrays (N, H, W), (N, H, W, 3) or (N, 3, H, W) as uint8 (N, H, W, 3).

    Their type says what is white: see ``white_of_type``.
    """
    array = np.asarray(images)
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise SafeclError("pictures.shape", shape=tuple(array.shape))
    check_shape((array.shape[2], array.shape[1]), "arrays")
    if array.dtype != np.uint8:
        white = white_of_type(array, "the pictures")
        each = [as_bytes(one, white, f"picture {i}") for i, one in enumerate(array)]
        array = np.stack(each) if each else array.astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:3], 3)))


def white_of_type(values: np.ndarray, name: str) -> int:
    """What white is in an array, as the type of its values says; refused where they are of none."""
    kind = values.dtype.kind
    size = values.dtype.itemsize
    if kind == "u" and size <= 2:
        return int(np.iinfo(values.dtype).max)
    seen = str(values.dtype)
    remedy = "scale them"
    if values.size and kind in "iuf":
        # others are refused one by one
        finite = values[np.isfinite(values)] if kind == "f" else values
        least, most = (finite.min(), finite.max()) if finite.size else (0, 0)
        if kind == "f" and not (least < 0 or most > 1):
            return 1
        seen += f" from {least:.4g} to {most:.4g}"
        if least >= 0 and most <= 255:
            remedy = "divide them by 255" if kind == "f" else "give array.astype('uint8')"
    elif kind == "f":
        return 1
    types = "uint8, uint16, or floats between 0 and 1"
    raise SafeclError("pictures.values", name=name, types=types, seen=seen, remedy=remedy)


def as_bytes(values: np.ndarray, white: int, name: str) -> np.ndarray:
    """Values between 0 and ``white`` as uint8, some rows at a time: floats of all take much RAM."""
    if values.dtype == np.uint8:
        return values
    found = np.empty(values.shape, np.uint8)
    step = max(1, AT_A_TIME // max(1, math.prod(values.shape[1:])))
    for start in range(0, len(values), step):
        some = values[start : start + step]
        if not np.isfinite(some).all():
            raise UnreadableError(name, NOT_FINITE)
        if some.min(initial=0) < 0 or some.max(initial=0) > white:
            scale = f"values that are not between 0 and {white}"
            raise UnreadableError(name, scale, f"make 0 black and {white} white, or save 8 bits")
        found[start : start + step] = (some * (255 / white)).round()
    return found


def as_image(item: Any, name: str) -> Image.Image:
    """An image, array or tensor (H, W), (H, W, C) or (C, H, W) as RGB; an image is turned and
    coloured as its file.
    """
    if hasattr(item, "detach"):
        item = item.detach().cpu().numpy()
    if isinstance(item, np.ndarray):
        if item.ndim == 3 and item.shape[0] in (1, 3) and item.shape[2] not in (1, 3, 4):
            item = item.transpose(1, 2, 0)
        with explained(name):
            pixels = as_bytes(item, white_of_type(item, name), name)
            item = Image.fromarray(
                pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
            )
    if not isinstance(item, Image.Image):
        raise UnreadableError(
            name, f"a {type(item).__name__}", "give an image, a tensor or an array"
        )
    check_shape(item.size, name)
    say_scale(item)
    with explained(name):
        found = as_meant(item, name)
    return found.copy() if found is item else found  # whoever asks may change it

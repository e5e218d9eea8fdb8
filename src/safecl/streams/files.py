"""Pictures in files: opened when they are asked for, whatever is inside them."""

import hashlib
import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from safecl.errors import SafeclError
from safecl.streams.images import Label, Pictures

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
)
MAX_PIXELS = 178_956_970  # where Pillow calls a picture a decompression bomb
MAX_ASPECT = 64  # a 1 × 10 000 strip resized to 256 × 2 560 000 would fill the memory

# Below MAX_PIXELS a big picture is a picture (DomainNet's infographs); Pillow's own warning is noise.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when it was found: the picture must not change after that."""

    path: str
    size: int
    modified: int

    @classmethod
    def at(cls, path: str | Path) -> "File":
        try:
            found = os.stat(path)
        except OSError as error:
            raise SafeclError(f"The picture {path} cannot be read: {error.strerror or error}.") from None
        return cls(os.fspath(path), found.st_size, found.st_mtime_ns)


class FilePictures(Pictures):
    """Labelled files, decoded one by one.

    ``upright``: turn pictures as their EXIF orientation says (the named datasets are published without).
    ``forgiving``: a JPEG that breaks off is filled up with grey, as most loaders of the field do.
    """

    def __init__(
        self, files: Sequence[File], labels: Sequence[Label], *, upright: bool = True, forgiving: bool = False
    ) -> None:
        self.files, self.labels, self.upright, self.forgiving = files, labels, upright, forgiving

    def where(self, index: int) -> str:
        return self.files[index].path

    def identity(self) -> str:
        digest = hashlib.blake2b(f"{self.upright} {self.forgiving}".encode(), digest_size=16)
        for file in self.files:
            digest.update(
                f"{os.path.abspath(file.path)}\0{file.size}\0{file.modified}\0".encode(errors="surrogateescape")
            )
        return digest.hexdigest()

    def decode(self, index: int) -> Image.Image:
        file = self.files[index]
        return decode(self.read(file), file.path, upright=self.upright, forgiving=self.forgiving)

    def read(self, file: File) -> bytes:
        """The bytes of ``file``, if it is still the file that was found."""
        try:
            with open(file.path, "rb") as stream:
                now = os.fstat(stream.fileno())
                data = stream.read()
        except FileNotFoundError:
            raise SafeclError(
                f"The picture {file.path} has gone since its folder was listed; leave the data alone during a run."
            ) from None
        except OSError as error:
            raise SafeclError(f"The picture {file.path} cannot be read: {error.strerror or error}.") from None
        if (now.st_size, now.st_mtime_ns) != (file.size, file.modified) or len(data) != file.size:
            raise SafeclError(
                f"The picture {file.path} has changed since its folder was listed; leave the data alone during a run."
            )
        return data


def decode(data: bytes, name: str, *, upright: bool = True, forgiving: bool = False) -> Image.Image:
    """The picture in ``data`` as RGB; anything that is not one is a sentence with ``name`` in it."""
    if not data:
        raise SafeclError(f"The picture {name} is an empty file; remove it or fetch it again.")
    if forgiving and data[:2] == b"\xff\xd8":
        data += (
            b"\xff\xd9"  # an end marker: what is missing before it becomes grey; after a whole picture it is ignored
        )
    try:
        image: Image.Image = Image.open(io.BytesIO(data))
        check_shape(image, name)
        image.load()
        if upright:
            image = ImageOps.exif_transpose(image)
        return rgb(image)
    except SafeclError:
        raise
    except Image.DecompressionBombError:
        raise SafeclError(f"The picture {name} has more than {MAX_PIXELS:,} pixels; make it smaller first.") from None
    except Exception as error:  # Pillow's readers raise almost anything on broken data
        reason = "it is not a picture" if isinstance(error, UnidentifiedImageError) else str(error).rstrip(".")
        raise SafeclError(f"The picture {name} cannot be read ({reason}); remove it or fetch it again.") from None


def check_shape(image: Image.Image, name: str) -> None:
    width, height = image.size
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise SafeclError(f"The picture {name} is a strip of {width} × {height} pixels; cut it to a usual shape first.")


def rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB: the first frame of an animation, 16 bits and floats brought to 8, transparency dropped."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image, dtype=np.float64)
        # 16-bit scans fill 0…65535; floats are 0…1 by habit; anything within 0…255 is taken as it is.
        scale = 1 / 257 if values.max() > 255 else 255 if image.mode == "F" and values.max() <= 1 else 1
        image = Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")

"""The model file: a zip of JSON and safetensors, none of it compressed.

``model.json`` says everything but the numbers: format, versions, settings, classes, history. The zip's own checksums
cover every member. Reading the header, and renaming a class, need no torch. There is no pickle, no picture and no
weight of the backbone in it.
"""

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from safecl.atomic import Buffer, exclusive, replacing
from safecl.errors import SafeclError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
HEADER = "model.json"
SUFFIX = ".safecl"
NEEDED = ("format", "frozen", "settings", "backbone", "transform", "classes", "history", "calibration", "undo")
Header: TypeAlias = dict[str, Any]
Members: TypeAlias = Mapping[str, Iterable[Buffer]]


class ModelFile:
    """An open model file; members are read, and checked, on demand."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        with _opened(self.path, f"{self.path} is no model file of safecl, or it is damaged") as file:
            self.sizes = {member.filename: member.file_size for member in file.infolist()}
            sums = sorted((member.filename, member.CRC, member.file_size) for member in file.infolist())
            text = file.read(HEADER)
        self.digest = hashlib.blake2b(json.dumps(sums).encode(), digest_size=16).hexdigest()
        self.header = _checked(text, str(self.path))

    def raw(self, member: str) -> bytes:
        """The bytes of a member; its checksum is compared."""
        with _opened(self.path, f"The model {self.path} is damaged in {member}") as file:
            return file.read(member)

    def tensors(self, member: str) -> "dict[str, Tensor]":
        """The tensors of a member."""
        from safecl.engine.checkpoint import decode

        return decode(self.raw(member), f"{member} of {self.path}")[0]


def check_path(path: Path) -> None:
    """Refuse a place where no model can be written, and names that another kind of file has."""
    if path.is_dir():
        raise SafeclError(f"{path} is a folder; give the model a file name, such as pets.safecl.")
    if path.suffix.lower() != SUFFIX:
        raise SafeclError(f"Give the model a name that ends in {SUFFIX}, such as {path.stem or 'pets'}{SUFFIX}.")
    if not path.parent.is_dir():
        raise SafeclError(f"There is no folder {path.parent}; make it, or put the model elsewhere.")


def write_model(path: Path, header: Header, members: Members) -> None:
    """Put a model at ``path`` in one step."""
    check_path(path)
    text = json.dumps({**header, "format": FORMAT}, ensure_ascii=False, indent=1).encode()
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in {HEADER: [text], **members}.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                for part in parts:
                    member.write(part)


def rewrite_header(file: ModelFile, header: Header, path: Path | None = None) -> None:
    """The same model with another header."""
    write_model(path or file.path, header, {name: [file.raw(name)] for name in file.sizes if name != HEADER})


def locked(path: Path) -> contextlib.AbstractContextManager[None]:
    """The model at ``path``, as long as no other process is changing it."""
    busy = f"Another command is changing {path}; wait for it to end."
    return exclusive(path.with_name(f".{path.name}.lock"), busy, str(path), keep=False)


@contextlib.contextmanager
def _opened(path: Path, damaged: str) -> Iterator[zipfile.ZipFile]:
    """The zip at ``path``; what is wrong with it is one sentence, which begins with ``damaged`` where that is it."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise SafeclError(f"There is no model {path}; 'safecl learn FOLDER --model {path}' makes one.") from None
    except IsADirectoryError:
        raise SafeclError(f"{path} is a folder; give the model file, which 'safecl learn' makes.") from None
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, ValueError) as error:
        raise SafeclError(f"{damaged} ({_reason(error)}).") from None
    except OSError as error:
        raise SafeclError(f"The model {path} cannot be read ({error.strerror or error}).") from None


def _checked(text: bytes, name: str) -> Header:
    try:
        header = json.loads(text)
        if not isinstance(header, dict) or not isinstance(header["format"], int):
            raise ValueError("no header")
        if header["format"] > FORMAT:
            raise SafeclError(
                f"The model {name} was written by a newer safecl ({header.get('safecl')}); update safecl to read it."
            )
        for key in NEEDED:
            header[key]
    except (ValueError, KeyError, TypeError) as error:
        raise SafeclError(f"The header of the model {name} is damaged ({_reason(error)}).") from None
    return header


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip("'\". ").lower()

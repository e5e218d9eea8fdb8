"""Reading the model file: a zip of JSON and safetensors, none of it compressed.

``model.json`` says everything but the numbers: format, versions, settings, classes, history. The zip's own checksums
cover every member. Reading the header, and renaming a class, need no torch. There is no pickle, no picture and no
weight of the backbone in it.
"""

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from safecl.errors import SafeclError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
HEADER = "model.json"
NEEDED = ("format", "frozen", "settings", "backbone", "transform", "classes", "history", "calibration", "undo")
Header: TypeAlias = dict[str, Any]


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

"""Where a model is written: which place may hold one, who may write there, and one rename for each change."""

import contextlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from safecl.atomic import Buffer, exclusive, replacing
from safecl.classifier.store import FORMAT, HEADER, Header, ModelFile
from safecl.errors import SafeclError

SUFFIX = ".safecl"
Members: TypeAlias = Mapping[str, Iterable[Buffer]]


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

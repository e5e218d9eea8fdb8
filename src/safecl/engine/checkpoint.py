"""Files that are either whole or not there: written aside, synced, renamed."""

import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from safecl.errors import SafeclError

FORMAT = 1


def write_bytes(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` in one step: after a crash there is the old file or the new one, never a part."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        _sync_folder(path.parent)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise SafeclError(
            f"{path} could not be written ({error.strerror}); what was saved before is intact."
        ) from error


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    write_bytes(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def append_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Put lines at the end of a file that would take ever longer to write anew; a line that fails is taken back."""
    data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    try:
        with path.open("ab") as file:
            before = file.tell()
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, before)
                raise
    except OSError as error:
        raise SafeclError(
            f"{path} could not be written ({error.strerror}); what was saved before is intact."
        ) from error


def read_lines(path: Path, upto: int) -> list[dict[str, Any]]:
    """The lines of sessions up to ``upto``; one that was torn by a kill is left out."""
    found = []
    for text in path.read_bytes().split(b"\n") if path.exists() else []:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            line = json.loads(text)
            if line["session"] <= upto:
                found.append(line)
    return found


def save_state(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
    """Tensors and facts in one safetensors file. A tensor that stands under two names is stored once."""
    first: dict[Any, str] = {}
    alias: dict[str, str] = {}
    unique: dict[str, Tensor] = {}
    stored: set[int] = set()
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        owner = first.setdefault(same, name) if tensor.numel() else name
        if owner != name:
            alias[name] = owner
            continue
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        unique[name] = plain.clone() if memory in stored else plain  # a view of a neighbour gets its own copy
        stored.add(memory)
    facts_and_alias = {"facts": json.dumps(facts), "alias": json.dumps(alias)}
    write_bytes(path, save(unique, {"format": str(FORMAT), "checksum": _checksum(unique), **facts_and_alias}))


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``save_state`` stored."""
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except (SafetensorError, OSError) as error:
        raise SafeclError(f"The state file {path} is damaged or not one of safecl's ({error}).") from error
    if "format" not in header or "facts" not in header:
        raise SafeclError(f"The state file {path} was not written by safecl.")
    try:
        if int(header["format"]) > FORMAT:
            raise SafeclError(f"The state file {path} was written by a newer safecl; update to read it.")
        if "checksum" in header and header["checksum"] != _checksum(tensors):
            raise SafeclError(f"The state file {path} is damaged: its contents are not what was written.")
        aliases = {name: tensors[owner] for name, owner in json.loads(header["alias"]).items()}
        return tensors | aliases, json.loads(header["facts"])
    except (AttributeError, KeyError, ValueError) as error:
        raise SafeclError(f"The header of the state file {path} is damaged ({error}).") from error


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, value)
    return str(value)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

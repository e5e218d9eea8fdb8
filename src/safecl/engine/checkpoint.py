"""Files that are either whole or not there: written aside, synced, renamed."""

import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from safecl.errors import SafeclError
from safecl.heads.packing import pack, symmetric, unpack

FORMAT = 2  # 2: symmetric matrices are packed
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.bool: "BOOL",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}  # fmt: skip
Buffer: TypeAlias = bytes | memoryview


def write_bytes(path: Path, *parts: Buffer) -> None:
    """Put ``parts`` at ``path`` in one step: after a crash there is the old file or the new one, nothing in between."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            for part in parts:
                file.write(part)
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
    """Tensors and facts in one safetensors file. A tensor that stands under two names, or mirrored, is stored once."""
    first: dict[Any, str] = {}
    alias: dict[str, str] = {}
    unique: dict[str, Tensor] = {}
    stored: set[int] = set()
    packed: dict[str, int] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        owner = first.setdefault(same, name) if tensor.numel() else name
        if owner != name:
            alias[name] = owner
            continue
        if symmetric(tensor):
            packed[name], tensor = len(tensor), pack(tensor)
        plain = _on_host(tensor.detach()).contiguous()
        memory = plain.untyped_storage().data_ptr()
        unique[name] = plain.clone() if memory in stored else plain  # a view of a neighbour gets its own copy
        stored.add(memory)
    more = {"facts": json.dumps(facts), "alias": json.dumps(alias), "packed": json.dumps(packed)}
    bodies = {name: _bytes(tensor) for name, tensor in unique.items()}
    write_bytes(path, _header(unique, {"format": str(FORMAT), "checksum": _checksum(bodies), **more}), *bodies.values())


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
        found = _checksum({name: _bytes(tensor) for name, tensor in tensors.items()})
        if header["format"] == str(FORMAT) and header["checksum"] != found:
            raise SafeclError(f"The state file {path} is damaged: its contents are not what was written.")
        for name, size in json.loads(header.get("packed", "{}")).items():
            tensors[name] = unpack(tensors[name], size)
        aliases = {name: tensors[owner] for name, owner in json.loads(header["alias"]).items()}
        return tensors | aliases, json.loads(header["facts"])
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise SafeclError(f"The header of the state file {path} is damaged ({error}).") from error


def _on_host(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor.cpu()
    try:  # into pinned memory, which is many times faster, and which torch keeps for the next session
        return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor)
    except RuntimeError:  # there is not so much of it
        return tensor.cpu()


def _header(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """What a safetensors file begins with; the library itself would first put all of the file together in memory."""
    table: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        table[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor) -> Buffer:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _checksum(bodies: Mapping[str, Buffer]) -> str:
    """Of all bytes, and of which tensor they belong to; large tensors are summed side by side."""
    names = sorted(bodies)
    with ThreadPoolExecutor() as pool:
        sums = dict(zip(names, pool.map(lambda name: zlib.crc32(bodies[name]), names), strict=True))
    return str(zlib.crc32(json.dumps(sums).encode()))


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Tensors and facts in one safetensors file, checked when read."""

import json
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from safecl.atomic import Buffer, write_bytes
from safecl.errors import SafeclError
from safecl.heads.tensors import pack, symmetric, unpack

Copied: TypeAlias = tuple[dict[str, Tensor], dict[str, str], dict[str, int]]
"""On the host: tensors, one with two names once; by other names, theirs; by names of packed ones,
the matrix's size.
"""
FORMAT = 1
LARGE = 2**20  # bytes of a tensor that is worth a thread
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.bool: "BOOL",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
}


def save_state(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
    write_bytes(path, *encode(copied(tensors), facts))


def copied(tensors: Mapping[str, Tensor]) -> Copied:
    """What ``encode`` needs: the tensors may change then. A symmetric one is packed."""
    first: dict[Any, str] = {}
    found = dict[str, Tensor]()
    alias = dict[str, str]()
    packed = dict[str, int]()
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        owner = first.setdefault(same, name) if tensor.numel() else name
        if owner != name:
            alias[name] = owner
            continue
        if symmetric(tensor):
            packed[name], tensor = len(tensor), pack(tensor)
        found[name] = _on_host(tensor.detach())
    return found, alias, packed


def encode(copies: Copied, facts: dict[str, Any]) -> list[Buffer]:
    """The bytes of a safetensors file."""
    tensors, alias, packed = copies
    more = {"facts": json.dumps(facts), "alias": json.dumps(alias), "packed": json.dumps(packed)}
    bodies = {name: _bytes(tensor) for name, tensor in tensors.items()}
    return [
        _header(tensors, {"format": str(FORMAT), "checksum": _checksum(bodies), **more}),
        *bodies.values(),
    ]


def decode(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``encode`` made bytes of; ``name``: of the file, for messages."""
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise SafeclError("state.damaged", path=name, error=str(error)) from error
    return _opened(tensors, header, name)


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``save_state`` stored."""
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except (SafetensorError, OSError) as error:
        raise SafeclError("state.damaged", path=path, error=str(error)) from error
    return _opened(tensors, header, str(path))


def _opened(
    tensors: dict[str, Tensor], header: dict[str, Any], path: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors as they were before ``encode``, and the facts, once the checksum is found right."""
    if "format" not in header or "facts" not in header:
        raise SafeclError("state.foreign", path=path)
    try:
        if int(header["format"]) > FORMAT:
            raise SafeclError("state.newer", path=path)
        found = _checksum({name: _bytes(tensor) for name, tensor in tensors.items()})
        if header["checksum"] != found:
            raise SafeclError("state.altered", path=path)
        for name, size in json.loads(header["packed"]).items():
            tensors[name] = unpack(tensors[name], size)
        aliases = {name: tensors[owner] for name, owner in json.loads(header["alias"]).items()}
        return tensors | aliases, json.loads(header["facts"])
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError, RecursionError) as error:
        raise SafeclError("state.header.damaged", path=path, error=str(error)) from error


def _on_host(tensor: Tensor) -> Tensor:
    """A copy, its rows one after the other."""
    # into pinned memory, which is many times faster, and which torch keeps for the next session
    try:
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    except RuntimeError:  # there is not so much of it
        copy = torch.empty(tensor.shape, dtype=tensor.dtype)
    return copy.copy_(tensor)


def _header(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """What a safetensors file begins with; the library itself would first put all of the file
    together in memory.
    """
    table: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start = end
        end = end + tensor.nbytes
        table[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor) -> Buffer:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _checksum(bodies: Mapping[str, Buffer]) -> str:
    """Of all bytes, and of which tensor they belong to; large tensors are summed side by side."""
    large = [name for name, body in bodies.items() if memoryview(body).nbytes >= LARGE]
    sums = {name: zlib.crc32(bodies[name]) for name in bodies.keys() - large}
    if large:
        with ThreadPoolExecutor() as pool:
            found = pool.map(lambda name: zlib.crc32(bodies[name]), large)
            sums.update(zip(large, found, strict=True))
    return str(zlib.crc32(json.dumps(sums, sort_keys=True).encode()))

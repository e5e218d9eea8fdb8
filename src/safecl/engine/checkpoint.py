"""Tensors and facts in one safetensors file, checked when read."""

import json
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from safecl.atomic import Buffer, write_bytes
from safecl.errors import SafeclError
from safecl.heads.packing import pack, symmetric, unpack

FORMAT = 1
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.bool: "BOOL",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}  # fmt: skip


def save_state(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
    """Tensors and facts in one safetensors file."""
    write_bytes(path, *encode(tensors, facts))


def encode(tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> list[Buffer]:
    """The bytes of a safetensors file. A tensor with two names is stored once, a symmetric one by half."""
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
    return [_header(unique, {"format": str(FORMAT), "checksum": _checksum(bodies), **more}), *bodies.values()]


def decode(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``encode`` made bytes of; ``name``: of the file, for messages."""
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise SafeclError(f"The state file {name} is damaged or not one of safecl's ({error}).") from error
    return _opened(tensors, header, name)


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``save_state`` stored."""
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except (SafetensorError, OSError) as error:
        raise SafeclError(f"The state file {path} is damaged or not one of safecl's ({error}).") from error
    return _opened(tensors, header, str(path))


def _opened(tensors: dict[str, Tensor], header: dict[str, Any], path: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors as they were before ``encode``, and the facts, once the checksum is found right."""
    if "format" not in header or "facts" not in header:
        raise SafeclError(f"The state file {path} was not written by safecl.")
    try:
        if int(header["format"]) > FORMAT:
            raise SafeclError(f"The state file {path} was written by a newer safecl; update to read it.")
        found = _checksum({name: _bytes(tensor) for name, tensor in tensors.items()})
        if header["checksum"] != found:
            raise SafeclError(f"The state file {path} is damaged: its contents are not what was written.")
        for name, size in json.loads(header["packed"]).items():
            tensors[name] = unpack(tensors[name], size)
        aliases = {name: tensors[owner] for name, owner in json.loads(header["alias"]).items()}
        return tensors | aliases, json.loads(header["facts"])
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise SafeclError(f"The header of the state file {path} is damaged ({error}).") from error


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without reading or checking the tensors."""
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise SafeclError(f"The state file {path} is damaged or not one of safecl's ({error}).") from error
    return facts if isinstance(facts, dict) else {}


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

"""Tensors and facts in one safetensors file, checked when read; and the checkpoint of a training phase."""

import json
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from safecl.atomic import Buffer, write_bytes
from safecl.engine.optimiser import Optimiser
from safecl.errors import SafeclError
from safecl.heads.tensors import pack, symmetric, unpack

Copied: TypeAlias = tuple[dict[str, Tensor], dict[str, str], dict[str, int]]
"""On the host: tensors, one with two names once; by other names, theirs; by names of packed ones, the matrix's size."""
FORMAT = 1
PHASE_FACTS = ("step", "slower", "undone", "seconds", "losses", "count")
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.bool: "BOOL",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}  # fmt: skip


def save_state(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
    write_bytes(path, *encode(copied(tensors), facts))


def copied(tensors: Mapping[str, Tensor]) -> Copied:
    """What ``encode`` needs: the tensors may change then. A symmetric one is packed."""
    first: dict[Any, str] = {}
    found, alias, packed = dict[str, Tensor](), dict[str, str](), dict[str, int]()
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
    return [_header(tensors, {"format": str(FORMAT), "checksum": _checksum(bodies), **more}), *bodies.values()]


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
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError, RecursionError) as error:
        raise SafeclError(f"The header of the state file {path} is damaged ({error}).") from error


def _on_host(tensor: Tensor) -> Tensor:
    """A copy, its rows one after the other."""
    try:  # into pinned memory, which is many times faster, and which torch keeps for the next session
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    except RuntimeError:  # there is not so much of it
        copy = torch.empty(tensor.shape, dtype=tensor.dtype)
    return copy.copy_(tensor)


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


@dataclass
class PhaseCheckpoint:
    """All that the rest of a phase depends on besides the states of module and optimiser: what is random is derived."""

    step: int = 0
    slower: float = 1.0  # factor on the rate in this attempt
    undone: int = 0  # steps of the attempts before
    seconds: float = 0.0
    losses: list[dict[str, Any]] = field(default_factory=list)  # as noted
    sums: dict[str, Tensor] = field(default_factory=dict)  # of the losses not noted yet, on the device
    count: int = 0  # of the steps in ``sums``
    tensors: dict[str, Tensor] = field(default_factory=dict)  # as loaded, until they are restored

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add the loss and its terms of one step."""
        for key, value in values.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value.clone()
        self.count += 1

    def means(self) -> dict[str, float]:
        """The means of loss and terms since the last call. One wait for the device, however many there are."""
        totals = torch.stack(list(self.sums.values())).tolist()
        means = {key: total / self.count for key, total in zip(self.sums, totals, strict=True)}
        self.sums, self.count = {}, 0
        return means

    def undo(self) -> None:
        """Go back to the first step, at a tenth of the rate."""
        self.undone, self.step, self.slower, self.sums, self.count = self.undone + self.step, 0, self.slower / 10, {}, 0

    def save(self, file: Path, module: nn.Module, optimiser: Optimiser) -> None:
        tensors = _tensors(module, optimiser) | {f"loss/{key}": total for key, total in self.sums.items()}
        save_state(file, tensors, {name: getattr(self, name) for name in PHASE_FACTS})

    @classmethod
    def load(cls, file: Path, module: nn.Module, say: Callable[[str], None]) -> "PhaseCheckpoint":
        """The checkpoint in ``file``; the beginning of the phase, and a sentence, where it cannot be used."""
        if not file.exists():
            return cls()
        try:
            tensors, facts = load_state(file)
            for name, own in module.state_dict().items():
                if f"module/{name}" not in tensors or tensors[f"module/{name}"].shape != own.shape:
                    raise SafeclError(f"The state file {file} is of another network.")
            if not facts.keys() >= {*PHASE_FACTS}:
                raise SafeclError(f"The state file {file} is no checkpoint of a phase.")
            return cls(**{name: facts[name] for name in PHASE_FACTS}, tensors=tensors)
        except SafeclError as error:
            say(f"{error} The phase starts again.")
            return cls()

    @torch.no_grad()
    def restore(self, module: nn.Module, optimiser: Optimiser) -> None:
        """Give module and optimiser the values they had here; does nothing at the beginning of a phase."""
        own = _tensors(module, optimiser)
        for name, saved in self.tensors.items():
            if name in own:
                own[name].copy_(saved)
            elif name.startswith("loss/"):
                self.sums[name.removeprefix("loss/")] = saved.to(next(iter(own.values())).device)
        self.tensors = {}


def _tensors(module: nn.Module, optimiser: Optimiser) -> dict[str, Tensor]:
    """Their states by name: the tensors themselves."""
    own = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
    return own | {f"optimiser/{name}": tensor for name, tensor in optimiser.state().items()}

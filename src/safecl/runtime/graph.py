"""What an ONNX file says of its network, read without the onnx package: nodes, and the sizes of
tensors.

A protobuf message is a row of fields: a number, a kind, and a whole number or bytes. What ``safecl
export`` never writes is refused: graphs in graphs, functions, sparse tensors, data in other files.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

MAX_PARTS = 1_000_000  # fields of a file that are looked at: reading as many takes a second
FEW = 64  # numbers of a tensor that are read, where they are whole ones: they may be sizes
STRING = 8  # a kind of tensor
# The letters of numpy by kind of a tensor, as in onnx.TensorProto; the last one is bfloat16.
KINDS = {
    1: "f4",
    2: "u1",
    3: "i1",
    4: "u2",
    5: "i2",
    6: "i4",
    7: "i8",
    STRING: "",
    9: "?",
    10: "f2",
    11: "f8",
    12: "u4",
    13: "u8",
    16: "f2",
}
WHOLE = ("i4", "i8", "?")  # kinds of which numbers are read
NOTHING = memoryview(b"")
Field: TypeAlias = "int | memoryview"


class Tensor(NamedTuple):
    """``values``: the numbers, if they are few and whole. ``width``: bytes of the longest
    element.
    """

    shape: tuple[int, ...]
    values: np.ndarray | None = None
    width: int = 8


@dataclass
class Node:
    """``attributes``: whole numbers, lists of them, bytes and tensors by name; others are None."""

    kind: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Graph:
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def read_graph(data: bytes, most: int = MAX_PARTS) -> Graph:
    """The graph in the bytes of a file; ``most``: fields that are looked at.

    ``ValueError`` where there is none, or where it holds what no export of ours does.
    """
    return _Reader(most).model(memoryview(data))


class _Reader:
    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def fields(self, data: memoryview) -> Iterator[tuple[int, Field]]:
        at = 0
        while at < len(data):
            self.left -= 1
            if self.left < 0:
                raise ValueError(f"it has more than {self.most:,} parts")
            key, at = _varint(data, at)
            kind = key & 7
            if kind == 0:
                number, at = _varint(data, at)
                yield key >> 3, number
                continue
            if kind not in (1, 2, 5):
                raise ValueError("it is no protobuf message")
            size = 8 if kind == 1 else 4
            if kind == 2:
                size, at = _varint(data, at)
            if len(data) - at < size:
                raise ValueError("it ends too early")
            yield key >> 3, data[at : at + size]
            at += size

    def model(self, data: memoryview) -> Graph:
        found = Graph()
        graphs = [part for number, part in self.fields(data) if number == 7]
        if len(graphs) != 1:
            raise ValueError(f"there are {len(graphs)} graphs in it")
        self.graph(_bytes(graphs[0]), found)
        for number, part in self.fields(data):
            if number == 8:
                facts = dict(self.fields(_bytes(part)))
                found.opsets[_text(facts.get(1, NOTHING))] = _int(facts.get(2, 0))
            if number == 14:
                facts = dict(self.fields(_bytes(part)))
                key = _text(facts.get(1, NOTHING))
                if key in found.metadata:
                    raise ValueError(f"it says {key!r:.99} twice")
                found.metadata[key] = _text(facts.get(2, NOTHING))
            if number in (20, 25):
                raise ValueError("it has functions or training of its own")
        return found

    def graph(self, data: memoryview, found: Graph) -> None:
        for number, part in self.fields(data):
            if number == 1:
                found.nodes.append(self.node(_bytes(part)))
            elif number == 5:
                name, tensor = self.tensor(_bytes(part))
                if name in found.constants:
                    raise ValueError(f"the tensor {name!r:.99} is in it twice")
                found.constants[name] = tensor
            elif number in (11, 12):
                (found.inputs if number == 11 else found.outputs).append(self.name(_bytes(part)))
            elif number == 15:
                raise ValueError("it has sparse tensors")

    def name(self, data: memoryview) -> str:
        return _text(dict(self.fields(data)).get(1, NOTHING))

    def node(self, data: memoryview) -> Node:
        found = Node()
        for number, part in self.fields(data):
            if number in (1, 2):
                (found.inputs if number == 1 else found.outputs).append(_text(part))
            elif number == 4:
                found.kind = _text(part)
            elif number == 5:
                name, value = self.attribute(_bytes(part))
                if name in found.attributes:
                    raise ValueError(f"{name!r:.99} of a node is in it twice")
                found.attributes[name] = value
            elif number == 7:
                found.domain = _text(part)
        return found

    def attribute(self, data: memoryview) -> tuple[str, Any]:
        name = ""
        value: Any = None
        several: list[int] = []
        said: set[int] = set()  # which kinds of values
        for number, part in self.fields(data):
            said |= {number} & {2, 3, 4, 5, 7, 8, 9, 10}
            if number == 1:
                name = _text(part)
            elif number == 3:
                value = _int(part)
            elif number == 4:
                value = bytes(_bytes(part))
            elif number == 5:
                value = self.tensor(_bytes(part))[1]
            elif number == 8:
                several += self.numbers(part)
            elif number in (6, 11, 21, 22, 23):
                raise ValueError("it has graphs in graphs, which may never end")
        if len(said) > 1:
            raise ValueError(f"{name!r:.99} of a node has two values")
        return name, several or value

    def tensor(self, data: memoryview) -> tuple[str, Tensor]:
        """(its name, what is known of it), if it holds as many numbers as it says."""
        name = ""
        kind = 0
        shape = list[int]()
        raw: memoryview | None = None
        packed: list[Field] = []  # numbers, where they are not raw
        payload = 0  # bytes of these
        strings: list[int] = []  # letters of each
        for number, part in self.fields(data):
            if number == 1:
                shape += self.numbers(part)
            elif number == 2:
                kind = _int(part)
            elif number == 6:
                strings.append(len(_bytes(part)))
            elif number == 8:
                name = _text(part)
            elif number == 9:
                raw = _bytes(part)
            elif number in (4, 5, 7, 10, 11):
                packed.append(part)
                payload += 1 if isinstance(part, int) else len(part)
            elif number in (3, 13) or (number == 14 and part != 0):
                raise ValueError("it has data in other files")
        if kind not in KINDS or min(shape, default=0) < 0:
            raise ValueError(f"the tensor {name!r:.99} is of a kind that no model has")
        count = math.prod(shape)
        letters = KINDS[kind]
        if kind == STRING:
            fits = count == len(strings)
        elif raw is None:
            fits = count <= payload <= 10 * count  # a number takes 1 to 10 bytes
        else:
            fits = count * np.dtype(letters).itemsize == len(raw) and not payload
        if not fits:
            raise ValueError(f"the tensor {name!r:.99} has other numbers than it says")
        values = None
        if letters in WHOLE and count <= FEW:
            flat = np.array([each for part in packed for each in self.numbers(part)], np.int64)
            if raw is not None:
                flat = np.frombuffer(raw, letters if letters == "?" else f"<{letters}")
            values = flat.reshape(shape).astype(bool if letters == "?" else np.int64)
        return name, Tensor(
            tuple(shape), values, max(strings, default=0) + 32 if kind == STRING else 8
        )

    def numbers(self, part: Field) -> Sequence[int]:
        """One whole number, or a row of them."""
        if isinstance(part, int):
            return [_int(part)]
        self.left -= len(part)
        found: list[int] = []
        at = 0
        while at < len(part) and self.left >= 0:
            number, at = _varint(part, at)
            found.append(_int(number))
        return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return number, at
    raise ValueError("it is no protobuf message")


def _bytes(part: Field) -> memoryview:
    if isinstance(part, int):
        raise ValueError("a number stands in the place of a message")
    return part


def _text(part: Field) -> str:
    return bytes(_bytes(part)).decode()


def _int(part: Field) -> int:
    """A whole number, whose sign is its highest of 64 bits."""
    if not isinstance(part, int):
        raise ValueError("a message stands in the place of a number")
    return (part & (1 << 64) - 1) - ((part >> 63 & 1) << 64)

"""How large what a network computes becomes: the size of every tensor by the rules of ONNX, before
it runs.

A rule gives what a node makes of tensors of some sizes. An operator without one is refused: no
export of ours uses it, and of some, such as a loop, nobody can say how long they take. A size that
follows from other sizes is followed as a number; one that is known only when the network runs is
refused.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np

from safecl.runtime.graph import FEW, Graph, Node, Tensor

OPSET = 18  # of exports: LayerNormalization is one node since 17, Resize has antialias since 18
MAX_BYTES = 4 << 30  # of all tensors that are there at a time, at 8 bytes a number
MAX_GROWN = 16  # bytes of what depends on no picture, for each byte of the file
FREE = 256 << 20  # bytes of it in any case
MAX_WORK = 5e12  # multiplications for a picture, about those of the largest ViT
MAX_NUMBER = 2**31 - 1
BOOL = 9
INT32 = 6
INT64 = 7  # kinds of tensors, as in onnx.TensorProto
Shape: TypeAlias = tuple[int, ...]


class Inputs(list[Tensor | None]):
    """Of a node; what is not there, or known only when it runs, raises an error that ``_made``
    explains.
    """

    def at(self, place: int) -> Tensor:
        found = self[place]
        if found is None:
            raise IndexError("it is not there")
        return found

    def numbers(self, place: int) -> list[int]:
        values = self.at(place).values
        if values is None:
            raise LookupError("they are known only when it runs")
        return [int(value) for value in values.ravel()]

    def has(self, place: int) -> bool:
        return len(self) > place and self[place] is not None


class TooLargeError(ValueError):
    """For so many pictures at a time."""


@dataclass(frozen=True)
class Need:
    """Bytes at a time, and multiplications."""

    bytes: int
    work: float


@np.errstate(all="raise")
def need(
    graph: Graph, size: int, shapes: Mapping[str, Shape], found: dict[str, Tensor] | None = None
) -> Need:
    """What a graph needs for inputs of some ``shapes``; ``size``: of its file, in bytes.

    ``found``: gets every tensor by its name. ``ValueError`` where that cannot be said,
    ``TooLargeError`` where it is too much.
    """
    if graph.opsets != {"": OPSET}:
        raise ValueError(f"its operators are not those of ONNX {OPSET} alone")
    tensors = {} if found is None else found
    tensors |= {**graph.constants, **{name: Tensor(shape) for name, shape in shapes.items()}}
    fixed = set(graph.constants)  # what depends on no picture, and is computed once
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    kept = most = 0
    there = sum(_bytes(tensors[name]) for name in shapes)
    work = 0.0
    pictures = max(shape[0] for shape in shapes.values())
    for i, node in enumerate(graph.nodes):
        read = {name for name in node.inputs if name}
        if strange := read - tensors.keys():
            raise ValueError(f"nothing makes {min(strange)!r:.99}, which it reads")
        given = Inputs(tensors[name] if name else None for name in node.inputs)
        made = _made(node, given)
        tensors.update(zip(node.outputs, made, strict=False))
        work += _work(node, given, made)
        scratch = _scratch(node, given, made)
        if read <= fixed:
            fixed.update(node.outputs)
            kept += sum(map(_bytes, made))
            if kept + scratch > FREE + MAX_GROWN * size:
                raise ValueError("it makes far more of its weights than there are")
        else:
            there += sum(map(_bytes, made))
            most = max(most, there + scratch)
        if most > MAX_BYTES or work > MAX_WORK * pictures:
            raise TooLargeError(f"it needs more than {MAX_BYTES >> 30} GB, or hours, for a picture")
        done = {name for name in read - fixed if last[name] == i}
        there -= sum(_bytes(tensors[name]) for name in done.difference(graph.outputs))
    return Need(kept + most, work)


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * tensor.width


def _made(node: Node, given: Inputs) -> list[Tensor]:
    """What a node makes, with the numbers of it that may be sizes."""
    name = f"{node.domain} {node.kind}".strip()
    rule = RULES.get(name)
    if rule is None:
        raise ValueError(f"it uses the operator {name!r:.99}, as no export does")
    try:
        found = [each if isinstance(each, Tensor) else Tensor(each) for each in rule(node, given)]
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"sizes at {node.kind} do not fit, or are known only when it runs"
        ) from error
    if any(side < 0 for each in found for side in each.shape):
        raise ValueError(f"{node.kind} would make a tensor with a negative size")
    width = max((each.width for each in given if each), default=8)
    return [Tensor(each.shape, _few(each.values), max(each.width, width)) for each in found]


def _few(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None or values.size > FEW else values


def _work(node: Node, given: Inputs, made: Sequence[Tensor]) -> float:
    """About how many multiplications it takes."""
    numbers = float(sum(math.prod(each.shape) for each in (*made, *given) if each))
    if node.kind in ("MatMul", "MatMulInteger", "Gemm"):
        return numbers + math.prod(made[0].shape) * max(given.at(0).shape, default=1)
    if node.kind in ("AveragePool", "MaxPool"):
        window: list[int] = node.attributes["kernel_shape"]
        return numbers + math.prod(made[0].shape) * math.prod(window)
    if node.kind == "Conv":
        return numbers + math.prod(made[0].shape) * math.prod(given.at(1).shape[1:])
    return numbers + (math.prod(_letters(node, given).values()) if node.kind == "Einsum" else 0)


def _scratch(node: Node, given: Inputs, made: Sequence[Tensor]) -> int:
    """Bytes that it needs meanwhile."""
    numbers = 0
    if node.kind == "Conv":  # the numbers under each place of its window side by side
        numbers = math.prod(given.at(1).shape[1:]) * math.prod(made[0].shape[2:])
    if node.kind == "Resize":  # one axis after the other
        numbers = math.prod(map(max, given.at(0).shape, made[0].shape))
    if node.kind == "Einsum":  # all products before they are summed
        numbers = math.prod(_letters(node, given).values())
    return 8 * numbers


# Rules


def _axis(node: Node, rank: int, usual: int) -> int:
    axis: int = node.attributes.get("axis", usual)
    return range(rank)[axis]


def _with(shape: Shape, axis: int, *sides: int) -> Shape:
    """A shape with other sides in the place of one."""
    return (*shape[:axis], *sides, *shape[axis + 1 :])


def _as(wanted: Sequence[int], given: Tensor) -> Tensor:
    """The same numbers in another shape, one side of which may be −1."""
    count = math.prod(given.shape)
    known = math.prod(side for side in wanted if side != -1)
    sides = tuple(count // known if side == -1 else side for side in wanted)
    if math.prod(sides) != count or list(wanted).count(-1) > 1:
        raise ValueError("it has another number of elements")
    return Tensor(sides, None if given.values is None else given.values.reshape(sides))


def _same(node: Node, given: Inputs) -> Iterable[Shape]:
    return [given.at(0).shape] * len(node.outputs)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero."""
    found: np.ndarray = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return found


COMPUTED: dict[str, Callable[..., np.ndarray]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Div": _divided,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Where": np.where,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceSum": np.sum,
}


def _inside(values: np.ndarray) -> np.ndarray | None:
    """Computed numbers that come out alike in 32 and in 64 bits: which of the two they have is not
    followed.
    """
    return values if ((values >= -MAX_NUMBER) & (values <= MAX_NUMBER)).all() else None


def _elementwise(node: Node, given: Inputs) -> Iterable[Tensor]:
    there = [each for each in given if each is not None]
    shape = np.broadcast_shapes(*(each.shape for each in there))
    how = COMPUTED.get(node.kind)
    values = [each.values for each in there if each.values is not None]
    if how is None or len(values) < len(there) or node.attributes.get("fmod"):
        return [Tensor(shape)]
    return [
        Tensor(shape, _inside(reduce(how, values) if node.kind in ("Max", "Min") else how(*values)))
    ]


def _cast(node: Node, given: Inputs) -> Iterable[Tensor]:
    """Sizes are followed into whole numbers of 32 bits or more: in others they may run over."""
    shape, values, _ = given.at(0)
    to = node.attributes.get("to")
    if node.kind == "CastLike":
        like = given.at(1).values
        to = None if like is None else BOOL if like.dtype == bool else INT32
    if values is None or to not in (BOOL, INT32, INT64):
        return [Tensor(shape)]
    return [Tensor(shape, values.astype(bool) if to == BOOL else _inside(values.astype(np.int64)))]


def _identity(node: Node, given: Inputs) -> Iterable[Tensor]:
    return [given.at(0)]


def _reduced(node: Node, given: Inputs) -> Iterable[Tensor]:
    if "axes" in node.attributes:
        raise ValueError("its axes stand in another place")
    axes = given.numbers(1) if given.has(1) else []
    if not axes and node.attributes.get("noop_with_empty_axes"):
        return [given.at(0)]
    return [_without(node, given.at(0), axes or range(len(given.at(0).shape)))]


def _best(node: Node, given: Inputs) -> Iterable[Tensor]:
    return [_without(node, given.at(0), [_axis(node, len(given.at(0).shape), 0)])]


def _without(node: Node, given: Tensor, axes: Iterable[int]) -> Tensor:
    gone = {range(len(given.shape))[axis] for axis in axes}
    keep = bool(node.attributes.get("keepdims", 1))
    shape = tuple(
        1 if i in gone else side for i, side in enumerate(given.shape) if keep or i not in gone
    )
    how = COMPUTED.get(node.kind)
    if given.values is None or how is None:
        return Tensor(shape)
    return Tensor(shape, _inside(how(given.values, axis=tuple(gone), keepdims=keep)))


def _constant(node: Node, given: Inputs) -> Iterable[Tensor]:
    if isinstance(tensor := node.attributes.get("value"), Tensor):
        return [tensor]
    name = "value_ints" if "value_ints" in node.attributes else "value_int"
    values = np.array(node.attributes[name], np.int64)
    return [Tensor(values.shape, values)]


def _shape(node: Node, given: Inputs) -> Iterable[Tensor]:
    part = slice(node.attributes.get("start"), node.attributes.get("end"))
    values = np.array(given.at(0).shape, np.int64)[part]
    return [Tensor(values.shape, values)]


def _concat(node: Node, given: Inputs) -> Iterable[Tensor]:
    parts = [given.at(i) for i in range(len(given))]
    axis = _axis(node, len(parts[0].shape), 0)
    if len({_with(each.shape, axis) for each in parts}) > 1:
        raise ValueError("its parts differ")
    shape = _with(parts[0].shape, axis, sum(each.shape[axis] for each in parts))
    values = [each.values for each in parts if each.values is not None]
    return [Tensor(shape, np.concatenate(values, axis) if len(values) == len(parts) else None)]


def _gather(node: Node, given: Inputs) -> Iterable[Tensor]:
    shape, values, _ = given.at(0)
    places, which, _ = given.at(1)
    axis = _axis(node, len(shape), 0)
    found = None if values is None or which is None else np.take(values, which, axis)
    return [Tensor(_with(shape, axis, *places), found)]


def _gather_elements(node: Node, given: Inputs) -> Iterable[Shape]:
    return [given.at(1).shape]


def _gather_nd(node: Node, given: Inputs) -> Iterable[Shape]:
    shape = given.at(0).shape
    places = given.at(1).shape
    depth = node.attributes.get("batch_dims", 0) + places[-1]
    if depth > len(shape):
        raise ValueError("its places are deeper than the tensor")
    return [(*places[:-1], *shape[depth:])]


def _slice(node: Node, given: Inputs) -> Iterable[Tensor]:
    shape, values, _ = given.at(0)
    starts = given.numbers(1)
    ends = given.numbers(2)
    axes = given.numbers(3) if given.has(3) else range(len(starts))
    steps = given.numbers(4) if given.has(4) else [1] * len(starts)
    cut = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cut[axis] = slice(start, end, step)
    sides = tuple(len(range(side)[each]) for side, each in zip(shape, cut, strict=True))
    return [Tensor(sides, None if values is None else values[tuple(cut)])]


def _reshape(node: Node, given: Inputs) -> Iterable[Tensor]:
    wanted = given.numbers(1)
    shape = given.at(0).shape
    if not node.attributes.get("allowzero"):
        wanted = [shape[i] if side == 0 else side for i, side in enumerate(wanted)]
    return [_as(wanted, given.at(0))]


def _squeeze(node: Node, given: Inputs) -> Iterable[Tensor]:
    shape = given.at(0).shape
    axes = given.numbers(1) if given.has(1) else [i for i, side in enumerate(shape) if side == 1]
    gone = {range(len(shape))[axis] for axis in axes}
    return [_as([side for i, side in enumerate(shape) if i not in gone], given.at(0))]


def _unsqueeze(node: Node, given: Inputs) -> Iterable[Tensor]:
    shape = given.at(0).shape
    axes = given.numbers(1)
    rank = len(shape) + len(axes)
    sides = iter(shape)
    new = {range(rank)[axis] for axis in axes}
    return [_as([1 if i in new else next(sides) for i in range(rank)], given.at(0))]


def _transpose(node: Node, given: Inputs) -> Iterable[Shape]:
    shape = given.at(0).shape
    order = node.attributes.get("perm") or list(range(len(shape)))[::-1]
    if sorted(order) != list(range(len(shape))):
        raise ValueError("its axes are others")
    return [tuple(shape[axis] for axis in order)]


def _expand(node: Node, given: Inputs) -> Iterable[Tensor]:
    shape = np.broadcast_shapes(given.at(0).shape, tuple(given.numbers(1)))
    values = given.at(0).values
    if values is None or math.prod(shape) > FEW:
        return [Tensor(shape)]
    return [Tensor(shape, np.broadcast_to(values, shape))]


def _range(node: Node, given: Inputs) -> Iterable[Shape]:
    (start,), (limit,), (step,) = (given.numbers(i) for i in range(3))
    return [(len(range(start, limit, step)),)]


def _split(node: Node, given: Inputs) -> Iterable[Shape]:
    shape = given.at(0).shape
    parts = len(node.outputs)
    axis = _axis(node, len(shape), 0)
    each = -(-shape[axis] // parts)
    sides = [min(each, shape[axis] - each * i) for i in range(parts)]
    sides = given.numbers(1) if given.has(1) else sides
    if sum(sides) != shape[axis] or len(sides) != parts:
        raise ValueError("its parts are not the whole")
    return [_with(shape, axis, side) for side in sides]


def _top(node: Node, given: Inputs) -> Iterable[Shape]:
    shape, (count,) = given.at(0).shape, given.numbers(1)
    axis = _axis(node, len(shape), -1)
    if count > shape[axis]:
        raise ValueError("there are fewer")
    return [_with(shape, axis, count)] * 2


def _product(node: Node, given: Inputs) -> Iterable[Shape]:
    a = given.at(0).shape
    b = given.at(1).shape
    if min(len(a), len(b)) < 2 or a[-1] != b[-2]:
        raise ValueError("its sides differ")
    return [(*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])]


def _gemm(node: Node, given: Inputs) -> Iterable[Shape]:
    a = given.at(0).shape
    b = given.at(1).shape
    rows, inner = a[::-1] if node.attributes.get("transA") else a
    other, columns = b[::-1] if node.attributes.get("transB") else b
    if inner != other:
        raise ValueError("its sides differ")
    return [(rows, columns)]


def _conv(node: Node, given: Inputs) -> Iterable[Shape]:
    x = given.at(0).shape
    window = given.at(1).shape
    facts = node.attributes
    if x[1] != window[1] * facts.get("group", 1):
        raise ValueError("its channels differ")
    return [(x[0], window[0], *_windows(node, x, window[2:]))]


def _pool(node: Node, given: Inputs) -> Iterable[Shape]:
    if node.attributes.get("ceil_mode") or len(node.outputs) > 1:
        raise ValueError("it counts its windows in another way")
    x = given.at(0).shape
    return [(*x[:2], *_windows(node, x, node.attributes["kernel_shape"]))]


def _pool_all(node: Node, given: Inputs) -> Iterable[Shape]:
    x = given.at(0).shape
    return [(*x[:2], *[1] * (len(x) - 2))]


def _windows(node: Node, x: Shape, window: Sequence[int]) -> Iterator[int]:
    """How many places a window has along each axis after the channels."""
    facts = node.attributes
    if facts.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise ValueError("it fills its borders in another way")
    count = len(window)
    steps, gaps = (facts.get(name) or [1] * count for name in ("strides", "dilations"))
    pads = facts.get("pads") or [0] * 2 * count
    for i, side in enumerate(window):
        covered = gaps[i] * (side - 1) + 1
        yield (x[2 + i] + pads[i] + pads[i + count] - covered) // steps[i] + 1


def _pad(node: Node, given: Inputs) -> Iterable[Shape]:
    x = given.at(0).shape
    pads = given.numbers(1)
    if given.has(3) or len(pads) != 2 * len(x):
        raise ValueError("it fills some of its axes alone")
    return [tuple(side + pads[i] + pads[i + len(x)] for i, side in enumerate(x))]


def _letters(node: Node, given: Inputs) -> dict[str, int]:
    """The sides of an Einstein sum by letter."""
    terms = node.attributes["equation"].decode().replace(" ", "").partition("->")[0]
    found: dict[str, int] = {}
    for place, term in enumerate(terms.split(",")):
        for letter, side in zip(term, given.at(place).shape, strict=True):
            if not letter.isalpha() or found.setdefault(letter, side) != side:
                raise ValueError("its sides differ")
    return found


def _einsum(node: Node, given: Inputs) -> Iterable[Shape]:
    sides = _letters(node, given)
    _, arrow, wanted = node.attributes["equation"].decode().partition("->")
    if not arrow:
        raise ValueError("it does not say what it makes")
    return [tuple(sides[letter] for letter in wanted.replace(" ", ""))]


def _resize(node: Node, given: Inputs) -> Iterable[Shape]:
    other = {"axes", "keep_aspect_ratio_policy"} & node.attributes.keys()
    if given.has(1) or given.has(2) or other:
        raise ValueError("it scales in another way")
    return [tuple(given.numbers(3))]


def _quantised(node: Node, given: Inputs) -> Iterable[Shape]:
    return [given.at(0).shape, (), ()]


ELEMENTWISE = (
    "Abs",
    "Add",
    "And",
    "Clip",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Pow",
    "Sub",
    "Where",
)
SAME = (
    "BatchNormalization",
    "Ceil",
    "Cos",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "HardSwish",
    "LayerNormalization",
    "Log",
    "LogSoftmax",
    "Reciprocal",
    "Relu",
    "Round",
    "ScatterND",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softmax",
    "Softplus",
    "Sqrt",
    "Tanh",
)
REDUCED = (
    "ReduceL1",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
)
Rule: TypeAlias = Callable[[Node, Inputs], Iterable[Shape] | Iterable[Tensor]]
RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(REDUCED, _reduced),
    "ArgMax": _best,
    "ArgMin": _best,
    "AveragePool": _pool,
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "Conv": _conv,
    "DynamicQuantizeLinear": _quantised,
    "Einsum": _einsum,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "GlobalAveragePool": _pool_all,
    "Identity": _identity,
    "MatMul": _product,
    "MatMulInteger": _product,
    "MaxPool": _pool,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "TopK": _top,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

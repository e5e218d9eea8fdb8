"""What is read of an ONNX file without the onnx package is what the package reads; sizes are those
that come out.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safecl.runtime.graph import Graph, read_graph
from safecl.runtime.model import onnx_runtime
from safecl.runtime.sizes import RULES, Need, need

onnx = pytest.importorskip("onnx")


@pytest.fixture(params=["fp32", "fp16", "int8"])
def written(request: pytest.FixtureRequest, exported: tuple[Path, Path], tmp_path: Path) -> bytes:
    """An exported file, also as it would be in another precision."""
    from safecl.classifier.answers import export

    proto = onnx.load(exported[1])
    if request.param == "fp16":
        export._store_half(onnx, proto)
    if request.param == "int8":
        proto = export._quantised(onnx, proto, tmp_path / "work.onnx")
    return bytes(proto.SerializeToString())


def test_a_file_is_read_as_the_onnx_package_reads_it(written: bytes) -> None:
    proto = onnx.load_from_string(written)
    found = read_graph(written)
    assert [(n.op_type, list(n.input), list(n.output)) for n in proto.graph.node] == [
        (n.kind, n.inputs, n.outputs) for n in found.nodes
    ]
    for theirs, ours in zip(proto.graph.node, found.nodes, strict=True):
        assert {one.name for one in theirs.attribute} == ours.attributes.keys()
        for one in theirs.attribute:
            value = onnx.helper.get_attribute_value(one)
            read = ours.attributes[one.name]
            if isinstance(value, int | bytes) or (
                isinstance(value, list) and isinstance(value[0], int)
            ):
                assert value == read
    assert [tensor.name for tensor in proto.graph.initializer] == list(found.constants)
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        read = found.constants[tensor.name]
        assert array.shape == read.shape
        assert (array.dtype in (np.int32, np.int64, np.bool_) and array.size <= 64) is (
            read.values is not None
        )
        assert read.values is None or np.array_equal(array, read.values)
    assert {prop.key: prop.value for prop in proto.metadata_props} == found.metadata
    assert found.opsets == {"": 18} and found.outputs == [
        value.name for value in proto.graph.output
    ]


def test_every_tensor_is_as_large_as_was_said(written: bytes, lesson: Callable[..., Any]) -> None:
    """And every size that was followed as a number is that number."""
    proto = onnx.load_from_string(written)
    pictures = lesson("abc", 1)[0]
    found = dict[str, Any]()
    pictures = np.stack([np.pad(picture, ((1, 1), (1, 1), (0, 0))) for picture in pictures])
    needed = need(read_graph(written), len(written), {"pictures": pictures.shape}, found)
    there = {value.name for value in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there)
    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    arrays = runtime.InferenceSession(proto.SerializeToString(), options).run(
        names, {"pictures": pictures}
    )
    for name, array in zip(names, arrays, strict=True):
        assert array.shape == found[name].shape, name
        assert found[name].values is None or np.array_equal(array, found[name].values), name
    assert max(array.nbytes for array in arrays) <= needed.bytes <= len(written) * 16


WINDOW = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


@pytest.mark.parametrize(
    ("kind", "others", "facts"),
    [
        ("BatchNormalization", [np.ones(3, np.float32)] * 4, {}),
        ("HardSigmoid", [], {}),
        ("HardSwish", [], {}),
        ("AveragePool", [], WINDOW),
        ("MaxPool", [], WINDOW),
        ("GlobalAveragePool", [], {}),
        ("Pad", [np.array([0, 0, 1, 2, 0, 0, 0, 3])], {}),
    ],
)
def test_what_convolution_networks_compute_is_as_large_as_was_said(
    kind: str, others: list[Any], facts: dict[str, Any]
) -> None:
    helper = onnx.helper
    kept = [onnx.numpy_helper.from_array(each, f"other{i}") for i, each in enumerate(others)]
    node = helper.make_node(kind, ["x", *(each.name for each in kept)], ["y"], **facts)
    shape = 2, 3, 9, 8
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, each)
        for name, each in (("x", shape), ("y", None))
    ]
    graph = helper.make_graph([node], kind, ends[:1], ends[1:], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    data = made.SerializeToString()
    found = dict[str, Any]()
    need(read_graph(data), len(data), {"x": shape}, found)
    y = onnx_runtime().InferenceSession(data).run(None, {"x": np.ones(shape, np.float32)})[0]
    assert found["y"].shape == y.shape


def test_a_picture_more_needs_as_much_more(written: bytes) -> None:
    def needed(count: int) -> Need:
        return need(read_graph(written), len(written), {"pictures": (count, 18, 18, 3)})

    assert needed(9).work - needed(8).work == pytest.approx(
        needed(5).work - needed(4).work, rel=0.01
    )
    assert needed(9).bytes > needed(8).bytes


@given(st.binary(max_size=200))
def test_no_bytes_are_another_error(data: bytes) -> None:
    for graph in (data, b"\x3a" + bytes([len(data) & 127]) + data):
        with contextlib.suppress(ValueError):
            assert isinstance(read_graph(graph), Graph)


@given(st.sampled_from(sorted(RULES)), st.lists(st.integers(-3, 5), max_size=3), st.data())
def test_no_node_is_another_error(kind: str, numbers: list[int], data: Any) -> None:
    """Whatever it is given, it has sizes or is refused."""
    values = {
        "a": np.array(numbers, np.int64),
        "b": np.ones((2, 3), np.float32),
        "c": np.array(2, np.int64),
    }
    makes = st.sampled_from(
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
    )
    inputs = data.draw(st.lists(makes, max_size=4, unique_by=lambda tensor: tensor.name))
    facts = {
        key: value
        for key, value in (
            ("axis", 1),
            ("perm", [1, 0]),
            ("keepdims", 0),
            ("equation", "ij,jk->ik"),
        )
        if data.draw(st.booleans())
    }
    node = onnx.helper.make_node(kind, [tensor.name for tensor in inputs], ["x", "y"], **facts)
    graph = onnx.helper.make_graph([node], "g", [], [], inputs)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    with contextlib.suppress(ValueError):
        assert (
            need(read_graph(proto.SerializeToString()), 1000, {"pictures": (1, 4, 4, 3)}).work >= 0
        )


def test_reading_stops_at_a_file_of_too_many_parts() -> None:
    with pytest.raises(ValueError, match="it has more than 1,000 parts"):
        read_graph(b"\x72\x00" * 1001, most=1000)

"""A file of a stranger, or one that was damaged, is refused before it can answer otherwise, or
without end.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import safecl
from safecl.errors import SafeclError
from safecl.runtime.model import ExportedModel
from safecl.runtime.seal import sealed
from tests.conftest import Refusal, raises, tells

onnx = pytest.importorskip("onnx")
Change = Callable[[Any], Any]


@pytest.fixture
def file(exported: tuple[Path, Path], tmp_path: Path) -> Callable[[Change], Path]:
    """``file(change)``: an exported file whose proto was changed, with a digest that fits."""

    def make(change: Change) -> Path:
        proto = onnx.load(exported[1])
        for prop in [one for one in proto.metadata_props if one.key == "digest"]:
            proto.metadata_props.remove(prop)
        change(proto)
        (tmp_path / "m.onnx").write_bytes(sealed(proto.SerializeToString()))
        return tmp_path / "m.onnx"

    return make


def node(kind: str, inputs: list[str], outputs: list[str], **facts: Any) -> Any:
    return onnx.helper.make_node(kind, inputs, outputs, **facts)


def test_what_is_as_it_was_written_is_read_and_other_programs_read_it_too(
    exported: tuple[Path, Path], file: Callable[[Change], Path], lesson: Callable[..., Any]
) -> None:
    pictures = lesson("abc", 2, seed=5)[0]
    onnx.checker.check_model(onnx.load(exported[1]))
    same = file(lambda proto: None)
    assert same.read_bytes() == exported[1].read_bytes(), (
        "read and written by onnx it is the same file"
    )
    assert (
        safecl.load(same).predict(pictures).tolist()
        == safecl.load(exported[1]).predict(pictures).tolist()
    )


def test_a_flipped_bit_is_seen_wherever_it_is(exported: tuple[Path, Path], tmp_path: Path) -> None:
    whole = exported[1].read_bytes()
    path = tmp_path / "m.onnx"
    for place in [*range(0, len(whole), len(whole) // 60), len(whole) - 1, len(whole) - 70]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(SafeclError) as refused:
            safecl.load(path)
        assert str(refused.value.fields["path"]) == str(path)
    path.write_bytes(whole + b"\x72\x00")
    with pytest.raises(SafeclError):
        safecl.load(path)


def test_five_flipped_bits_of_a_weight_are_refused_unless_the_file_is_trusted(
    exported: tuple[Path, Path],
    tmp_path: Path,
    lesson: Callable[..., Any],
    command: Callable[..., Any],
) -> None:
    whole = bytearray(exported[1].read_bytes())
    path = tmp_path / "m.onnx"
    proto = onnx.load(exported[1])
    large = max(proto.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    start = whole.index(large.raw_data)
    for i in range(5):
        whole[start + 4 * i + 3] ^= 1  # of an exponent
    path.write_bytes(whole)
    why = "its digest is not that of what is in it"
    with raises("exported.file.altered", path=path, why=why) as told:
        safecl.load(path)
    code, out, said = command("predict", "x.png", "-m", str(path))
    assert (code, out) == (2, "") and said.count("\n") == 1
    assert said.startswith(f"safecl: {str(told.value).partition(';')[0]}")
    pictures = lesson("abcdef", 3, seed=5)[0]
    assert len(safecl.load(path, trust=True).predict(pictures)) == 18
    path.write_bytes(without_digest(proto))
    with raises("exported.file.altered", why="it has no digest", trust=re.compile("^read it with")):
        safecl.load(path)
    assert (
        safecl.load(path, trust=True).predict(pictures).tolist()
        == safecl.load(exported[1]).predict(pictures).tolist()
    )


def without_digest(proto: Any) -> bytes:
    proto.metadata_props.remove(next(one for one in proto.metadata_props if one.key == "digest"))
    return bytes(proto.SerializeToString())


def numbers(*values: int, name: str = "") -> Any:
    return onnx.numpy_helper.from_array(np.array(values, np.int64), name)


def constant(graph: Any, name: str, *values: int) -> str:
    graph.initializer.append(numbers(*values, name=name))
    return name


def add(graph: Any, *nodes: Any) -> None:
    """Before all others, and used by the answer: what nobody uses would never be computed."""
    first = [*nodes, *graph.node]
    del graph.node[:]
    graph.node.extend(first)


def endless(graph: Any) -> None:
    true = onnx.TensorProto.BOOL
    value = onnx.TensorProto.FLOAT
    info = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["x", "x"], ["y"])],
        "body",
        [info("i", onnx.TensorProto.INT64, []), info("go", true, []), info("x", value, [None])],
        [info("on", true, []), info("y", value, [None])],
    )
    for one in graph.node:
        one.output[:] = ["score/before" if name == "score" else name for name in one.output]
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "always"))
    graph.node.append(node("Loop", ["", "always", "score/before"], ["score"], body=body))


def doubling(graph: Any) -> None:
    names = ["pictures", *(f"twice{i}" for i in range(40))]
    add(graph, *(node("Concat", [a, a], [b], axis=1) for a, b in itertools.pairwise(names)))


def product(graph: Any) -> None:
    column = constant(graph, "column", 60_000, 1)
    row = constant(graph, "row", 1, 60_000)
    one = onnx.numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    graph.initializer.append(one)
    add(
        graph,
        node("Expand", ["one", column], ["a"]),
        node("Expand", ["one", row], ["b"]),
        node("MatMul", ["a", "b"], ["c"]),
    )


def grown(graph: Any) -> None:
    add(
        graph,
        node("Expand", [constant(graph, "zero", 0), constant(graph, "much", 1 << 30)], ["large"]),
    )


def wrapped(graph: Any) -> None:
    """A size that is small in 64 bits, and huge where it runs over."""
    wide = onnx.numpy_helper.from_array(np.array([2**31 - 1], np.int32), "wide")
    graph.initializer.append(wide)
    add(
        graph,
        node("Add", ["wide", "wide"], ["more"]),
        node("Cast", ["more"], ["size"], to=7),
        node("Expand", [constant(graph, "zero", 0), "size"], ["large"]),
    )


def by_the_picture(graph: Any) -> None:
    flat = constant(graph, "flat", -1)
    zero = constant(graph, "zero", 0)
    add(
        graph,
        node("Cast", ["pictures"], ["x"], to=7),
        node("Reshape", ["x", flat], ["y"]),
        node("Expand", [zero, "y"], ["z"]),
    )


def large(proto: Any, side: int = 10**9) -> None:
    next(prop for prop in proto.metadata_props if prop.key == "resize").value = str(side)


def elsewhere(proto: Any) -> None:
    tensor = max(proto.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def claimed(proto: Any) -> None:
    tensor = proto.graph.initializer.add(name="large", data_type=1)
    tensor.dims.extend([1 << 31])
    tensor.float_data.append(1.0)


def own(proto: Any) -> None:
    proto.opset_import.add(domain="mine", version=1)
    add(proto.graph, node("Mine", ["pictures"], ["x"], domain="mine"))


def function(proto: Any) -> None:
    made = onnx.helper.make_function(
        "", "Mine", ["x"], ["y"], [node("Neg", ["x"], ["y"])], [onnx.helper.make_opsetid("", 18)]
    )
    proto.functions.append(made)


def sparse(proto: Any) -> None:
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    proto.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(values, numbers(0, name="at"), [1 << 40])
    )


HOSTILE: dict[str, tuple[Change, str]] = {
    "endless loop": (
        lambda proto: endless(proto.graph),
        "it has graphs in graphs, which may never end",
    ),
    "constant of 8 GB": (
        lambda proto: add(
            proto.graph, node("ConstantOfShape", [constant(proto.graph, "much", 1 << 31)], ["x"])
        ),
        "the operator 'ConstantOfShape'",
    ),
    "expanded to 8 GB": (
        lambda proto: grown(proto.graph),
        "far more of its weights than there are",
    ),
    "outer product of 14 GB": (
        lambda proto: product(proto.graph),
        "far more of its weights than there are",
    ),
    "doubled 40 times": (lambda proto: doubling(proto.graph), "it needs more than 4 GB"),
    "size that runs over": (
        lambda proto: wrapped(proto.graph),
        "sizes at Expand do not fit, or are known only when",
    ),
    "size by the picture": (lambda proto: by_the_picture(proto.graph), "known only when it runs"),
    "range": (
        lambda proto: add(
            proto.graph,
            node(
                "Range",
                [
                    constant(proto.graph, name, value)
                    for name, value in (("from", 0), ("to", 1 << 40), ("by", 1))
                ],
                ["x"],
            ),
        ),
        "far more of its weights",
    ),
    "regular expression": (
        lambda proto: add(proto.graph, node("RegexFullMatch", ["labels"], ["x"], pattern="(a*)*b")),
        "the operator 'RegexFullMatch'",
    ),
    "operator of others": (own, "its operators are not those of ONNX 18 alone"),
    "function": (function, "functions or training of its own"),
    "data elsewhere": (elsewhere, "data in other files"),
    "more than there is": (claimed, "other numbers than it says"),
    "sparse": (sparse, "it has sparse tensors"),
    "pictures of a billion pixels a side": (large, "more than 4 GB"),
    "two graphs": (lambda proto: None, "there are 2 graphs"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_export_computes_is_refused_before_it_is_computed(
    what: str, file: Callable[[Change], Path], command: Callable[..., Any]
) -> None:
    change, sentence = HOSTILE[what]
    path = file(change)
    if what == "two graphs":  # which protobuf makes one of
        data = path.read_bytes()
        path.write_bytes(sealed(data[:-76] + b"\x3a\x02\x12\x00"))
    with pytest.raises(SafeclError) as refused:
        safecl.load(path)
    why = {"exported.not-read": "error", "exported.file.damaged": "reason"}
    assert re.search(sentence, str(refused.value.fields[why[refused.value.code]]))
    code, out, said = command("predict", "x.png", "-m", str(path))
    assert (
        (code, out) == (2, "")
        and said.startswith("safecl: ")
        and said.count("\n") == 1
        and sentence in said
    )


def test_fewer_pictures_go_at_a_time_where_sixteen_do_not_fit(
    exported: tuple[Path, Path], file: Callable[[Change], Path], lesson: Callable[..., Any]
) -> None:
    usual = ExportedModel(exported[1])
    wide = ExportedModel(file(lambda proto: large(proto, 3500)))
    assert (usual.batch, wide.batch) == (16, 4)
    assert wide.predict(lesson("c", 1)[0]).tolist() == ["c"]


def test_a_network_that_never_ends_is_stopped_where_somebody_has_trusted_it(
    file: Callable[[Change], Path], lesson: Callable[..., Any]
) -> None:
    path = file(lambda proto: endless(proto.graph))
    with raises("exported.too-slow", path=re.compile(r"m\.onnx$"), many="1 picture"):
        ExportedModel(path, trust=True, seconds=0.3).explain(lesson("a", 1)[0])


def test_an_answer_that_is_not_finite_is_a_sentence_and_never_json(
    file: Callable[[Change], Path],
    lesson: Callable[..., Any],
    tmp_path: Path,
    command: Callable[..., Any],
) -> None:
    def spoil(proto: Any) -> None:
        weight = next(
            tensor
            for tensor in proto.graph.initializer
            if tensor.name.endswith("ridge_slow.weight")
        )
        values = onnx.numpy_helper.to_array(weight) * np.float32(np.nan)
        weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))

    path = file(spoil)
    pictures = lesson("ab", 1, seed=5)[0]
    model = safecl.load(path)
    for ask in (model.predict, model.predict_proba, model.explain):
        with raises("answer.not-finite"):
            ask(pictures)
    Image.fromarray(pictures[0]).save(tmp_path / "a.png")
    for form in ("jsonl", "csv", "table"):
        code, out, said = command("predict", str(tmp_path / "a.png"), "-m", str(path), "-f", form)
        assert (
            code == 2
            and "nan" not in out.lower()
            and "not finite" in said
            and said.count("\n") == 1
        ), (out, said)


def test_trust_is_for_exported_files_alone(exported: tuple[Path, Path], refusal: Refusal) -> None:
    with raises("exported.trust-idle"):
        safecl.load(exported[0], trust=True)
    error = refusal("predict", "x.png", "-m", str(exported[0]), "--trust")
    tells(error, "command.predict.trust-idle", model=exported[0])


def test_nobody_is_told_that_a_model_answers(exported: tuple[Path, Path], tmp_path: Path) -> None:
    """ONNX Runtime would tell its maker, and keep a name of this machine in the home folder."""
    program = "import safecl, sys; print(safecl.load(sys.argv[1]).predict(sys.argv[2]).tolist())"
    picture = tmp_path / "a.png"
    Image.new("RGB", (20, 20)).save(picture)
    (home := tmp_path / "home").mkdir()
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    }
    ran = subprocess.run(
        [sys.executable, "-c", program, exported[1], picture],
        capture_output=True,
        text=True,
        timeout=60,
        env={**clean, "HOME": str(home)},
    )
    assert ran.returncode == 0 and json.loads(ran.stdout.replace("'", '"'))[0] in "abcdef", (
        ran.stderr
    )
    assert list(home.rglob("*")) == []

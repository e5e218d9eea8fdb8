"""A model as one ONNX file: from pictures of any size to probabilities, the nearest class and
unknown.

The graph prepares pictures as they are prepared for learning, has the PETs merged into the weights,
both learners with what they share once, their heads, aggregation and calibration. First its answers
are compared with the model's.
"""

import contextlib
import importlib.util
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import safecl
from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.classifier.answers.calibrate import probabilities, recalibrate, unknown_score
from safecl.classifier.answers.card import licence, model_card, without_folders
from safecl.classifier.model import Model
from safecl.errors import SafeclError, unknown
from safecl.learner import Learner
from safecl.lines import as_json, naming
from safecl.methods.method import Method, all_logits
from safecl.outputs import check_output, write_output
from safecl.runtime.answer import is_calibrated, thresholds
from safecl.runtime.model import BATCH, FORMAT, ExportedModel, onnx_runtime, refusal
from safecl.runtime.seal import sealed
from safecl.runtime.sizes import OPSET
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.load import batches
from safecl.streams.sources.arrays import Images

Precision: TypeAlias = Literal["fp32", "fp16", "int8"]
IR = 10
UNKNOWN = 0.05  # the share of known pictures that ``unknown`` in the graph may say of
# of weights: a protobuf file has less than 2**31, and names and metadata come on top
MAX_BYTES = 2**31 - 2**26
# of probabilities, beyond which nothing is written
MAX_DIFFERENCE = {
    "fp32": 1e-3,
    "fp16": 1e-2,
    "int8": 1.0,
}
MIN_AGREEMENT = 0.99
TIE = 0.01  # of answers; of probabilities, within which two classes tie on a drawn picture
INSTEAD = {"fp32": "", "fp16": ": take --precision fp32", "int8": ": take --precision fp16"}
PREPARE = """
<ir_version: {ir}, opset_import: ["": {opset}]>
prepare (uint8[N, H, W, 3] pictures) => (uint8[N, 3, {size}, {size}] prepared) {{
  sides = Shape <start = 1, end = 3> (pictures)
  short = ReduceMin <keepdims = 1> (sides)
  resize = Constant <value_ints = [{resize}]> ()
  product = Mul (sides, resize)
  scaled = Div (product, short)
  count = Shape <start = 0, end = 1> (pictures)
  colours = Constant <value_ints = [3]> ()
  sizes = Concat <axis = 0> (count, colours, scaled)
  planes = Transpose <perm = [0, 3, 1, 2]> (pictures)
  resized = Resize <mode = "cubic", antialias = 1, cubic_coeff_a = -0.5,
                     exclude_outside = 1> (planes, , , sizes)
  size = Constant <value_ints = [{size}]> ()
  two = Constant <value_ints = [2]> ()
  rest = Sub (scaled, size)
  half = Div (rest, two)
  odd = Mod (rest, two)
  even = Mod (half, two)
  tie = Mul (odd, even)
  start = Add (half, tie)
  end = Add (start, size)
  axes = Constant <value_ints = [2, 3]> ()
  prepared = Slice (resized, start, end, axes)
}}"""  # offsets of the crop are rounded half to even, as Python rounds


@dataclass(frozen=True)
class Check:
    """How the file answers beside the model: largest difference of a probability, share of equal
    answers.
    """

    pictures: int
    difference: float
    agreement: float
    otherwise: list[str]


def export_onnx(
    model: Model,
    path: Path,
    precision: Precision = "fp32",
    learner: str | None = None,
    pictures: Pictures | None = None,
    *,
    force: bool = False,
) -> Check:
    """Write ``path`` and say how it answers to ``pictures``, or to drawn ones; one that answers
    otherwise is refused.

    ``learner``: of the method's outputs, the one whose answer it is; the method's own if not given.
    """
    onnx = _needed("onnx", "onnxscript", "onnxruntime")
    onnx_runtime()  # before anything else imports it
    check_output(path, "onnx", force)
    if precision == "int8" and pictures is None:
        raise SafeclError("export.int.no-pictures")
    network = _network(model, load_backbone(model.settings.backbone), learner)
    proto = _graph(onnx, network, model.transform)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        if precision == "int8":
            proto = _quantised(onnx, proto, file)
        _share(onnx, proto, network.method.backbone)
        _store_exact(onnx, proto)
        if precision != "fp32":
            _store_half(onnx, proto)
        _describe(onnx, proto, model, network, precision)
        data = sealed(proto.SerializeToString())
        file.write_bytes(data)
        judged, tie = (_drawn(model.transform), TIE) if pictures is None else (pictures, 0.0)
        found = _check(
            ExportedModel(file, device="cpu", trust=True), network, judged, model.transform, tie
        )
    if found.difference > MAX_DIFFERENCE[precision] or found.agreement < MIN_AGREEMENT:
        raise SafeclError(
            "export.otherwise",
            precision=precision,
            agreement=100 * found.agreement,
            pictures=found.pictures,
            needed=100 * MIN_AGREEMENT,
            otherwise=f"; not: {naming(found.otherwise)}" if found.otherwise else "",
            difference=found.difference,
            instead=INSTEAD[precision],
        )
    write_output(path, data, "onnx", force)
    if why := refusal(data):
        warnings.warn(f"{path} is read with --trust (trust=True) alone: {why}.", stacklevel=2)
    return found


class Network(nn.Module):
    """Prepared pictures → everything that a file answers; ``names``: of its outputs."""

    limits: Tensor

    def __init__(
        self, method: Method, outputs: Sequence[str], calibration: Mapping[str, Any] | None
    ) -> None:
        super().__init__()
        self.method = method
        self.outputs = tuple(outputs)
        self.calibration = calibration
        self.register_buffer(
            "limits", torch.from_numpy(thresholds(calibration, UNKNOWN, len(method.classes)))
        )
        side = method.backbone.size
        # one alone would be taken for a constant
        self.example = torch.zeros(2, 3, side, side, dtype=torch.uint8)
        with torch.no_grad():
            self.weighed = list(self._weights(all_logits(method, self.example.float())))
        others = [f"probabilities_{name}" for name in self.outputs[:-1]]
        self.names = [
            "probabilities",
            "score",
            "unknown",
            *others,
            *(f"weight_{name}" for name in self.weighed),
        ]

    def forward(self, prepared: Tensor) -> tuple[Tensor, ...]:
        """uint8 (N, 3, size, size) → probabilities (N, C), score (N,), unknown (N,), and opinions
        and their weights.
        """
        features = self.method.embed(prepared.float() / 255)
        found = self.method.answer(features)
        logits = torch.stack(
            [found[name].float() for name in (*self.outputs[-1:], *self.outputs[:-1])]
        )
        score = unknown_score(logits[0], self.method.likeness(features), self.calibration)
        every = score.expand(len(logits), -1).flatten()
        p = probabilities(logits.flatten(0, 1), self.calibration, every).reshape(logits.shape)
        weights = self._weights(found)
        return (
            p[0],
            score,
            score.double() < self.limits[p[0].argmax(dim=1)],
            *p[1:].unbind(),
            *weights.values(),
        )

    def _weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.method.weights(logits) if len(self.outputs) > 1 else {}


def _network(model: Model, backbone: Backbone, learner: str | None) -> Network:
    """The method ready for tracing; for another output than its own, calibrated by it."""
    method = model.method(backbone)
    calibration = model.header["calibration"]
    outputs = method.outputs
    if learner is not None and learner not in outputs:
        raise unknown("learner", learner, outputs)
    if learner is not None and learner != outputs[-1]:
        outputs = (learner,)
        if calibration is not None:
            if model.header["frozen"]:
                raise SafeclError(
                    "export.frozen.calibrated", output=method.outputs[-1], learner=learner
                )
            calibration = _calibrated_for(model, backbone, learner)
    for part in method.modules():
        if isinstance(part, Learner):
            part.fuse()
    return Network(method.eval(), outputs, calibration)


def _calibrated_for(model: Model, backbone: Backbone, learner: str) -> dict[str, Any] | None:
    """The calibration of one learner's own answers."""
    method = model.method(backbone, learning=True)
    method.refresh()
    method.outputs = (learner,)  # type: ignore[misc]
    return recalibrate(method, model.state.kept, model.state.seen)


def _graph(onnx: Any, network: Network, transform: Transform) -> Any:
    """The preparation of pictures and the network as one graph."""
    from onnx import compose, parser
    from onnx_ir import serde
    from onnx_ir.passes import common
    from onnxscript import optimizer

    title = network.method.settings.title
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                network,
                (network.example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=["prepared"],
                output_names=network.names,
                dynamic_shapes=({0: torch.export.Dim("N")},),
                verbose=False,
                optimize=False,
            )
    except Exception as error:  # torch's exporter raises its own kinds
        raise SafeclError("export.onnx.no-steps", title=title) from error
    assert program is not None
    core = program.model
    if any(isinstance(value.shape[0], int) for value in core.graph.outputs):  # type: ignore[index]
        raise SafeclError("export.onnx.fixed-number", title=title)
    common.InlinePass()(core)  # older versions of onnxscript leave some operators as functions
    optimizer.fold_constants(core, output_size_limit=1 << 30, input_size_limit=1 << 30)
    once = common.DeduplicateInitializersPass(1 << 30), common.CommonSubexpressionEliminationPass()
    for each in (*once, common.RemoveUnusedNodesPass()):
        each(core)  # what the learners share, tensors and nodes, becomes one
    tensors = [value.const_value for value in core.graph.initializers.values()]
    if (size := sum(tensor.nbytes for tensor in tensors if tensor is not None)) > MAX_BYTES:
        raise SafeclError("export.onnx.too-large", gigabytes=size / 1e9)
    proto = serde.serialize_model(core)
    proto.ir_version = IR
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del proto.graph.value_info[:]
    text = PREPARE.format(ir=IR, opset=OPSET, size=transform.size, resize=transform.resize)
    before = compose.add_prefix(
        parser.parse_model(text), "prepare/", rename_inputs=False, rename_outputs=False
    )
    after = compose.add_prefix(proto, "model/", rename_inputs=False, rename_outputs=False)
    found = compose.merge_models(before, after, [("prepared", "prepared")])
    del found.opset_import[1:]  # both bring the same
    return found


def _describe(onnx: Any, proto: Any, model: Model, network: Network, precision: Precision) -> None:
    """Put the classes by name beside their numbers, and what a person or a program wants to know
    into the metadata.
    """
    from onnx import TensorProto, helper

    header = {**without_folders(model.header), "calibration": network.calibration}
    graph = proto.graph
    names: list[Any] = [str(label).encode() for label in model.classes]
    text = TensorProto.STRING
    boolean = TensorProto.BOOL
    info = helper.make_tensor_value_info
    graph.initializer.append(helper.make_tensor("labels", text, [len(names)], names))
    graph.initializer.append(
        helper.make_tensor("trust", boolean, [], [is_calibrated(network.calibration)])
    )
    graph.node.extend(
        [
            helper.make_node("Identity", ["labels"], ["classes"], "classes"),
            helper.make_node("Identity", ["trust"], ["calibrated"], "calibrated"),
            helper.make_node("ArgMax", ["probabilities"], ["best"], "best", axis=1, keepdims=0),
            helper.make_node("Gather", ["labels", "best"], ["nearest"], "nearest"),
        ]
    )
    graph.output.extend([info("nearest", text, ["N"]), info("classes", text, [len(names)])])
    graph.output.append(info("calibrated", boolean, []))
    proto.producer_name = "safecl"
    proto.producer_version = safecl.__version__
    facts = {
        "safecl": safecl.__version__,
        "format": FORMAT,
        "name": model.answering.name,
        "precision": precision,
        "classes": model.classes,
        "outputs": network.outputs,
        "unknown": UNKNOWN,
        "size": model.transform.size,
        "resize": model.transform.resize,
        "calibration": header["calibration"],
        "backbone": header["backbone"],
        "licence": licence(header),
        "history": header["history"],
        "card": model_card(header),
    }
    helper.set_model_props(proto, {key: as_json(value) for key, value in facts.items()})
    onnx.checker.check_model(proto)


def _share(onnx: Any, proto: Any, backbone: Backbone) -> None:
    """Store a matrix of the backbone once where networks have it with other columns' scales, as SSF
    leaves them.

    ONNX Runtime multiplies the constants when it opens the file.
    """
    from onnx import helper, numpy_helper

    frozen = [value for value in backbone.network.state_dict().values() if value.ndim == 2]
    bases = [(f"shared/{i}", value.float().cpu().numpy().T) for i, value in enumerate(frozen)]
    found: dict[str, list[tuple[Any, np.ndarray]]] = {}
    for tensor, values in _constants(proto):
        for name, base in bases:
            if base.shape == values.shape and (scale := _scales(base, values)) is not None:
                found.setdefault(name, []).append((tensor, scale))
                break
    nodes = []
    for name, base in bases:
        several = found.get(name, [])
        if len(several) < 2 and not (several and _exact(base)):
            continue
        proto.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(base), name))
        for tensor, scale in several:
            factor = f"{tensor.name}/scale"
            nodes.append(
                helper.make_node("Mul", [name, factor], [tensor.name], f"{tensor.name}/scaled")
            )
            tensor.CopyFrom(numpy_helper.from_array(scale, factor))
    _put_before(proto, nodes)


def _scales(base: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """(columns,) by which ``base`` becomes ``values`` as exactly as float32 multiplies, or None."""
    place = np.abs(base).argmax(axis=0), np.arange(base.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = values[place] / base[place]
    rounding = 4 * np.finfo(np.float32).eps * np.abs(values).max(axis=0)
    return np.asarray(scale) if (np.abs(base * scale - values) <= rounding).all() else None


def _store_exact(onnx: Any, proto: Any) -> None:
    """Store in float16 what float16 holds exactly, as the weights of the embedded backbone."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = []
    for tensor, values in _constants(proto):
        if _exact(values):
            name = tensor.name
            short = f"{tensor.name}/short"
            nodes.append(
                helper.make_node("Cast", [short], [name], f"{name}/cast", to=TensorProto.FLOAT)
            )
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), short))
    _put_before(proto, nodes)


def _exact(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16) == values).all())


def _constants(proto: Any) -> list[tuple[Any, np.ndarray]]:
    """Those of float32 with two axes or more, and their values; a bias costs nothing."""
    from onnx import TensorProto, numpy_helper

    every = [
        one
        for one in proto.graph.initializer
        if one.data_type == TensorProto.FLOAT and len(one.dims) >= 2
    ]
    return [(one, numpy_helper.to_array(one)) for one in every]


def _put_before(proto: Any, nodes: Sequence[Any]) -> None:
    """Nodes that make constants of constants come first."""
    every = [*nodes, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(every)


def _store_half(onnx: Any, proto: Any) -> None:
    """Store tensors of two axes or more in 16 bits, with a scale for each column: the arithmetic
    stays float32.

    Float16 itself rounds weights four times as coarsely, which shows where the ridge heads see two
    classes alike.
    """
    from onnx import TensorProto, helper, numpy_helper

    before = []
    scales = []
    for tensor, values in _constants(proto):
        name = tensor.name
        short = f"{tensor.name}/short"
        scale = f"{tensor.name}/step"
        largest = np.abs(values).max(axis=tuple(range(values.ndim - 1)), keepdims=True)
        steps = np.where(largest > 0, largest, 1).astype(np.float32) / np.float32(32767)
        tensor.CopyFrom(numpy_helper.from_array(np.round(values / steps).astype(np.int16), short))
        scales.append(numpy_helper.from_array(steps, scale))
        before.append(
            helper.make_node(
                "Cast", [short], [f"{name}/cast"], f"{name}/cast", to=TensorProto.FLOAT
            )
        )
        before.append(helper.make_node("Mul", [f"{name}/cast", scale], [name], f"{name}/stepped"))
    proto.graph.initializer.extend(scales)
    _put_before(proto, before)


def _quantised(onnx: Any, proto: Any, file: Path) -> Any:
    """Weights in int8, activations as they come. What is sensitive stays as it is.

    That are the heads, after the last norm, and the layers that narrow: outliers of a GELU before
    them would leave the other activations a few of the 256 levels.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    made = {output: node for node in proto.graph.node for output in node.output}
    shapes = {
        tensor.name: tensor.dims for tensor in proto.graph.initializer if len(tensor.dims) == 2
    }
    waiting = [node for node in proto.graph.node if node.op_type == "LayerNormalization"]
    inside = set()
    while waiting:
        node = waiting.pop()
        if node.name not in inside:
            inside.add(node.name)
            waiting += [made[name] for name in node.input if name in made]
    products = [
        node for node in proto.graph.node if node.op_type == "MatMul" and node.input[1] in shapes
    ]
    kept = [
        node for node in products if node.name not in inside or np.greater(*shapes[node.input[1]])
    ]
    chosen = [node.name for node in products if node not in kept]
    _give_each_its_own(proto, "Gemm")
    onnx.save(proto, file)
    with _quiet():
        quantize_dynamic(
            file,
            out := file.with_name("int8.onnx"),
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=chosen,
        )
    return onnx.load(out)


def _give_each_its_own(proto: Any, kind: str) -> None:
    """Copy the weights that several nodes of a ``kind`` share.

    ONNX Runtime's quantiser transposes those of a Gemm in place, once for each node that has them.
    """
    initializers = {tensor.name: tensor for tensor in proto.graph.initializer}
    taken: set[str] = set()
    for node in proto.graph.node:
        if node.op_type != kind or node.input[1] not in initializers:
            continue
        name = node.input[1]
        if name in taken:
            twin = proto.graph.initializer.add()
            twin.CopyFrom(initializers[name])
            twin.name = f"{name}/{node.name}"
            node.input[1] = twin.name
        taken.add(name)


@torch.no_grad()
def _check(
    file: ExportedModel, network: Network, pictures: Pictures, transform: Transform, tie: float
) -> Check:
    """What the file answers beside what the network does."""
    difference = 0.0
    otherwise = list[str]()
    names = ["probabilities", "unknown"]
    for batch in batches(pictures, range(len(pictures)), BATCH, "plain", transform):
        p, _, strange = network(batch.pictures)[:3]
        found = list(
            file.run([pictures.reduced(i, transform.enough) for i in batch.indices], names)
        )
        q, odd = (torch.cat([torch.from_numpy(each[name]) for each in found]) for name in names)
        # max(0.0, NaN) is 0.0
        difference = max(difference, float((p - q).abs().nan_to_num(nan=torch.inf).max()))
        same = (p.max(dim=1).values - p.gather(1, q.argmax(dim=1)[:, None])[:, 0] <= tie) & (
            strange == odd
        )
        otherwise += [pictures.where(batch.indices[i]) for i in (~same).nonzero()[:, 0].tolist()]
    return Check(len(pictures), difference, 1 - len(otherwise) / len(pictures), otherwise)


def _drawn(transform: Transform) -> Pictures:
    """A few pictures of smooth noise, of several shapes."""
    random = np.random.RandomState(0)
    side = transform.resize
    shapes = [(side, side), (2 * side, side), (side, 3 * side + 1), (side // 2, side)] * 4
    noise = [Image.fromarray(random.randint(0, 256, (5, 5, 3), dtype=np.uint8)) for _ in shapes]
    return Images(
        [image.resize(shape) for image, shape in zip(noise, shapes, strict=True)],
        [""] * len(shapes),
    )


def _needed(*names: str) -> Any:
    """The first of these packages, if all are installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise SafeclError("export.onnx.missing", package=name)
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        raise SafeclError("export.onnx.torch-old", version=torch.__version__)
    return importlib.import_module(names[0])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch and onnxruntime print and warn while they work: what matters is an error,
    or checked.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

"""What is exported answers as the model does, or is refused with a number; every PET, method and
precision.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from safecl.classifier.answers import export
from safecl.classifier.answers.export import export_onnx
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.model import Model
from safecl.cli.main import app
from safecl.errors import SafeclError
from safecl.methods.catalog import method_settings
from safecl.outputs import check_output
from safecl.runtime.answer import Answer
from safecl.runtime.model import ExportedModel
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import ArrayPictures, Transform
from safecl.streams.sources.arrays import Images
from tests.conftest import raises, tells

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
New = Callable[..., ContinualClassifier]
Lesson = Callable[..., Any]


Likeliest = list[tuple[Any, float]]


def same(ours: list[Answer], theirs: list[Answer], within: float) -> None:
    """Probabilities within a tolerance, ten times it for single learners; the same answers unless
    two all but tie.
    """
    assert [a.unknown for a in ours] == [a.unknown for a in theirs]
    for a, b in zip(ours, theirs, strict=True):
        first, second = (p for _, p in b.nearest[:2])
        assert a.label == b.label or first - second < max(within / 20, 1e-5)
        near(a.nearest, b.nearest, within)
        assert a.weights == pytest.approx(b.weights, abs=max(within, 1e-3))
        assert a.opinions.keys() == b.opinions.keys()
        for name in b.opinions:  # not calibrated
            near(a.opinions[name], b.opinions[name], 10 * within)


def near(ours: Likeliest, theirs: Likeliest, within: float) -> None:
    """Which of several equal classes are among the likeliest does not matter."""
    assert [p for _, p in ours] == pytest.approx([p for _, p in theirs], abs=within)
    one = dict(ours)
    other = dict(theirs)
    assert {**other, **one} == pytest.approx({**one, **other}, abs=within)


@pytest.mark.parametrize("tie", [0.0, export.TIE], ids=["given", "drawn"])
@pytest.mark.parametrize(
    ("ours", "theirs", "same"), [(0.501, 0.4999, None), (0.6, 0.4, False), (0.7, 0.6, True)]
)
def test_two_classes_that_all_but_tie_on_a_drawn_picture_are_the_same_answer(
    ours: float, theirs: float, same: bool | None, tie: float
) -> None:
    transform = Transform(8)
    answers = {"probabilities": np.array([[theirs, 1 - theirs]]), "unknown": np.array([False])}
    file = SimpleNamespace(run=lambda *_: [answers])
    pictures = Images([Image.new("RGB", (8, 8))], [""])

    def network(_: Any) -> Any:
        return torch.tensor([[ours, 1 - ours]]), torch.zeros(1), torch.tensor([False])

    found = export._check(file, network, pictures, transform, tie)  # type: ignore[arg-type]
    assert found.agreement == float(
        bool(tie) if same is None else same
    ) and found.difference == pytest.approx(abs(ours - theirs), abs=1e-6)


def changed(path: Path, out: Path, change: Callable[[Any], Any]) -> ExportedModel:
    """An exported file in another precision, without tracing the network again."""
    proto = onnx.load(path)
    onnx.save(change(proto) or proto, out)
    return ExportedModel(out, trust=True)


def in_half(proto: Any) -> None:
    export._store_half(onnx, proto)


def test_learners_share_what_they_have_in_common(exported: tuple[Path, Path]) -> None:
    proto = onnx.load(exported[1])
    kinds = Counter(node.op_type for node in proto.graph.node)
    assert kinds["LayerNormalization"] == 2 * (2 * 2 + 1)  # of two learners, two blocks each
    cells = [
        tensor for tensor in proto.graph.initializer if np.prod(tensor.dims) == 64 * 3 * 16 * 16
    ]
    assert len(cells) == 1, "the frozen patch embedding is there once"
    assert [value.name for value in proto.graph.input] == ["pictures"]
    check_output(exported[1], "onnx")  # known as ours, so a later export replaces it


def test_learners_that_scale_the_columns_of_the_backbone_share_its_matrices(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    proto = onnx.load(exported[1])
    whole = changed(exported[1], tmp_path / "whole.onnx", folded)
    once = [tensor.name for tensor in proto.graph.initializer if tensor.name.startswith("shared/")]
    uses = Counter(name for node in proto.graph.node for name in node.input)
    assert [uses[name] for name in once] == [
        2
    ] * 8  # qkv, proj, fc1 and fc2 of two blocks, for two learners
    assert exported[1].stat().st_size < 0.75 * whole.path.stat().st_size
    pictures = lesson("abcdef", 3, seed=5)[0]
    ours, theirs = (one.predict_proba(pictures) for one in (ExportedModel(exported[1]), whole))
    assert np.allclose(ours, theirs, atol=1e-6)


def test_what_float16_holds_exactly_costs_half_and_changes_no_answer(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    def rounded(proto: Any) -> None:
        for tensor, values in export._constants(proto):
            if "ridge" not in tensor.name:
                tensor.CopyFrom(
                    onnx.numpy_helper.from_array(
                        values.astype(np.float16).astype(np.float32), tensor.name
                    )
                )

    def shortened(proto: Any) -> None:
        export._store_exact(onnx, proto)

    whole = changed(exported[1], tmp_path / "whole.onnx", rounded)
    short = changed(whole.path, tmp_path / "short.onnx", shortened)
    assert short.path.stat().st_size < 0.65 * whole.path.stat().st_size
    pictures = lesson("abcdef", 3, seed=5)[0]
    assert np.array_equal(short.predict_proba(pictures), whole.predict_proba(pictures))


def test_half_the_bytes_give_the_same_answers(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    model = ContinualClassifier.load(exported[0])
    file = changed(exported[1], tmp_path / "half.onnx", in_half)
    assert file.path.stat().st_size < 0.6 * exported[1].stat().st_size
    pictures = lesson("abcde", 3, seed=5)[0]
    same(file.explain(pictures), model.explain(pictures), 1e-2)


def test_int8_changes_the_network_and_leaves_the_heads(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    def quantised(proto: Any) -> Any:
        return export._quantised(onnx, proto, tmp_path / "work.onnx")

    whole = changed(exported[1], tmp_path / "whole.onnx", folded)
    file = changed(whole.path, tmp_path / "int8.onnx", quantised)
    before, after = (
        Counter(n.op_type for n in onnx.load(path).graph.node) for path in (whole.path, file.path)
    )
    # of all that do not narrow
    assert after["MatMulInteger"] == before["MatMul"] - after["MatMul"] >= 2 * 2 * 3
    kept = {t.name: t for t in onnx.load(file.path).graph.initializer}
    assert all(kept[name].data_type == onnx.TensorProto.FLOAT for name in kept if "ridge" in name)
    pictures = lesson("abcdef", 3, seed=5)[0]
    near = np.abs(
        file.predict_proba(pictures) - ContinualClassifier.load(exported[0]).predict_proba(pictures)
    )
    assert 0 < near.max() < 0.2


def test_int8_keeps_layers_that_share_their_weights(tmp_path: Path) -> None:
    """Two of them that differ in nothing answer the same, and as one did before."""
    helper = onnx.helper
    rows = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 5])]
    both = [
        helper.make_node("Gemm", ["x", "rows"], [name], name, transB=1) for name in ("one", "two")
    ]
    outputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3])
        for name in ("one", "two")
    ]
    weights = [onnx.numpy_helper.from_array(rows, "rows")]
    graph = helper.make_graph(both, "shared", inputs, outputs, weights)
    opset = [helper.make_opsetid("", 18)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=10)
    made = export._quantised(onnx, proto, tmp_path / "work.onnx")
    session = onnxruntime.InferenceSession(made.SerializeToString())
    x = np.random.default_rng(1).standard_normal((2, 5)).astype(np.float32)
    one, two = session.run(None, {"x": x})
    np.testing.assert_allclose(one, x @ rows.T, atol=0.02)
    np.testing.assert_array_equal(one, two)


def folded(proto: Any) -> Any:
    """With the constants that ONNX Runtime makes of other ones when it opens the file, as the
    network was traced.
    """
    graph = proto.graph
    numpy_helper = onnx.numpy_helper
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in list(graph.node):
        if node.op_type in ("Cast", "Mul") and constants.keys() >= set(node.input):
            first, *others = (constants[name] for name in node.input)
            made = first * others[0] if others else first.astype(np.float32)
            constants[node.output[0]] = made
            graph.initializer.append(numpy_helper.from_array(made, node.output[0]))
            graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    return proto


def traced(path: Path) -> Any:
    """The graph of an earlier export as it was before it was made small, and without what
    ``_describe`` adds.
    """
    proto = folded(onnx.load(path))
    del proto.metadata_props[:]
    for part in (proto.graph.output, proto.graph.node, proto.graph.initializer):
        for item in [
            x
            for x in part
            if x.name in ("labels", "classes", "best", "nearest", "trust", "calibrated")
        ]:
            part.remove(item)
    return proto


def test_the_command_says_how_the_file_answers(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = traced(exported[1])
    monkeypatch.setattr(export, "_graph", lambda *_: copy.deepcopy(proto))
    photos = tmp_path / "photos"
    photos.mkdir()
    for label, array in zip("abcdef", lesson("abcdef", 1, seed=5)[0], strict=True):
        Image.fromarray(array).save(photos / f"{label}.png")
    words = [
        "export",
        str(exported[0]),
        "-o",
        str(tmp_path / "m.onnx"),
        "--pictures",
        str(photos),
        "--force",
    ]
    found = CliRunner().invoke(app, words).output
    assert (
        "100.0 % of the answers to 6 pictures are the model's; probabilities differ by at most"
        in found
    )
    assert ExportedModel(tmp_path / "m.onnx").predict(photos / "c.png").tolist() == ["c"]
    monkeypatch.setattr(export, "unknown_score", lambda logits, *_: logits[:, 0] * 0 - torch.inf)
    monkeypatch.setattr(export, "MIN_AGREEMENT", 0.0)
    monkeypatch.setitem(export.MAX_DIFFERENCE, "fp32", 1.0)  # it is no longer that sure
    found = " ".join(CliRunner().invoke(app, words).output.split())
    assert "% of the answers to 6 pictures are the model's (not: " in found and "e.png" in found


def test_a_file_that_answers_otherwise_is_not_written(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the heads of one learner exchanged."""
    proto = traced(exported[1])
    weight = next(
        tensor for tensor in proto.graph.initializer if tensor.name.endswith("ridge_slow.weight")
    )
    values = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(-values, weight.name))
    monkeypatch.setattr(export, "_graph", lambda *_: copy.deepcopy(proto))
    pictures = ArrayPictures(*lesson("abcdef", 3, seed=5))
    for precision, instead in (
        ("fp32", "^$"),
        ("fp16", ": take --precision fp32"),
        ("int8", ": take --precision fp16"),
    ):
        with raises(
            "export.otherwise",
            precision=precision,
            pictures=18,
            otherwise=re.compile(r"not: picture \d"),
            instead=re.compile(instead),
        ):
            export_onnx(Model.open(exported[0]), tmp_path / "wrong.onnx", precision, None, pictures)
    weight.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(np.nan), weight.name))
    monkeypatch.setattr(export, "MIN_AGREEMENT", 0.0)
    with raises("export.otherwise", difference="inf"):
        export_onnx(Model.open(exported[0]), tmp_path / "wrong.onnx", "fp32", None, pictures)
    assert not list(tmp_path.iterdir())


def test_a_network_of_which_nobody_can_say_how_large_it_becomes_is_written_with_a_note(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = traced(exported[1])
    chosen = next(node for node in proto.graph.node if node.op_type == "Erf")
    proto.graph.node.insert(
        list(proto.graph.node).index(chosen) + 1, onnx.helper.make_node("Elu", chosen.output, ["x"])
    )
    monkeypatch.setattr(export, "_graph", lambda *_: copy.deepcopy(proto))
    with pytest.warns(
        UserWarning,
        match="is read with --trust .* alone: it uses the operator 'Elu', as no export does",
    ):
        export_onnx(Model.open(exported[0]), tmp_path / "m.onnx")
    with raises(
        "exported.not-read",
        error=re.compile("'Elu', as no export does$"),
        trust=re.compile("^read it with --trust"),
    ):
        ExportedModel(tmp_path / "m.onnx")
    assert ExportedModel(tmp_path / "m.onnx", trust=True).predict(lesson("c", 1)[0]).tolist() == [
        "c"
    ]


def test_no_name_of_a_picture_is_in_the_file(
    exported: tuple[Path, Path],
    new_model: New,
    lesson: Lesson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither of one whose label looked wrong, nor of one that was corrected: names may name
    people.

    Nor of the folders of the weight file, in what is exported; the model looks for it there again.
    """
    images, labels = lesson("abcdef", 8)
    (folder := tmp_path / "of-jane-doe").mkdir()
    files = [folder / f"jane-doe-{i:02d}.png" for i in range(len(images))]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    model = new_model()
    # the eighth picture shows an a
    taught = model.learn(files, [*labels[:7], "b", *labels[8:]], name="monday")
    assert any("jane-doe-07.png" in str(suspect) for suspect in taught.suspects)
    model.correct(files[20:21], "f")
    model.save(tmp_path / "m.safecl")
    kept = Model.open(tmp_path / "m.safecl")
    proto = traced(exported[1])
    monkeypatch.setattr(export, "_graph", lambda *_: copy.deepcopy(proto))  # of other weights
    monkeypatch.setattr(export, "MIN_AGREEMENT", 0.0)
    monkeypatch.setattr(export, "MAX_DIFFERENCE", {"fp32": 1.0})
    export_onnx(
        kept, tmp_path / "m.onnx", pictures=FilePictures([File.at(file) for file in files], labels)
    )
    weights = Path(kept.settings.backbone.weights or "")
    found = ExportedModel(tmp_path / "m.onnx").metadata
    assert found["history"][0]["name"] == "monday" and found["backbone"]["file"] == weights.name
    assert str(weights.parent).encode() not in (tmp_path / "m.onnx").read_bytes()
    for data in [(tmp_path / name).read_bytes() for name in ("m.safecl", "m.onnx")]:
        assert b"jane" not in data and b"doe" not in data


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (["-o", "m.safecl"], "command.export.suffix", {"form": "onnx", "stem": "m"}),
        (["-o", "m.onnx", "--precision", "int8"], "export.int.no-pictures", {}),
        (["-o", "m.onnx", "--learner", "quick"], "name.unknown", {"given": "quick"}),
        (["-o", "there.onnx"], "output.not-ours", {"why": "is no onnx of safecl"}),
        (["-o", "none/m.onnx"], "output.folder.missing", {"parent": "none"}),
        (["-o", "m.onnx", "--pictures", "none"], "command.export.no-folder", {"pictures": "none"}),
    ],
)
def test_what_cannot_be_exported_gets_a_sentence(
    exported: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: str,
    fields: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.onnx").write_bytes(b"mine")
    found = CliRunner().invoke(app, ["export", str(exported[0]), *words])
    tells(found.exception, code, **fields)
    assert Path("there.onnx").read_bytes() == b"mine"


def test_weights_beyond_what_a_file_holds_get_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they become a protobuf, which would fail with an error of its own."""
    from onnx_ir import serde

    head = '<ir_version: 10, opset_import: ["": 18]> g (float[N, 1] x) => (float[N, 50000] y)'
    proto = onnx.parser.parse_model(f"{head} {{ y = Add (x, w) }}")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(50_000, np.float32), "w"))
    program = SimpleNamespace(model=serde.deserialize_model(proto))
    network = SimpleNamespace(
        method=SimpleNamespace(settings=SimpleNamespace(title="SAFE")), example=None, names=["y"]
    )
    monkeypatch.setattr("torch.onnx.export", lambda *_, **__: program)
    monkeypatch.setattr(serde, "serialize_model", None)
    monkeypatch.setattr(export, "MAX_BYTES", 199_999)
    with raises("export.onnx.too-large", gigabytes=0.0002):
        export._graph(onnx, network, None)  # type: ignore[arg-type]


class Untraceable(torch.nn.Module):
    """A network that an ONNX graph cannot hold."""

    method = SimpleNamespace(settings=SimpleNamespace(title="Odd"))
    names = ("y",)
    example = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.looks = looks

    def forward(self, prepared: torch.Tensor) -> tuple[torch.Tensor]:
        if not self.looks:
            return (torch.ones(len(prepared)) * prepared.float().mean(),)
        return (
            prepared.float().mean((1, 2, 3)) * (2 if float(prepared.float().mean()) > 0.5 else 1),
        )


@pytest.mark.parametrize(
    ("looks", "code"),
    [(True, "export.onnx.no-steps"), (False, "export.onnx.fixed-number")],
)
def test_a_network_that_cannot_be_traced_gets_a_sentence(looks: bool, code: str) -> None:
    with raises(code, title="Odd"):
        export._graph(onnx, Untraceable(looks), None)  # type: ignore[arg-type]


def test_other_commands_say_that_an_exported_model_only_predicts(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    for words in (
        ["inspect"],
        ["eval", str(tmp_path), "--model"],
        ["rollback"],
        ["export", "-o", "m.onnx"],
    ):
        found = CliRunner().invoke(app, [*words, str(exported[1])])
        tells(found.exception, "model.exported", path=exported[1])
    for words in (["--careful"], ["--explain", str(tmp_path / "maps")]):
        found = CliRunner().invoke(app, ["predict", str(tmp_path), "-m", str(exported[1]), *words])
        tells(found.exception, "command.predict.exported", model=exported[1])


def test_the_learner_of_a_frozen_model_cannot_be_calibrated(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ContinualClassifier.load(exported[0])
    model.save(tmp_path / "frozen.safecl", frozen=True)
    with raises("export.frozen.calibrated", output="safe"):
        export_onnx(Model.open(tmp_path / "frozen.safecl"), tmp_path / "m.onnx", learner="slow")


def taught(
    model: ContinualClassifier,
    lesson: Lesson,
    path: Path,
    sessions: tuple[str, ...] = ("abcd", "ef"),
) -> Model:
    for number, classes in enumerate(sessions):
        model.learn(*lesson(classes, 6, seed=number))
    model.save(path, force=True)
    return Model.open(path)


def test_a_model_that_was_never_tuned_is_exported_with_its_answers(
    new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model = new_model()
    model.learn(*lesson("abcd", 6), tune="never")
    model.save(tmp_path / "m.safecl")
    export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx")
    pictures = lesson("abcd", 3, seed=5)[0]
    same(ExportedModel(tmp_path / "m.onnx").explain(pictures), model.explain(pictures), 1e-4)


@pytest.mark.slow
def test_one_learner_alone_is_one_pass_calibrated_by_itself(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    kept = Model.open(exported[0])
    # of both learners together
    kept.header["calibration"] = {
        **kept.header["calibration"],
        "accuracy": 0.123,
    }
    export_onnx(kept, tmp_path / "slow.onnx", learner="slow")
    file = ExportedModel(tmp_path / "slow.onnx")
    model = ContinualClassifier.load(exported[0])
    pictures = lesson("abcdef", 3, seed=5)[0]
    assert file.outputs == ("slow",) and [a.label for a in file.explain(pictures)] == [
        answer.opinions["slow"][0][0] for answer in model.explain(pictures)
    ]
    kinds = Counter(node.op_type for node in onnx.load(file.path).graph.node)
    assert kinds["LayerNormalization"] == 2 * 2 + 1
    assert file.metadata["calibration"]["scores"] != model._fitted.header["calibration"]["scores"]
    assert (
        f"accuracy {100 * file.metadata['calibration']['accuracy']:.1f} %" in file.metadata["card"]
    )


@pytest.mark.slow
def test_learners_that_are_one_are_one_pass(new_model: New, lesson: Lesson, tmp_path: Path) -> None:
    """After one session; and where nothing is kept of what the fast learner has learned."""
    for number, sessions in enumerate((("abcd",), ("abcd", "ef"))):
        model = new_model()
        kept = taught(model, lesson, tmp_path / f"{number}.safecl", sessions)
        if len(sessions) > 1:
            tensors = kept.state.tensors
            for name in [name for name in tensors if name.startswith("fast.")]:
                tensors[name] = tensors[name.replace("fast.", "slow.", 1)].clone()
        export_onnx(kept, tmp_path / "m.onnx", force=True)
        kinds = Counter(node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node)
        assert kinds["LayerNormalization"] == 2 * 2 + 1, sessions
        pictures = lesson("abef", 2, seed=4)[0]
        same(
            ExportedModel(tmp_path / "m.onnx").explain(pictures),
            ContinualClassifier.of(kept).explain(pictures),
            1e-4,
        )


PETS = ("ssf", "adapter", "vpt_deep", "vpt_shallow", "lora", "none")
GRID = [*((method, pet) for method in ("safe", "ranpac") for pet in PETS), ("simplecil", None)]


@pytest.fixture(scope="module")
def photographs(
    asset: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ArrayPictures]:
    """Of five kinds of flowers eight to learn, in two sessions, and 200 of these and others to ask
    about.
    """
    import zipfile

    folder = tmp_path_factory.mktemp("flowers")
    with zipfile.ZipFile(asset("pictures/flowers102_20x12.zip")) as archive:
        archive.extractall(folder)
    train = sorted(folder.glob("**/train"))[0]
    test = sorted(folder.glob("**/test"))[0]
    classes = sorted(kind.name for kind in train.iterdir())[:5]
    learned = [
        [file for c in part for file in sorted((train / c).iterdir())[:8]]
        for part in (classes[:3], classes[3:])
    ]
    files = {"first": learned[0], "second": learned[1], "asked": sorted(test.glob("*/*"))[:200]}
    return {name: squares(chosen) for name, chosen in files.items()}


def squares(files: list[Path]) -> ArrayPictures:
    images = [np.asarray(Image.open(file).convert("RGB").resize((112, 112))) for file in files]
    return ArrayPictures(np.stack(images), [file.parent.name for file in files])


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["micro", "vit_tiny_augreg"])
@pytest.mark.parametrize(("method", "pet"), GRID)
def test_200_photographs_get_the_answers_of_the_model(
    method: str,
    pet: str | None,
    backbone: str,
    photographs: dict[str, ArrayPictures],
    asset: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In fp32 and fp16; in int8 99 % of them the same, or there is no file. The network is traced
    once.
    """
    settings: dict[str, Any] = {}
    if method != "simplecil":
        settings |= {"train.lr": 0.05, "method.ridge.size": 500}
    if method == "safe":
        settings |= {"beyond": 0}
    name = "micro"
    side = 64
    if backbone != "micro":
        name = "vit_tiny_patch16_224"
        side = 96
        settings |= {"backbone.weights": str(asset(f"weights/{backbone}.safetensors"))}
    epochs = None if method == "simplecil" else 1
    model = ContinualClassifier(
        name, method, pet, epochs=epochs, image_size=side, device="cpu", settings=settings
    )
    for part in ("first", "second"):
        model.learn(photographs[part].arrays, photographs[part].labels)
    model.save(tmp_path / "m.safecl")
    traced = list[Any]()
    trace = export._graph
    monkeypatch.setattr(
        export,
        "_graph",
        lambda *given: copy.deepcopy((traced or [traced.append(trace(*given))]) and traced[0]),
    )
    asked = photographs["asked"]
    theirs = model.explain(asked.arrays)
    for precision, within in (("fp32", 1e-4), ("fp16", 1e-2)):
        export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / f"{precision}.onnx", precision)
        ours = ExportedModel(tmp_path / f"{precision}.onnx").explain(asked.arrays)
        same(ours, theirs, within)
        pairs = [(a.nearest[0], b.nearest[0]) for a, b in zip(ours, theirs, strict=True)]
        equal = sum(a[0] == b[0] for a, b in pairs)
        furthest = max(abs(a[1] - b[1]) for a, b in pairs)
        print(f"{precision}: {equal} of 200 answers are the same, probabilities to {furthest:.1g}")
    try:
        check = export_onnx(
            Model.open(tmp_path / "m.safecl"), tmp_path / "int8.onnx", "int8", None, asked
        )
    except SafeclError as error:
        assert (
            "% of the answers to 200 pictures are the same (99 % are needed; not: picture"
            in str(error)
        )
        assert not (tmp_path / "int8.onnx").exists()
        print(error)
    else:
        assert check.pictures == 200 and check.agreement >= 0.99
        print(f"int8: {check}")


@pytest.mark.slow
@pytest.mark.parametrize("method", method_settings())
def test_every_method_is_exported_or_says_why_not(
    method: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    quick = {"slca": {"method.align_epochs": 1, "method.align_samples": 4}}.get(method, {})
    model = new_model(method, settings=quick)
    kept = taught(model, lesson, tmp_path / "m.safecl")
    export_onnx(kept, tmp_path / "m.onnx")
    pictures = lesson("abcdef", 3, seed=5)[0]
    same(ExportedModel(tmp_path / "m.onnx").explain(pictures), model.explain(pictures), 1e-4)

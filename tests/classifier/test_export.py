"""What is exported answers as the model does, or is refused with a number; every PET, method and precision."""

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from safecl.classifier import export
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.export import export_onnx
from safecl.classifier.model import Model
from safecl.cli.main import app
from safecl.errors import SafeclError
from safecl.methods.catalog import method_settings
from safecl.outputs import check_output
from safecl.runtime.model import ExportedModel
from safecl.streams.pictures.images import ArrayPictures

onnx = pytest.importorskip("onnx")
New, Lesson = Callable[..., ContinualClassifier], Callable[..., Any]


def same(file: ExportedModel, model: ContinualClassifier, pictures: np.ndarray, within: float) -> None:
    """The same answers, and probabilities within a tolerance."""
    ours, theirs = (each.explain(pictures) for each in (file, model))
    assert [(a.label, a.unknown) for a in ours] == [(a.label, a.unknown) for a in theirs]
    assert np.abs(file.predict_proba(pictures) - model.predict_proba(pictures)).max() < within
    for a, b in zip(ours, theirs, strict=True):
        assert a.weights == pytest.approx(b.weights, abs=max(within, 1e-3))
        for name in model.outputs:
            assert dict(a.opinions[name]) == pytest.approx(dict(b.opinions[name]), abs=within), name


def changed(path: Path, out: Path, change: Callable[[Any], Any]) -> ExportedModel:
    """An exported file in another precision, without tracing the network again."""
    proto = onnx.load(path)
    onnx.save(change(proto) or proto, out)
    return ExportedModel(out)


def in_half(proto: Any) -> None:
    export._store_half(onnx, proto)


def test_learners_share_what_they_have_in_common(exported: tuple[Path, Path]) -> None:
    proto = onnx.load(exported[1])
    kinds = Counter(node.op_type for node in proto.graph.node)
    assert kinds["LayerNormalization"] == 2 * (2 * 2 + 1)  # of two learners, two blocks each
    cells = [tensor for tensor in proto.graph.initializer if np.prod(tensor.dims) == 64 * 3 * 16 * 16]
    assert len(cells) == 1, "the frozen patch embedding is there once"
    assert [value.name for value in proto.graph.input] == ["pictures"]
    check_output(exported[1], "onnx")  # known as ours, so a later export replaces it


def test_half_the_bytes_give_the_same_answers(exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path) -> None:
    model, file = ContinualClassifier.load(exported[0]), changed(exported[1], tmp_path / "half.onnx", in_half)
    assert file.path.stat().st_size < 0.6 * exported[1].stat().st_size
    same(file, model, lesson("abcdef", 3, seed=5)[0], 1e-2)


def test_int8_changes_the_network_and_leaves_the_heads(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    def quantised(proto: Any) -> Any:
        return export._quantised(onnx, proto, tmp_path / "work.onnx")

    file = changed(exported[1], tmp_path / "int8.onnx", quantised)
    before, after = (Counter(n.op_type for n in onnx.load(path).graph.node) for path in (exported[1], file.path))
    assert after["MatMulInteger"] == before["MatMul"] - after["MatMul"] > 0
    kept = {t.name: t for t in onnx.load(file.path).graph.initializer}
    assert all(kept[name].data_type == onnx.TensorProto.FLOAT for name in kept if "ridge" in name)
    pictures = lesson("abcdef", 3, seed=5)[0]
    near = np.abs(file.predict_proba(pictures) - ContinualClassifier.load(exported[0]).predict_proba(pictures))
    assert 0 < near.max() < 0.2


def test_a_file_that_answers_otherwise_is_not_written(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the graph of an earlier export, and the heads of one learner exchanged."""
    proto = onnx.load(exported[1])
    weight = next(tensor for tensor in proto.graph.initializer if tensor.name.endswith("ridge_slow.weight"))
    values = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(-values, weight.name))
    del proto.metadata_props[:]
    for part in (proto.graph.output, proto.graph.node, proto.graph.initializer):  # what ``_describe`` adds
        for item in [x for x in part if x.name in ("labels", "classes", "best", "nearest")]:
            part.remove(item)
    monkeypatch.setattr(export, "_graph", lambda *_: copy.deepcopy(proto))
    pictures = ArrayPictures(*lesson("abcdef", 3, seed=5))
    for precision in ("fp32", "fp16"):
        with pytest.raises(
            SafeclError, match=r"answers otherwise than the model: \d+\.\d % of the answers to 18 pictures"
        ):
            export_onnx(Model.open(exported[0]), tmp_path / "wrong.onnx", precision, None, pictures)
    weight.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(np.nan), weight.name))
    monkeypatch.setattr(export, "MIN_AGREEMENT", 0.0)
    with pytest.raises(SafeclError, match="probabilities differ by up to inf"):
        export_onnx(Model.open(exported[0]), tmp_path / "wrong.onnx", "fp32", None, pictures)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "m.safecl"], "Give the onnx file a name that ends in .onnx, such as m.onnx."),
        (["-o", "m.onnx", "--precision", "int8"], "give some of yours: --pictures FOLDER"),
        (["-o", "m.onnx", "--learner", "quick"], "There is no learner 'quick'"),
        (["-o", "there.onnx"], "there.onnx is no onnx of safecl, so it is not replaced"),
        (["-o", "none/m.onnx"], "There is no folder none"),
        (["-o", "m.onnx", "--pictures", "none"], "none"),
    ],
)
def test_what_cannot_be_exported_gets_a_sentence(
    exported: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.onnx").write_bytes(b"mine")
    found = CliRunner().invoke(app, ["export", str(exported[0]), *words])
    assert isinstance(found.exception, SafeclError) and sentence in str(found.exception), found.exception
    assert Path("there.onnx").read_bytes() == b"mine"


def test_the_learner_of_a_frozen_model_cannot_be_calibrated(exported: tuple[Path, Path], tmp_path: Path) -> None:
    model = ContinualClassifier.load(exported[0])
    model.save(tmp_path / "frozen.safecl", frozen=True)
    with pytest.raises(SafeclError, match="A frozen model is calibrated for safe alone"):
        export_onnx(Model.open(tmp_path / "frozen.safecl"), tmp_path / "m.onnx", learner="slow")


def taught(model: ContinualClassifier, lesson: Lesson, path: Path, sessions: tuple[str, ...] = ("abcd", "ef")) -> Model:
    for number, classes in enumerate(sessions):
        model.learn(*lesson(classes, 6, seed=number))
    model.save(path, force=True)
    return Model.open(path)


@pytest.mark.slow
def test_one_learner_alone_is_one_pass_calibrated_by_itself(
    exported: tuple[Path, Path], lesson: Lesson, tmp_path: Path
) -> None:
    kept = Model.open(exported[0])
    kept.header["calibration"] = {**kept.header["calibration"], "accuracy": 0.123}  # of both learners together
    export_onnx(kept, tmp_path / "slow.onnx", learner="slow")
    file, model = ExportedModel(tmp_path / "slow.onnx"), ContinualClassifier.load(exported[0])
    pictures = lesson("abcdef", 3, seed=5)[0]
    assert file.outputs == ("slow",) and [a.label for a in file.explain(pictures)] == [
        answer.opinions["slow"][0][0] for answer in model.explain(pictures)
    ]
    kinds = Counter(node.op_type for node in onnx.load(file.path).graph.node)
    assert kinds["LayerNormalization"] == 2 * 2 + 1
    assert file.metadata["calibration"]["scores"] != model._fitted.header["calibration"]["scores"]
    assert f"accuracy {100 * file.metadata['calibration']['accuracy']:.1f} %" in file.metadata["card"]


@pytest.mark.slow
def test_learners_that_are_one_are_one_pass(new_model: New, lesson: Lesson, two_blocks: Path, tmp_path: Path) -> None:
    """After one session; and where nothing is kept of what the fast learner has learned."""
    weights = {"backbone.weights": str(two_blocks)}
    for number, sessions in enumerate((("abcd",), ("abcd", "ef"))):
        model = new_model(settings=weights)
        kept = taught(model, lesson, tmp_path / f"{number}.safecl", sessions)
        if len(sessions) > 1:
            tensors = kept.state.tensors
            for name in [name for name in tensors if name.startswith("fast.")]:
                tensors[name] = tensors[name.replace("fast.", "slow.", 1)].clone()
        export_onnx(kept, tmp_path / "m.onnx", force=True)
        kinds = Counter(node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node)
        assert kinds["LayerNormalization"] == 2 * 2 + 1, sessions
        same(ExportedModel(tmp_path / "m.onnx"), ContinualClassifier.of(kept), lesson("abef", 2, seed=4)[0], 1e-4)


PETS = ("ssf", "adapter", "vpt_deep", "vpt_shallow", "lora", "none")
GRID = [*((method, pet) for method in ("safe", "ranpac") for pet in PETS), ("simplecil", None)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "pet"), GRID)
def test_every_pet_on_the_embedded_backbone(method: str, pet: str | None, lesson: Lesson, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"train.lr": 0.05}
    if method != "simplecil":
        settings |= {"method.ridge.size": 300}
    if method == "safe":
        settings |= {"method.policy.pilot": False}
    model = ContinualClassifier("micro", method, pet, epochs=1, image_size=64, device="cpu", settings=settings)
    kept = taught(model, lesson, tmp_path / "m.safecl")
    export_onnx(kept, tmp_path / "m.onnx")
    pictures = np.concatenate([lesson("abcdef", 4, seed=5)[0], lesson("xyz", 2)[0]])
    same(ExportedModel(tmp_path / "m.onnx"), model, pictures, 1e-4)
    same(changed(tmp_path / "m.onnx", tmp_path / "half.onnx", in_half), model, pictures[:24], 1e-2)  # no near ties


@pytest.mark.slow
@pytest.mark.parametrize("method", method_settings())
def test_every_method_is_exported_or_says_why_not(
    method: str, new_model: New, lesson: Lesson, two_blocks: Path, tmp_path: Path
) -> None:
    quick = {"slca": {"method.align_epochs": 1, "method.align_samples": 4}}.get(method, {})
    model = new_model(method, settings={"backbone.weights": str(two_blocks), **quick})
    kept = taught(model, lesson, tmp_path / "m.safecl")
    export_onnx(kept, tmp_path / "m.onnx")
    same(ExportedModel(tmp_path / "m.onnx"), model, lesson("abcdef", 3, seed=5)[0], 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["vit_tiny_augreg", "micro"])
def test_real_weights_and_pictures(backbone: str, asset: Callable[[str], Path], tmp_path: Path) -> None:
    """200 photographs: fp32 and fp16 answer the same, int8 99 % the same or not at all."""
    import zipfile

    with zipfile.ZipFile(asset("pictures/flowers102_20x12.zip")) as archive:
        archive.extractall(tmp_path / "flowers")
    train, test = sorted(tmp_path.glob("flowers/**/train"))[0], sorted(tmp_path.glob("flowers/**/test"))[0]
    classes = sorted(folder.name for folder in train.iterdir())[:12]
    settings: dict[str, Any] = {"method.ridge.size": 1000, "method.policy.pilot": False}
    if backbone != "micro":
        settings |= {"backbone.weights": str(asset(f"weights/{backbone}.safetensors"))}
    name = "micro" if backbone == "micro" else "vit_tiny_patch16_224"
    model = ContinualClassifier(name, epochs=1, device="cpu", settings=settings)
    for part in (classes[:8], classes[8:]):
        model.learn([(str(file), c) for c in part for file in sorted((train / c).iterdir())[:8]])
    model.save(tmp_path / "m.safecl")
    pictures = [str(file) for file in sorted(test.glob("*/*"))[:200]]
    theirs, p = model.explain(pictures), model.predict_proba(pictures)
    export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx")
    files = {"fp32": (ExportedModel(tmp_path / "m.onnx"), 1e-4)}
    files["fp16"] = changed(tmp_path / "m.onnx", tmp_path / "half.onnx", in_half), 1e-2
    for file, within in files.values():
        assert np.abs(file.predict_proba(pictures) - p).max() < within
        assert [(a.label, a.unknown) for a in file.explain(pictures)] == [(a.label, a.unknown) for a in theirs]

    def quantised(proto: Any) -> Any:
        return export._quantised(onnx, proto, tmp_path / "work.onnx")

    int8 = changed(tmp_path / "m.onnx", tmp_path / "int8.onnx", quantised).explain(pictures)
    agreement = np.mean([(a.label, a.unknown) == (b.label, b.unknown) for a, b in zip(int8, theirs, strict=True)])
    print(f"int8 on {backbone}: {100 * agreement:.1f} % of 200 answers")
    assert agreement > 0.9

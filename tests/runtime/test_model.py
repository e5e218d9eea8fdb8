"""An exported model answers as the model it was made from, without what learning needs; other files
get a sentence.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import safecl
from safecl.classifier.classifier import ContinualClassifier
from safecl.cli.answer_words import predict_all
from safecl.errors import SafeclError
from safecl.runtime.model import ExportedModel
from safecl.runtime.seal import sealed
from tests.conftest import raises

Both = tuple[ContinualClassifier, ExportedModel]


@pytest.fixture(scope="module")
def both(exported: tuple[Path, Path]) -> Both:
    model, file = (safecl.load(path) for path in exported)
    assert isinstance(model, ContinualClassifier) and isinstance(file, ExportedModel)
    return model, file


def test_the_file_answers_as_the_model(both: Both, lesson: Callable[..., Any]) -> None:
    model, file = both
    pictures = np.concatenate([lesson("abcdef", 3, seed=5)[0], lesson("xyz", 2)[0]])
    assert np.abs(file.predict_proba(pictures) - model.predict_proba(pictures)).max() < 1e-5
    assert (
        file.classes_.tolist() == model.classes_.tolist()
        and file.outputs == model._snapshot().outputs
    )
    assert (file.predict(pictures) == model.predict(pictures)).all()
    assert file.predict_sets(pictures, 0.8) == model.predict_sets(pictures, 0.8)
    for each in both:
        with raises("answer.sets.cannot-tell", coverage=0.999):
            each.predict_sets(pictures, 0.999)
    for rate in (0.05, 0.3):
        ours = file.explain(pictures, unknown=rate)
        theirs = model.explain(pictures, unknown=rate)
        assert [answer.unknown for answer in ours] == [answer.unknown for answer in theirs]
        assert (file.predict(pictures, unknown=rate) == model.predict(pictures, unknown=rate)).all()
        for a, b in zip(ours, theirs, strict=True):
            assert (
                a.label == b.label
                and a.threshold == pytest.approx(b.threshold)
                and a.opinions.keys() == b.opinions.keys()
            )
            assert a.weights == pytest.approx(b.weights, abs=1e-5) and a.score == pytest.approx(
                b.score, abs=1e-4
            )
            assert [label for label, _ in a.opinions["fast"]][:2] == [
                label for label, _ in b.opinions["fast"]
            ][:2]
    assert any(answer.unknown for answer in ours) and not all(answer.unknown for answer in ours)


def test_one_picture_in_any_form_gets_one_answer(
    both: Both, lesson: Callable[..., Any], tmp_path: Path
) -> None:
    model, file = both
    array = lesson("c", 1)[0][0]
    Image.fromarray(array).save(tmp_path / "c.png")
    forms = [
        array,
        array[None],
        [array],
        Image.fromarray(array),
        tmp_path / "c.png",
        [str(tmp_path / "c.png")],
        tmp_path,
    ]
    forms += [
        array[None] / 255,
        np.array([str(tmp_path / "c.png")]),
        array[None].transpose(0, 3, 1, 2),
    ]
    assert {file.predict(form).tolist()[0] for form in forms} == {model.predict(array)[0]}
    for form in (
        array,
        array.transpose(2, 0, 1),
        torch.from_numpy(array),
        torch.from_numpy(array).permute(2, 0, 1),
    ):
        for each in (form, form / 255, form[None], [form]):
            assert (
                file.predict(each).tolist()
                == model.predict(each).tolist()
                == model.predict(array).tolist()
            )
    for each in both:
        with raises("picture.unreadable", where="0"):
            each.predict([np.zeros((5, 6, 7), dtype=np.uint8)])
    assert len(file.predict([])) == 0 and file.predict_proba([]).shape == (0, 6)
    with raises("exported.no-picture", name="int"):
        file.predict(3)


def test_a_dark_16_bit_scan_is_as_dark_whatever_holds_it(both: Both, tmp_path: Path) -> None:
    """The answer is that to the same picture in 8 bits, of the model and of the file that was
    exported from it.
    """
    dark = np.random.default_rng(0).integers(0, 4000, (1, 20, 24)).astype(np.uint16)
    scan = Image.fromarray(dark[0])
    files = [tmp_path / f"dark.{ending}" for ending in ("png", "tif", "pgm")]
    for file in files:
        scan.save(file)
    for each in both:
        expected = each.predict_proba((dark / 257).round().astype(np.uint8))
        for form in (*files, scan, dark, list(dark), torch.from_numpy(dark)):
            assert (each.predict_proba(form) == expected).all()


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of every kind that are prepared in their own way."""
    folder = tmp_path_factory.mktemp("odd")
    random = np.random.default_rng(3)
    noise = Image.fromarray(random.integers(0, 256, (6, 4, 3), dtype=np.uint8)).resize((60, 90))
    turned = Image.Exif()
    turned[0x0112] = 6
    noise.save(folder / "turned.jpg", exif=turned)
    noise.convert("L").save(folder / "grey.png")
    noise.convert("RGBA").save(folder / "rgba.png")
    noise.convert("P").save(folder / "palette.gif")
    Image.fromarray(np.asarray(noise.convert("L")).astype(np.uint16) * 257).save(
        folder / "deep.png"
    )
    noise.resize((1, 1)).save(folder / "dot.png")
    noise.resize((8000, 10)).save(folder / "strip.png")
    noise.resize((17, 500)).save(folder / "high.png")
    noise.resize((18, 19)).save(folder / "resized.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


@pytest.mark.parametrize("form", ["jsonl", "csv", "table"])
def test_odd_pictures_get_the_same_lines(
    both: Both, odd: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for model in (both[0]._snapshot(), both[1]):
        assert (
            predict_all(
                [str(odd)],
                model,
                Path("m"),
                0.05,
                form,
                (lambda *_: None) if form == "csv" else None,
            )
            == 2
        )
        said.append(capsys.readouterr())
    assert said[0].err == said[1].err and "strip of 8000 × 10 pixels" in said[0].err
    if form != "jsonl":  # numbers may differ in the last digit
        assert len(said[0].out.splitlines()) == len(said[1].out.splitlines()) >= 10
        return
    lines = [[json.loads(line) for line in each.out.splitlines()] for each in said]
    assert len(lines[0]) == 10
    for a, b in zip(*lines, strict=True):
        assert a.keys() == b.keys() and a.pop("probability", 0) == pytest.approx(
            b.pop("probability", 0), abs=1e-5
        )
        assert a == b


def test_the_graph_alone_prepares_pictures_of_any_size(both: Both) -> None:
    """Its resize is Pillow's up to one level of a few pixels."""
    model, file = both
    random = np.random.default_rng(1)
    for height, width in ((1, 1), (16, 16), (18, 18), (19, 40), (200, 130), (64, 1000)):
        picture = np.asarray(
            Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize(
                (width, height)
            )
        )
        p, nearest, classes = file._session.run(
            ["probabilities", "nearest", "classes"], {"pictures": picture[None]}
        )
        found = model.predict_proba(picture[None])
        assert np.abs(p - found).max() < 2e-3, (height, width)
        assert nearest.tolist() == model.predict(
            picture[None]
        ).tolist() and classes.tolist() == list("abcdef")


def test_the_plain_script_of_the_documents_answers_as_the_package(
    exported: tuple[Path, Path],
    both: Both,
    odd: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")
    script = (
        document.partition("## A plain script")[2].partition("```python\n")[2].partition("```")[0]
    )
    monkeypatch.chdir(tmp_path)
    for calibrated in (True, False):
        calibrated_or_not(exported[1], calibrated, tmp_path / "flowers.onnx")
        names = [str(file) for file in sorted(odd.iterdir()) if file.stem != "broken"]
        monkeypatch.setattr(sys, "argv", ["script.py", *names])
        exec(compile(script, "script.py", "exec"), {})
        for name, line in zip(names, capsys.readouterr().out.splitlines(), strict=True):
            if "strip" in name:
                assert line.endswith("is a strip, which no model has learned")
                continue
            (answer,) = both[1].explain(name)
            words = answer.told.partition(" (most")[0].replace(" %", "%")
            assert line == f"{name} {words if calibrated or answer.unknown else answer.label}"


def calibrated_or_not(path: Path, calibrated: bool, out: Path) -> None:
    """Write what was exported as the file of a model that is calibrated or not."""
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(path)
    (trust,) = (tensor for tensor in proto.graph.initializer if tensor.name == "trust")
    trust.CopyFrom(onnx.numpy_helper.from_array(np.array(calibrated), "trust"))
    onnx.save(proto, out)


HOOK = """
import sys
HEAVY = (
    "torch", "torchvision", "timm", "sklearn", "scipy", "pydantic",
    "accelerate", "rich", "typer", "onnx", "yaml",
)
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"{name} is not needed to answer", name=name)
sys.meta_path.insert(0, Refuse())
import safecl, json
model = safecl.load(sys.argv[1])
print(json.dumps([[answer.label, answer.unknown] for answer in model.explain(sys.argv[2])]))
try:
    safecl.load(sys.argv[3])
except safecl.SafeclError as error:
    print(error)
from safecl.__main__ import main
main()
"""


def test_an_environment_without_torch_answers(
    exported: tuple[Path, Path], both: Both, odd: Path, lesson: Callable[..., Any], tmp_path: Path
) -> None:
    for i, array in enumerate(lesson("abcdef", 1)[0]):
        Image.fromarray(array).save(tmp_path / f"{i}.png")
    ran = subprocess.run(
        [sys.executable, "-c", HOOK, exported[1], tmp_path, exported[0]],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2, ran.stderr
    answers, refused = ran.stdout.splitlines()
    assert json.loads(answers) == [[a.label, a.unknown] for a in both[0].explain(tmp_path)]
    told = "which is not installed here; 'pip install safecl' installs it."
    assert refused in (f"This needs pydantic, {told}", f"This needs torch, {told}")
    assert ran.stderr == f"safecl: This needs typer, {told}\n", "the command line says it, too"


@pytest.mark.slow
def test_three_packages_are_enough(exported: tuple[Path, Path], odd: Path, tmp_path: Path) -> None:
    """A virtual environment with numpy, pillow and onnxruntime, and what they need themselves."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "numpy", "pillow", "onnxruntime"]
    if subprocess.run(install, capture_output=True, timeout=300).returncode:
        pytest.skip("no packages can be installed here")
    program = "import safecl, sys; print(safecl.load(sys.argv[1]).predict(sys.argv[2]).tolist())"
    source = str(Path(safecl.__file__).parents[1])
    ran = subprocess.run(
        [python, "-c", program, exported[1], odd / "grey.png"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": source, "PATH": ""},
    )
    assert ran.returncode == 0 and ran.stdout.strip() in {f"['{label}']" for label in "abcdef"}, (
        ran.stderr
    )


def test_predict_reads_no_torch_for_an_exported_file(
    exported: tuple[Path, Path], odd: Path, tmp_path: Path
) -> None:
    program = """
import sys
from safecl.cli.main import main
sys.argv = ["safecl", "predict", sys.argv[1], "--model", sys.argv[2], "--format", "jsonl"]
try:
    main()
finally:
    assert not {"torch", "timm", "sklearn", "scipy"} & sys.modules.keys()
"""
    command = [sys.executable, "-c", program, odd / "grey.png", exported[1]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and json.loads(ran.stdout)["label"] in "abcdef", ran.stderr


def changed(path: Path, out: Path, **facts: Any) -> Path:
    """The file with other metadata; None removes a key."""
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(path)
    there = {prop.key: prop.value for prop in proto.metadata_props}
    for key, value in facts.items():
        there.pop(key)
        if value is not None:
            there[key] = json.dumps(value)
    onnx.helper.set_model_props(proto, there)
    onnx.save(proto, out)
    return out


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"classes": ["a", "b"], "calibration": {}}, "2 classes, and probabilities of"),
        ({"classes": ["a", "b"]}, "scores of other classes"),
        ({"classes": ["a"] * 6}, "not different words or numbers"),
        ({"classes": [["a"], "b", "c", "d", "e", "f"]}, "not different words or numbers"),
        ({"classes": None}, "no 'classes'"),
        ({"history": None}, "no 'history'"),
        ({"size": 99}, "99 out of 18 pixels"),
        ({"size": "16"}, ""),
        ({"outputs": ["quick", "safe"]}, "no 'probabilities_quick'"),
        ({"outputs": []}, ""),
        ({"calibration": {"scores": "abc"}}, ""),
        ({"calibration": [1]}, ""),
        ({"calibration": {"scores": [[]] * 6, "temperature": None}}, "no 'pictures'"),
        ({"format": 99}, None),
        ({"safecl": None}, None),
        (
            {"calibration": {"scores": [[math.nan]] * 6, "temperature": 1.0, "pictures": 9}},
            "NaN in the place of a number",
        ),
    ],
)
def test_metadata_that_lies_gets_a_sentence(
    exported: tuple[Path, Path], tmp_path: Path, facts: dict[str, Any], reason: str | None
) -> None:
    file = changed(exported[1], tmp_path / "lies.onnx", **facts)
    refused = partial(raises, "exported.facts.damaged", reason=re.compile(reason or ""))
    if reason is None:
        refused = partial(raises, f"exported.file.{'newer' if 'format' in facts else 'foreign'}")
    with refused():
        safecl.load(file, trust=True)
    altered = partial(
        raises, "exported.file.altered", why=re.compile("^its digest is not that of what")
    )
    with refused() if facts == {"safecl": None} else altered():
        safecl.load(file)
    file.write_bytes(sealed(unsealed(file)))  # whoever means it makes a digest, too
    with refused():
        safecl.load(file)


def unsealed(path: Path) -> bytes:
    """A file without its digest."""
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(path)
    for prop in [one for one in proto.metadata_props if one.key == "digest"]:
        proto.metadata_props.remove(prop)
    return bytes(proto.SerializeToString())


def test_damaged_truncated_and_foreign_files_get_a_sentence(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    whole = exported[1].read_bytes()
    path = tmp_path / "m.onnx"
    spoilt = [
        b"",
        b"no model",
        whole[: len(whole) // 2],
        whole[:-100],
        whole[:200],
        exported[0].read_bytes(),
    ]
    spoilt.append(whole[:5000] + bytes(2000) + whole[7000:])
    for data in spoilt:
        path.write_bytes(data)
        with pytest.raises(SafeclError) as refused:
            safecl.load(path)
        assert str(refused.value.fields["path"]) == str(path)
    with raises("exported.file.missing"):
        safecl.load(tmp_path / "none.onnx")
    with raises("exported.device.missing", provider="CUDAExecutionProvider"):
        ExportedModel(exported[1], device="cuda")
    with raises("name.unknown.near", what="device", given="gpu"):
        ExportedModel(exported[1], device="gpu")


def test_a_graph_with_another_input_gets_a_sentence(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(exported[1])
    proto.graph.input[0].name = "images"
    for node in proto.graph.node:
        node.input[:] = ["images" if name == "pictures" else name for name in node.input]
    onnx.save(proto, tmp_path / "m.onnx")
    with raises(
        "exported.facts.damaged", reason=re.compile("its input is called images, not pictures")
    ):
        safecl.load(tmp_path / "m.onnx", trust=True)
    (tmp_path / "m.onnx").write_bytes(sealed(unsealed(tmp_path / "m.onnx")))
    with raises("exported.not-read", error=re.compile("nothing makes 'images', which it reads")):
        safecl.load(tmp_path / "m.onnx")

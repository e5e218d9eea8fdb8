"""A learner that timm loads, the weights of everything, and a model on a hub."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.classifier.answers.weights import export_safetensors, export_timm
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import unlabelled
from safecl.classifier.model import Model
from safecl.cli.main import app
from safecl.heads.reading import Reading
from safecl.learner import Learner
from safecl.methods.method import all_logits
from tests.conftest import raises, tells

Lesson = Callable[..., Any]


@pytest.fixture(scope="module")
def taught(
    new_model: Callable[..., ContinualClassifier], lesson: Lesson, tmp_path_factory: Any
) -> Callable[..., Path]:
    """``taught("ranpac", "lora")``: the file of a model whose tuning has moved."""
    folder = tmp_path_factory.mktemp("models")

    def make(method: str, pet: str | None = None) -> Path:
        path = folder / f"{method}_{pet}.safecl"
        if not path.exists():
            model = new_model(
                method, pet=pet, settings={} if method == "simplecil" else {"train.lr": 0.2}
            )
            model.learn(*lesson("abc", 4))
            if method == "safe":
                model.learn(*lesson("de", 4))
            model.save(path)
        return path

    return make


@pytest.mark.parametrize(
    ("method", "pet", "learner"),
    [
        ("ranpac", "ssf", None),
        ("ranpac", "lora", "learner"),
        ("safe", "ssf", "fast"),
        ("simplecil", None, None),
    ],
)
def test_timm_gives_the_features_of_the_learner(
    method: str, pet: str | None, learner: str | None, taught: Callable[..., Path], tmp_path: Path
) -> None:
    model = Model.open(taught(method, pet))
    path = tmp_path / "tuned.safetensors"
    assert export_timm(model, path, learner) < 1e-5
    vit = timm.create_model("test_vit", num_classes=0, img_size=16, depth=2)
    vit.load_state_dict(load_file(path))
    backbone = load_backbone(str(path))  # it is a weight file of safecl, too
    images = torch.rand(3, 3, 16, 16)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (backbone.mean, backbone.std))
    with torch.no_grad():
        found = vit.eval().forward_features((images - mean) / std)[:, 0]
        known = model.method(load_backbone(model.settings.backbone))
        network = known.get_submodule(learner or "learner") if pet else known.backbone
        wanted = network.features(images)
        plain = known.backbone.features(images)
        assert torch.allclose(backbone.features(images), wanted, atol=1e-4)
    assert torch.allclose(found, wanted, atol=1e-4)
    assert pet is None or not torch.allclose(plain, wanted, atol=1e-3), "nothing was tuned"


def test_what_timm_cannot_take_gets_a_sentence(taught: Callable[..., Path], tmp_path: Path) -> None:
    for words, refused in (
        (
            (taught("safe", "ssf"), None),
            partial(raises, "export.timm.several-learners", learners="slow or fast"),
        ),
        (
            (taught("safe", "ssf"), "safe"),
            partial(raises, "name.unknown", what="learner", given="safe"),
        ),
        (
            (taught("ranpac", "adapter"), None),
            partial(raises, "export.timm.beside", kind="adapter"),
        ),
        (
            (taught("simplecil"), "slow"),
            partial(raises, "name.unknown", what="learner", given="slow"),
        ),
    ):
        with refused():
            export_timm(Model.open(words[0]), tmp_path / "t.safetensors", words[1])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "pet", "head"),
    [
        ("ranpac", "ssf", "ridge."),
        ("ranpac", "adapter", "ridge."),
        ("ranpac", "vpt_deep", "ridge."),
        ("loranpac", "ssf", ""),
    ],
)
def test_safetensors_hold_all_that_answers(
    method: str, pet: str, head: str, taught: Callable[..., Path], lesson: Lesson, tmp_path: Path
) -> None:
    """Logits from the tensors alone: by timm, the PET where it is not merged, and matrix
    products.
    """
    path = tmp_path / "all.safetensors"
    model = Model.open(taught(method, pet))
    export_safetensors(model, path)
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    assert json.loads(facts["classes"]) == model.classes == ["a", "b", "c"]
    assert "# 3 classes" in facts["card"] and not any(
        "gram" in name or "sums" in name for name in tensors
    )
    weights = Path(model.settings.backbone.weights or "")
    assert json.loads(facts["settings"]) == {
        **model.header["settings"],
        "backbone": {**model.header["settings"]["backbone"], "weights": weights.name},
    }
    assert weights.parent != Path() and str(weights.parent).encode() not in path.read_bytes()

    def part(prefix: str) -> dict[str, torch.Tensor]:
        return {
            name.removeprefix(prefix): value
            for name, value in tensors.items()
            if name.startswith(prefix)
        }

    vit = timm.create_model("test_vit", num_classes=0, img_size=16, depth=2).eval()
    vit.load_state_dict(part("learner." if pet == "ssf" else "backbone."))
    mean, std = (
        json.loads(facts[key].replace("(", "[").replace(")", "]")) for key in ("mean", "std")
    )
    arrays = lesson("abc", 2, seed=3)[0]
    views = unlabelled(arrays).plain(range(len(arrays)), model.transform).float() / 255
    with torch.no_grad():
        if pet == "ssf":
            scale, shift = (torch.tensor(each).view(3, 1, 1) for each in (std, mean))
            last, (one, two) = vit.forward_intermediates(
                (views - shift) / scale, return_prefix_tokens=True
            )
            # CLS of the block before, mean of the last patches
            tokens = (
                one[1][:, 0],
                two[0].flatten(2).mean(dim=2),
            )
            f = torch.cat([last[:, 0], *map(vit.norm, tokens)], dim=1)
        else:
            learner = Learner(
                Backbone(vit, "test_vit", 16, tuple(mean), tuple(std)),
                model.settings.method.pet,
                seed=9,
            )
            learner.load_state_dict(part("learner."))
            f = learner.read(views, Reading(layers=2, patches=True))
        projection, weight = (tensors[f"{head}{name}"] for name in ("projection", "weight"))
        # the features of the learner come first
        z = torch.relu(f[:, : len(projection)] @ projection) @ weight
        wanted = all_logits(model.method(load_backbone(model.settings.backbone)), views)[method]
    assert torch.allclose(z, wanted, atol=1e-4) and wanted.std(dim=1).min() > 1e-2


def test_safetensors_hold_the_untuned_backbone_where_it_answers(
    untuned: bool, new_model: Callable[..., ContinualClassifier], lesson: Lesson, tmp_path: Path
) -> None:
    """Logits of both that answer, from the tensors and timm alone."""
    reading = {
        "method.ridge.layers": 1,
        "method.ridge.patches": False,
        "method.ridge.mirror": False,
    }
    taught = new_model(settings={"beyond": 0.5, "train.lr": 0.2, **reading})
    for classes in ("abcd", "efgh"):
        taught.learn(*lesson(classes, 8))
    taught.save(tmp_path / "m.safecl")
    model = Model.open(tmp_path / "m.safecl")
    path = tmp_path / "all.safetensors"
    export_safetensors(model, path)
    tensors = load_file(path)
    method = model.method(load_backbone(model.settings.backbone))
    assert method.voices(method.sessions)["slow"].name == "untuned"
    arrays = lesson("ah", 2, seed=3)[0]
    views = unlabelled(arrays).plain(range(len(arrays)), model.transform).float() / 255
    mean, std = (
        torch.tensor(each).view(3, 1, 1) for each in (method.backbone.mean, method.backbone.std)
    )
    wanted = all_logits(method, views)
    for network, head, output in (
        ("backbone", "ridge_untuned", "slow"),
        ("fast", "ridge_fast", "fast"),
    ):
        vit = timm.create_model("test_vit", num_classes=0, img_size=16, depth=2).eval()
        vit.load_state_dict(
            {
                key.partition(".")[2]: each
                for key, each in tensors.items()
                if key.startswith(network)
            }
        )
        with torch.no_grad():
            f = vit.forward_features((views - mean) / std)[:, 0]
        z = torch.relu(f @ tensors[f"{head}.projection"]) @ tensors[f"{head}.weight"]
        temperature = model.settings.method.answer.temperature
        assert (
            torch.allclose(temperature * z, wanted[output], atol=1e-3)
            and wanted[output].std(dim=1).min() > 1e-2
        )


def test_options_and_files_of_another_kind_are_refused(
    taught: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.safetensors").write_bytes(np.arange(9).tobytes())
    model = str(taught("ranpac", "ssf"))
    for words, code, fields in (
        (
            ["-f", "timm", "-o", "mine.safetensors"],
            "output.not-ours",
            {"why": "is no safetensors of safecl"},
        ),
        (["-f", "timm", "-o", "t.onnx"], "command.export.suffix", {"suffix": ".safetensors"}),
        (
            ["-f", "timm", "-o", "t.safetensors", "--precision", "fp16"],
            "command.export.option-idle",
            {"option": "--precision", "form": "timm"},
        ),
        (
            ["-f", "safetensors", "-o", "t.safetensors", "--learner", "slow"],
            "command.export.option-idle",
            {"option": "--learner"},
        ),
    ):
        words[3] = str(tmp_path / words[3])
        found = CliRunner().invoke(app, ["export", model, *words])
        tells(found.exception, code, **fields)
    for _ in range(2):  # what is ours is replaced
        found = CliRunner().invoke(
            app, ["export", model, "-f", "timm", "-o", str(tmp_path / "t.safetensors")]
        )
        assert (
            found.exit_code == 0
            and "timm.create_model('test_vit') gives its features" in found.output
        )

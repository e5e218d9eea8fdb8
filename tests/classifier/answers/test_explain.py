"""A heat map shows which patches speak for a class, and lies on the picture where the model
looked.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.backbone.backbone import Backbone
from safecl.backbone.layers import Attention, watching
from safecl.classifier.answers.explain import Explanations, overlay, placed, relevance
from safecl.classifier.classifier import ContinualClassifier
from safecl.learner import Learner
from safecl.methods.catalog import method_settings
from safecl.methods.method import Method
from safecl.pet.settings import pet_settings
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import Transform, plain_view
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]


@pytest.mark.parametrize("size", [(60, 40), (40, 61), (33, 33), (200, 37)])
def test_a_map_lies_on_the_part_of_the_picture_that_the_model_saw(size: tuple[int, int]) -> None:
    """Pixels say where they are, so each patch of the view says where it comes from."""
    width, height = size
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    image = Image.fromarray(np.stack([x, y, x], axis=2).round().astype(np.uint8))
    transform = Transform(32)
    view = plain_view(image, transform).float().numpy()
    for row, column in ((1, 1), (2, 1), (1, 2)):
        heat = torch.zeros(4, 4)
        heat[row, column] = 1.0
        found = placed(heat, size, transform).numpy()
        assert found.shape == (height, width) and found.min() >= 0 and found.max() <= 1
        part = view[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8].mean(axis=(1, 2))
        centre = [(found * axis).sum() / found.sum() for axis in (x, y)]
        assert centre == pytest.approx(part[:2], abs=255 * 1.5 / min(size))


def test_what_is_cut_off_is_cold_and_dark() -> None:
    seen = placed(torch.ones(2, 2), (60, 30), Transform(32, margin=1.0))
    assert seen.shape == (30, 60) and (seen[:, 15:45] > 0.99).all() and (seen[:, :15] == 0).all()
    assert (seen[:, 45:] == 0).all()
    grey = Image.new("RGB", (60, 30), (200, 200, 200))
    drawn = np.asarray(overlay(grey, torch.zeros(30, 60), Transform(32, margin=1.0)))
    assert drawn.shape == (31, 60, 3)  # a scale of a twentieth below
    assert (drawn[:30, 20:40] == 200).all() and (drawn[:30, :15] == 70).all()
    assert (drawn[30, 0] == 128).all() and drawn[30, -1, 0] > 230 and drawn[30, -1, 2] < 150
    long = overlay(
        grey.resize((400, 30)),
        torch.zeros(30, 400),
        Transform(32),
        "so many words that they must be small",
    )
    below = np.asarray(long)[31:]
    assert (
        below.shape == (44, 400, 3)
        and (below[:, -4:] == 255).all()
        and (below[:, -40:] < 128).any()
    )
    hot = np.asarray(overlay(grey, seen, Transform(32, margin=1.0)))
    assert (hot[:30, 20:40, 2] < 150).all() and (hot[:30, 20:40, 0] > 230).all()


class Probe(Method):
    """A linear head on one learner, with prompts before the patches if there are any."""

    outputs = ("probe",)

    def __init__(self, backbone: Backbone, pet: Any, prompts: torch.Tensor | None) -> None:
        super().__init__(backbone, method_settings()["simplecil"]())
        self.learner = Learner(backbone, pet)
        self.prompts = prompts
        self.head = torch.randn(backbone.width, 3, generator=torch.Generator().manual_seed(1))

    def learn(self, session: Any, fit: Any) -> None: ...

    def embed(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            self.backbone.features(images)  # as methods that choose prompts by bare features do
        return {"x": self.learner.features(images, prompts=self.prompts)}

    def answer(self, features: Any) -> dict[str, torch.Tensor]:
        return {"probe": features["x"] @ self.head}


@pytest.mark.parametrize("pet", ["none", "ssf", "vpt_deep", "adapter", "full"])
@pytest.mark.parametrize(("registers", "prompts"), [(0, 0), (2, 0), (2, 5)])
def test_relevance_is_how_much_the_logit_grows_with_a_patch(
    pet: str,
    registers: int,
    prompts: int,
    make_backbone: Any,
    scramble: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By differences, with one block: whatever stands before or behind the patches among the
    tokens.
    """
    backbone = make_backbone(depth=1, reg_tokens=registers, patch_size=8)
    random = torch.randn(prompts, 24, generator=torch.Generator().manual_seed(3))
    method = Probe(backbone, pet_settings(pet), random if prompts else None)
    scramble(method.learner.pet)
    method.learner.freeze()
    view = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    attend = Attention.attend
    first = 1 + registers + prompts
    grown = torch.ones(3, 4)

    def grow(
        self: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *masks: Any
    ) -> torch.Tensor:
        if v.shape[2] >= first + 4:  # otherwise it is the pass without prompts
            v = v.clone()
            v[0, :, first : first + 4] *= grown[:, :, None]
        return attend(self, q, k, v, *masks)

    monkeypatch.setattr(Attention, "attend", grow)
    slopes = torch.zeros(3, 4)
    for head, patch in np.ndindex(3, 4):
        logits = []
        for step in (1e-2, -1e-2):
            grown.fill_(1.0)[head, patch] += step
            logits.append(float(method.logits(view.clone())[0, 1]))
        slopes[head, patch] = (logits[0] - logits[1]) / 2e-2
    grown.fill_(1.0)
    expected = slopes.relu().sum(dim=0).reshape(2, 2)
    assert expected.max() > 1e-3
    assert torch.allclose(relevance(method, view, 1), expected / expected.max(), atol=0.02)


def test_nothing_is_watched_after_the_map(make_backbone: Any) -> None:
    with watching() as seen:
        pass
    assert make_backbone().features(torch.rand(1, 3, 16, 16)).requires_grad is False and seen == []


@pytest.mark.parametrize("name", ["ranpac", "simplecil", "l2p", "dualprompt", "ease", "slca"])
def test_any_method_has_heat_maps(name: str, new_model: New, lesson: Lesson) -> None:
    quick = {"slca": {"method.align_epochs": 1, "method.align_samples": 4}}.get(name, {})
    model = new_model(name, settings=quick, image_size=32)
    for classes in ("ab", "c"):
        model.learn(*lesson(classes, 3))
    picture = lesson("b", 1)[0][0]
    before = model.predict_proba(picture)
    found = model.heat_map(picture)
    assert (
        found.shape == (16, 16)
        and found.min() >= 0
        and 0 < found.max() <= 1
        and found.dtype == np.float32
    )
    assert (found == model.heat_map(picture, str(model.predict(picture)[0]))).all()
    assert any((found != model.heat_map(picture, label)).any() for label in "abc")
    assert (model.predict_proba(picture) == before).all()


def test_a_turned_picture_has_the_map_of_the_upright_one(
    taught: ContinualClassifier, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a quarter clockwise
    Image.fromarray(np.rot90(pixels)).save(tmp_path / "turned.png", exif=exif)
    upright, turned = (taught.heat_map(tmp_path / name) for name in ("upright.png", "turned.png"))
    assert upright.shape == (24, 40) and (upright == turned).all()


def test_a_heat_map_is_of_one_picture_and_a_known_class(
    taught: ContinualClassifier, lesson: Lesson
) -> None:
    with raises("answer.heat-map.several", count=2):
        taught.heat_map(lesson("a", 2)[0])
    with raises("name.unknown", what="class", given="z"):
        taught.heat_map(lesson("a", 1)[0][0], "z")


def test_maps_are_files_of_their_own_and_cards_on_a_page(
    taught: ContinualClassifier, lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecl.classifier.answers.explain.MAX_ON_PAGE", 2)
    names = ["x.png", "sub/x.png", "<b>&.png"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(lesson("a", 1)[0][0]).resize((30, 20)).save(tmp_path / name)
    maps = Explanations(tmp_path / "out", taught._snapshot(), "m.safecl")
    for name, answer in zip(
        names, taught.explain([tmp_path / name for name in names]), strict=True
    ):
        maps.add(File.at(tmp_path / name), answer)
    page = maps.finish().read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_b_&.png.png",
        "index.html",
        "x.png-2.png",
        "x.png.png",
    ]
    drawn = Image.open(tmp_path / "out/x.png.png")
    assert drawn.size == (768, 512 + 25 + 44)  # with the scale and the caption
    below = np.asarray(drawn)[-44:]
    assert (below[:4] == 255).all() and (below < 100).any() and (below[:, -4:] == 255).all()
    assert page.count("<img ") == 4 and "1 further pictures" not in page and "<b>" not in page
    assert "1 more is in the folder" in page
    with raises("sort.folder.not-empty"):
        Explanations(tmp_path / "out", taught._snapshot(), "m.safecl")

"""The first pictures choose the backbone, the evidence stays with the model, nothing is
downloaded.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.classifier.choose import Candidate, best, choose
from safecl.classifier.classifier import ContinualClassifier, learn_file
from safecl.classifier.data import labelled
from safecl.classifier.modelfile.store import ModelFile
from safecl.engine.progress import Progress
from safecl.errors import SafeclError
from tests.conftest import raises

Lesson = Callable[..., Any]
CPU = torch.device("cpu")


class Told(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def blind(two_blocks: Path, tmp_path: Path) -> Path:
    """A network that sees no picture: its patches are all the same."""
    options = {"depth": 2}
    vit = timm.create_model("test_vit", num_classes=0, **options)
    torch.nn.init.zeros_(vit.patch_embed.proj.weight)
    file = tmp_path / "blind.safetensors"
    facts = {"timm_model": "test_vit", "create_kwargs": json.dumps(options)}
    save_file(vit.state_dict(), file, {**facts, "licence": "cc-by-nc-4.0"})
    return file


@pytest.fixture
def auto(two_blocks: Path, blind: Path) -> Callable[..., ContinualClassifier]:
    """``auto(prefer=…)``: a model that chooses between the two, and learns in a moment."""

    def make(backbone: str = f"auto:{blind},{two_blocks}", **options: Any) -> ContinualClassifier:
        given = {"image_size": 16, "device": "cpu", **options}
        return ContinualClassifier(backbone, "simplecil", **given)

    return make


def of(name: str, error: float, seconds: float) -> Candidate:
    return Candidate(BackboneSettings(), name, 64, error, seconds)


def test_accuracy_takes_the_least_error_and_speed_the_fastest_that_is_near_it() -> None:
    slow = of("slow", 0.100, 40.0)
    near = of("near", 0.125, 4.0)
    far = of("far", 0.126, 1.0)
    every = [far, near, slow]
    assert best(every, "accuracy") is slow
    assert best(every, "speed") is near
    assert best([far], "speed") is far


def test_a_network_that_sees_is_chosen_before_one_that_does_not(
    two_blocks: Path, blind: Path, lesson: Lesson
) -> None:
    told = Told()
    pictures, _ = labelled(*lesson("abcd"))
    word = f"auto:{blind},{two_blocks}"
    settings, evidence = choose(word, "accuracy", pictures, {"image_size": 16}, CPU, told)
    assert settings == BackboneSettings(weights=str(two_blocks), image_size=16)
    first, last = evidence["candidates"]
    assert (first["file"], last["file"]) == (str(two_blocks), str(blind))
    assert first["error"] < last["error"] and min(first["seconds"], last["seconds"]) > 0
    assert last["error"] > 0.7  # of four classes a guess has 0.75
    assert evidence["pictures"] == 20 and evidence["prefer"] == "accuracy"
    assert len(told.said) == 3 and "s per 100 pictures" in told.said[0]


@pytest.mark.usefixtures("offline")
def test_without_names_the_embedded_network_is_asked_and_all_that_is_in_the_cache(
    tmp_path: Path, lesson: Lesson
) -> None:
    name = "test_vit.r160_in1k"
    snapshot = tmp_path / "cache" / f"models--timm--{name}" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    save_file(timm.create_model(name).state_dict(), snapshot / "model.safetensors")
    pictures, _ = labelled(*lesson("abcd"))
    _, evidence = choose("auto", "accuracy", pictures, {}, CPU, Told())
    assert {one["name"] for one in evidence["candidates"]} == {"safecl_micro", name}


@pytest.mark.usefixtures("offline")
def test_one_that_cannot_be_read_is_left_out_of_all_and_refused_by_name(
    tmp_path: Path, lesson: Lesson
) -> None:
    name = "test_vit.r160_in1k"
    snapshot = tmp_path / "cache" / f"models--timm--{name}" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    (snapshot / "model.safetensors").write_bytes(b"torn")
    pictures, _ = labelled(*lesson("abcd"))
    told = Told()
    settings, _ = choose("auto", "speed", pictures, {}, CPU, told)
    assert settings.name == "safecl_micro" and "is left out" in told.said[1]
    with pytest.raises(SafeclError):
        choose(f"auto:{name}", "speed", pictures, {}, CPU, told)


@pytest.mark.usefixtures("offline")
def test_what_is_not_at_hand_is_not_downloaded(lesson: Lesson) -> None:
    pictures, _ = labelled(*lesson("abcd"))
    with raises("backbone.auto.not-cached"):
        choose("auto:micro,tiny", "accuracy", pictures, {}, CPU, Told())


def test_of_many_classes_some_are_asked(two_blocks: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (420, 16, 16, 3), dtype=np.uint8)
    pictures, _ = labelled(pixels, [f"class {i % 140}" for i in range(420)])
    _, evidence = choose(
        f"auto:{two_blocks}", "accuracy", pictures, {"image_size": 16}, CPU, Told()
    )
    assert evidence["pictures"] == 256


def test_a_model_learns_on_what_was_chosen_and_says_why(
    auto: Callable[..., ContinualClassifier], two_blocks: Path, lesson: Lesson, tmp_path: Path
) -> None:
    model = auto()
    model.learn(*lesson("abcd"))
    assert model.get_params()["backbone"].startswith("auto:")
    plain = auto("test_vit", settings={"backbone.weights": str(two_blocks)})
    plain.learn(*lesson("abcd"))
    assert np.array_equal(
        model.decision_function(lesson("ab")[0]), plain.decision_function(lesson("ab")[0])
    )
    model.save(tmp_path / "m.safecl")
    header = ModelFile(tmp_path / "m.safecl").header
    assert header["settings"]["backbone"]["weights"] == str(two_blocks)
    assert [Path(one["file"]).name for one in header["choice"]["candidates"]] == [
        two_blocks.name,
        "blind.safetensors",
    ]
    plain.save(tmp_path / "plain.safecl")
    assert ModelFile(tmp_path / "plain.safecl").header["choice"] is None


def test_auto_again_is_what_was_chosen(
    auto: Callable[..., ContinualClassifier], lesson: Lesson, tmp_path: Path
) -> None:
    model = auto()
    model.learn(*lesson("abcd"))
    chosen = model.history_[0]
    model.learn(*lesson("ef"))
    assert model.history_[0] == chosen and len(model.classes_) == 6
    model.save(tmp_path / "m.safecl")
    again = ContinualClassifier.load(tmp_path / "m.safecl").set_params(backbone=model.backbone)
    assert again.learn(*lesson("gh")).new == ["g", "h"]
    for other in ({"prefer": "speed"}, {"backbone": "auto"}):
        with raises("model.setting.fixed"):
            ContinualClassifier.load(tmp_path / "m.safecl").set_params(**other).learn(*lesson("ij"))


def test_auto_is_refused_for_a_model_that_was_made_on_a_named_backbone(
    new_model: Callable[..., ContinualClassifier], lesson: Lesson, tmp_path: Path
) -> None:
    model = new_model("simplecil")
    model.learn(*lesson("ab"))
    model.save(tmp_path / "m.safecl")
    with raises("model.setting.fixed"):
        ContinualClassifier.load(tmp_path / "m.safecl").set_params(backbone="auto").learn(
            *lesson("cd")
        )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"backbone": "test_vit", "prefer": "speed"}, "backbone.auto.prefer-idle"),
        ({"settings": {"backbone.weights": "a.safetensors"}}, "backbone.auto.weights"),
    ],
)
def test_what_means_nothing_beside_the_backbone_is_refused(
    options: dict[str, Any], code: str, auto: Callable[..., ContinualClassifier], lesson: Lesson
) -> None:
    with raises(code):
        auto(**options).learn(*lesson("ab"))


@pytest.mark.parametrize(("classes", "each"), [("a", 20), ("ab", 4), ("abcdefghijkl", 1)])
def test_too_few_pictures_choose_nothing(
    classes: str, each: int, auto: Callable[..., ContinualClassifier], lesson: Lesson
) -> None:
    with raises("backbone.auto.few"):
        auto().learn(*lesson(classes, each))


def test_another_wrong_word_is_answered_before_any_backbone_is_asked(
    auto: Callable[..., ContinualClassifier], lesson: Lesson
) -> None:
    told = Told()
    for settings in ({"method.wheels": 4}, {"backbone.normalisation": "wheels"}):
        with pytest.raises(SafeclError, match="wheels"):
            auto(settings=settings).learn(*lesson("abcd"), progress=told)
    assert told.said == []


def test_anywhere_else_a_backbone_is_named() -> None:
    for word in ("auto", "auto:micro,b.safetensors"):
        with raises("backbone.auto.unasked"):
            load_backbone(word)


# -- licences --------------------------------------------------------------------------------------


def test_a_licence_that_forbids_commerce_is_said_once_and_stands_in_the_file(
    blind: Path, auto: Callable[..., ContinualClassifier], write_folder: Any, tmp_path: Path
) -> None:
    def learn(classes: str) -> list[str]:
        folder = write_folder(tmp_path / classes, classes)
        given: dict[str, Any] = {"backbone": "test_vit", "method": "simplecil"}
        given["settings"] = {"backbone.weights": str(blind), "backbone.image_size": 16}
        if (tmp_path / "m.safecl").exists():
            given = {}
        learned, _ = learn_file(
            folder, tmp_path / "m.safecl", Progress(), name=None, again=False, device="cpu", **given
        )
        return [told for told in learned.warnings if "licence" in told]

    (told,) = learn("abc")
    assert "cc-by-nc-4.0" in told and "forbids commercial use" in told
    assert learn("de") == []
    assert ModelFile(tmp_path / "m.safecl").header["backbone"]["licence"] == "cc-by-nc-4.0"


def test_a_file_of_an_earlier_version_states_no_licence_and_is_read(
    auto: Callable[..., ContinualClassifier], lesson: Lesson
) -> None:
    from safecl.classifier.answers.card import licence

    model = auto()
    model.learn(*lesson("abcd"))
    header = model._fitted.header
    before = {key: value for key, value in header["backbone"].items() if key != "licence"}
    assert licence({**header, "backbone": before}) == licence(header) == "not stated"

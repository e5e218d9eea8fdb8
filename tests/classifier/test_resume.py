"""A lesson that was stopped resumes with the pictures that it began with, and with no others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.engine.progress import Progress
from safecl.errors import Stopped
from tests.conftest import raises


class Spoken(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_stopped_lesson_of_a_list_resumes_with_the_same_pictures_alone(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    (mine, labels), (others, same_labels) = lesson("ab", 6), lesson("ab", 6, seed=1)
    assert labels == same_labels and not np.array_equal(mine, others)

    def learn(pictures: np.ndarray, folder: Path | None = None, **options: Any) -> Any:
        model = new_model(epochs=2)
        model.learn(list(pictures), labels, folder=folder, **options)
        return model

    def stopped(folder: Path) -> Path:
        asked = iter([False, False])
        with pytest.raises(Stopped):
            learn(mine, folder, stop=lambda: next(asked, True))
        assert list(folder.rglob("*.safetensors"))
        return folder

    for pictures, sentence in ((mine, "Resuming"), (others, "Another command")):
        heard = Spoken()
        resumed = learn(pictures, stopped(tmp_path / sentence), progress=heard)
        assert any(text.startswith(sentence) for text in heard.said)
        assert np.allclose(
            resumed.predict_proba(mine), learn(pictures).predict_proba(mine), atol=1e-6
        )


def test_a_stopped_lesson_does_not_resume_with_other_weights_of_the_backbone(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    images, labels = lesson("ab", 6)

    file = tmp_path / "weights.safetensors"
    state = load_backbone(
        BackboneSettings(name="test_vit", weights="random", image_size=16)
    ).network.state_dict()

    def model(scale: float) -> Any:
        save_file({key: value * scale for key, value in state.items()}, file)
        return new_model(epochs=2, settings={"backbone.weights": str(file)})

    asked = iter([False, False])
    heard = Spoken()
    with pytest.raises(Stopped):
        model(1.0).learn(images, labels, folder=tmp_path / "work", stop=lambda: next(asked, True))
    resumed = model(1.5)
    fresh = model(1.5)
    resumed.learn(images, labels, folder=tmp_path / "work", progress=heard)
    fresh.learn(images, labels)
    assert heard.said[0].startswith("Another command")
    assert np.array_equal(resumed.predict_proba(images), fresh.predict_proba(images))


def test_a_lesson_resumes_whether_its_model_was_in_memory_or_is_read_from_its_file(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    """As in a service: the model of the job before is at hand, and after a restart it is loaded."""
    model = new_model(epochs=2)
    asked = iter([False, False])
    heard = Spoken()
    model.learn(*lesson("ab", 6))
    model.save(tmp_path / "m.safecl")
    with pytest.raises(Stopped):
        model.learn(
            *lesson("cd", 6), name="x", folder=tmp_path / "work", stop=lambda: next(asked, True)
        )
    again = type(model).load(tmp_path / "m.safecl", device="cpu")
    again.learn(*lesson("cd", 6), name="x", folder=tmp_path / "work", progress=heard)
    assert heard.said[0].startswith("Resuming")


@pytest.mark.parametrize("name", ["thesis.txt", "job.json", "fit_1_slow.safetensors"])
def test_a_folder_with_files_of_somebody_else_is_refused_and_left_alone(
    name: str, new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / name).write_text("[1]")
    with raises("learn.folder.other"):
        new_model("simplecil").learn(*lesson("ab"), folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name] and (
        tmp_path / name
    ).read_text() == "[1]"


def test_what_another_lesson_has_begun_is_dropped_but_no_other_file(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    new_model("simplecil").learn(*lesson("ab"), folder=tmp_path)
    for name in ("thesis.txt", "fit_1_slow.safetensors"):
        (tmp_path / name).write_text("[1]")
    new_model("simplecil").learn(*lesson("cd"), folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.json", "thesis.txt"]

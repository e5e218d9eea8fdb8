"""A lesson that was stopped resumes with the pictures that it began with, and with no others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.engine.progress import Quiet
from safecl.errors import Stopped


class Spoken(Quiet):
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
        assert np.allclose(resumed.predict_proba(mine), learn(pictures).predict_proba(mine), atol=1e-6)

"""A call uses one model, whatever is learned meanwhile; and a forked process can answer."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.answers import snapshot
from safecl.classifier.classifier import ContinualClassifier
from safecl.errors import SafeclError
from safecl.streams.pictures.images import ArrayPictures, Transform
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]


class Collected(list[np.ndarray]):
    """Pictures; ``swap`` is called when the first one is taken from the collection."""

    def __init__(self, images: np.ndarray, swap: Callable[[], None]) -> None:
        super().__init__(images)
        self.swap = swap

    def __getitem__(self, index: Any) -> Any:
        if index == 0:
            self.swap()
        return super().__getitem__(index)


class Read(ArrayPictures):
    """Pictures; ``swap`` is called when the first ones are read, in the middle of a call."""

    def __init__(self, images: np.ndarray, swap: Callable[[], None]) -> None:
        super().__init__(images, ["a"] * len(images))
        self.swap = swap

    def plain(self, indices: Any, transform: Transform) -> torch.Tensor:
        if 0 in indices:
            self.swap()
        return super().plain(indices, transform)


CALLS: dict[str, Callable[[ContinualClassifier, Any], Any]] = {
    "predict": lambda model, data: model.predict(data, unknown=0.4).tolist(),
    "predict_proba": lambda model, data: model.predict_proba(data).tolist(),
    "explain": lambda model, data: model.explain(data, unknown=0.4),
    "answers": lambda model, data: list(model.answers(data)),
}


@pytest.mark.parametrize("seam", [Collected, Read])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_in_the_middle_of_which_the_model_changes_answers_as_before(
    call: str, seam: Any, taught: ContinualClassifier, lesson: Lesson
) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    images = lesson("abcdef", 8, seed=3)[0]
    expected = CALLS[call](model, list(images))

    def swap() -> None:  # in another thread, which has finished when the call goes on
        thread = threading.Thread(daemon=True, target=model.rollback)
        thread.start()
        thread.join()

    assert CALLS[call](model, seam(images, swap)) == expected
    assert model.classes_.tolist() == list("abcd") and CALLS[call](model, list(images)) != expected


def test_the_answers_are_those_of_the_model_when_they_were_asked_for(
    taught: ContinualClassifier, lesson: Lesson
) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    images = lesson("abcdef", 8, seed=3)[0]
    expected = model.explain(images)
    asked = model.answers(images)
    model.rollback()
    assert list(asked) == expected != model.explain(images)
    with raises("answer.share.not-below-one"):  # when it is called, too
        model.answers(images, unknown=1.5)


def test_score_and_evaluation_use_one_model(taught: ContinualClassifier, lesson: Lesson) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    images = lesson("ef", 8, seed=3)[0]
    pictures = Read(images, lambda: None)
    pictures.labels = ["e"] * 8 + ["f"] * 8
    expected = snapshot.evaluate(model._snapshot(), pictures), model.score(pictures)
    assert expected[0][0]["pictures"] == 16 and expected[1] > 0
    found = []
    for measure in (
        lambda model, given: snapshot.evaluate(model._snapshot(), given),
        ContinualClassifier.score,
    ):
        model = ContinualClassifier.of(taught._fitted, device="cpu")
        pictures.swap = model.rollback
        found.append(measure(model, pictures))
    assert tuple(found) == expected


def test_answers_while_another_thread_learns_are_those_of_the_old_or_of_the_new_model(
    taught: ContinualClassifier, lesson: Lesson
) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    images = lesson("abcdefg", 2, seed=3)[0]
    found = []
    before = model.explain(images)
    barrier = threading.Barrier(2)

    def learn() -> None:
        barrier.wait()
        model.learn(*lesson("gh"))
        # which forgets everything, and never leaves a model that knows nothing
        model.fit(*lesson("ab"))

    thread = threading.Thread(daemon=True, target=learn)
    thread.start()
    barrier.wait()
    while thread.is_alive():
        found.append(model.explain(images))
    thread.join()
    fitted = model.explain(images)
    middle = ContinualClassifier.of(taught._fitted, device="cpu")
    middle.learn(*lesson("gh"))
    allowed = [before, middle.explain(images), fitted]
    assert found and all(one in allowed for one in found) and before in found


def test_a_fit_that_fails_leaves_the_model_as_it_was(
    taught: ContinualClassifier, lesson: Lesson
) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    with pytest.raises(SafeclError):
        model.fit([], [])
    assert model._model is taught._model


def test_a_forked_process_predicts_and_learns_after_its_parent_has_predicted(
    taught: ContinualClassifier, lesson: Lesson
) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    images = lesson("abcdef", 8)[0]
    expected = model.predict_proba(images)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        # large enough for both, of which the fork copies one
        torch.ones(600, 600) @ torch.ones(600, 600)
        torch.ones(1 << 20).exp_()
        child = os.fork()
        if child == 0:
            found = model.predict_proba(images)
            model.learn(*lesson("gh"))
            same = np.allclose(found, expected, atol=1e-5) and torch.get_num_threads() == 1
            # whose threads, on ARM, torch does not limit
            same = same and not torch.backends.mkldnn.enabled
            os._exit(
                0 if same and len(torch.ones(1 << 20).exp_()) and len(model.classes_) == 8 else 1
            )
        deadline = time.monotonic() + 30
        ended = (0, 0)
        while ended[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
            ended = os.waitpid(child, os.WNOHANG)
        if ended[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0), "the child waits forever" if ended[0] == 0 else "other answers"
        assert torch.get_num_threads() == 2  # nothing changes for the parent
    finally:
        torch.set_num_threads(threads)


FORKED = """
import os
import numpy as np
import torch
torch.set_num_threads(2)
from safecl.classifier.classifier import ContinualClassifier
model = ContinualClassifier(epochs=1, device="cpu")
images = np.random.default_rng(0).integers(0, 255, (20, 64, 64, 3), dtype=np.uint8)
model.learn(images, list("abcd") * 5)
expected = model.predict_proba(images)
child = os.fork()
if child == 0:
    os._exit(0 if np.allclose(model.predict_proba(images), expected, atol=1e-5) else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_fork_of_a_process_with_two_threads_from_the_start_predicts() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=120).returncode == 0


def test_a_forked_process_says_that_it_cannot_use_the_gpu_of_its_parent(
    taught: ContinualClassifier, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ContinualClassifier.of(taught._fitted, device="cpu")
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert len(model.predict(lesson("a")[0])) == 5
    model.device = "auto"
    with raises("device.forked"):
        model.predict(lesson("a")[0])

"""The guard of a phase: features that became worse are tuned again more slowly, and in the end not
at all.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.fit import Trainer
from safecl.engine.progress import Progress
from safecl.engine.settings import TrainSettings
from safecl.errors import Stopped
from safecl.methods.method import Batch
from safecl.randomness import generator
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Session, Stream
from tests.conftest import raises
from tests.engine.conftest import Tuned

LABELS = ["a", "b", "c"]
RATE = 0.05
SETTINGS = TrainSettings(guard=True, epochs=2, batch_size=6, lr=RATE)
MakeStream = Callable[..., Stream]


@pytest.fixture
def session(make_stream: MakeStream) -> Session:
    return make_stream([LABELS], train=6).open(1)


class Said(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def new_fit(
    settings: TrainSettings = SETTINGS,
    folder: Path | None = None,
    accelerator: Accelerator | None = None,
    **options: Any,
) -> Trainer:
    method: Any = SimpleNamespace(classes=LABELS, backbone=SimpleNamespace(dtype=torch.float32))
    fit = Trainer(
        accelerator or Accelerator(cpu=True),
        method,
        settings,
        Transform(16, margin=1.0),
        0,
        Said(),
        folder,
        **options,
    )
    fit.begin(1)
    return fit


def destroyer(tuned: Tuned, fit: Trainer, attempts: int) -> Callable[[], None]:
    """After a step of one of the first ``attempts``: the PET gives every picture the same
    feature.
    """

    def after_step() -> None:
        if sum("; " in line for line in fit.progress.lines) < attempts:  # type: ignore[attr-defined]
            with torch.no_grad():
                for parameter in tuned.pet.parameters():
                    parameter.zero_()

    return after_step


@pytest.mark.parametrize("attempts", [0, 1, 2])
def test_features_that_became_worse_are_tuned_again_at_a_tenth_of_the_rate(
    attempts: int, backbone: Backbone, session: Session
) -> None:
    tuned = Tuned(backbone, "ssf")
    fit = new_fit()
    fit("fast", tuned, session, tuned.loss, after_step=destroyer(tuned, fit, attempts))
    expected = Tuned(backbone, "ssf")
    slower = SETTINGS.model_copy(update={"lr": RATE * 0.1**attempts})
    new_fit(slower)("fast", expected, session, expected.loss)
    for name, value in tuned.state_dict().items():
        assert torch.allclose(value, expected.state_dict()[name], atol=1e-6)
    assert fit.notes == ({"rate of fast": (1.0, 0.1, 0.01)[attempts]} if attempts else {})
    lines = fit.progress.lines  # type: ignore[attr-defined]
    assert len(lines) == attempts
    for line, rate in zip(lines, ("0.1", "0.01"), strict=False):
        assert f"worse than before; again at {rate} of the rate" in line


def test_where_no_rate_helps_the_pet_stays_and_the_rest_is_trained(
    backbone: Backbone, session: Session
) -> None:
    tuned = Tuned(backbone, "ssf")
    fit = new_fit()
    start = tuned.learner.tuning()
    head = tuned.head.weight.detach().clone()
    fit("fast", tuned, session, tuned.loss, after_step=destroyer(tuned, fit, 3))
    assert all(torch.equal(value, start[name]) for name, value in tuned.learner.tuning().items())
    assert not torch.equal(tuned.head.weight, head)
    assert fit.notes == {"rate of fast": 0.0}
    assert "what is tuned stays as it was" in fit.progress.lines[-1]  # type: ignore[attr-defined]


def test_the_steps_of_a_tracker_only_rise_whatever_is_undone(
    backbone: Backbone, session: Session
) -> None:
    """Two of three attempts are undone, and a phase follows."""
    logged = list[int]()

    class Tracked(Accelerator):
        def log(self, values: Any, step: Any = None, log_kwargs: Any = None) -> None:
            logged.append(step)

    tuned = Tuned(backbone, "ssf")
    fit = new_fit(accelerator=Tracked(cpu=True))
    fit("fast", tuned, session, tuned.loss, after_step=destroyer(tuned, fit, 2))
    fit("next", tuned, session, tuned.loss)
    # three steps an epoch, two epochs an attempt
    assert logged == [3 * epoch for epoch in range(1, 9)]
    assert fit.steps == logged[-1] and [phase["steps"] for phase in fit.phases] == [6, 6]


def test_a_loss_that_is_never_finite_is_a_sentence_with_the_guard_too(
    backbone: Backbone, session: Session
) -> None:
    tuned = Tuned(backbone, "ssf")
    with raises("train.diverged", session=1):
        new_fit()(
            "fast", tuned, session, lambda batch: {"cls": tuned.loss(batch)["cls"] * float("inf")}
        )


def test_without_the_guard_nothing_is_compared(backbone: Backbone, session: Session) -> None:
    tuned = Tuned(backbone, "ssf")
    fit = new_fit(SETTINGS.model_copy(update={"guard": False}))
    fit("fast", tuned, session, tuned.loss, after_step=destroyer(tuned, fit, 1))
    assert fit.notes == {} and all(not value.any() for value in tuned.learner.tuning().values())


@pytest.mark.parametrize("labels", [["a"] * 12, list("abcdefghijkl"), ["a", "b"] * 3])
def test_too_few_to_leave_one_out_are_not_asked(
    labels: list[str], backbone: Backbone, make_stream: MakeStream
) -> None:
    """One class; one picture a class; fewer than ten pictures."""
    stream = make_stream([labels], train=1)
    tuned = Tuned(backbone, "ssf")
    fit = new_fit()
    fit.method.classes = sorted(set(labels))
    tuned.head.grow_random(12, generator(1, "head"))
    fit("fast", tuned, stream.open(1), tuned.loss, after_step=destroyer(tuned, fit, 1))
    assert fit.notes == {}


@pytest.mark.parametrize("steps", [2, 7, 9, 13])
def test_a_stop_in_any_attempt_ends_where_it_would_have_ended(
    steps: int, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    """Six steps an attempt; the first two attempts destroy the features."""

    def go(folder: Path, stop: int) -> tuple[Tuned, Trainer]:
        folder.mkdir(exist_ok=True)
        tuned = Tuned(backbone, "ssf")
        taken = [0]
        fit = new_fit(folder=folder, stop=lambda: taken[0] == stop)

        def loss(batch: Batch) -> dict[str, Tensor]:
            taken[0] += 1
            return tuned.loss(batch)

        def harmful() -> None:
            rate = fit.losses[-1]["lr"] if fit.losses else RATE
            if rate > 0.02 * RATE and current[0] < 2:
                for parameter in tuned.pet.parameters():
                    parameter.detach().zero_()

        def say(text: str) -> None:
            current[0] += "; " in text

        fit.progress.say = say  # type: ignore[method-assign]
        fit("fast", tuned, session, loss, after_step=harmful)
        return tuned, fit

    current = [0]
    straight, fit = go(tmp_path / "straight", -1)
    assert fit.notes == {"rate of fast": 0.01}
    current = [0]
    with pytest.raises(Stopped):
        go(tmp_path / "stopped", steps)
    again, fit = go(tmp_path / "stopped", -1)
    assert fit.notes == {"rate of fast": 0.01}
    assert all(
        torch.equal(value, again.state_dict()[name])
        for name, value in straight.state_dict().items()
    )

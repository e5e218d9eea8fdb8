"""The training loop: what it trains, at which rate, and that a stop at any step changes nothing."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.engine import device_loader
from safecl.engine.checkpoint import save_state
from safecl.engine.fit import Fitting, TrainSettings, _schedule
from safecl.engine.progress import Quiet
from safecl.errors import SafeclError, Stopped
from safecl.heads import RidgeSettings
from safecl.learner import Learner, random_rows
from safecl.pet import pet_settings
from safecl.streams.images import Transform
from safecl.streams.stream import Session, Stream

LABELS = ["a", "b", "c"]
SETTINGS = TrainSettings(epochs=3, batch_size=4, lr=0.05)
MakeStream = Callable[..., Stream]


@pytest.fixture
def backbone(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone(depth=1)


@pytest.fixture
def session(make_stream: MakeStream) -> Session:
    return make_stream([LABELS], train=3).open(1)


def new_learner(backbone: Backbone, pet: str = "adapter") -> Learner:
    settings = pet_settings(pet, **({"bottleneck": 4} if pet == "adapter" else {}))
    learner = Learner(backbone, settings, RidgeSettings(size=20))
    learner.cosine.grow(random_rows(3, backbone.width, 0))
    return learner


def new_fit(settings: TrainSettings = SETTINGS, folder: Path | None = None, seed: int = 0, **options: Any) -> Fitting:
    method: Any = SimpleNamespace(classes=LABELS)
    transform = Transform(16, margin=1.0)
    return Fitting(Accelerator(cpu=True), method, settings, transform, seed, Quiet(), folder, **options)


def cross_entropy(learner: Learner) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    return lambda images, targets: {
        "cls": nn.functional.cross_entropy(learner.cosine(learner.features(images)), targets)
    }


def parameters(learner: Learner) -> Tensor:
    return torch.cat([p.detach().flatten() for p in learner.parameters()])


# -- stopping and going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_a_phase_stopped_at_any_step_ends_where_it_would_have_ended(
    steps: int, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    straight = new_learner(backbone)
    whole = new_fit(folder=tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    whole("fast", straight, session, cross_entropy(straight))

    stopped, taken = new_learner(backbone), []
    loss = cross_entropy(stopped)
    fit = new_fit(folder=tmp_path, stop=lambda: len(taken) >= steps)
    with pytest.raises(Stopped):
        fit("fast", stopped, session, lambda x, y: taken.append(len(y)) or loss(x, y))
    assert not torch.equal(parameters(stopped), parameters(straight))
    again = new_learner(backbone)
    rest = cross_entropy(again)
    fit = new_fit(folder=tmp_path)
    fit("fast", again, session, lambda x, y: taken.append(len(y)) or rest(x, y))
    assert len(taken) == 9  # nine steps in all; none is taken twice
    assert torch.equal(parameters(again), parameters(straight))
    assert [line["step"] for line in fit.losses] == [line["step"] for line in whole.losses]


def test_a_finished_phase_is_not_run_again(backbone: Backbone, session: Session, tmp_path: Path) -> None:
    first, second = new_learner(backbone), new_learner(backbone)
    new_fit(folder=tmp_path)("fast", first, session, cross_entropy(first))

    def never(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        raise AssertionError("trained again")

    new_fit(folder=tmp_path)("fast", second, session, never)
    assert torch.equal(parameters(first), parameters(second))


@pytest.mark.parametrize("harm", ["damaged", "of another network", "no checkpoint"])
def test_a_checkpoint_that_cannot_be_used_starts_the_phase_again(
    harm: str, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    first, second = new_learner(backbone), new_learner(backbone)
    new_fit(folder=tmp_path)("fast", first, session, cross_entropy(first))
    (file,) = tmp_path.iterdir()
    if harm == "damaged":
        file.write_bytes(file.read_bytes()[:100])
    else:
        save_state(file, dict(second.named_parameters()) if harm == "no checkpoint" else {"w": torch.ones(3)}, {})
    said: list[str] = []
    fit = new_fit(folder=tmp_path)
    fit.progress.say = said.append  # type: ignore[method-assign]
    fit("fast", second, session, cross_entropy(second))
    assert len(said) == 1 and harm in said[0] and said[0].endswith("The phase starts again.")
    assert torch.equal(parameters(first), parameters(second))


def test_a_retry_at_a_lower_rate_goes_on_at_that_rate(backbone: Backbone, session: Session, tmp_path: Path) -> None:
    def fragile(learner: Learner, taken: list[float]) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
        loss = cross_entropy(learner)

        def value(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
            taken.append(1)
            return {"cls": loss(images, targets)["cls"] * (float("nan") if len(taken) <= 3 else 1.0)}

        return value

    straight = new_learner(backbone)
    new_fit()("fast", straight, session, fragile(straight, []))
    stopped, taken = new_learner(backbone), []
    with pytest.raises(Stopped):
        new_fit(folder=tmp_path, stop=lambda: len(taken) >= 5)("fast", stopped, session, fragile(stopped, taken))
    again = new_learner(backbone)
    new_fit(folder=tmp_path)("fast", again, session, fragile(again, taken))
    assert len(taken) == 3 + 9 and torch.equal(parameters(again), parameters(straight))


# -- what is trained ------------------------------------------------------------------------------------------------


def test_only_what_requires_gradients_is_trained(backbone: Backbone, session: Session) -> None:
    learner = new_learner(backbone)
    learner.cosine.requires_grad_(False)
    head, pet = learner.cosine.weight.clone(), [p.detach().clone() for p in learner.pet.parameters()]
    new_fit()("fast", learner, session, cross_entropy(learner))
    assert torch.equal(learner.cosine.weight, head)
    assert all(not torch.equal(p, before) for p, before in zip(learner.pet.parameters(), pet, strict=True))


def test_dropout_is_on_while_training_and_off_afterwards(backbone: Backbone, session: Session) -> None:
    learner = new_learner(backbone)
    modes: list[bool] = []
    loss = cross_entropy(learner)
    new_fit()("fast", learner, session, lambda x, y: modes.append(learner.training) or loss(x, y))
    assert all(modes) and not learner.training


def test_the_seed_decides_everything_and_the_global_generator_nothing(backbone: Backbone, session: Session) -> None:
    results = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        learner = new_learner(backbone)
        new_fit(seed=seed)("fast", learner, session, cross_entropy(learner))
        results.append(parameters(learner))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_every_picture_is_seen_once_an_epoch(backbone: Backbone, session: Session) -> None:
    learner = new_learner(backbone)
    seen: list[int] = []
    loss = cross_entropy(learner)
    fit = new_fit()
    fit("fast", learner, session, lambda x, y: seen.extend(y.tolist()) or loss(x, y))
    for epoch in range(3):
        assert sorted(seen[9 * epoch : 9 * (epoch + 1)]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [phase["images"] for phase in fit.phases] == [27]


def test_the_terms_are_added_up(backbone: Backbone, session: Session) -> None:
    one, split = new_learner(backbone), new_learner(backbone)
    new_fit()("fast", one, session, cross_entropy(one))
    loss = cross_entropy(split)

    def in_parts(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        value = loss(images, targets)["cls"]
        return {"a": 0.25 * value, "b": 0.75 * value}

    fit = new_fit()
    fit("fast", split, session, in_parts)
    assert torch.allclose(parameters(one), parameters(split), atol=1e-5)
    for line in fit.losses:
        assert line["loss"] == pytest.approx(line["terms"]["a"] + line["terms"]["b"], rel=1e-5)


# -- divergence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [1, 2])
def test_a_loss_that_is_not_finite_starts_again_from_the_beginning_at_a_tenth_of_the_rate(
    bad: int, backbone: Backbone, session: Session
) -> None:
    learner = new_learner(backbone)
    loss, calls, attempts = cross_entropy(learner), [0], [parameters(learner)]

    def fragile(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        if calls[0] % 3 == 0 and calls[0] // 3 <= bad:  # an epoch has three steps
            assert torch.equal(parameters(learner), attempts[0])
        calls[0] += 1
        return {"cls": loss(images, targets)["cls"] * (float("nan") if calls[0] <= 3 * bad else 1.0)}

    new_fit()("fast", learner, session, fragile)
    assert calls[0] == 3 * bad + 9
    expected = new_learner(backbone)
    slower = SETTINGS.model_copy(update={"lr": SETTINGS.lr * 0.1**bad})
    new_fit(slower)("fast", expected, session, cross_entropy(expected))
    assert torch.allclose(parameters(learner), parameters(expected), atol=1e-6)


def test_a_last_step_that_breaks_the_weights_is_noticed(backbone: Backbone, session: Session) -> None:
    learner = new_learner(backbone)
    loss, calls = cross_entropy(learner), [0]

    class Trap(torch.autograd.Function):
        """Finite on the way there, not on the way back."""

        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:
            return gradient * float("nan")

    def trapped(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        calls[0] += 1
        value = loss(images, targets)["cls"]
        return {"cls": Trap.apply(value) if calls[0] == 9 else value}

    new_fit()("fast", learner, session, trapped)
    assert calls[0] == 18 and parameters(learner).isfinite().all()


def test_a_loss_that_is_never_finite_is_a_sentence(backbone: Backbone, session: Session) -> None:
    learner = new_learner(backbone)
    loss = cross_entropy(learner)
    with pytest.raises(SafeclError, match=r"fast diverged in session 1 .*; lower train\.lr\.$"):
        new_fit()("fast", learner, session, lambda x, y: {"cls": loss(x, y)["cls"] * float("inf")})


# -- the rate -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5), st.sampled_from(["step", "epoch"]))
def test_the_rate_is_a_cosine_that_would_reach_zero_at_the_horizon(
    epochs: int, per_epoch: int, beyond: int, schedule: Any
) -> None:
    horizon, settings = epochs + beyond, TrainSettings(schedule=schedule)
    for step in range(epochs * per_epoch):
        at = step // per_epoch / horizon if schedule == "epoch" else step / (horizon * per_epoch)
        expected = 0.5 * (1 + math.cos(math.pi * at))
        assert _schedule(settings, step, per_epoch, epochs * per_epoch, horizon) == pytest.approx(expected)


def test_the_published_schedule_ends_where_the_released_code_does() -> None:
    """15 of 20 epochs: the last rate is 0.00206 of 0.01."""
    assert 0.01 * _schedule(TrainSettings(schedule="epoch"), 14, 1, 15, 20) == pytest.approx(0.00206, abs=1e-5)


def test_a_warm_up_rises_and_meets_the_cosine() -> None:
    settings = TrainSettings(warmup=0.5)
    rates = [_schedule(settings, step, 10, 20, 2) for step in range(20)]
    assert rates[0] < 0.1 and rates[:10] == sorted(rates[:10]) and max(rates) <= 1
    assert rates[10:] == [_schedule(TrainSettings(), step, 10, 20, 2) for step in range(10, 20)]


def test_later_sessions_have_their_own_settings(backbone: Backbone, make_stream: MakeStream) -> None:
    settings = TrainSettings(epochs=3, later_epochs=1, lr=0.05, later_lr=0.01, batch_size=9, clip=None, later_clip=1e-9)
    stream = make_stream([LABELS, LABELS], train=3)
    steps, moved = [], []
    for number in (1, 2):
        session, learner = stream.open(number), new_learner(backbone, "none")
        before = parameters(learner)
        fit = new_fit(settings)
        fit("fast", learner, session, cross_entropy(learner))
        steps.append([(line["epoch"], line["lr"]) for line in fit.losses])
        moved.append(float((parameters(learner) - before).norm()))
    assert [epoch for epoch, _ in steps[0]] == [0, 1, 2] and steps[0][0][1] == pytest.approx(0.05)
    assert [epoch for epoch, _ in steps[1]] == [0] and steps[1][0][1] == pytest.approx(0.01)
    assert moved[0] > 100 * moved[1]  # clipped to nothing but the weight decay


# -- features -------------------------------------------------------------------------------------------------------


def test_features_are_those_of_the_plain_views_in_their_order(backbone: Backbone, session: Session) -> None:
    learner = new_learner(backbone)
    fit = new_fit()
    targets, first, second = fit.features(session, learner, backbone)
    views = session.train.plain(range(9), fit.transform).float() / 255
    assert targets.tolist() == [LABELS.index(label) for label in session.train.labels]
    with torch.no_grad():
        assert torch.allclose(first, learner.features(views), atol=1e-6)
        assert torch.allclose(second, backbone.features(views), atol=1e-6)
    assert not first.requires_grad


# -- a batch in pieces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [2, 4])
def test_a_batch_in_pieces_is_the_batch(accumulate: int, backbone: Backbone, session: Session) -> None:
    """Nine pictures in batches of four: the last one is short, and so is its last piece."""
    whole, pieces = new_learner(backbone, "ssf"), new_learner(backbone, "ssf")
    one, many = new_fit(), new_fit(SETTINGS.model_copy(update={"accumulate": accumulate}))
    sizes: list[int] = []
    one("fast", whole, session, cross_entropy(whole))
    loss = cross_entropy(pieces)
    many("fast", pieces, session, lambda x, y: sizes.append(len(y)) or loss(x, y))
    assert sizes[: 2 * accumulate + 1] == [4 // accumulate] * (2 * accumulate) + [1]
    assert torch.allclose(parameters(whole), parameters(pieces), atol=1e-5)
    for line, other in zip(one.losses, many.losses, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_pieces_must_divide_the_batch() -> None:
    with pytest.raises(ValueError, match="accumulate=5 must divide batch_size=48"):
        TrainSettings(accumulate=5)


def test_pictures_that_do_not_fit_train_the_same(
    backbone: Backbone, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for limit in (1 << 30, 0):
        monkeypatch.setattr(device_loader, "HELD_CPU", limit)
        learner = new_learner(backbone)
        new_fit()("fast", learner, session, cross_entropy(learner))
        results.append(parameters(learner))
    assert torch.equal(*results)


# -- what is noted --------------------------------------------------------------------------------------------------


def test_a_phase_says_what_it_took(backbone: Backbone, session: Session) -> None:
    learner, fit = new_learner(backbone), new_fit()
    fit("fast", learner, session, cross_entropy(learner))
    (phase,) = fit.phases
    assert (phase["phase"], phase["steps"], phase["images"]) == ("fast", 9, 27)
    assert phase["seconds"] > 0 and phase["peak_memory"] > 1e6
    assert phase["images_per_second"] == pytest.approx(27 / phase["seconds"])
    assert fit.steps == 9
    fit.forget()
    assert fit.phases == fit.losses == [] and fit.steps == 9

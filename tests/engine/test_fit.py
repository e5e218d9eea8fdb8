"""The training loop: what it trains, at which rate, and that a stop at any step changes nothing."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.engine.checkpoint import save_state
from safecl.engine.fit import Trainer
from safecl.engine.progress import Progress
from safecl.engine.settings import TrainSettings
from safecl.errors import Stopped
from safecl.heads.cosine import CosineHead
from safecl.methods.method import Batch, Group, Loss, Recipe
from safecl.randomness import StepSeeds, generator
from safecl.streams.pictures.images import ArrayPictures, Transform
from safecl.streams.stream import Part, Session, Stream
from tests.conftest import raises
from tests.engine.conftest import Tuned

LABELS = ["a", "b", "c"]
SETTINGS = TrainSettings(epochs=3, batch_size=4, lr=0.05)
MakeStream = Callable[..., Stream]


@pytest.fixture
def session(make_stream: MakeStream) -> Session:
    return make_stream([LABELS], train=3).open(1)


def new_fit(
    settings: TrainSettings = SETTINGS,
    folder: Path | None = None,
    seed: int = 0,
    number: int = 1,
    **options: Any,
) -> Trainer:
    method: Any = SimpleNamespace(classes=LABELS, backbone=SimpleNamespace(dtype=torch.float32))
    transform = Transform(16, margin=1.0)
    fit = Trainer(
        Accelerator(cpu=True), method, settings, transform, seed, Progress(), folder, **options
    )
    fit.begin(number)
    return fit


def counting(loss: Loss, taken: list[int]) -> Loss:
    """Notes the size of every batch."""

    def counted(batch: Batch) -> dict[str, Tensor]:
        taken.append(len(batch.targets))
        return loss(batch)

    return counted


def parameters(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


# -- stopping and going on -------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_a_phase_stopped_at_any_step_ends_where_it_would_have_ended(
    steps: int, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    straight = Tuned(backbone)
    whole = new_fit(folder=tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    whole("fast", straight, session, straight.loss)

    stopped = Tuned(backbone)
    taken = []
    loss = stopped.loss
    fit = new_fit(folder=tmp_path, stop=lambda: len(taken) >= steps)
    with pytest.raises(Stopped):
        fit("fast", stopped, session, counting(loss, taken))
    assert not torch.equal(parameters(stopped), parameters(straight))
    again = Tuned(backbone)
    rest = again.loss
    fit = new_fit(folder=tmp_path)
    fit("fast", again, session, counting(rest, taken))
    assert len(taken) == 9  # nine steps in all; none is taken twice
    assert torch.equal(parameters(again), parameters(straight))
    assert [line["step"] for line in fit.losses] == [line["step"] for line in whole.losses]


def test_a_finished_phase_is_not_run_again(
    backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    first = Tuned(backbone)
    second = Tuned(backbone)
    new_fit(folder=tmp_path)("fast", first, session, first.loss)

    def never(batch: Batch) -> dict[str, Tensor]:
        raise AssertionError("trained again")

    new_fit(folder=tmp_path)("fast", second, session, never)
    assert torch.equal(parameters(first), parameters(second))


@pytest.mark.parametrize("harm", ["damaged", "of another network", "no checkpoint"])
def test_a_checkpoint_that_cannot_be_used_starts_the_phase_again(
    harm: str, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    first = Tuned(backbone)
    second = Tuned(backbone)
    new_fit(folder=tmp_path)("fast", first, session, first.loss)
    (file,) = tmp_path.iterdir()
    if harm == "damaged":
        file.write_bytes(file.read_bytes()[:100])
    else:
        own = {f"module/{name}": value for name, value in second.state_dict().items()}
        save_state(file, own if harm == "no checkpoint" else {"w": torch.ones(3)}, {})
    said: list[str] = []
    fit = new_fit(folder=tmp_path)
    fit.progress.say = said.append  # type: ignore[method-assign]
    fit("fast", second, session, second.loss)
    assert len(said) == 1 and harm in said[0] and said[0].endswith("The phase starts again.")
    assert torch.equal(parameters(first), parameters(second))


def test_a_retry_at_a_lower_rate_goes_on_at_that_rate(
    backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    def fragile(learner: Tuned, taken: list[float]) -> Loss:
        loss = learner.loss

        def value(batch: Batch) -> dict[str, Tensor]:
            taken.append(1)
            return {"cls": loss(batch)["cls"] * (float("nan") if len(taken) <= 3 else 1.0)}

        return value

    straight = Tuned(backbone)
    new_fit()("fast", straight, session, fragile(straight, []))
    stopped = Tuned(backbone)
    taken = []
    with pytest.raises(Stopped):
        new_fit(folder=tmp_path, stop=lambda: len(taken) >= 5)(
            "fast", stopped, session, fragile(stopped, taken)
        )
    again = Tuned(backbone)
    new_fit(folder=tmp_path)("fast", again, session, fragile(again, taken))
    assert len(taken) == 3 + 9 and torch.equal(parameters(again), parameters(straight))


# -- what is trained -------------------------------------------------------------------------------


def test_only_what_requires_gradients_is_trained(backbone: Backbone, session: Session) -> None:
    learner = Tuned(backbone)
    learner.head.requires_grad_(False)
    head = learner.head.weight.clone()
    pet = [p.detach().clone() for p in learner.pet.parameters()]
    new_fit()("fast", learner, session, learner.loss)
    assert torch.equal(learner.head.weight, head)
    assert all(
        not torch.equal(p, before) for p, before in zip(learner.pet.parameters(), pet, strict=True)
    )


def test_dropout_is_on_while_training_and_off_afterwards(
    backbone: Backbone, session: Session
) -> None:
    learner = Tuned(backbone)
    modes: list[bool] = []
    loss = learner.loss
    new_fit()(
        "fast",
        learner,
        session,
        lambda batch: modes.append(learner.learner.training) or loss(batch),
    )
    assert all(modes) and not learner.training


def test_the_seed_decides_everything_and_the_global_generator_nothing(
    backbone: Backbone, session: Session
) -> None:
    results = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        learner = Tuned(backbone)
        new_fit(seed=seed)("fast", learner, session, learner.loss)
        results.append(parameters(learner))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_no_two_phases_of_a_session_share_orders_crops_or_dropout(
    backbone: Backbone, session: Session
) -> None:
    fit = new_fit(TrainSettings(epochs=2, batch_size=9))
    seen = dict[str, list[tuple[Tensor, ...]]]()

    def noted(name: str) -> Loss:
        def loss(batch: Batch) -> dict[str, Tensor]:
            dropped = nn.functional.dropout(torch.ones(50))
            seen.setdefault(name, []).append(
                (batch.targets, batch.inputs.sort(dim=0).values, dropped)
            )
            return tuned.loss(batch)

        return loss

    for name in ("pilot", "slow"):
        tuned = Tuned(backbone)
        fit(name, tuned, session, noted(name))
    for kind in range(3):
        every = [batch[kind] for name in ("pilot", "slow") for batch in seen[name]]
        assert not any(
            torch.equal(one, other) for i, one in enumerate(every) for other in every[:i]
        )


def test_every_picture_is_seen_once_an_epoch(backbone: Backbone, session: Session) -> None:
    learner = Tuned(backbone)
    seen: list[int] = []
    loss = learner.loss
    fit = new_fit()
    fit("fast", learner, session, lambda batch: seen.extend(batch.targets.tolist()) or loss(batch))
    for epoch in range(3):
        assert sorted(seen[9 * epoch : 9 * (epoch + 1)]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [phase["images"] for phase in fit.phases] == [27]


def test_the_terms_are_added_up(backbone: Backbone, session: Session) -> None:
    one = Tuned(backbone)
    split = Tuned(backbone)
    new_fit()("fast", one, session, one.loss)
    loss = split.loss

    def in_parts(batch: Batch) -> dict[str, Tensor]:
        value = loss(batch)["cls"]
        return {"a": 0.25 * value, "b": 0.75 * value}

    fit = new_fit()
    fit("fast", split, session, in_parts)
    assert torch.allclose(parameters(one), parameters(split), atol=1e-5)
    for line in fit.losses:
        assert line["loss"] == pytest.approx(line["terms"]["a"] + line["terms"]["b"], rel=1e-5)


# -- divergence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [1, 2])
def test_a_loss_that_is_not_finite_starts_again_from_the_beginning_at_a_tenth_of_the_rate(
    bad: int, backbone: Backbone, session: Session
) -> None:
    learner = Tuned(backbone)
    loss = learner.loss
    calls = [0]
    attempts = [parameters(learner)]

    def fragile(batch: Batch) -> dict[str, Tensor]:
        if calls[0] % 3 == 0 and calls[0] // 3 <= bad:  # an epoch has three steps
            assert torch.equal(parameters(learner), attempts[0])
        calls[0] += 1
        return {"cls": loss(batch)["cls"] * (float("nan") if calls[0] <= 3 * bad else 1.0)}

    new_fit()("fast", learner, session, fragile)
    assert calls[0] == 3 * bad + 9
    expected = Tuned(backbone)
    slower = SETTINGS.model_copy(update={"lr": SETTINGS.lr * 0.1**bad})
    new_fit(slower)("fast", expected, session, expected.loss)
    assert torch.allclose(parameters(learner), parameters(expected), atol=1e-6)


def test_a_last_step_that_breaks_the_weights_is_noticed(
    backbone: Backbone, session: Session
) -> None:
    learner = Tuned(backbone)
    loss = learner.loss
    calls = [0]

    class Trap(torch.autograd.Function):
        """Finite on the way there, not on the way back."""

        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:
            return gradient * float("nan")

    def trapped(batch: Batch) -> dict[str, Tensor]:
        calls[0] += 1
        value = loss(batch)["cls"]
        return {"cls": Trap.apply(value) if calls[0] == 9 else value}

    new_fit()("fast", learner, session, trapped)
    assert calls[0] == 18 and parameters(learner).isfinite().all()


def test_a_loss_that_is_never_finite_is_a_sentence(backbone: Backbone, session: Session) -> None:
    learner = Tuned(backbone)
    loss = learner.loss
    with raises("train.diverged", name=re.compile("fast$"), session=1):
        new_fit()(
            "fast", learner, session, lambda batch: {"cls": loss(batch)["cls"] * float("inf")}
        )


# -- the rate --------------------------------------------------------------------------------------


def test_features_that_are_not_finite_are_blamed_on_the_training_or_on_the_weights(
    backbone: Backbone, session: Session
) -> None:
    fit = new_fit()
    tuned = Tuned(backbone)
    fit.method.backbone = backbone
    with torch.no_grad():
        next(tuned.pet.parameters()).fill_(float("inf"))
    with raises("train.features.not-finite", session=1):
        fit.features(session, tuned.learner)
    backbone.network.norm.bias.data.fill_(float("nan"))
    for network in (backbone, tuned.learner):
        with raises("backbone.features.not-finite", name="tiny") as caught:
            fit.features(session, network)
        assert "train.lr" not in str(caught.value)


def test_later_sessions_have_their_own_settings(
    backbone: Backbone, make_stream: MakeStream
) -> None:
    settings = TrainSettings(
        epochs=3, later_epochs=1, lr=0.05, later_lr=0.01, batch_size=9, clip=None, later_clip=1e-9
    )
    stream = make_stream([LABELS, LABELS], train=3)
    steps = []
    moved = []
    for number in (1, 2):
        session = stream.open(number)
        learner = Tuned(backbone, "none")
        before = parameters(learner)
        fit = new_fit(settings, number=number)
        fit("fast", learner, session, learner.loss)
        steps.append([(line["epoch"], line["lr"]) for line in fit.losses])
        moved.append(float((parameters(learner) - before).norm()))
    assert [epoch for epoch, _ in steps[0]] == [0, 1, 2] and steps[0][0][1] == pytest.approx(0.05)
    assert [epoch for epoch, _ in steps[1]] == [0] and steps[1][0][1] == pytest.approx(0.01)
    assert moved[0] > 100 * moved[1]  # clipped to nothing but the weight decay


# -- features --------------------------------------------------------------------------------------


def test_features_are_those_of_the_plain_views_in_their_order(
    backbone: Backbone, session: Session
) -> None:
    learner = Tuned(backbone)
    fit = new_fit()
    targets, first, second = fit.features(session, learner.learner, backbone)
    views = session.train.plain(range(9), fit.transform).float() / 255
    assert targets.tolist() == [LABELS.index(label) for label in session.train.labels]
    with torch.no_grad():
        assert torch.allclose(first, learner.learner.features(views), atol=1e-6)
        assert torch.allclose(second, backbone.features(views), atol=1e-6)
    assert not first.requires_grad


# -- a batch in pieces -----------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [2, 4])
def test_a_batch_in_pieces_is_the_batch(
    accumulate: int, backbone: Backbone, session: Session
) -> None:
    """Nine pictures in batches of four: the last one is short, and goes in one piece."""
    whole = Tuned(backbone, "ssf")
    pieces = Tuned(backbone, "ssf")
    one = new_fit()
    many = new_fit(SETTINGS.model_copy(update={"accumulate": accumulate}))
    sizes: list[int] = []
    seen: list[int] = []
    one("fast", whole, session, whole.loss)
    network = pieces.learner._view[0]
    network.norm_pre.register_forward_hook(
        lambda module, inputs, outputs: seen.append(len(outputs))
    )
    loss = pieces.loss
    many("fast", pieces, session, counting(loss, sizes))
    assert sizes == [4, 4, 1] * 3  # the loss sees the whole batch
    piece = 4 // accumulate
    once = [piece] * accumulate * 2  # through the network, and again for the gradient
    assert seen == [*once, *once, 1] * 3
    assert torch.allclose(parameters(whole), parameters(pieces), atol=1e-5)
    for line, other in zip(one.losses, many.losses, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)


# -- randomness ------------------------------------------------------------------------------------

# Seeds for which two names have the same number: of steps 17 and 18 of session 2, of step 9 of
# session 1 and 21 of 2.
INSIDE = 2869031
ACROSS = 1826412


def numbers(seed: int, session: int) -> list[int]:
    """Of the crops of each step of a session, 32 bits of what its name says."""
    names = [f"{seed}/augment/{session}/finetune/{step}" for step in range(24)]
    return [int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") for name in names]


def crops(
    backbone: Backbone, seed: int, fit: Trainer | None = None, sessions: Sequence[int] = (1, 2)
) -> list[Tensor]:
    """What the steps of a phase called finetune see of pictures that are all the same one."""
    picture = np.arange(24 * 24 * 3, dtype=np.int64).reshape(24, 24, 3) % 251
    pictures = ArrayPictures(np.stack([picture] * 3).astype(np.uint8), LABELS)
    parts = [Part(f"session {n}", tuple(LABELS), pictures, pictures) for n in (1, 2)]
    stream = Stream("same", parts, "domain", Transform(16, margin=1.0))
    found = list[Tensor]()
    fit = fit or new_fit(SETTINGS.model_copy(update={"epochs": 24}), seed=seed)
    for number in sessions:
        tuned = Tuned(backbone)

        def loss(batch: Batch, tuned: Tuned = tuned) -> dict[str, Tensor]:
            found.append(batch.inputs)
            return tuned.loss(batch)

        fit.begin(number)
        fit("finetune", tuned, stream.open(number), loss)
    return found


@pytest.mark.parametrize("seed", [INSIDE, ACROSS, 0])
def test_no_two_steps_of_a_run_draw_the_same_numbers(seed: int, backbone: Backbone) -> None:
    assert len({*numbers(seed, 1), *numbers(seed, 2)}) == (48 if seed == 0 else 47)
    found = crops(backbone, seed)
    assert len(found) == 48
    assert not any(torch.equal(one, other) for one, other in combinations(found, 2))


def test_a_step_whose_seed_nobody_else_has_keeps_it(backbone: Backbone) -> None:
    """Only one of the two moves on: what is drawn stays what it has always been."""
    taken = StepSeeds(ACROSS)
    first, second = (taken.take(24, ("augment", session, "finetune")) for session in (1, 2))
    assert first == numbers(ACROSS, 1)
    assert [n for n in range(24) if second[n] != numbers(ACROSS, 2)[n]] == [21]
    assert taken.take(24, ("augment", 2, "finetune")) == second


def test_a_run_that_resumes_draws_what_it_would_have_drawn(backbone: Backbone) -> None:
    whole = new_fit(SETTINGS.model_copy(update={"epochs": 24}), seed=ACROSS)
    straight = crops(backbone, ACROSS, whole, sessions=(1,))
    draws = whole.draws
    straight += crops(backbone, ACROSS, whole, sessions=(2,))
    again = new_fit(SETTINGS.model_copy(update={"epochs": 24}), seed=ACROSS)
    again.drawn(1, json.loads(json.dumps(draws)))  # as they stand in the metrics
    rest = crops(backbone, ACROSS, again, sessions=(2,))
    assert all(torch.equal(one, other) for one, other in zip(straight[24:], rest, strict=True))


def test_pieces_must_divide_the_batch() -> None:
    with pytest.raises(ValueError, match=r"train\.accumulate=5 must divide train\.batch_size=48"):
        TrainSettings(accumulate=5)


def test_pictures_that_do_not_fit_train_the_same(backbone: Backbone, session: Session) -> None:
    results = []
    for room in (1 << 30, 0):
        learner = Tuned(backbone)
        new_fit(room=room)("fast", learner, session, learner.loss)
        results.append(parameters(learner))
    assert torch.equal(*results)


# -- what is noted ---------------------------------------------------------------------------------


def test_a_phase_says_what_it_took(backbone: Backbone, session: Session) -> None:
    learner = Tuned(backbone)
    fit = new_fit()
    fit("fast", learner, session, learner.loss)
    (phase,) = fit.phases
    assert (phase["phase"], phase["steps"], phase["images"]) == ("fast", 9, 27)
    assert phase["seconds"] > 0 and phase["peak_memory"] > 1e6
    assert phase["images_per_second"] == pytest.approx(27 / phase["seconds"])
    assert fit.steps == 9
    fit.begin(2)
    assert fit.phases == fit.losses == [] and fit.steps == 9


# -- what a phase may ask for ----------------------------------------------------------------------


@pytest.mark.parametrize("folder", [False, True])
def test_a_name_is_used_once_a_session(
    folder: bool, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    first = Tuned(backbone)
    second = Tuned(backbone)
    fit = new_fit(folder=tmp_path if folder else None)
    fit("fast", first, session, first.loss)
    with pytest.raises(RuntimeError, match="twice with the name 'fast' in session 1"):
        fit("fast", second, session, second.loss)
    fit("faster", second, session, second.loss)
    expected = Tuned(backbone)
    new_fit()("faster", expected, session, expected.loss)
    # the call that was refused changed nothing
    assert torch.equal(parameters(expected), parameters(second))
    fit.begin(2)
    fit("fast", second, session, second.loss)
    assert not torch.equal(parameters(first), parameters(second))


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("steps", [1, 4, 8])
def test_the_whole_state_of_every_optimiser_is_in_the_checkpoint(
    steps: int, optimiser: Any, backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    recipe = Recipe(
        epochs=3, batch_size=4, optimiser=optimiser, lr=0.01, weight_decay=0.1, clip=0.5
    )

    def groups(module: Tuned) -> list[Group]:
        return [Group(list(module.head.parameters()), rate=0.1)]

    straight = Tuned(backbone)
    stopped = Tuned(backbone)
    again = Tuned(backbone)
    taken = list[int]()
    new_fit()("fast", straight, session, straight.loss, recipe=recipe, groups=groups(straight))
    with pytest.raises(Stopped):
        fit = new_fit(folder=tmp_path, stop=lambda: len(taken) >= steps)
        fit(
            "fast",
            stopped,
            session,
            counting(stopped.loss, taken),
            recipe=recipe,
            groups=groups(stopped),
        )
    rest = counting(again.loss, taken)
    new_fit(folder=tmp_path)("fast", again, session, rest, recipe=recipe, groups=groups(again))
    assert len(taken) == 9 and torch.equal(parameters(again), parameters(straight))


class Averaged(Tuned):
    """With a moving average of its head, which is no parameter that is trained."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone)
        self.register_buffer("mean", self.head.weight.detach().clone())

    def follow(self) -> None:
        self.mean.lerp_(self.head.weight.detach(), 0.3)


def test_what_follows_every_step_is_part_of_the_checkpoint(
    backbone: Backbone, session: Session, tmp_path: Path
) -> None:
    straight = Averaged(backbone)
    stopped = Averaged(backbone)
    again = Averaged(backbone)
    taken = list[int]()
    new_fit()("fast", straight, session, straight.loss, after_step=straight.follow)
    assert not torch.equal(straight.mean, straight.head.weight)
    with pytest.raises(Stopped):
        fit = new_fit(folder=tmp_path, stop=lambda: len(taken) >= 5)
        fit("fast", stopped, session, counting(stopped.loss, taken), after_step=stopped.follow)
    new_fit(folder=tmp_path)("fast", again, session, again.loss, after_step=again.follow)
    assert torch.equal(again.mean, straight.mean)


def sampled(width: int, drawn: list[Tensor]) -> Callable[[torch.Generator], tuple[Tensor, Tensor]]:
    """Seven features an epoch, which follow from the generator."""

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn.append(torch.randn(7, width, generator=generator))
        return drawn[-1], torch.arange(7) % 3

    return draw


def test_a_phase_on_sampled_features_draws_them_anew_each_epoch_and_goes_on_after_a_stop(
    backbone: Backbone, tmp_path: Path
) -> None:
    recipe = Recipe(epochs=3, batch_size=3, lr=0.1)

    def new_head() -> CosineHead:
        head = CosineHead(backbone.width)
        head.grow_random(3, generator(0, "head"))
        return head

    def loss(head: CosineHead, seen: list[Tensor]) -> Loss:
        def value(batch: Batch) -> dict[str, Tensor]:
            seen.append(batch.inputs)
            assert batch.gather(batch.inputs) is batch.inputs
            return {"cls": nn.functional.cross_entropy(head(batch.inputs), batch.targets)}

        return value

    straight = new_head()
    again = new_head()
    drawn = list[Tensor]()
    seen = list[Tensor]()
    fit = new_fit()
    fit("align", straight, sampled(backbone.width, drawn), loss(straight, seen), recipe=recipe)
    assert [len(batch) for batch in seen] == [3, 3, 1] * 3
    assert [phase["images"] for phase in fit.phases] == [21] and fit.phases[0]["steps"] == 9
    for epoch in range(3):  # each feature once an epoch, in an order of its own
        rows = torch.cat(seen[3 * epoch : 3 * epoch + 3])
        source = next(d for d in drawn if torch.isin(rows[0], d).all())
        assert not torch.equal(rows, source) and torch.equal(
            rows.sort(dim=0).values, source.sort(dim=0).values
        )
    assert len({tuple(d.flatten().tolist()) for d in drawn}) == 3
    taken: list[Tensor] = []
    with pytest.raises(Stopped):
        stopped = new_head()
        fit = new_fit(folder=tmp_path, stop=lambda: len(taken) >= 5)
        fit("align", stopped, sampled(backbone.width, []), loss(stopped, taken), recipe=recipe)
    new_fit(folder=tmp_path)(
        "align", again, sampled(backbone.width, []), loss(again, taken), recipe=recipe
    )
    assert len(taken) == 9 and torch.equal(parameters(again), parameters(straight))


def test_the_recipe_of_the_settings_can_be_changed_for_a_phase(
    backbone: Backbone, session: Session
) -> None:
    learner = Tuned(backbone)
    fit = new_fit()
    taken = list[int]()
    assert fit.recipe() == Recipe(epochs=3, batch_size=4, lr=0.05)
    recipe = replace(fit.recipe(), epochs=1, batch_size=9, lr=0.5)
    fit("fast", learner, session, counting(learner.loss, taken), recipe=recipe)
    assert taken == [9] and fit.losses[0]["lr"] == 0.5


def test_torchs_own_generator_goes_on_as_if_nothing_had_been_trained(
    backbone: Backbone, session: Session
) -> None:
    learner = Tuned(backbone)
    fit = new_fit()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit("fast", learner, session, learner.loss)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("continues", [True, False])
def test_a_phase_that_continues_takes_over_what_adam_knows(continues: bool) -> None:
    """Two phases are then one, which torch's own Adam confirms; a number that joins later starts
    anew.
    """
    x = torch.linspace(-1, 1, 12).reshape(6, 2)
    settings = TrainSettings(
        optimiser="adam", lr=0.1, weight_decay=0, schedule="constant", batch_size=6
    )

    def made() -> tuple[nn.Module, nn.Parameter, nn.Parameter]:
        module = nn.Module()
        module.a = nn.Parameter(torch.ones(2))
        module.b = nn.Parameter(torch.full((2,), 2.0), requires_grad=False)
        return module, module.a, module.b

    def error(a: Tensor, b: Tensor) -> Tensor:
        return ((x * a).sin() + b - 3 * x).square().sum()

    module, a, b = made()
    fit = new_fit(settings)
    recipe = replace(fit.recipe(), continues=continues)

    def data(random: torch.Generator) -> tuple[Tensor, Tensor]:
        return x, torch.zeros(6, dtype=torch.long)

    for name, epochs in (("first", 3), ("second", 4)):
        fit(
            name,
            module,
            data,
            lambda batch: {"loss": error(a, b)},
            recipe=replace(recipe, epochs=epochs),
        )
        b.requires_grad_(True)
    _, expected, joined = made()
    adam = torch.optim.Adam([expected, joined], lr=0.1)
    for step in range(7):
        joined.requires_grad_(step >= 3)
        if step == 3 and not continues:
            adam = torch.optim.Adam([expected, joined], lr=0.1)
        adam.zero_grad()
        error(expected, joined).backward()
        adam.step()
    assert torch.allclose(a, expected, atol=1e-5) and torch.allclose(b, joined, atol=1e-5)


def test_augmented_features_are_those_of_one_random_crop_of_each_picture(
    backbone: Backbone, session: Session
) -> None:
    fit = new_fit()
    one, same, other = (
        fit.augmented_features(name, session, backbone) for name in ("one", "one", "other")
    )
    assert one.shape == (len(session.train), backbone.width)
    assert torch.equal(one, same) and not torch.equal(one, other)

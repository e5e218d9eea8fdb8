"""Optimisers against torch's plain ones, their groups, and the rate of every step."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from safecl.engine.optimiser import Optimiser, rate_factor
from safecl.methods.method import Group, Recipe

CPU = torch.device("cpu")


def module(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_steps_are_those_of_torchs_plain_optimiser(optimiser: str, clip: float | None) -> None:
    ours = module()
    theirs = module()
    recipe = Recipe(optimiser=optimiser, weight_decay=0.1, momentum=0.8, clip=clip)  # type: ignore[arg-type]
    options: dict[str, Any] = {"momentum": 0.8} if optimiser == "sgd" else {}
    kind: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[
        optimiser
    ]
    groups = [{"params": list(theirs[1].parameters())}, {"params": list(theirs[0].parameters())}]
    plain = kind(groups, lr=0.0, weight_decay=0.1, foreach=False, fused=False, **options)
    group = Group(list(ours[1].parameters()), rate=0.5)
    made = Optimiser(dict(ours.named_parameters()), [group], recipe, CPU)
    generator = torch.Generator().manual_seed(1)
    for step in range(4):
        x = torch.randn(5, 3, generator=generator)
        rate = 0.1 / (step + 1)
        for network in (ours, theirs):
            network.zero_grad()
            network(x).square().sum().backward()
        made.set_rate(rate)
        plain.param_groups[0]["lr"], plain.param_groups[1]["lr"] = 0.5 * rate, rate
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        made.step()
        plain.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_group_may_only_name_what_is_trained_and_nothing_twice() -> None:
    network = module()
    stranger = nn.Parameter(torch.zeros(2))
    parameters = dict(network.named_parameters())
    first = list(network[0].parameters())
    for groups in ([Group([stranger])], [Group(first), Group(first)]):
        with pytest.raises(ValueError, match="not trained in this phase, or names one twice"):
            Optimiser(parameters, groups, Recipe(), CPU)
    Optimiser(parameters, [Group(first), Group(list(network[1].parameters()))], Recipe(), CPU)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5), st.sampled_from(["step", "epoch"]))
def test_the_rate_is_a_cosine_that_would_reach_zero_at_the_horizon(
    epochs: int, per_epoch: int, beyond: int, every: Any
) -> None:
    horizon = epochs + beyond
    recipe = Recipe(epochs=epochs, horizon=horizon, every=every)
    for step in range(epochs * per_epoch):
        at = step // per_epoch / horizon if every == "epoch" else step / (horizon * per_epoch)
        assert rate_factor(recipe, step, per_epoch) == pytest.approx(
            0.5 * (1 + math.cos(math.pi * at))
        )


def test_the_published_schedule_ends_where_the_released_code_does() -> None:
    """15 of 20 epochs: the last rate is 0.00206 of 0.01."""
    recipe = Recipe(epochs=15, horizon=20, every="epoch")
    assert 0.01 * rate_factor(recipe, 14, 1) == pytest.approx(0.00206, abs=1e-5)


def test_steps_fall_at_their_milestones_and_constant_ones_never() -> None:
    recipe = Recipe(epochs=5, schedule="steps", milestones=(2, 4), decay=0.5, every="epoch")
    assert [rate_factor(recipe, step, 2) for step in range(10)] == [1.0] * 4 + [0.5] * 4 + [
        0.25
    ] * 2
    assert {rate_factor(Recipe(schedule="constant"), step, 2) for step in range(40)} == {1.0}


def test_the_quarter_cosine_is_that_of_coda_prompt() -> None:
    """lr(e) = lr₀ cos(99 π e / (200 (K − 1))) for e = 0 … K − 1."""
    recipe = Recipe(epochs=5, schedule="quarter_cosine", every="epoch")
    rates = [rate_factor(recipe, step, 3) for step in range(0, 15, 3)]
    assert rates == pytest.approx([math.cos(99 * math.pi * e / (200 * 4)) for e in range(5)])
    assert rate_factor(Recipe(epochs=1, schedule="quarter_cosine", every="epoch"), 2, 3) == 1.0

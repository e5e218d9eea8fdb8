"""Named sources of randomness: the same name gives the same numbers, another one others."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.heads.settings import RidgeSettings
from safecl.learner import Learner
from safecl.methods.catalog import make_method, method_settings
from safecl.pet.settings import PETS, pet_settings
from safecl.randomness import derive, generator
from tests.conftest import raises

NAMES = st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=4)


@given(st.integers(), NAMES)
def test_a_name_is_a_seed_of_its_own(seed: int, names: list[str | int]) -> None:
    value = derive(seed, *names)
    assert value == derive(seed, *names) and 0 <= value < 2**32
    assert torch.equal(
        torch.rand(3, generator=generator(seed, *names)),
        torch.rand(3, generator=generator(seed, *names)),
    )


def test_names_do_not_get_in_each_others_way() -> None:
    seeds = [
        derive(seed, kind, session, step)
        for seed in (0, 1)
        for kind in ("order", "augment", "dropout")
        for session in range(20)
        for step in range(50)
    ]
    assert len(set(seeds)) == len(seeds)


def test_two_names_that_last_and_have_one_number_are_refused() -> None:
    # which have one for this seed
    names = (
        ("augment", 1, "finetune", 9),
        ("augment", 2, "finetune", 21),
    )
    number = derive(1826412, *names[0])
    assert derive(1826412, *names[0]) == number
    with raises(
        "seed.same-numbers", one="1826412/augment/1/finetune/9", other=re.compile("/2/finetune/21$")
    ):
        generator(1826412, *names[1])
    assert derive(1826413, *names[1])  # with another seed they have two


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    torch.rand(3, generator=generator(0, "order"))
    assert torch.equal(torch.random.get_rng_state(), before)


def ranks(tensor: Tensor) -> tuple[int, ...]:
    """The order of the first numbers: the same for numbers that differ by a factor or a shift
    alone.
    """
    return tuple(tensor.detach().flatten()[:12].argsort().tolist())


@pytest.mark.parametrize("aggregation", ["entropy", "concat"])
def test_no_two_parts_of_a_method_share_random_numbers(
    aggregation: str, make_backbone: Callable[..., Backbone]
) -> None:
    """Every PET, cosine rows, linear rows and random projections, all for one seed."""
    seen: dict[tuple[int, ...], str] = {}
    backbone = make_backbone()

    def note(name: str, tensor: Tensor) -> None:
        if tensor.numel() < 12 or tensor.flatten()[:12].unique().numel() < 12:
            return  # zeros, or too few to tell
        assert ranks(tensor) not in seen, f"{name} has the numbers of {seen.get(ranks(tensor))}"
        seen[ranks(tensor)] = name

    for kind in PETS:
        if kind != "full":
            for name, value in (
                Learner(
                    backbone, pet_settings(kind, **({"deviation": 0.02} if kind == "ssf" else {}))
                )
                .state_dict()
                .items()
            ):
                note(f"{kind} {name}", value)
    cosine = CosineHead(backbone.width)
    linear = LinearHead(backbone.width)
    cosine.grow_random(3, generator(0, "head"))
    linear.grow(3, generator(0, "head", 0))
    note("cosine rows", cosine.weight)
    note("linear rows", linear.weights[0])
    settings = method_settings()["safe"](
        answer={"aggregation": aggregation, "statistics": "stale"}, ridge=RidgeSettings(size=40)
    )
    method: Any = make_method(settings, backbone)
    note("projection", method.ridge_slow.project.projection)
    # shared on purpose, as in the paper
    assert method.ridge_fast.project.projection is method.ridge_slow.project.projection
    if aggregation == "concat":
        note("projection of both", method.joint.project.projection)
    note("order", torch.randperm(50, generator=generator(0, "order", 1, "slow", 0)).float())
    note("crops", torch.rand(50, generator=generator(0, "augment", 1, "slow", 0)))
    assert len(seen) > 20

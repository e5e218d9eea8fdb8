"""Named sources of randomness: the same name gives the same numbers, another one others."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.randomness import derive, generator

NAMES = st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=4)


@given(st.integers(), NAMES)
def test_a_name_is_a_seed_of_its_own(seed: int, names: list[str | int]) -> None:
    value = derive(seed, *names)
    assert value == derive(seed, *names) and 0 <= value < 2**32
    assert torch.equal(
        torch.rand(3, generator=generator(seed, *names)), torch.rand(3, generator=generator(seed, *names))
    )


def test_names_do_not_get_in_each_others_way() -> None:
    seeds = [derive(seed, kind, session, step) for seed in (0, 1) for kind in ("order", "augment", "dropout")
             for session in range(20) for step in range(50)]  # fmt: skip
    assert len(set(seeds)) == len(seeds)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    torch.rand(3, generator=generator(0, "order"))
    assert torch.equal(torch.random.get_rng_state(), before)

"""What holds for every network of timm: it is read as timm reads it, and a PET that it takes is
attached beside it.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.backbone.families.family import Family
from safecl.backbone.families.vit import Vit
from safecl.heads.reading import PLAIN, Reading
from safecl.pet.attach import attach, merge, possible
from safecl.pet.settings import PETS, pet_settings
from tests.conftest import raises

EXACT = ("adapter", "lora", "ssf")  # which start as the network is


def close(found: Tensor, expected: Tensor, share: float | None = None) -> bool:
    """In units of the largest number, equal but for rounding."""
    rounding = 1e-9 if found.dtype == torch.float64 else 1e-5
    found = found.detach()
    return float((found - expected).abs().max() / expected.abs().max()) < (share or rounding)


def test_its_own_feature_is_what_timm_pools(family: Family, pictures: Tensor) -> None:
    network: Any = family.network
    final = network.forward_features(pictures)
    expected = final[:, 0] if isinstance(family, Vit) else network.forward_head(final, True)
    found = family.features(family.view(network), pictures)
    assert found.shape == (2, family.widths.own) and close(found, expected.flatten(1))


def test_its_own_feature_comes_first_of_all_that_is_read(family: Family, pictures: Tensor) -> None:
    """And less is a part of more: every feature of one pass over all blocks or stages."""
    view = family.view(family.network)
    widest = Reading(family.widths.depth, family.widths.patches != 0)
    rows = family.read(view, pictures, widest)
    assert rows.shape == (2, family.widths.total(widest))
    for less in {PLAIN, Reading(min(2, widest.layers)), widest._replace(layers=1)}:
        expected = family.read(view, pictures, less)
        assert close(family.widths.of(rows, less, widest), expected)


def test_a_pet_is_taken_or_refused_with_those_that_are(family: Family) -> None:
    taken = possible(family)
    assert {"ssf", "full", "none"} <= {*taken} <= {*PETS}
    for kind in {*PETS} - {*taken}:
        with raises("pet.network.other", pet=kind, possible=", ".join(taken)):
            attach(family.network, pet_settings(kind), family=family)


@pytest.mark.parametrize("kind", [kind for kind in PETS if kind != "none"])
def test_a_pet_tunes_the_network_and_leaves_it_as_it_was(
    kind: str, family: Family, pictures: Tensor, scramble: Callable[..., None]
) -> None:
    """At its start it changes nothing (prompts and prefixes do), gradients reach it alone, and
    merged it answers the same.
    """
    if kind not in possible(family):
        pytest.skip("it is refused")
    weights = {name: value.clone() for name, value in family.network.state_dict().items()}
    before = family.features(family.network, pictures)
    view, pet = attach(family.network, pet_settings(kind), family=family)
    pet.to(pictures.dtype)
    own = family.features(view, pictures)
    if kind in EXACT:
        assert close(own, before)
    loss = own.pow(3).sum()
    trained = [parameter for parameter in view.parameters() if parameter.requires_grad]
    assert {id(one) for one in trained} == {id(one) for one in pet.parameters()}
    gradients = torch.autograd.grad(loss, trained, allow_unused=kind == "full")
    assert any(one is not None and one.abs().max() > 0 for one in gradients)
    if kind != "full":
        scramble(pet, seed=3, deviation=0.1)
    pet.eval().requires_grad_(False)
    tuned = family.features(view, pictures)
    if kind != "full":
        assert not close(tuned, before)
    assert close(family.features(merge(view), pictures), tuned)
    assert close(family.features(view, pictures), tuned)  # merging made a copy
    assert close(family.features(copy.deepcopy(view), pictures), tuned)
    assert all(
        torch.equal(value, weights[key]) for key, value in family.network.state_dict().items()
    )
    assert torch.equal(family.features(family.network, pictures), before)

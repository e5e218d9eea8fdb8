"""A learner: one tuned view of the backbone, and a state without the backbone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.learner import Learner
from safecl.pet.settings import PETS, pet_settings

MakeBackbone = Callable[..., Backbone]
Scramble = Callable[..., None]


@pytest.fixture(params=PETS)
def learner(
    request: pytest.FixtureRequest, make_backbone: MakeBackbone, scramble: Scramble
) -> Learner:
    """A learner with every kind of PET, moved off its initial values."""
    made = Learner(make_backbone(), pet_settings(request.param))
    scramble(made.pet)
    return made


def tuned(backbone: Backbone, kind: str, scramble: Scramble, seed: int = 0) -> Learner:
    made = Learner(backbone, pet_settings(kind), seed)
    scramble(made.pet, seed)
    return made


@torch.no_grad()
def features(learner: Any, images: Tensor) -> Tensor:
    return learner.features(images)  # type: ignore[no-any-return]


def test_the_state_holds_the_pet_and_nothing_of_the_backbone(learner: Learner) -> None:
    own = {tensor.data_ptr() for tensor in learner.backbone.network.state_dict().values()}
    assert not own & {
        tensor.data_ptr() for tensor in learner.state_dict().values() if tensor.numel()
    }
    assert {key.split(".")[0] for key in learner.state_dict()} <= {"pet"}


def test_features_are_those_of_its_view(learner: Learner, images: Tensor) -> None:
    same = torch.equal(features(learner, images), features(learner.backbone, images))
    assert same is (not learner.tuning())


def test_a_copy_starts_equal_and_goes_its_own_way(
    learner: Learner, images: Tensor, scramble: Scramble
) -> None:
    learner.freeze()
    twin = learner.copy()
    before = learner.tuning()
    assert torch.allclose(features(twin, images), features(learner, images), atol=1e-5)
    assert all(parameter.requires_grad for parameter in twin.parameters())
    scramble(twin)
    assert all(torch.equal(value, before[key]) for key, value in learner.tuning().items())


# -- while nothing is trained, the PET is merged into the weights ----------------------------------


def test_merged_features_are_those_of_the_view(learner: Learner, images: Tensor) -> None:
    learner.train()
    for module in learner.pet.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    as_trained = features(learner, images)
    learner.eval()
    assert torch.allclose(features(learner, images), as_trained, atol=1e-4)


def test_the_merged_network_is_made_once(learner: Learner, images: Tensor) -> None:
    features(learner, images)
    first = learner._merged[0]
    features(learner, images)
    assert learner._merged[0] is first


@pytest.mark.parametrize("change", ["in place", "interpolate", "load", "train"])
def test_no_change_of_the_pet_leaves_an_old_merged_network_behind(
    change: str, make_backbone: MakeBackbone, images: Tensor, scramble: Scramble
) -> None:
    backbone = make_backbone()
    one = tuned(backbone, "ssf", scramble)
    other = tuned(backbone, "ssf", scramble, seed=1)
    expected = features(other, images)
    before = features(one, images)
    if change == "in place":
        with torch.no_grad():
            for mine, theirs in zip(one.pet.parameters(), other.pet.parameters(), strict=True):
                mine.copy_(theirs)
    elif change == "interpolate":
        one.interpolate(one.tuning(), other.tuning(), 1.0)
    elif change == "load":
        nn.ModuleDict({"it": one}).load_state_dict(
            {f"it.{key}": value for key, value in other.state_dict().items()}
        )
    else:  # as a recorded step does it: without a trace in the version counters
        one.train()
        for mine, theirs in zip(one.pet.parameters(), other.pet.parameters(), strict=True):
            mine.data.copy_(theirs.data)
        one.eval()
    assert torch.allclose(features(one, images), expected, atol=1e-5)
    assert not torch.allclose(before, expected, atol=1e-3)


def test_gradients_reach_a_pet_that_is_not_frozen_in_evaluation_mode_too(
    make_backbone: MakeBackbone, images: Tensor, scramble: Scramble
) -> None:
    learner = tuned(make_backbone(), "ssf", scramble)
    features(learner, images)  # merged
    learner.features(images).sum().backward()
    assert all(parameter.grad is not None for parameter in learner.parameters())


def test_a_frozen_learner_has_no_gradients_and_no_dropout(
    make_backbone: MakeBackbone, images: Tensor, scramble: Scramble
) -> None:
    learner = tuned(make_backbone(), "adapter", scramble)
    learner.train()
    learner.freeze()
    assert not any(parameter.requires_grad for parameter in learner.parameters())
    assert torch.equal(learner.features(images), learner.features(images))
    assert not learner.features(images).requires_grad


# -- modes and seeds -------------------------------------------------------------------------------


def test_a_new_learner_starts_in_evaluation_mode(make_backbone: MakeBackbone) -> None:
    learner = Learner(make_backbone(), pet_settings("adapter"))
    assert not any(module.training for module in learner.modules())
    assert not any(module.training for module in learner.copy().modules())


def test_training_mode_reaches_the_dropout_of_the_adapter(
    make_backbone: MakeBackbone, images: Tensor, scramble: Scramble
) -> None:
    learner = tuned(make_backbone(), "adapter", scramble)
    nn.ModuleList([learner]).train()
    assert not torch.equal(learner.features(images), learner.features(images))
    learner.eval()
    assert torch.equal(learner.features(images), learner.features(images))


def test_the_seed_fixes_the_pet(make_backbone: MakeBackbone, images: Tensor) -> None:
    one, same, other = (
        Learner(make_backbone(), pet_settings("ssf", deviation=0.02), seed) for seed in (1, 1, 2)
    )
    assert torch.equal(features(one, images), features(same, images))
    assert not torch.equal(features(one, images), features(other, images))


def test_what_is_learned_are_the_numbers_of_the_pet(make_backbone: MakeBackbone) -> None:
    learner = Learner(make_backbone(), pet_settings("vpt_deep"))
    assert sum(parameter.numel() for parameter in learner.parameters()) == 2 * 5 * 24

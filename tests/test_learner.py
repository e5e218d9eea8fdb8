"""A learner: one tuned view of the backbone, and a state without the backbone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.backbone import Backbone
from safecl.heads import RidgeSettings
from safecl.learner import Learner, random_rows
from safecl.pet import pet_settings

RIDGE = RidgeSettings(size=30)
KINDS = ["adapter", "ssf", "vpt_deep", "vpt_shallow", "lora", "none"]


def taught(backbone: Backbone, kind: Any, images: Tensor, seed: int = 0) -> Learner:
    """A learner that knows three classes."""
    learner = Learner(backbone, pet_settings(kind), RIDGE, 10.0, seed)
    learner.eval()
    targets = torch.tensor([0, 1, 2, 0, 1])
    features = learner.features(images).detach()
    learner.cosine.grow(random_rows(3, backbone.width, seed))
    learner.cosine.observe(features, targets)
    learner.remember(features, targets)
    return learner


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_holds_what_was_learned_and_nothing_of_the_backbone(
    kind: Any, make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    learner = taught(backbone, kind, images)
    own = {tensor.data_ptr() for tensor in backbone.vit.state_dict().values()}
    assert not own & {tensor.data_ptr() for tensor in learner.state_dict().values() if tensor.numel()}
    assert {key.split(".")[0] for key in learner.state_dict()} <= {"pet", "cosine", "ridge"}
    assert {key.split(".")[0] for key, _ in learner.named_parameters()} <= {"pet", "cosine"}


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_those_of_its_view_and_logits_those_of_its_ridge_head(
    kind: Any, make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    backbone = make_backbone()
    learner = taught(backbone, kind, images)
    scramble(learner.pet)
    same = torch.equal(learner.features(images), backbone.features(images))
    assert same is (kind == "none")
    assert torch.equal(learner.logits(images), learner.ridge.logits(learner.features(images)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_starts_equal_and_goes_its_own_way(
    kind: Any, make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    learner = taught(make_backbone(), kind, images)
    scramble(learner.pet)
    learner.freeze()
    twin = learner.copy()
    twin.eval()
    assert torch.allclose(twin.logits(images), learner.logits(images), atol=1e-5)  # the frozen one is merged
    assert torch.equal(twin.cosine.weight, learner.cosine.weight)
    assert all(parameter.requires_grad for parameter in twin.parameters())
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    scramble(twin)
    twin.remember(twin.features(images).detach(), torch.tensor([3, 3, 3, 3, 4]))
    assert all(torch.equal(value, before[key]) for key, value in learner.state_dict().items())


def test_a_frozen_learner_is_neither_trained_nor_dropped_out(
    make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    learner = taught(make_backbone(), "adapter", images)
    scramble(learner.pet)
    learner.train()
    learner.freeze()
    assert not any(parameter.requires_grad for parameter in learner.parameters())
    assert torch.equal(learner.features(images), learner.features(images))


def test_a_frozen_learner_given_another_state_is_that_one(
    make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    backbone = make_backbone()
    one, other = (taught(backbone, "ssf", images, seed) for seed in (0, 1))
    one.freeze()
    scramble(other.pet)
    torch.nn.ModuleDict({"it": one}).load_state_dict({f"it.{key}": value for key, value in other.state_dict().items()})
    assert torch.allclose(one.features(images), other.features(images), atol=1e-5)


def test_a_new_learner_starts_in_evaluation_mode(make_backbone: Callable[..., Backbone]) -> None:
    learner = Learner(make_backbone(), pet_settings("adapter"), RIDGE)
    assert not any(module.training for module in learner.modules())
    assert not any(module.training for module in learner.copy().modules())


def test_training_mode_reaches_the_dropout_of_the_adapter(
    make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    learner = taught(make_backbone(), "adapter", images)
    scramble(learner.pet)
    learner.train()
    assert not torch.equal(learner.features(images), learner.features(images))
    learner.eval()
    assert torch.equal(learner.features(images), learner.features(images))


def test_the_seed_fixes_pet_and_projection(make_backbone: Callable[..., Backbone], images: Tensor) -> None:
    one, same, other = (taught(make_backbone(), "ssf", images, seed) for seed in (1, 1, 2))
    assert torch.equal(one.logits(images), same.logits(images))
    assert not torch.equal(one.features(images), other.features(images))


def test_learned_numbers_are_those_of_pet_and_cosine_head(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    learner = taught(make_backbone(), "vpt_deep", images)
    assert sum(parameter.numel() for parameter in learner.parameters()) == 2 * 5 * 24 + 3 * 24 + 1


def test_random_rows_fill_the_box_of_a_fresh_head() -> None:
    rows = random_rows(50, 16, 0)
    assert rows.abs().max() <= 0.25 and rows.std() > 0.25 / 2
    assert torch.equal(rows, random_rows(50, 16, 0)) and not torch.equal(rows, random_rows(50, 16, 1))

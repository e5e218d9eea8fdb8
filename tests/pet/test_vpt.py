"""VPT against a forward pass written out by hand: prompts at the end of the sequence, dropped
again.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from safecl.pet.attach import attach
from safecl.pet.settings import pet_settings


def test_deep_prompts_are_new_in_every_block(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = attach(vit, pet_settings("vpt_deep"))
    scramble(pet)
    prompts = {int(i): each.tokens for i, each in pet.items()}
    assert {i: each.shape for i, each in prompts.items()} == {0: (5, 24), 1: (5, 24)}
    expected = reference(vit, images, prompts=prompts, dropped=(0, 1))
    found = view.forward_features(images)
    assert found.shape == vit.forward_features(images).shape
    assert torch.allclose(found, expected, atol=1e-6)


def test_shallow_prompts_go_through_all_blocks_and_out(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = attach(vit, pet_settings("vpt_shallow", tokens=3))
    scramble(pet)
    assert set(pet) == {"0"}
    expected = reference(vit, images, prompts={0: pet["0"].tokens}, dropped=(1,))
    found = view.forward_features(images)
    assert found.shape == vit.forward_features(images).shape
    assert torch.allclose(found, expected, atol=1e-6)


def test_in_a_network_of_one_block_shallow_and_deep_are_the_same(
    make_vit: Callable[..., VisionTransformer], images: Tensor
) -> None:
    vit = make_vit(depth=1).double()
    deep, _ = attach(vit, pet_settings("vpt_deep"))
    shallow, _ = attach(vit, pet_settings("vpt_shallow"))
    assert torch.equal(deep.forward_features(images), shallow.forward_features(images))


@pytest.mark.parametrize("kind", ["vpt_deep", "vpt_shallow"])
def test_prompts_start_at_zero(kind: str, vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings(kind))
    assert not any(parameter.any() for parameter in pet.parameters())


@pytest.mark.parametrize("kind", ["vpt_deep", "vpt_shallow"])
def test_prompts_learn_at_their_own_rate(kind: str, vit: VisionTransformer, images: Tensor) -> None:
    gradients = []
    for rate in (1.0, 0.25):
        view, pet = copy.deepcopy(attach(vit, pet_settings(kind, rate=rate)))
        view.forward_features(images)[:, 0].square().sum().backward()
        gradients.append([parameter.grad for parameter in pet.parameters()])
    assert all(
        whole.any() and torch.equal(0.25 * whole, slow)
        for whole, slow in zip(*gradients, strict=True)
    )

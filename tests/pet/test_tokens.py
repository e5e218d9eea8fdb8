"""Prompts, prefixes and token outputs through a view, with every PET: against the network written
out by hand.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import use_layers
from safecl.backbone.view import tokens
from safecl.pet.attach import attach, merge
from safecl.pet.settings import PETS, pet_settings

Oracle = Callable[..., Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()


def precise(
    vit: VisionTransformer, kind: str, scramble: Callable[..., None]
) -> tuple[Any, Any, nn.ModuleDict]:
    """The network in float64 with its fast layers, and a view of it with a PET off its initial
    values.
    """
    vit = copy.deepcopy(vit)
    use_layers(vit)
    view, pet = attach(vit, pet_settings(kind))
    pet.double()
    scramble(pet)
    return vit, view, pet.eval()


@pytest.mark.parametrize("kind", PETS)
@pytest.mark.parametrize("given", ["nothing", "prompts", "prefixes", "both"])
def test_tokens_and_gradients_are_those_of_the_network_as_it_is_written(
    given: str,
    kind: str,
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Oracle,
    tuned: Callable[..., dict[str, Any]],
) -> None:
    vit, view, pet = precise(vit, kind, scramble)
    prompts = draw(5, 3, 24) if given in ("prompts", "both") else None
    pairs = {i: (draw(5, 2 + i, 24, seed=i), draw(5, 2 + i, 24, seed=9 + i)) for i in (0, 1)}
    prefixes = pairs if given in ("prefixes", "both") else None
    inputs = [*pet.parameters()]
    inputs += [] if prompts is None else [prompts]
    inputs += [] if prefixes is None else [each for pair in prefixes.values() for each in pair]
    everything = reference(
        vit, images, inserted=prompts, prefixes=prefixes, **tuned(kind, vit, pet)
    )
    for count in (1, 4):
        found = tokens(view, images, count, prompts, prefixes)
        expected = everything[:, :count]
        assert found.shape == (5, count, 24)
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)
        if inputs:
            gradients = [
                torch.autograd.grad(
                    y.pow(3).mean(),
                    inputs,
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
                for y in (found, expected)
            ]
            for one, other in zip(*gradients, strict=True):
                assert torch.allclose(
                    one, other, rtol=0, atol=1e-9 * max(1.0, float(other.abs().max()))
                )
        assert torch.allclose(
            tokens(merge(view), images, count, prompts, prefixes), expected, atol=1e-10
        )


@pytest.mark.parametrize("kind", PETS)
def test_a_picture_has_its_own_prompts_and_prefixes_whatever_else_is_in_the_batch(
    kind: str, vit: VisionTransformer, images: Tensor, scramble: Callable[..., None]
) -> None:
    _, view, _ = precise(vit, kind, scramble)
    prompts = draw(5, 3, 24)
    keys = draw(5, 2, 24, seed=1)
    values = draw(5, 2, 24, seed=2)
    together = tokens(view, images, 4, prompts, {1: (keys, values)})
    for i in range(5):
        one = slice(i, i + 1)
        alone = tokens(view, images[one], 4, prompts[one], {1: (keys[one], values[one])})
        assert torch.allclose(alone, together[one], rtol=0, atol=1e-12)


def test_prompts_and_prefixes_without_a_batch_dimension_are_those_of_every_picture(
    vit: VisionTransformer, images: Tensor, scramble: Callable[..., None]
) -> None:
    _, view, _ = precise(vit, "ssf", scramble)
    prompts = draw(3, 24)
    keys = draw(2, 24, seed=1)
    values = draw(2, 24, seed=2)
    found = tokens(view, images, 4, prompts, {0: (keys, values)})
    repeated = [each.expand(5, -1, -1) for each in (prompts, keys, values)]
    assert torch.equal(found, tokens(view, images, 4, repeated[0], {0: (repeated[1], repeated[2])}))

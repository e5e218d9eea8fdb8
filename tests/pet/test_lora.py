"""LoRA against a forward pass written out by hand: a low-rank change of two of query, key and
value.
"""

from collections.abc import Callable

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from safecl.pet.attach import attach, merge
from safecl.pet.settings import pet_settings


@pytest.mark.parametrize("projections, places", [("qv", (0, 2)), ("kv", (1, 2))])
def test_two_of_query_key_and_value_get_a_low_rank_change_and_the_third_none(
    projections: str,
    places: tuple[int, int],
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    rank = 2
    alpha = 6.0
    width = 24
    view, pet = attach(vit, pet_settings("lora", rank=rank, alpha=alpha, projections=projections))
    scramble(pet)
    changed = {key: value.double() for key, value in vit.state_dict().items()}
    for i, lora in pet.items():
        for part, up, down in zip(
            places, lora.up, (lora.down[:rank], lora.down[rank:]), strict=True
        ):
            change = alpha / rank * (up @ down).detach().double()
            rows = slice(part * width, (part + 1) * width)
            changed[f"blocks.{i}.attn.qkv.weight"] = changed[f"blocks.{i}.attn.qkv.weight"].clone()
            changed[f"blocks.{i}.attn.qkv.weight"][rows] += change
    expected = reference(vit, images, weights=changed)
    assert torch.allclose(view.forward_features(images), expected, atol=1e-6)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-2)


def test_a_learned_scale_starts_at_alpha_over_rank_and_multiplies_its_change(
    vit: VisionTransformer, images: Tensor, scramble: Callable[..., None]
) -> None:
    (view, pet), (plain, fixed) = (
        attach(vit, pet_settings("lora", rank=2, alpha=6.0, learn_scale=learned))
        for learned in (True, False)
    )
    scramble(fixed)
    pet.load_state_dict(fixed.state_dict(), strict=False)
    assert torch.allclose(view.forward_features(images), plain.forward_features(images), atol=1e-12)
    with torch.no_grad():
        for one, other in zip(pet.values(), fixed.values(), strict=True):
            one.scale[1] *= 0.5
            other.up[1] *= 0.5
    for network in (view, merge(view)):
        assert torch.allclose(
            network.forward_features(images), plain.forward_features(images), atol=1e-6
        )


def test_only_the_first_blocks_have_it_if_asked(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("lora", blocks=1))
    assert list(pet) == ["0"]


def test_the_way_in_is_random_and_the_way_out_zero(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("lora"))
    for lora in pet.values():
        bound = 24**-0.5
        assert lora.down.abs().max() <= bound and lora.down.std() > bound / 3
        assert not lora.up.any()

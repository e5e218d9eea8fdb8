"""LoRA against a forward pass written out by hand: a low-rank change of queries and values."""

from collections.abc import Callable

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from safecl.pet.attach import attach
from safecl.pet.settings import pet_settings


def test_queries_and_values_get_a_low_rank_change_and_keys_none(
    vit: VisionTransformer, images: Tensor, scramble: Callable[..., None], reference: Callable[..., Tensor]
) -> None:
    rank, alpha, width = 2, 6.0, 24
    view, pet = attach(vit, pet_settings("lora", rank=rank, alpha=alpha))
    scramble(pet)
    changed = {key: value.double() for key, value in vit.state_dict().items()}
    for i, lora in pet.items():
        for part, up, down in ((0, lora.up_query, lora.down[:rank]), (2, lora.up_value, lora.down[rank:])):
            change = alpha / rank * (up @ down).detach().double()
            rows = slice(part * width, (part + 1) * width)
            changed[f"blocks.{i}.attn.qkv.weight"] = changed[f"blocks.{i}.attn.qkv.weight"].clone()
            changed[f"blocks.{i}.attn.qkv.weight"][rows] += change
    expected = reference(vit, images, weights=changed)
    assert torch.allclose(view.forward_features(images), expected, atol=1e-6)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-2)


def test_the_way_in_is_random_and_the_way_out_zero(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("lora"))
    for lora in pet.values():
        bound = 24**-0.5
        assert lora.down.abs().max() <= bound and lora.down.std() > bound / 3
        assert not lora.up_query.any() and not lora.up_value.any()

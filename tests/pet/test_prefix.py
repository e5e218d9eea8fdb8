"""Prefix tuning against attention written out by hand."""

from collections.abc import Callable

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from safecl.backbone.layers import Attention
from safecl.pet.attach import attach, merge
from safecl.pet.prefix import PrefixedAttention, Prefixes
from safecl.pet.settings import pet_settings
from safecl.randomness import generator
from tests.conftest import raises


def test_keys_and_values_stand_before_those_of_the_tokens(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = attach(vit, pet_settings("prefix", length=3, blocks=1))
    assert list(pet) == ["0"]
    scramble(pet)
    learned = {0: tuple((pet["0"].scale * pet["0"].tokens).double())}
    expected = reference(vit, images, learned=learned)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-2)
    for network in (view, merge(view)):
        assert torch.allclose(network.forward_features(images), expected, atol=1e-6)


def test_compensated_weights_on_the_prefix_sum_to_one_and_those_on_the_tokens_stay(
    make_vit: Callable[..., VisionTransformer], scramble: Callable[..., None]
) -> None:
    attention: Attention = Attention(make_vit().blocks[0].attn).double()
    prefixes = Prefixes(4, 24, generator(0)).double()
    scramble(prefixes, deviation=1.0)
    x = torch.randn(2, 5, 24, dtype=torch.float64, generator=generator(1))
    found = PrefixedAttention(attention, prefixes, compensate=True)(x, queries=3)
    keys, values = (each.unflatten(1, (3, 8)) for each in prefixes())  # (P, heads, head_dim)
    q, k, v = attention.qkv(x).unflatten(2, (3, 3, 8)).unbind(2)
    mixed = torch.zeros(2, 3, 3, 8, dtype=torch.float64)
    for n in range(2):
        for at in range(3):
            for head in range(3):
                own, other = (
                    torch.stack([q[n, at, head] @ key[head] / 8**0.5 for key in each]).exp()
                    for each in (keys, k[n])
                )
                weights = other / (own.sum() + other.sum())
                mixed[n, at, head] = weights @ v[n, :, head] + (own / own.sum()) @ values[:, head]
    assert torch.allclose(found, attention.proj(mixed.flatten(2)), atol=1e-10)


def test_initial_values_are_small_and_positive_and_factors_are_one(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("prefix"))
    for prefix in pet.values():
        assert prefix.tokens.shape == (2, 10, 24) and (prefix.scale == 1).all()
        assert prefix.tokens.min() >= 0 and 0.009 < float(prefix.tokens.max()) <= 0.01


def test_attention_of_another_make_is_refused_in_a_sentence(
    make_vit: Callable[..., VisionTransformer],
) -> None:
    vit = make_vit()

    class Other(type(vit.blocks[0].attn)):  # type: ignore[misc]
        pass

    vit.blocks[0].attn.__class__ = Other
    with raises("pet.attention.other", kind="Other"):
        attach(vit, pet_settings("prefix"))

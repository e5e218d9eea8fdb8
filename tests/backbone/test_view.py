"""Views of one ViT: a batch is embedded once for all of them, and never mistaken for another."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import ResPostBlock, VisionTransformer
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.backbone.view import Once, shared_view, tokens
from safecl.pet.attach import attach
from safecl.pet.settings import pet_settings
from tests.conftest import raises


def test_a_view_of_a_view_is_the_same_network(
    make_vit: Callable[..., VisionTransformer], images: Tensor
) -> None:
    vit = make_vit().double()
    images = images.double()
    view = shared_view(vit)
    expected = vit.forward_features(images)
    assert torch.allclose(view.forward_features(images), expected, atol=1e-12)
    assert torch.allclose(shared_view(view).forward_features(images), expected, atol=1e-12)


def test_a_batch_is_embedded_once_for_all_views(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    calls = [0]
    views = [
        attach(backbone.network, pet_settings(kind))[0].eval()
        for kind in ("ssf", "adapter", "none")
    ]
    expected = [backbone.features(images.clone(), view) for view in views]

    def count(module: object, inputs: object, output: object) -> None:
        calls[0] += 1

    backbone.network.patch_embed.norm.register_forward_hook(count)
    found = [backbone.features(images, view) for view in views]
    assert torch.equal(backbone.features(images), found[-1])
    assert calls[0] == 1
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_pictures_changed_in_place_are_embedded_again(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    before = backbone.features(images)
    images.mul_(0.5)
    after = backbone.features(images)
    assert not torch.equal(before, after)
    assert torch.allclose(after, backbone.features(images.clone()), atol=1e-4)


def test_pictures_of_inference_mode_are_never_mistaken(
    make_backbone: Callable[..., Backbone],
) -> None:
    backbone = make_backbone()
    with torch.inference_mode():
        images = torch.rand(2, 3, 16, 16)
        before = backbone.features(images)
        images.mul_(0.5)
        assert not torch.equal(backbone.features(images), before)


def test_threads_get_the_features_of_their_own_pictures(
    make_backbone: Callable[..., Backbone],
) -> None:
    backbone = make_backbone(depth=1)
    batches = [torch.rand(3, 3, 16, 16) for _ in range(40)]
    expected = [backbone.features(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(backbone.features, batches))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_once_keeps_one_result_and_no_gradient() -> None:
    once = Once()
    calls = [0]

    def double(x: Tensor) -> Tensor:
        calls[0] += 1
        return 2 * x

    x = torch.ones(2, requires_grad=True)
    y = torch.ones(2)
    assert (
        once(x, double) is once(x, double) and not once(x, double).requires_grad and calls[0] == 1
    )
    once(y, double)
    once(x, double)
    assert calls[0] == 3


@pytest.mark.parametrize(
    "options", [{}, {"reg_tokens": 2}, {"no_embed_class": True}, {"pos_embed": "none"}]
)
def test_the_position_of_the_cls_token_is_what_the_network_adds_to_it(
    options: dict[str, Any], make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone(**options)
    patches = backbone.network.patch_embed(images)
    embedded = backbone.network._pos_embed(patches)
    if embedded.shape == patches.shape:
        pytest.skip("without position embeddings this version of timm leaves the CLS token out")
    assert backbone.cls_position.shape == (24,) and backbone.cls_position.dtype == torch.float32
    assert torch.allclose(backbone.network.cls_token[0, 0] + backbone.cls_position, embedded[0, 0])


def test_a_backbone_gives_features_and_tokens_in_float32(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    prompts = torch.randn(5, 3, 24)
    prefixes = {1: (torch.randn(5, 2, 24), torch.randn(2, 24))}
    found = backbone.tokens(images, 4, prompts=prompts, prefixes=prefixes)
    assert found.shape == (5, 4, 24) and found.dtype == torch.float32
    normalised = (images - 0.5) / 0.5
    assert torch.allclose(
        found, tokens(backbone.network, normalised, 4, prompts, prefixes), atol=1e-4
    )
    features = backbone.features(images, prompts=prompts, prefixes=prefixes)
    assert features.shape == (5, 24) and torch.allclose(features, found[:, 0], atol=1e-4)
    view, _ = attach(backbone.network, pet_settings("ssf", deviation=0.02))
    assert not torch.allclose(
        backbone.tokens(images, 4, view), backbone.tokens(images, 4), atol=1e-3
    )
    backbone.to(torch.device("cpu"), torch.bfloat16)
    rough = backbone.tokens(images, 4, prompts=prompts, prefixes=prefixes)
    assert rough.dtype == torch.float32 and torch.allclose(rough, found, atol=0.5)


def test_a_block_of_another_make_takes_prompts_but_no_prefixes(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone(block_fn=ResPostBlock)
    assert backbone.tokens(images, 4, prompts=torch.randn(3, 24)).shape == (5, 4, 24)
    with raises("backbone.blocks.no-prefixes", kind="ResPostBlock"):
        backbone.features(images, prefixes={0: (torch.zeros(2, 24), torch.zeros(2, 24))})


def test_a_block_or_token_that_does_not_exist_is_an_error(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    pair = (torch.zeros(2, 24), torch.zeros(2, 24))
    with pytest.raises(ValueError, match="block 2"):
        backbone.features(images, prefixes={0: pair, 2: pair})
    assert backbone.tokens(images, 5).shape == (5, 5, 24)
    for count in (0, 6):
        with pytest.raises(ValueError, match="tokens"):
            backbone.tokens(images, count)
    assert backbone.tokens(images, 6, prompts=torch.zeros(1, 24)).shape == (5, 6, 24)

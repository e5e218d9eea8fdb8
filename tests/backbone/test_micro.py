"""The embedded architecture: a plain timm ViT within its limits of work and size."""

import copy

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch.utils.flop_counter import FlopCounterMode

import safecl.backbone.micro as micro
from safecl.backbone.settings import BackboneSettings


@pytest.fixture(scope="module")
def vit() -> VisionTransformer:
    return timm.create_model("safecl_micro").eval()


def test_it_is_a_plain_vit_with_a_cls_token(vit: VisionTransformer) -> None:
    assert type(vit) is VisionTransformer
    assert vit.cls_token is not None
    assert isinstance(vit.patch_embed.norm, torch.nn.Identity)
    tokens = vit.forward_features(torch.rand(2, 3, micro.SIZE, micro.SIZE))
    assert tokens.shape == (2, 1 + vit.patch_embed.num_patches, vit.embed_dim)
    assert vit(torch.rand(2, 3, micro.SIZE, micro.SIZE)).shape == (2, vit.embed_dim)


@pytest.mark.parametrize(("size", "most"), [(64, 0.35e9), (128, 1.3e9)])
def test_a_picture_takes_little_work(size: int, most: float) -> None:
    vit = timm.create_model("safecl_micro", img_size=size).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        vit(torch.rand(1, 3, size, size))
    assert 0 < counter.get_total_flops() <= most


def test_its_weights_fit_12_megabytes_in_half_precision(vit: VisionTransformer) -> None:
    assert 2 * sum(value.numel() for value in vit.state_dict().values()) <= 12e6


def test_a_picture_gives_the_same_feature_alone_and_in_a_batch(vit: VisionTransformer) -> None:
    pictures = torch.rand(5, 3, micro.SIZE, micro.SIZE).double()
    precise = copy.deepcopy(vit).double()
    with torch.no_grad():
        torch.testing.assert_close(
            precise(pictures)[2:3], precise(pictures[2:3]), rtol=0, atol=1e-10
        )


@pytest.mark.parametrize("stride", [8, 16, 32])
def test_the_stem_divides_by_its_stride(stride: int) -> None:
    vit = timm.create_model(
        "safecl_micro", patch_size=stride, embed_dim=32, depth=1, num_heads=2, width=8
    )
    assert vit.patch_embed(torch.rand(1, 3, 64, 64)).shape == (1, (64 // stride) ** 2, 32)


def test_it_can_be_built_for_another_picture_size() -> None:
    vit = timm.create_model("safecl_micro", img_size=96, depth=1)
    assert vit(torch.rand(1, 3, 96, 96)).shape == (1, vit.embed_dim)
    vit.set_input_size(img_size=64)
    assert vit(torch.rand(1, 3, 64, 64)).shape == (1, vit.embed_dim)


@pytest.mark.parametrize(
    ("shorter", "size"), [(32, 64), (64, 64), (95, 64), (96, 128), (128, 128), (2000, 128)]
)
def test_the_size_for_photographs_is_chosen_from_half_way_up(shorter: int, size: int) -> None:
    assert micro.sized(BackboneSettings(), shorter)[0].image_size == size


def test_a_size_that_is_given_or_another_backbone_is_left_alone() -> None:
    for settings in (
        BackboneSettings(image_size=64),
        BackboneSettings(name="vit_tiny_patch16_224"),
    ):
        assert micro.sized(settings, 2000) == (settings, None)


def test_the_chosen_size_is_told_with_its_alternative() -> None:
    for shorter, size, other in ((500, 128, "image_size=64"), (32, 64, "image_size=128")):
        for option in ("", "--set "):
            chosen, told = micro.sized(BackboneSettings(), shorter, option)
            assert chosen.image_size == size and told is not None and f"{size} × {size}" in told
            assert f" {option}backbone.{other} " in told

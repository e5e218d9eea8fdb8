"""The network as it is computed against the network as timm and the paper write it: features and gradients."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.layers import Attention as TimmAttention
from timm.layers import PatchEmbed
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.backbone.layers import Attention, Gelu, Norm
from safecl.backbone.view import cls_feature, patches
from safecl.pet import attach, merge, pet_settings

KINDS = ["ssf", "adapter", "vpt_deep", "vpt_shallow", "lora", "none"]
FAMILIES: dict[str, dict[str, Any]] = {
    "vit": {},
    "dinov2": {"reg_tokens": 4, "init_values": 0.1, "no_embed_class": True},
    "deit": {"kind": VisionTransformerDistilled},
    "qk_norm": {"qk_norm": True, "qkv_bias": False},
}


class Scaled(nn.Module):
    """SSF as it is written: the layer, then a product, then a sum."""

    def __init__(self, layer: nn.Module, ssf: nn.Module) -> None:
        super().__init__()
        self.layer, self.ssf = layer, ssf

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.ssf.scale + self.ssf.shift


def plainly(vit: VisionTransformer, kind: Any, pet: nn.ModuleDict) -> Any:
    """timm's own modules in timm's own order, with the PET of another network beside them."""
    if kind != "ssf":
        view, own = attach(vit, pet_settings(kind))
        own.load_state_dict(pet.state_dict())
        return view, own
    ssf, vit = copy.deepcopy(pet), copy.deepcopy(vit)
    for place, scale in ssf.items():
        block, _, name = place.rpartition("_")
        owner: Any = vit if not block else vit.blocks[int(block)]
        owner = getattr(owner, {"qkv": "attn", "proj": "attn", "fc1": "mlp", "fc2": "mlp"}.get(name, ""), owner)
        if place == "patches":
            owner, name = vit.patch_embed, "norm"
        setattr(owner, name, Scaled(getattr(owner, name), scale))
    return vit, ssf


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_features_and_gradients_are_those_of_the_network_as_it_is_written(
    kind: Any, family: str, make_vit: Callable[..., Any], images: Tensor, scramble: Callable[..., None]
) -> None:
    vit = make_vit(**FAMILIES[family]).requires_grad_(False)
    backbone = Backbone(copy.deepcopy(vit), "tiny", 16, (0.5,) * 3, (0.5,) * 3)
    view, own = attach(backbone.vit, pet_settings(kind))
    scramble(own)
    network, pet = plainly(vit, kind, own)
    own.eval()
    pet.eval()
    found, expected = backbone.features(images, view), network.forward_features((images - 0.5) / 0.5)[:, 0]
    assert torch.allclose(found, expected, atol=2e-5)
    if kind != "none":
        ours, theirs = (
            torch.autograd.grad(f.pow(3).mean(), list(modules.parameters()))
            for f, modules in ((found, own), (expected, pet))
        )
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-4 * float(other.abs().max()))
    assert torch.allclose(backbone.features(images, merge(view)), expected, atol=2e-5)


def test_a_backbone_has_the_faster_modules_throughout(make_backbone: Callable[..., Backbone]) -> None:
    vit = make_backbone().vit
    kinds = [type(module) for module in vit.modules()]
    assert kinds.count(Attention) == 2 and kinds.count(Norm) == 5 and kinds.count(Gelu) == 2
    assert not {TimmAttention, nn.GELU} & set(kinds)
    twin = copy.deepcopy(vit)
    twin.load_state_dict(vit.state_dict())  # under the names that timm gives its weights
    assert "blocks.0.attn.qkv.weight" in vit.state_dict() and "norm.weight" in vit.state_dict()


def test_attention_can_be_asked_for_the_first_tokens_alone(make_backbone: Callable[..., Backbone]) -> None:
    attention, x = make_backbone().vit.blocks[0].attn, torch.randn(3, 7, 24)
    assert torch.allclose(attention(x, queries=2), attention(x)[:, :2], atol=1e-6)


def test_the_cls_feature_is_that_of_all_tokens(make_vit: Callable[..., Any], images: Tensor) -> None:
    for options in FAMILIES.values():
        vit = make_vit(**options)
        assert torch.allclose(cls_feature(vit, images), vit.forward_features(images)[:, 0], atol=1e-5)


def test_patches_by_a_product_are_those_of_the_convolution() -> None:
    embedding, x = PatchEmbed(img_size=(24, 16), patch_size=8, embed_dim=10), torch.rand(2, 3, 24, 16)
    assert torch.allclose(patches(embedding, x), embedding(x), atol=1e-6)
    padded = PatchEmbed(img_size=None, patch_size=8, embed_dim=10, dynamic_img_pad=True)
    assert torch.equal(patches(padded, x[..., :13]), padded(x[..., :13]))


def test_norms_stay_precise_in_a_coarse_network(make_backbone: Callable[..., Backbone], images: Tensor) -> None:
    backbone = make_backbone().to(torch.device("cpu"), torch.bfloat16)
    view, pet = attach(backbone.vit, pet_settings("ssf"))
    assert torch.equal(backbone.vit.norm.weight, make_backbone().vit.norm.weight)
    assert backbone.vit.norm.weight.dtype == torch.float32 and backbone.vit.pos_embed.dtype == torch.bfloat16
    before = backbone.features(images, view)
    with torch.no_grad():
        pet["norm"].scale += 1e-4  # far below what bfloat16 can tell from 1
    assert not torch.equal(backbone.features(images, view), before)
    assert all(parameter.dtype == torch.float32 for parameter in pet.parameters())

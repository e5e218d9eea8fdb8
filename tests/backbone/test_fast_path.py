"""The network as it is computed against the network as timm and the paper write it: features and
gradients.
"""

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

from safecl.backbone.backbone import Backbone
from safecl.backbone.layers import Attention, Gelu, Norm, use_layers
from safecl.backbone.view import patches, tokens
from safecl.pet.attach import attach, merge
from safecl.pet.settings import pet_settings

KINDS = ["ssf", "adapter", "vpt_deep", "vpt_shallow", "lora", "none"]
FAMILIES: dict[str, dict[str, Any]] = {
    "vit": {},
    "dinov2": {"reg_tokens": 4, "init_values": 0.1, "no_embed_class": True},
    "deit": {"kind": VisionTransformerDistilled},
    "qk_norm": {"qk_norm": True, "qkv_bias": False},
}


class Scaled(nn.Module):
    """SSF as the paper writes it: the layer, then a product, then a sum."""

    def __init__(self, layer: nn.Module, ssf: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.ssf = ssf

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.ssf.scale + self.ssf.shift


def plainly(vit: VisionTransformer, kind: Any, pet: nn.ModuleDict) -> Any:
    """The network of timm's own modules, with a PET that has the values of ``pet``."""
    if kind != "ssf":
        view, own = attach(vit, pet_settings(kind))
        own.double().load_state_dict(pet.state_dict())
        return view, own
    ssf = copy.deepcopy(pet)
    vit = copy.deepcopy(vit)
    for place, scale in ssf.items():
        block, _, name = place.rpartition("_")
        owner: Any = vit if not block else vit.blocks[int(block)]
        owner = getattr(
            owner, {"qkv": "attn", "proj": "attn", "fc1": "mlp", "fc2": "mlp"}.get(name, ""), owner
        )
        if place == "patches":
            owner = vit.patch_embed
            name = "norm"
        setattr(owner, name, Scaled(getattr(owner, name), scale))
    return vit, ssf


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_features_and_gradients_are_those_of_the_network_as_it_is_written(
    kind: Any,
    family: str,
    make_vit: Callable[..., Any],
    images: Tensor,
    scramble: Callable[..., None],
) -> None:
    vit = make_vit(**FAMILIES[family]).double().requires_grad_(False)
    images = images.double()
    fast = copy.deepcopy(vit)
    use_layers(fast)
    view, own = attach(fast, pet_settings(kind))
    scramble(own.double())
    network, pet = plainly(vit, kind, own)
    own.eval()
    pet.eval()
    found = tokens(view, images)[:, 0]
    expected = network.forward_features(images)[:, 0]
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    if kind != "none":
        ours, theirs = (
            torch.autograd.grad(f.pow(3).mean(), list(modules.parameters()))
            for f, modules in ((found, own), (expected, pet))
        )
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-9 * float(other.abs().max()))
    assert torch.allclose(tokens(merge(view), images)[:, 0], expected, rtol=0, atol=1e-10)


def test_a_backbone_has_the_faster_modules_throughout(
    make_backbone: Callable[..., Backbone],
) -> None:
    vit = make_backbone().network
    kinds = [type(module) for module in vit.modules()]
    assert kinds.count(Attention) == 2 and kinds.count(Norm) == 5 and kinds.count(Gelu) == 2
    assert not {TimmAttention, nn.GELU} & set(kinds)
    twin = copy.deepcopy(vit)
    twin.load_state_dict(vit.state_dict())  # under the names that timm gives its weights
    assert "blocks.0.attn.qkv.weight" in vit.state_dict() and "norm.weight" in vit.state_dict()


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("queries", [None, 2])
def test_attention_gives_what_timms_gives(queries: int | None, qk_norm: bool) -> None:
    torch.manual_seed(0)
    theirs = (
        TimmAttention(24, 3, qkv_bias=True, qk_norm=qk_norm, norm_layer=nn.LayerNorm)
        .double()
        .eval()
    )
    x = torch.randn(2, 7, 24).double()
    assert torch.allclose(
        Attention(theirs)(x, queries=queries), theirs(x)[:, :queries], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    "options", [{"attn_mask": torch.zeros(7, 7)}, {"is_causal": True}], ids=["mask", "causal"]
)
def test_a_mask_is_refused_not_dropped(
    options: dict[str, Any], make_vit: Callable[..., Any]
) -> None:
    vit = make_vit()
    use_layers(vit)
    with pytest.raises(ValueError, match="takes no mask"):
        vit.blocks[0].attn(torch.randn(2, 7, 24), **options)
    if "attn_mask" in options:  # older versions of timm have no is_causal
        with pytest.raises(ValueError, match="takes no mask"):
            vit.blocks[0](torch.randn(2, 7, 24), **options)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_prefixes_stand_before_keys_and_values_and_behind_the_key_norm(qk_norm: bool) -> None:
    torch.manual_seed(0)
    theirs = (
        TimmAttention(24, 3, qkv_bias=True, qk_norm=qk_norm, norm_layer=nn.LayerNorm)
        .double()
        .eval()
    )
    x, keys, values = (torch.randn(2, length, 24).double() for length in (7, 4, 4))
    q, k, v = theirs.qkv(x).unflatten(2, (3, 3, 8)).permute(2, 0, 3, 1, 4)
    heads = [prefix.unflatten(2, (3, 8)).transpose(1, 2) for prefix in (keys, values)]
    k = torch.cat([heads[0], theirs.k_norm(k)], dim=2)
    v = torch.cat([heads[1], v], dim=2)
    weights = torch.softmax(theirs.q_norm(q) @ k.transpose(2, 3) / 8**0.5, dim=-1)
    expected = theirs.proj((weights @ v).transpose(1, 2).flatten(2))
    ours = Attention(theirs)
    assert torch.allclose(ours(x, prefix=(keys, values)), expected, rtol=0, atol=1e-12)
    assert torch.allclose(
        ours(x, prefix=(keys, values), queries=3), expected[:, :3], rtol=0, atol=1e-12
    )
    shared = ours(x, prefix=(keys[0], values[0]))
    assert torch.allclose(shared[0], expected[0], rtol=0, atol=1e-12) and not torch.allclose(
        shared[1], expected[1]
    )


def test_attention_can_be_asked_for_the_first_tokens_alone(
    make_backbone: Callable[..., Backbone],
) -> None:
    attention = make_backbone().network.blocks[0].attn.double()
    x = torch.randn(3, 7, 24).double()
    assert torch.allclose(attention(x, queries=2), attention(x)[:, :2], rtol=0, atol=1e-12)


def test_the_first_tokens_are_those_of_all(make_vit: Callable[..., Any], images: Tensor) -> None:
    for options in FAMILIES.values():
        vit = make_vit(**options).double()
        images = images.double()
        for count in (1, 3):
            assert torch.allclose(
                tokens(vit, images, count), vit.forward_features(images)[:, :count], atol=1e-10
            )


def test_patches_by_a_product_are_those_of_the_convolution() -> None:
    embedding = PatchEmbed(img_size=(24, 16), patch_size=8, embed_dim=10).double()
    x = torch.rand(2, 3, 24, 16).double()
    assert torch.allclose(patches(embedding, x), embedding(x), rtol=0, atol=1e-12)
    padded = PatchEmbed(img_size=None, patch_size=8, embed_dim=10, dynamic_img_pad=True).double()
    assert torch.equal(patches(padded, x[..., :13]), padded(x[..., :13]))


def test_norms_stay_precise_in_a_coarse_network(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone().to(torch.device("cpu"), torch.bfloat16)
    view, pet = attach(backbone.network, pet_settings("ssf"))
    assert torch.equal(backbone.network.norm.weight, make_backbone().network.norm.weight)
    assert (
        backbone.network.norm.weight.dtype == torch.float32
        and backbone.network.pos_embed.dtype == torch.bfloat16
    )
    before = backbone.features(images, view)
    with torch.no_grad():
        pet["norm"].scale += 1e-4  # far below what bfloat16 can tell from 1
    assert not torch.equal(backbone.features(images, view), before)
    assert all(parameter.dtype == torch.float32 for parameter in pet.parameters())

"""One tiny network with random weights of each family in timm."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import timm
import torch
from torch import Tensor, nn

from safecl.backbone.families.family import Family
from safecl.backbone.families.find import family_of


class Tiny(NamedTuple):
    """A timm model made small by ``options``, for pictures of a ``size``."""

    name: str
    size: int = 32
    options: Mapping[str, Any] = MappingProxyType({})
    dtype: torch.dtype = torch.float64  # in which sums agree to the last digits, whatever the order


def token(name: str, **options: Any) -> Tiny:
    """Two blocks of 24 channels on 4 × 4 patches of 8 pixels."""
    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    return Tiny(name, 32, {**shape, **options})


WINDOW = {"img_size": 32, "window_size": 2, "embed_dim": 12, "depths": (1, 1), "num_heads": (2, 2)}
ONES = (1, 1, 1, 1)

# ViTs with a CLS token have suites of their own.
SEQUENCES = [
    token("vit_base_patch16_siglip_224"),  # no CLS token, pooled by attention
    token("vit_medium_patch16_gap_256"),  # no CLS token, pooled by the mean
    token("eva02_tiny_patch14_224"),
    token("eva02_base_patch14_224"),  # separate query, key and value, norms inside
    token("vit_small_patch16_dinov3"),
    # whose positions timm keeps in float32
    token("vit_small_patch16_rope_mixed_224")._replace(dtype=torch.float32),
    token("vit_pe_core_tiny_patch16_384"),  # a CLS token, pooled by attention
    token("beit_base_patch16_224"),
]
FAMILIES = [
    *SEQUENCES,
    token("vit_base_patch16_224"),
    token("deit_tiny_distilled_patch16_224"),
    token("vit_srelpos_small_patch16_224"),
    token("cait_xxs24_224"),
    Tiny("swin_tiny_patch4_window7_224", 32, WINDOW),
    Tiny("swinv2_tiny_window8_256", 32, WINDOW),
    Tiny("swinv2_cr_tiny_224", 32, WINDOW),
    Tiny("test_convnext"),
    Tiny("test_resnet"),
    Tiny("resnetv2_18", 32, {"layers": ONES, "channels": (16, 24, 32, 48), "stem_chs": 8}),
    Tiny("test_efficientnet"),
    Tiny("test_mambaout"),
    Tiny("test_nfnet"),
    Tiny("test_byobnet"),
    Tiny("inception_next_atto", 32, {"depths": (1, 2), "dims": (16, 32)}),
    Tiny("pvt_v2_b0", 32, {"depths": ONES, "embed_dims": (8, 16, 20, 32)}),
    Tiny("edgenext_xx_small", 32, {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)}),
    Tiny(
        "tiny_vit_5m_224",
        32,
        {
            "depths": ONES,
            "embed_dims": (16, 16, 24, 32),
            "num_heads": (1, 2, 2, 2),
            "window_sizes": (2, 2, 2, 2),
        },
    ),
    Tiny(
        "hiera_tiny_224",
        32,
        {"img_size": (32, 32), "embed_dim": 12, "num_heads": 1, "stages": ONES},
    ),
    Tiny(
        "twins_svt_small",
        32,
        {"img_size": 32, "embed_dims": (12, 24, 32, 48), "depths": ONES, "num_heads": (1, 2, 4, 8)},
    ),
    Tiny("xcit_nano_12_p16_224", 32, {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3}),
    Tiny("fasternet_t0", 32, {"embed_dim": 16, "depths": ONES}),
    Tiny("repvit_m1", 32, {"embed_dim": (8, 16, 24, 32), "depth": ONES}),
    Tiny("starnet_s050", 32, {"base_dim": 8}),
    Tiny("swiftformer_xs", 32, {"layers": ONES, "embed_dims": (12, 16, 24, 32)}),
    Tiny("densenet121", 32, {"block_config": (1, 2), "growth_rate": 8}),
    Tiny(
        "visformer_tiny",
        32,
        {"img_size": 32, "embed_dim": 24, "depth": (1, 1, 1), "num_heads": 2},
    ),
]
LARGER = [
    Tiny("samvit_base_patch16", 32, {**token("").options}),
    Tiny("convit_tiny", 32, token("").options),
    Tiny("mobilenetv3_small_050"),
    Tiny("ghostnet_050"),
    Tiny("regnetx_002"),
    Tiny("rexnet_100"),
    Tiny("mobilevit_xxs", 64),
    Tiny("mobilevitv2_050", 64),
    Tiny("coatnet_pico_rw_224", 64, {"img_size": 64}),
    Tiny("maxvit_pico_rw_256", 64, {"img_size": 64}),
    Tiny("shvit_s1", 64),
    Tiny("efficientvit_b0"),
    Tiny("efficientvit_m0", 64, {"img_size": 64}),
    Tiny("hgnetv2_b0"),
    Tiny("repghostnet_050"),
    Tiny("cs3darknet_focus_s"),
    Tiny("dla46x_c"),
    Tiny("resnest14d"),
    Tiny("legacy_seresnet18"),
    Tiny("skresnet18"),
    Tiny("dpn48b"),
    Tiny("iformer_t"),
    Tiny("efficientvim_m1", 64),
    Tiny("lcnetv2_small"),
    Tiny("focalnet_tiny_srf"),
    Tiny("davit_tiny"),
    Tiny("poolformerv2_s12"),
    Tiny("levit_128s", 224),
    Tiny("efficientformer_l1", 224),
    Tiny("fastvit_t8", 64),
    Tiny("pit_ti_224", 224),
    Tiny("gmlp_ti16_224", 224),
    Tiny("mvitv2_tiny", 32, {"img_size": 32}),
    Tiny("crossvit_tiny_240", 240),
    Tiny("selecsls42"),
    Tiny("cpubone_nano", 64),
]
EVERY = [
    *(pytest.param(tiny, id=tiny.name) for tiny in FAMILIES),
    *(pytest.param(tiny, id=tiny.name, marks=pytest.mark.slow) for tiny in LARGER),
]


def build(tiny: Tiny) -> nn.Module:
    """The network, frozen, every number of it random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = timm.create_model(tiny.name, num_classes=0, **tiny.options)
        for parameter in network.parameters():
            parameter.data += 0.02 * torch.randn_like(parameter)
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer += 0.1 * torch.randn_like(buffer)
    return network.eval().to(tiny.dtype).requires_grad_(False)


@pytest.fixture(scope="module", params=EVERY)
def family(request: pytest.FixtureRequest) -> Family:
    return family_of(build(request.param), request.param.size)


@pytest.fixture(scope="module")
def pictures(family: Family) -> Tensor:
    random = torch.Generator().manual_seed(1)
    shape = 2, 3, family.size, family.size
    weight = next(family.network.parameters())
    return torch.randn(*shape, generator=random, dtype=weight.dtype)

"""What the methods train and keep on ViT-B/16 is what their papers say."""

import pytest
import timm
import torch

from safecl.backbone.backbone import Backbone
from safecl.experiments.config import load
from safecl.heads.settings import RidgeSettings
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.sizes import _measure, measure

ADAPTER, SSF, VPT, FULL = 1_189_632, 205_824, 46_080, 85_798_656
LEARNABLE = {  # preset and words → numbers after ten sessions, heads aside
    "simplecil": 0,
    "l2p": 46_080,
    "dualprompt": 253_440,
    "dualprompt stream=imagenet-r": 15_360 + 921_600 + 7_680,
    "coda": 3_840_000,
    "siprompts": 10 * 7_680,
    "aper": ADAPTER,
    "aper pet=ssf": SSF,
    "aper pet=vpt_deep": VPT,
    "aper pet=vpt_shallow": 3_840,
    "aper pet=full": FULL,
    "ease": 10 * ADAPTER,
    "ease stream=omnibenchmark": ADAPTER,
    "ease stream=vtab": 10 * 304_320,
    "ssiat": ADAPTER,
    "tuna": 10 * 304_320,
    "mos": 10 * 304_320,
    "loranpac": ADAPTER,
    "layup": ADAPTER,
    "rsiat": ADAPTER + 132_224,
    "rsiat stream=imagenet-a": ADAPTER + 115_712,
    "slca": FULL,
    "lae": 42_270,
    "lae pet=lora": 76_810,
    "lae pet=prefix": 76_810,
    "ranpac": SSF,
    "ranpac-no-pet": 0,
    "safe": 2 * SSF,
    "safe pet=adapter": 2 * ADAPTER,
    "safe pet=vpt_deep": 2 * VPT,
    "finetune-full": FULL,
    "joint": SSF,
    "joint-linear": 0,
    "joint-full": FULL,
}
D, C, T = 768, 20, 10  # features, classes and sessions
HEAD, GAUSSIAN = 769 * C, D * (D + 1) // 2
KEPT = {  # numbers of four bytes, besides the tuned ones
    "simplecil": (2 * D + 1) * C,
    "l2p": HEAD,
    "dualprompt": HEAD,
    "coda": HEAD,
    "lae": 42_270 + HEAD,
    "ssiat": C * (D + 2 * D + GAUSSIAN),  # head; mean, its rounding, covariance
    "slca": 2 * HEAD + C * (2 * D + GAUSSIAN),
    "tuna": 304_320 + C * (D + 2 * D + GAUSSIAN),
    "loranpac": 100_000 * (10_000 + 2 * C) + 10_000,  # vectors at their most, sums and weights; values
    "mos": HEAD + C * (2 * D + GAUSSIAN + 2 * D + 3),  # linear head; moments; class means with their sums; owners
    "ease": T * C * (D + 1),
    "aper": C * (4 * D + 1),
}


@pytest.fixture(scope="module")
def vit_b16() -> Backbone:
    """ViT-B/16 with memory that holds no weights: pages that nobody writes cost nothing."""
    try:
        with torch.device("meta"):
            vit = timm.create_model("vit_base_patch16_224.augreg_in21k", pretrained=False, num_classes=0)
        vit = vit.to_empty(device="cpu")
    except RuntimeError:
        vit = timm.create_model("vit_base_patch16_224.augreg_in21k", pretrained=False, num_classes=0)
    return Backbone(vit, "vit_b16", 224, (0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize("words", LEARNABLE)
def test_learnable_numbers_on_vit_b16_are_those_of_the_papers(words: str, vit_b16: Backbone) -> None:
    preset, *given = words.split()
    settings = load(preset, given).method
    if hasattr(settings, "ridge"):
        settings = settings.model_copy(update={"ridge": RidgeSettings(size=8)})
    sessions = 2 if preset == "safe" else T  # it trains the same two learners in every session
    found = measure(settings, vit_b16, sessions, C // T)
    assert found.learnable == LEARNABLE[words]
    if words in KEPT:
        assert found.kept - 4 * (LEARNABLE[words] + KEPT[words]) < 2_000  # counters, scales, class indices


@pytest.mark.parametrize("name", [name for name, kind in method_settings().items() if "ridge" in kind.model_fields])
@pytest.mark.parametrize("project", [True, False])
def test_the_bytes_of_a_ridge_head_are_right_at_a_size_that_was_not_measured(
    name: str, project: bool, backbone: Backbone
) -> None:
    settings = method_settings()[name](ridge=RidgeSettings(size=37, project=project))
    kept = measure(settings, backbone, 2, 3).kept
    assert kept == _measure(settings, backbone, 2, 3).kept


@pytest.mark.parametrize("name", method_settings())
def test_the_bytes_are_those_of_a_method_that_has_learned(name: str, backbone: Backbone, make_stream, tools) -> None:
    method = tools.new_method(backbone, {"name": name})
    tools.teach(method, make_stream([["a", "b"], ["c", "d"]], train=4))
    assert measure(method.settings, backbone, 2, 2).kept == method.facts()["bytes_kept"]


def test_measuring_leaves_the_backbone_and_the_global_generator_alone(backbone: Backbone) -> None:
    state, weights = torch.random.get_rng_state(), {k: v.clone() for k, v in backbone.vit.state_dict().items()}
    measure(make_method(method_settings()["slca"](), backbone).settings, backbone, 1, 2)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(value, weights[key]) for key, value in backbone.vit.state_dict().items())

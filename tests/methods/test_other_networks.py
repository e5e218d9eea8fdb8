"""Methods on networks without a CLS token: stages of several widths, tokens that timm pools."""

from typing import Any

import pytest
import timm
import torch

from safecl.backbone.backbone import Backbone
from safecl.heads.settings import RidgeSettings
from safecl.methods.method import all_logits
from safecl.pet.settings import pet_settings
from tests.conftest import SIZE, raises

WIDE = RidgeSettings(size=40, layers=3, mirror=True)
FORMS: dict[str, tuple[dict[str, Any], str, RidgeSettings]] = {
    "ranpac": ({"name": "ranpac"}, "none", WIDE),
    "ranpac tuned": ({"name": "ranpac"}, "lora", WIDE),
    "ranpac that chooses": ({"name": "ranpac"}, "none", RidgeSettings(size=40)),
    "layup": ({"name": "ranpac"}, "none", WIDE.model_copy(update={"project": False})),
    "loranpac": ({"name": "loranpac"}, "none", WIDE),
    "simplecil": ({"name": "simplecil"}, "none", WIDE),
    "safe": ({"name": "safe", "beyond": True}, "ssf", WIDE),
}
NETWORKS = {
    "stages": ("test_resnet", {}),
    "tokens": (
        "vit_base_patch16_siglip_gap_224",
        {"img_size": SIZE, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 3},
    ),
}


@pytest.fixture(scope="module", params=NETWORKS)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    name, options = NETWORKS[request.param]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = timm.create_model(name, num_classes=0, **options)
    return Backbone(network, name, SIZE, (0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize("form", FORMS)
def test_it_learns_sessions_and_tells_easy_classes_apart(
    form: str, backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    settings, pet, ridge = FORMS[form]
    weights = {key: value.clone() for key, value in backbone.network.state_dict().items()}
    method = tools.new_method(backbone, settings, pet, ridge=ridge)
    stream = make_stream([["a", "b"], ["c", "d"]], train=5)
    tools.teach(method, stream)
    right = 0
    for part in stream._parts:
        images = part.test.plain(range(len(part.test)), stream.transform).float() / 255
        logits = all_logits(method, images)[method.outputs[-1]]
        answers = [method.classes[i] for i in logits.argmax(dim=1).tolist()]
        right += sum(a == b for a, b in zip(answers, part.test.labels, strict=True))
    assert right >= 4  # of 8, where chance gives 2
    assert tools.same(weights, backbone.network.state_dict())


@pytest.mark.parametrize("name", ["l2p", "dualprompt", "coda", "siprompts"])
def test_prompts_with_each_picture_need_a_cls_token(
    name: str, backbone: Backbone, tools: Any
) -> None:
    with raises("backbone.inserts.none", name=backbone.name):
        tools.new_method(backbone, {"name": name})


def test_a_pet_that_does_not_fit_is_refused_before_anything_is_learned(
    backbone: Backbone, tools: Any
) -> None:
    if backbone.name != "test_resnet":
        pytest.skip("it takes every PET")
    with raises("pet.network.other", pet="vpt_deep", kind="ResNet"):
        tools.new_method(backbone, {"name": "safe", "pet": pet_settings("vpt_deep")}, "vpt_deep")

"""What holds for every kind of PET: it attaches to a view and leaves the network behind the view as
it is.
"""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from pydantic import TypeAdapter, ValidationError
from timm.layers import SwiGLUPacked
from timm.models.vision_transformer import ResPostBlock, VisionTransformer
from torch import Tensor

from safecl.pet.attach import attach, merge
from safecl.pet.settings import PETS, PetSettings, pet_settings
from tests.conftest import raises

KINDS = [kind for kind in PETS if kind != "none"]
SMALL = [kind for kind in KINDS if kind != "full"]
# by default SSF starts as the network is
RANDOM: dict[str, dict[str, Any]] = {"ssf": {"deviation": 0.02}}
COUNTS = {"adapter": 1_189_632, "ssf": 205_824, "vpt_shallow": 3_840, "vpt_deep": 46_080}


@pytest.fixture(scope="module")
def vit_b16() -> VisionTransformer:
    """The paper's network, without a single weight in memory where timm can build it so."""
    try:
        with torch.device("meta"):
            return timm.create_model(
                "vit_base_patch16_224.augreg_in21k", pretrained=False, num_classes=0
            )
    except RuntimeError:
        return timm.create_model(
            "vit_base_patch16_224.augreg_in21k", pretrained=False, num_classes=0
        )


def step(
    view: VisionTransformer, pet: torch.nn.Module, images: Tensor, rate: float = 0.5
) -> list[Tensor]:
    """One step of gradient descent on an arbitrary loss; gives the gradients."""
    loss = view.forward_features(images)[:, 0].pow(3).sum()
    gradients = list(torch.autograd.grad(loss, list(pet.parameters())))
    with torch.no_grad():
        for parameter, gradient in zip(pet.parameters(), gradients, strict=True):
            parameter -= rate * gradient / gradient.norm().clamp(min=1e-9)
    return gradients


@pytest.mark.parametrize("kind", COUNTS)
def test_parameter_counts_on_vit_b16_are_those_of_the_paper(
    kind: Any, vit_b16: VisionTransformer
) -> None:
    _, pet = attach(vit_b16, pet_settings(kind))
    assert sum(parameter.numel() for parameter in pet.parameters()) == COUNTS[kind]


def test_smaller_pets_count_as_the_formulas_say(vit_b16: VisionTransformer) -> None:
    def count(**settings: Any) -> int:
        return sum(p.numel() for p in attach(vit_b16, pet_settings(**settings))[1].parameters())

    assert count(kind="adapter", bottleneck=16) == 304_320
    assert count(kind="lora", rank=5) == 12 * (2 * 5 * 768 + 2 * 768 * 5)
    assert count(kind="prefix", length=10) == 12 * (2 * 10 * 768 + 2)
    assert count(kind="vpt_deep", tokens=30) == 12 * 30 * 768
    assert count(kind="none") == 0


@pytest.mark.parametrize("kind", ["adapter", "ssf", "lora", "full", "none"])
def test_the_network_starts_as_the_ptm(kind: Any, vit: VisionTransformer, images: Tensor) -> None:
    view, pet = attach(vit, pet_settings(kind))
    pet.train()
    assert torch.allclose(
        view.forward_features(images), vit.forward_features(images), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", ["ssf", "vpt_deep", "vpt_shallow", "prefix"])
def test_scales_and_prompts_change_the_network_from_the_start(
    kind: Any, vit: VisionTransformer, images: Tensor
) -> None:
    view, _ = attach(vit, pet_settings(kind, **RANDOM.get(kind, {})))
    difference = view.forward_features(images)[:, 0] - vit.forward_features(images)[:, 0]
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("kind", [*SMALL, "none"])
def test_a_view_shares_every_weight_with_its_vit_and_with_other_views(
    kind: Any, vit: VisionTransformer
) -> None:
    own = {tensor.data_ptr() for tensor in vit.state_dict().values()}
    for _ in range(2):
        view, pet = attach(vit, pet_settings(kind))
        new = {tensor.data_ptr() for tensor in pet.state_dict().values()}
        seen = {tensor.data_ptr() for tensor in view.state_dict().values()}
        assert new <= seen <= own | new and not own & new
        assert len(seen) > len(new)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_pet_can_be_trained(kind: Any, vit: VisionTransformer) -> None:
    view, pet = attach(vit, pet_settings(kind))
    trainable = {id(p) for p in view.parameters() if p.requires_grad}
    assert trainable == {id(p) for p in pet.parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_training_a_view_leaves_the_vit_and_other_views_as_they_were(
    kind: Any, vit: VisionTransformer, images: Tensor
) -> None:
    other, _ = attach(vit, pet_settings(kind))
    weights = {key: value.clone() for key, value in vit.state_dict().items()}
    before = vit.forward_features(images)
    beside = other.forward_features(images)
    modules = [type(module) for module in vit.modules()]
    view, pet = attach(vit, pet_settings(kind))
    start = view.forward_features(images).detach()
    for _ in range(3):
        step(view, pet, images)
    assert not torch.allclose(view.forward_features(images), start, atol=1e-3)
    assert [type(module) for module in vit.modules()] == modules
    assert all(torch.equal(value, weights[key]) for key, value in vit.state_dict().items())
    assert torch.equal(vit.forward_features(images), before)
    assert torch.equal(other.forward_features(images), beside)


@pytest.mark.parametrize("kind", SMALL)
def test_the_gradient_reaches_every_parameter_after_one_step(
    kind: Any, vit: VisionTransformer, images: Tensor
) -> None:
    view, pet = attach(vit, pet_settings(kind))
    first = dict(
        zip((name for name, _ in pet.named_parameters()), step(view, pet, images), strict=True)
    )
    # In the first step nothing passes the zero matrix of an adapter or of LoRA to the matrix before
    # it.
    waiting = {name for name in first if "down" in name} if kind in ("adapter", "lora") else set()
    assert {name for name, gradient in first.items() if not gradient.any()} == waiting
    assert all(gradient.any() for gradient in step(view, pet, images))


@pytest.mark.parametrize("kind", ["adapter", "ssf", "lora", "prefix"])
def test_the_seed_fixes_the_initial_values_and_the_global_generator_is_left_alone(
    kind: str, vit: VisionTransformer
) -> None:
    def values(seed: int) -> Tensor:
        _, pet = attach(vit, pet_settings(kind, **RANDOM.get(kind, {})), seed)
        return torch.cat([p.detach().flatten() for p in pet.parameters()])

    state = torch.random.get_rng_state()
    assert torch.equal(values(1), values(1)) and not torch.equal(values(1), values(2))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_no_two_initial_tensors_share_numbers(make_vit: Callable[..., VisionTransformer]) -> None:
    """By the order of the first values, which no scale and no shift changes; nor do they share with
    the plain seed.
    """
    vit = make_vit(depth=4)
    orders: dict[tuple[int, ...], str] = {}
    for place, values in [
        ("uniform of the plain seed", torch.rand(50, generator=torch.Generator().manual_seed(5))),
        ("normal of the plain seed", torch.randn(50, generator=torch.Generator().manual_seed(5))),
        *(
            (f"{kind} {name}", p.flatten())
            for kind in (*SMALL, "none")
            for name, p in attach(vit, pet_settings(kind, **RANDOM.get(kind, {})), 5)[
                1
            ].named_parameters()
        ),
    ]:
        if len(values.detach().unique()) > 12:  # not a constant
            order = tuple(values[:12].argsort().tolist())
            assert order not in orders, (place, orders[order])
            orders[order] = place
    assert len(orders) == 2 + 4 + 4 + 4 + 2 * (2 + 4 * 6)  # adapter, LoRA, prefix and SSF


@pytest.mark.parametrize("kind", ["adapter", "ssf", "lora", "prefix"])
def test_another_block_changes_the_initial_values_of_none(
    kind: str, make_vit: Callable[..., VisionTransformer]
) -> None:
    two, three = (
        attach(make_vit(depth=depth), pet_settings(kind))[1].state_dict() for depth in (2, 3)
    )
    assert two.keys() < three.keys() and all(
        torch.equal(value, three[key]) for key, value in two.items()
    )


def test_every_kind_has_a_settings_class_and_takes_no_option_of_another() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(PetSettings)
    for kind, settings in PETS.items():
        assert type(adapter.validate_python({"kind": kind})) is settings
        assert adapter.validate_python({"kind": kind}) == pet_settings(kind)
        others = {
            name for other in PETS.values() for name in other.model_fields
        } - settings.model_fields.keys()
        for option in others:
            with pytest.raises(ValidationError, match=option):
                adapter.validate_python({"kind": kind, option: 1})


def test_an_unknown_kind_suggests_the_nearest() -> None:
    with raises("name.unknown.near", given="adaptor", near="adapter"):
        pet_settings("adaptor")


@pytest.mark.parametrize("kind", ["ssf", "lora"])
def test_merged_and_unmerged_agree(
    kind: Any, vit: VisionTransformer, images: Tensor, scramble: Callable[..., None]
) -> None:
    view, pet = attach(vit, pet_settings(kind))
    scramble(pet, seed=3, deviation=0.3)
    unmerged = view.forward_features(images)
    merged = merge(view)
    assert torch.allclose(merged.forward_features(images), unmerged, atol=1e-6)
    assert not torch.allclose(unmerged, vit.forward_features(images), atol=1e-2)
    # merge() makes a copy: neither the view nor the ViT under it has changed.
    assert torch.equal(view.forward_features(images), unmerged)


@pytest.mark.parametrize("kind", ["adapter", "prefix", "vpt_deep", "vpt_shallow", "full", "none"])
def test_what_cannot_be_merged_stays_beside_the_weights(
    kind: Any, vit: VisionTransformer, images: Tensor, scramble: Callable[..., None]
) -> None:
    view, pet = attach(vit, pet_settings(kind))
    scramble(pet, seed=3)
    pet.eval()
    assert torch.equal(merge(view).forward_features(images), view.forward_features(images))


@pytest.mark.parametrize("kind", KINDS)
def test_gated_mlps_and_missing_biases_are_no_obstacle(
    kind: Any,
    make_vit: Callable[..., VisionTransformer],
    images: Tensor,
    scramble: Callable[..., None],
) -> None:
    vit = (
        make_vit(mlp_layer=SwiGLUPacked, qkv_bias=False, proj_bias=False)
        .double()
        .requires_grad_(False)
    )
    view, pet = attach(vit, pet_settings(kind))
    scramble(pet, seed=3)
    pet.eval()
    assert torch.allclose(
        merge(view).forward_features(images), view.forward_features(images), atol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_another_make_take_every_pet(
    kind: Any,
    make_vit: Callable[..., VisionTransformer],
    images: Tensor,
    scramble: Callable[..., None],
) -> None:
    vit = make_vit(block_fn=ResPostBlock).double().requires_grad_(False)
    view, pet = attach(vit, pet_settings(kind))
    scramble(pet, seed=3)
    pet.eval()
    found = view.forward_features(images)
    assert found.shape == vit.forward_features(images).shape
    assert not torch.allclose(found, vit.forward_features(images), atol=1e-3)
    assert torch.allclose(merge(view).forward_features(images), found, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "option", "code"),
    [
        ("adapter", {"place": "attention"}, "pet.adapter.place"),
        ("lora", {"projections": "kv"}, "pet.lora.projections"),
    ],
)
def test_an_option_that_means_nothing_to_a_network_is_refused(
    kind: Any, option: dict[str, Any], code: str
) -> None:
    network = timm.create_model("test_convnext", num_classes=0)
    with raises(code, kind="ConvNeXt", **option):
        attach(network, pet_settings(kind, **option))

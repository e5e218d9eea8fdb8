"""AdaptFormer's adapter against a forward pass written out by hand."""

import copy
from collections.abc import Callable

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import use_layers
from safecl.backbone.view import tokens
from safecl.pet.attach import attach, merge
from safecl.pet.settings import pet_settings


def beside(pet: nn.ModuleDict, scale: float) -> Callable[[int, Tensor], Tensor]:
    """s · (ReLU(x W_down + b_down) W_up + b_up) of the residual stream x."""

    def adapt(i: int, x: Tensor) -> Tensor:
        w = {key: value.double() for key, value in pet[str(i)].state_dict().items()}
        hidden = (x @ w["down.weight"].T + w["down.bias"]).clamp(min=0)
        return scale * (hidden @ w["up.weight"].T + w["up.bias"])

    return adapt


def test_it_reads_the_residual_stream_before_the_norm_and_adds_a_tenth(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = attach(vit, pet_settings("adapter"))
    scramble(pet)
    pet.eval()
    expected = reference(vit, images, beside=beside(pet, 0.1))
    assert torch.allclose(view.forward_features(images), expected, atol=1e-6)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-2)


def test_bottleneck_and_scale_are_settings(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = attach(vit, pet_settings("adapter", bottleneck=3, scale=0.7))
    assert pet["0"].down.weight.shape == (3, 24)
    scramble(pet)
    pet.eval()
    assert torch.allclose(
        view.forward_features(images), reference(vit, images, beside=beside(pet, 0.7)), atol=1e-6
    )


def test_beside_attention_it_reads_what_attention_reads(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    """The adapter of LAE: GELU, no dropout, a factor that is trained, in the first blocks alone."""
    options = {
        "place": "attention",
        "activation": "gelu",
        "scale": 1.0,
        "learn_scale": True,
        "dropout": 0.0,
    }
    view, pet = attach(vit, pet_settings("adapter", bottleneck=5, blocks=1, **options))
    assert list(pet) == ["0"] and pet["0"].scale.item() == 1
    scramble(pet)

    def adapt(i: int, y: Tensor) -> Tensor | int:
        if i > 0:
            return 0
        w = {key: value.double() for key, value in pet[str(i)].state_dict().items()}
        hidden = nn.functional.gelu(y @ w["down.weight"].T + w["down.bias"])
        return w["scale"] * (hidden @ w["up.weight"].T + w["up.bias"])

    expected = reference(vit, images, beside_attention=adapt)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-2)
    taken = copy.deepcopy(vit)
    use_layers(taken)
    tokens_view, again = attach(taken, pet_settings("adapter", bottleneck=5, blocks=1, **options))
    again.load_state_dict(pet.state_dict())
    for network in (view, merge(view), tokens_view, merge(tokens_view)):
        assert torch.allclose(network.forward_features(images), expected, atol=1e-6)
    assert torch.allclose(tokens(tokens_view, images, 2), expected[:, :2], atol=1e-6)


def test_dropout_acts_in_training_only(
    vit: VisionTransformer, images: Tensor, scramble: Callable[..., None]
) -> None:
    view, pet = attach(vit, pet_settings("adapter"))
    scramble(pet)
    pet.eval()
    plain = view.forward_features(images)
    assert torch.equal(view.forward_features(images), plain)
    pet.train()
    assert not torch.equal(view.forward_features(images), view.forward_features(images))
    pet.eval()
    assert torch.equal(view.forward_features(images), plain)


def test_a_tenth_of_the_hidden_units_is_dropped(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("adapter", bottleneck=2000))
    adapter = pet["0"].train()
    with torch.no_grad():
        adapter.down.bias.fill_(1.0)
        adapter.down.weight.zero_()
        adapter.up.weight.fill_(1.0)
        # Every unit is 0 or, once kept, 1/0.9; a sum of 2000 of them tells how many are left.
        kept = adapter(torch.ones(1, 24))[0, 0] / adapter.scale * 0.9 / 2000
    assert 0.86 < float(kept) < 0.94


def test_initial_values_are_those_of_lora(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("adapter"))
    for adapter in pet.values():
        bound = 24**-0.5
        assert adapter.down.weight.abs().max() <= bound and adapter.down.weight.std() > bound / 3
        assert (
            not adapter.down.bias.any()
            and not adapter.up.weight.any()
            and not adapter.up.bias.any()
        )

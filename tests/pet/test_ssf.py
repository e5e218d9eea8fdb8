"""SSF against a forward pass written out by hand: one scale and shift after each operation."""

from collections.abc import Callable

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from safecl.pet import PetSettings, attach

LAYERS = ("norm1", "qkv", "proj", "norm2", "fc1", "fc2")
PLACES = ["patches", "norm", *(f"{i}_{layer}" for i in (0, 1) for layer in LAYERS)]


def neutral(vit: VisionTransformer) -> tuple[VisionTransformer, torch.nn.ModuleDict]:
    """SSF that changes nothing yet."""
    view, pet = attach(vit, PetSettings(kind="ssf"))
    with torch.no_grad():
        for place in pet.values():
            place.scale.fill_(1)
            place.shift.zero_()
    return view, pet


def test_there_is_one_after_every_operation_and_none_elsewhere(vit: VisionTransformer) -> None:
    _, pet = attach(vit, PetSettings(kind="ssf"))
    assert set(pet) == set(PLACES)
    assert pet["0_qkv"].scale.shape == (72,) and pet["1_fc1"].shift.shape == (96,)


@pytest.mark.parametrize("place", PLACES)
def test_each_stands_where_its_name_says(
    place: str, vit: VisionTransformer, images: Tensor, scramble: Callable[..., None], reference: Callable[..., Tensor]
) -> None:
    view, pet = neutral(vit)
    scramble(pet[place], seed=5, deviation=0.5)
    scale, shift = pet[place].scale.double(), pet[place].shift.double()
    expected = reference(vit, images, after=lambda at, x: x * scale + shift if at == place else x)
    assert torch.allclose(view.forward_features(images).double(), expected, atol=1e-4)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-6)


def test_together_they_are_the_whole_of_ssf(
    vit: VisionTransformer, images: Tensor, scramble: Callable[..., None], reference: Callable[..., Tensor]
) -> None:
    view, pet = attach(vit, PetSettings(kind="ssf"))
    scramble(pet)
    expected = reference(vit, images, after=lambda at, x: x * pet[at].scale.double() + pet[at].shift.double())
    assert torch.allclose(view.forward_features(images).double(), expected, atol=1e-4)


def test_initial_values_lie_around_one_and_zero(make_vit: Callable[..., VisionTransformer]) -> None:
    _, pet = attach(make_vit(embed_dim=240), PetSettings(kind="ssf"))
    scales = torch.cat([place.scale.detach() for place in pet.values()])
    shifts = torch.cat([place.shift.detach() for place in pet.values()])
    for values, mean in ((scales, 1.0), (shifts, 0.0)):
        assert abs(float(values.mean()) - mean) < 2e-3 and abs(float(values.std()) - 0.02) < 2e-3
    assert abs(float(torch.corrcoef(torch.stack([scales, shifts]))[0, 1])) < 0.1

"""Full fine-tuning: a network of its own that starts as the pre-trained one, against autograd of
timm's network.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.backbone.layers import use_layers
from safecl.backbone.view import tokens
from safecl.pet.attach import attach, merge
from safecl.pet.settings import pet_settings

FULL = pet_settings("full")


def test_every_weight_gets_the_gradient_of_timms_network(
    vit: VisionTransformer, images: Tensor
) -> None:
    theirs = copy.deepcopy(vit).requires_grad_(True)
    taken = copy.deepcopy(vit)
    use_layers(taken)
    view, modules = attach(taken, FULL)
    expected = theirs.forward_features(images)[:, 0]
    found = tokens(view, images)[:, 0]
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    expected.pow(3).mean().backward()
    found.pow(3).mean().backward()
    own = dict(modules["vit"].named_parameters())
    gradients = {n: p.grad for n, p in theirs.named_parameters()}
    assert own.keys() == gradients.keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, gradient in gradients.items():
        assert torch.allclose(own[name].grad, gradient, rtol=0, atol=1e-12 * largest), name


def test_it_shares_nothing_with_the_backbone_which_training_leaves_as_it_is(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone()
    before = copy.deepcopy(backbone.network.state_dict())
    features = backbone.features(images.float())
    view, modules = attach(backbone.network, FULL)
    assert torch.allclose(backbone.features(images.float(), view), features, atol=1e-5)
    assert not {t.data_ptr() for t in view.state_dict().values()} & {
        t.data_ptr() for t in backbone.network.state_dict().values()
    }
    assert all(
        parameter.requires_grad and parameter.dtype == torch.float32
        for parameter in modules.parameters()
    )
    optimiser = torch.optim.SGD(modules.parameters(), 0.1)
    backbone.features(images.float(), view).pow(2).mean().backward()
    optimiser.step()
    assert not torch.allclose(backbone.features(images.float(), view), features, atol=1e-3)
    assert torch.equal(backbone.features(images.float()), features)
    assert all(
        torch.equal(value, before[key]) for key, value in backbone.network.state_dict().items()
    )
    assert not any(parameter.requires_grad for parameter in backbone.network.parameters())


def test_the_modules_are_the_whole_state(
    make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    backbone = make_backbone()
    (one, state), (other, copied) = attach(backbone.network, FULL), attach(backbone.network, FULL)
    scramble(state)
    copied.load_state_dict(state.state_dict())
    assert torch.equal(
        backbone.features(images.float(), other), backbone.features(images.float(), one)
    )
    assert not torch.allclose(
        backbone.features(images.float(), one), backbone.features(images.float()), atol=1e-2
    )


def test_a_merged_copy_follows_the_weights_also_for_pictures_it_has_seen(
    make_backbone: Callable[..., Backbone], images: Tensor, scramble: Callable[..., None]
) -> None:
    backbone = make_backbone()
    view, modules = attach(backbone.network, FULL)
    modules.requires_grad_(False)
    merged = merge(view)
    assert torch.allclose(
        backbone.features(images.float(), merged), backbone.features(images.float()), atol=1e-5
    )
    scramble(modules)  # the patch embedding too
    assert torch.allclose(
        backbone.features(images.float(), merge(view)),
        backbone.features(images.float(), view),
        atol=1e-5,
    )
    assert torch.allclose(
        backbone.features(images.float(), merged),
        backbone.features(images.float(), view),
        atol=1e-5,
    )


def test_in_a_coarse_network_the_master_weights_stay_precise(
    make_backbone: Callable[..., Backbone], images: Tensor
) -> None:
    backbone = make_backbone().to(torch.device("cpu"), torch.bfloat16)
    view, modules = attach(backbone.network, FULL)
    features = backbone.features(images.float(), view)
    assert features.dtype == torch.float32 and torch.allclose(
        features, backbone.features(images.float()), atol=0.3
    )
    computed: list[torch.dtype] = []
    view.blocks[0].mlp.fc1.register_forward_hook(
        lambda module, inputs, output: computed.append(output.dtype)
    )
    backbone.features(images.float(), view).pow(3).mean().backward()
    assert computed == [torch.bfloat16]
    precise, exact = attach(make_backbone().network, FULL)
    make_backbone().features(images.float(), precise).pow(3).mean().backward()
    ours, theirs = (
        torch.cat([p.grad.flatten() for p in each.parameters()]) for each in (modules, exact)
    )
    assert ours.dtype == torch.float32 and torch.cosine_similarity(ours, theirs, dim=0) > 0.99
    weight = modules["vit"].blocks[0].mlp.fc1.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.mul_(1 + 1e-4)  # far below what bfloat16 can tell from 1
    assert not torch.equal(weight, before)


def test_what_the_features_do_not_depend_on_is_no_parameter(
    make_vit: Callable[..., Any], images: Tensor
) -> None:
    """A network with average pooling has its norm behind the pooling, which the CLS token never
    sees.
    """
    vit = make_vit(global_pool="avg").requires_grad_(False)
    view, modules = attach(vit, FULL)
    tokens(view, images.float()).pow(3).mean().backward()
    assert all(parameter.grad is not None for parameter in modules.parameters())

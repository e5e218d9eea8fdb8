"""RSIAT's two losses and its residual map against their definitions."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.settings import TrainSettings
from safecl.losses import pairs
from safecl.methods.method import Batch

SESSIONS = [["a", "b"], ["c", "d"], ["e", "a"]]
TARGETS = torch.tensor([2, 3, 2, 3, 3])


@pytest.fixture(scope="module")
def method(backbone: Backbone, make_stream: Any, tools: Any) -> Any:
    made = tools.new_method(backbone, {"name": "rsiat", "margin": 0.1})
    tools.teach(made, make_stream(SESSIONS))
    return made


@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 1, 0], [0, 0, 0], [0, 1, 2]])
def test_pairs_of_one_class_attract_and_pairs_of_two_repel(labels: list[int]) -> None:
    features = np.random.default_rng(0).normal(size=(len(labels), 4))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    near = []
    far = []
    for i, one in enumerate(unit):
        for j, other in enumerate(unit):
            if i != j and labels[i] == labels[j]:
                near.append(max(1 - one @ other, 0))
            elif i != j:
                far.append(max(one @ other - 0.1, 0))
    expected = (np.mean(near) if near else 0) + 0.5 * (np.mean(far) if far else 0)
    assert float(pairs(torch.tensor(features), torch.tensor(labels), 0.5, 0.1)) == pytest.approx(
        expected
    )


def test_the_weight_of_pairs_rises_epoch_by_epoch(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    """Four epochs of three steps: 0, λ/2, λ, λ."""
    method = tools.new_method(backbone, {"name": "rsiat", "pairs": 0.6, "pairs_warmup": 2})
    stream = make_stream(SESSIONS)
    fit = tools.new_fit(method, stream, TrainSettings(epochs=4, batch_size=2, lr=0.01))
    found = []

    def around(loss: Any) -> Any:
        def watched(batch: Any) -> Any:
            terms = loss(batch)
            whole = pairs(batch.features(method.learner), batch.targets, 0.5, 0.3)
            found.append(
                float(terms["pairs"].detach() / whole.detach().clamp(min=1e-9))
                if whole > 1e-6
                else None
            )
            return terms

        return watched

    fit.around = around
    tools.teach(method, stream, last=1, fit=fit)
    expected = [weight for weight in (0.0, 0.3, 0.6, 0.6) for _ in range(3)]
    assert len(found) == 12
    for own, wanted in zip(found, expected, strict=True):
        # dropout differs between two passes
        assert own is None or own == pytest.approx(wanted, rel=0.05)


def test_the_map_adds_a_sigmoid_of_four_layers(method: Any) -> None:
    x = torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    layers = [each for each in method.map if isinstance(each, torch.nn.Linear)]
    assert [layer.out_features for layer in layers] == [64, 256, 64, 24]
    y = x
    for layer in layers[:-1]:
        y = F.gelu(y @ layer.weight.T + layer.bias)
    expected = x + torch.sigmoid(y @ layers[-1].weight.T + layers[-1].bias)
    assert torch.allclose(method.map(x), expected, atol=1e-6)


def test_later_losses_hold_features_to_the_map_and_the_map_from_old_means(
    method: Any, images: Tensor
) -> None:
    current = torch.tensor([2, 3])
    means = method.gaussians.means[:2]
    before = method.learner.copy()
    with torch.no_grad():
        before.pet["0"].up.weight += 0.3
    before.freeze()
    found = method.later_loss(current, before, means, Batch(images, TARGETS))
    with torch.no_grad():
        new = method.learner.features(images)
        old = before.features(images)
        mapped = method.map(old)
        assert float(found["residual"]) == pytest.approx(
            float((new - mapped).square().mean()), rel=1e-4
        )
        cosines = [
            float(F.cosine_similarity(method.map(m[None]), p[None])) for m in means for p in mapped
        ]
        assert float(found["apart"]) == pytest.approx(0.4 * sum(cosines) / len(cosines), rel=1e-3)
        near = F.cosine_similarity(new[:, None], torch.cat(list(method.head.weights))[None], dim=2)[
            :, 2:4
        ]
        expected = F.cross_entropy(20 * (near - 0.1 * F.one_hot(TARGETS - 2)), TARGETS - 2)
        assert float(found["cls"]) == pytest.approx(float(expected), rel=1e-4)
    parameters = list(method.learner.parameters())
    both = torch.autograd.grad(
        found["residual"], [parameters[0], method.map[0].weight], retain_graph=True
    )
    assert all(gradient.any() for gradient in both)
    assert all(
        g is None
        for g in torch.autograd.grad(
            found["apart"], parameters, retain_graph=True, allow_unused=True
        )
    )
    assert torch.autograd.grad(found["apart"], method.map[0].weight)[0].any()


def test_the_map_learns_from_the_second_session_on_at_its_own_rate_and_decay(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "rsiat", "map_lr": 0.02, "map_weight_decay": 0.5})
    stream = make_stream(SESSIONS)
    starts = []
    gradients = []
    train = TrainSettings(
        epochs=1, batch_size=8, lr=0.1, momentum=0, weight_decay=0, clip=None, later_clip=None
    )
    fit = tools.new_fit(method, stream, train)

    def around(loss: Any) -> Any:
        def watched(batch: Any) -> Any:
            terms = loss(batch)
            starts.append(method.map[0].weight.detach().clone())
            if "residual" in terms:
                total = sum(terms.values())
                gradients.extend(
                    torch.autograd.grad(total, method.map[0].weight, retain_graph=True)
                )
            return terms

        return watched

    fit.around = around
    tools.teach(method, stream, last=1, fit=fit)
    first = method.map[0].weight.detach().clone()
    assert all(torch.equal(first, own) for own in starts)
    starts.clear()
    fit.on_fit = lambda name, module, data: starts.clear() if name == "rsiat" else None
    tools.teach(method, stream, first=2, last=2, fit=fit)
    expected = starts[0] - 0.02 * (gradients[0] + 0.5 * starts[0])
    assert torch.allclose(method.map[0].weight, expected, atol=1e-6)
    assert fit.calls == [(1, "rsiat"), (2, "rsiat"), (2, "align")]


def test_a_network_that_does_not_change_has_no_drift(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "rsiat"})
    stream = make_stream(SESSIONS)
    fit = tools.new_fit(
        method, stream, TrainSettings(epochs=1, batch_size=4, lr=1e-30, weight_decay=0)
    )
    tools.teach(method, stream, last=1, fit=fit)
    means = method.gaussians.means.clone()
    tools.teach(method, stream, first=2, last=2, fit=fit)
    assert torch.allclose(method.gaussians.means[:2], means, atol=1e-6)

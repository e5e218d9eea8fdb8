"""SLCA's two rates, Gaussians and logit normalisation against their equations."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch

SESSIONS = [["a", "b"], ["c", "d", "e"]]


@pytest.fixture
def method(backbone: Backbone, tools: Any) -> Any:
    return tools.new_method(backbone, {"name": "slca"}, "full")


def test_the_network_learns_at_a_hundredth_of_the_heads_rate(
    method: Any, make_stream: Any, tools: Any
) -> None:
    """One plain SGD step: the change is −rate · gradient."""
    from safecl.engine.settings import TrainSettings

    stream = make_stream([["a", "b"]])
    train = TrainSettings(epochs=1, batch_size=8, lr=0.1, momentum=0, weight_decay=0)
    fit = tools.new_fit(method, stream, train)
    before = {}
    gradients = {}

    def around(loss: Any) -> Any:
        def watched(batch: Any) -> Any:
            before.update({name: p.detach().clone() for name, p in method.named_parameters()})
            terms = loss(batch)
            wanted = {
                name: p
                for name, p in method.named_parameters()
                if p.requires_grad and "aligned" not in name
            }
            found = torch.autograd.grad(
                terms["cls"], list(wanted.values()), retain_graph=True, allow_unused=True
            )
            gradients.update(zip(wanted, found, strict=True))
            return terms

        return watched

    fit.around = around
    tools.teach(method, stream, fit=fit)
    after = dict(method.named_parameters())
    for name, gradient in gradients.items():
        if gradient is not None:
            rate = 0.1 if name.startswith("head") else 0.001
            assert torch.allclose(after[name], before[name] - rate * gradient, atol=1e-6), name


def test_the_gaussians_are_those_of_the_features_right_after_their_session(
    method: Any, make_stream: Any, tools: Any
) -> None:
    stream = make_stream(SESSIONS, train=6)
    fit = tools.teach(method, stream, last=1)
    part = stream._parts[0]
    views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
    features = method.learner.features(views).detach().double().numpy()
    tools.teach(method, stream, first=2, fit=fit)
    for c in range(2):
        own = features[6 * c : 6 * c + 6]
        assert np.allclose(method.gaussians.means[c], own.mean(axis=0), atol=1e-5)
        expected = np.cov(own.T) + 1e-4 * np.eye(24)
        assert np.allclose(method.gaussians.covariances([c], 1e-4)[0], expected, atol=1e-4)


def test_samples_are_drawn_around_shrunken_means_of_old_classes(
    method: Any, make_stream: Any, tools: Any
) -> None:
    stream = make_stream(SESSIONS)
    drawn = []
    fit = tools.new_fit(method, stream)
    fit.on_fit = lambda name, module, data: drawn.append(data) if name == "align" else None
    tools.teach(method, stream, fit=fit)
    (sampler,) = drawn
    assert list(sampler.keywords["scale"]) == pytest.approx([0.95, 0.95, 1.0, 1.0, 1.0])
    features, targets = sampler(torch.Generator().manual_seed(0))
    assert targets.tolist() == [c for c in range(5) for _ in range(4)] and features.shape == (
        20,
        24,
    )


def test_the_alignment_loss_divides_logits_by_the_mean_norm_of_their_blocks(
    method: Any, make_stream: Any, tools: Any
) -> None:
    tools.teach(method, make_stream(SESSIONS))
    features = torch.randn(6, 24, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 3, 4, 0])
    found = method.align_loss(Batch(features, targets))["cls"]
    total = 0.0
    for f, y in zip(features, targets.tolist(), strict=True):
        blocks = [
            f @ w.T + b for w, b in zip(method.aligned.weights, method.aligned.biases, strict=True)
        ]
        norm = sum(float(block.norm()) for block in blocks) / 2
        total += float(F.cross_entropy(torch.cat(blocks) / (norm * 0.1), torch.tensor(y)))
    assert float(found) == pytest.approx(total / 6, rel=1e-4)


def test_the_aligned_head_answers_and_the_next_session_goes_on_with_the_other(
    method: Any, make_stream: Any, images: Tensor, tools: Any
) -> None:
    stream = make_stream([*SESSIONS, ["f"]])
    fit = tools.teach(method, stream, last=2)
    plain = [w.detach().clone() for w in method.head.weights]
    assert all(not torch.equal(a, b) for a, b in zip(plain, method.aligned.weights, strict=True))
    assert torch.allclose(method.logits(images), method.aligned(method.learner.features(images)))
    starts = []
    fit.on_fit = lambda name, module, data: starts.append(
        [w.detach().clone() for w in method.head.weights]
    )
    tools.teach(method, stream, first=3, fit=fit)
    assert all(torch.equal(a, b) for a, b in zip(plain, starts[0], strict=False))

"""SSIAT's drift, loss and alignment against their equations."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch
from safecl.methods.ssiat import drift

SESSIONS = [["a", "b"], ["c", "d"]]


def test_the_drift_is_the_weighted_mean_of_how_features_move() -> None:
    random = np.random.default_rng(0)
    means, before, after = (random.normal(size=shape) for shape in ((3, 5), (7, 5), (7, 5)))
    found = drift(*(torch.tensor(each) for each in (means, before, after)), 1.5)
    for c in range(3):
        top = np.zeros(5)
        bottom = 0.0
        for old, new in zip(before, after, strict=True):
            weight = math.exp(-float(((old - means[c]) ** 2).sum()) / (2 * 1.5**2)) + 1e-5
            top = top + weight * (new - old)
            bottom = bottom + weight
        assert np.allclose(found[c], top / bottom)
    shift = torch.ones(5, dtype=torch.float64)
    moved = drift(torch.tensor(means), torch.tensor(before), torch.tensor(before) + shift, 4.0)
    assert torch.allclose(moved, shift.expand(3, 5))  # a common move is found exactly


@pytest.mark.parametrize("paired", [True, False])
def test_old_means_move_by_the_drift_of_the_sessions_own_pictures(
    paired: bool, backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "ssiat", "paired": paired})
    stream = make_stream(SESSIONS, train=5)
    fit = tools.teach(method, stream, last=1)
    old = method.gaussians.means.clone()
    scatter = method.gaussians.scatter.clone()
    part = stream._parts[1]
    views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
    before = method.learner.features(views).detach()
    tools.teach(method, stream, first=2, fit=fit)
    after = method.learner.features(views).detach()
    expected = old + drift(old, before, after, 4.0)
    assert torch.allclose(method.gaussians.means[:2], expected, atol=1e-5) is paired
    assert torch.equal(method.gaussians.scatter[:2], scatter)  # covariances are kept
    assert torch.allclose(method.gaussians.means[2], after[:5].mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_loss_is_cosface_over_the_sessions_classes(
    margin: float, backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "ssiat", "margin": margin})
    tools.teach(method, make_stream(SESSIONS))
    found = method.loss(torch.tensor([2, 3]), Batch(images, torch.tensor([2, 3, 2, 3, 3])))["cls"]
    weight = torch.cat(list(method.head.weights))
    cosines = F.cosine_similarity(method.learner.features(images)[:, None], weight[None], dim=2)[
        :, 2:
    ]
    total = 0.0
    for row, y in zip(cosines.tolist(), (0, 1, 0, 1, 1), strict=True):
        right = math.exp(20 * (row[y] - margin))
        total -= math.log(right / (right + math.exp(20 * row[1 - y])))
    assert float(found) == pytest.approx(total / 5, rel=1e-4)


def test_all_heads_are_retrained_on_gaussians_and_the_pet_is_not(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "ssiat"})
    stream = make_stream(SESSIONS)
    fit = tools.new_fit(method, stream)
    seen = {}

    def note(name: str, module: Any, data: Any) -> None:
        seen[fit.session, name] = (
            [w.detach().clone() for w in method.head.weights],
            method.learner.tuning(),
        )

    fit.on_fit = note
    tools.teach(method, stream, fit=fit)
    assert fit.calls == [(1, "ssiat"), (2, "ssiat"), (2, "align")]
    (heads, tuning), (before, _) = seen[2, "align"], seen[2, "ssiat"]
    assert torch.equal(heads[0], before[0])  # the old head is frozen while the PET is tuned
    assert all(
        not torch.equal(old, new) for old, new in zip(heads, method.head.weights, strict=True)
    )
    assert all(torch.equal(value, tuning[key]) for key, value in method.learner.tuning().items())

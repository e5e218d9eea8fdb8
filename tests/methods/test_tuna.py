"""TUNA's fusion, choice by entropy and loss against their definitions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch
from safecl.methods.tuna import fused

SESSIONS = [["a", "b"], ["c", "d"], ["e", "a"]]
TARGETS = torch.tensor([2, 3, 2, 3, 3])


@pytest.fixture(scope="module", params=["fused", "newest"])
def method(request: pytest.FixtureRequest, backbone: Backbone, make_stream: Any, tools: Any) -> Any:
    made = tools.new_method(backbone, {"name": "tuna", "universal": request.param})
    tools.teach(made, make_stream(SESSIONS))
    return made


def test_fusion_is_by_sign_of_the_sum_and_then_by_size() -> None:
    assert fused(torch.tensor([2.0, -3.0, 1.0])) == -3  # a sum of 0 counts as negative
    assert fused(torch.tensor([2.0, -1.0, 1.0])) == 2
    values = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fused(values[:1]), values[0])
    for place in np.ndindex(3, 5):
        own = [float(v) for v in values[:, place[0], place[1]]]
        sign = 1 if sum(own) > 0 else -1
        expected = sign * max((abs(v) for v in own if v * sign > 0), default=0.0)
        assert float(fused(values)[place]) == pytest.approx(expected)


def test_the_universal_learner_is_fused_from_the_tunings_of_all_sessions(method: Any) -> None:
    tunings = [learner.tuning() for learner in method.learners]
    assert len(tunings) == 3 and not torch.equal(
        tunings[0]["0.up.weight"], tunings[1]["0.up.weight"]
    )
    assert (method.universal is None) is (method.settings.universal == "newest")
    if method.universal is not None:
        for key, value in method.universal.tuning().items():
            assert torch.equal(value, fused(torch.stack([tuning[key] for tuning in tunings])))


def test_the_surest_learner_and_the_universal_one_answer_together(
    method: Any, images: Tensor
) -> None:
    second = method.universal or method.learners[-1]
    with torch.no_grad():
        for image, found in zip(images, method.logits(images), strict=True):
            chances = [
                method.head(learner.features(image[None]))[0].softmax(0)
                for learner in method.learners
            ]
            entropies = [
                -sum(float(p) * math.log(float(p) + 1e-10) for p in each) for each in chances
            ]
            other = method.head(second.features(image[None]))[0].softmax(0)
            assert torch.allclose(
                found.exp(), chances[int(np.argmin(entropies))] + other, atol=1e-5
            )


def test_a_session_starts_from_the_pet_before_it_and_trains_its_own_alone(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "tuna"})
    stream = make_stream(SESSIONS)
    fit = tools.new_fit(method, stream)
    starts = []

    def note(name: str, module: Any, data: Any) -> None:
        if name == "tuna":
            starts.append([learner.tuning() for learner in method.learners])

    fit.on_fit = note
    tools.teach(method, stream, fit=fit)
    assert fit.calls == [(1, "tuna"), (2, "tuna"), (2, "align"), (3, "tuna"), (3, "align")]
    for number in (1, 2):
        assert tools.same(starts[number][number], starts[number][number - 1])
        assert tools.same(starts[-1][number - 1], method.learners[number - 1].tuning())


@torch.no_grad()
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_loss_is_cosface_over_the_sessions_classes(
    margin: float, method: Any, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method, "settings", method.settings.model_copy(update={"margin": margin}))
    found = method.loss(torch.tensor([2, 3]), Batch(images, TARGETS))
    cosines = F.cosine_similarity(
        method.learners[-1].features(images)[:, None],
        torch.cat(list(method.head.weights))[None],
        dim=2,
    )[:, 2:4]
    logits = 20 * (cosines - margin * F.one_hot(TARGETS - 2))
    assert float(found["cls"]) == pytest.approx(
        float(F.cross_entropy(logits, TARGETS - 2)), rel=1e-4
    )


def test_statistics_of_a_class_are_those_under_its_sessions_learners(
    method: Any, make_stream: Any
) -> None:
    stream = make_stream(SESSIONS)
    own: dict[str, list[Tensor]] = {}
    for part, learner in zip(stream._parts, method.learners, strict=True):
        views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        for label, feature in zip(part.train.labels, learner.features(views).detach(), strict=True):
            own.setdefault(label, []).append(feature)
    assert len(own["a"]) == 6  # a class that comes back has the pictures of both sessions
    for c, label in enumerate(method.classes):
        assert torch.allclose(
            method.gaussians.means[c], torch.stack(own[label]).mean(dim=0), atol=1e-5
        )

"""S-iPrompts against its equations, one picture and one centre after the other."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch
from safecl.methods.siprompts import ABSENT
from safecl.randomness import derive

SESSIONS = [["a", "b", "c"], ["c", "a"], ["d", "b", "a"]]
MEMBERS = [[0, 1, 2], [0, 2], [0, 1, 3]]


@pytest.fixture(scope="module")
def learned(backbone: Backbone, make_stream: Any, tools: Any) -> Any:
    method = tools.new_method(backbone, {"name": "siprompts", "length": 2, "centres": 3})
    stream = make_stream(SESSIONS, train=5)
    tools.teach(method, stream)
    return method, stream


def test_a_picture_goes_to_the_domain_of_the_nearest_centre(
    learned: Any, images: Tensor, tools: Any
) -> None:
    method, _ = learned
    for image, found in zip(images, method.logits(images), strict=True):
        feature = F.normalize(tools.forward(method.backbone, image[None])[0, 0], dim=0)
        apart = [
            min(float((feature - c).abs().sum()) for c in centres) for centres in method.centres
        ]
        t = apart.index(min(apart))
        prompted = tools.forward(method.backbone, image[None], prompts=method.prompts[t][None])[
            :, 0
        ]
        own = prompted @ method.head.weights[t].T + method.head.biases[t]
        expected = torch.full((4,), ABSENT)
        for column, value in zip(MEMBERS[t], own[0], strict=True):
            expected[column] = value
        assert torch.allclose(found, expected, atol=1e-4)


def test_the_centres_are_scikit_learns_of_normalised_bare_features_of_augmented_views(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "siprompts", "length": 2, "centres": 3})
    stream = make_stream(SESSIONS, train=5)
    fit = tools.new_fit(method, stream)
    seen = []

    def augmented(name: str, session: Any, network: Any) -> Tensor:
        seen.append(type(fit).augmented_features(fit, name, session, network))
        return seen[-1]

    fit.augmented_features = augmented
    tools.teach(method, stream, fit=fit)
    for t, (part, features, centres) in enumerate(
        zip(stream._parts, seen, method.centres, strict=True)
    ):
        views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        assert features.shape == (len(part.train), 24)  # each picture once, cropped at random
        assert torch.cdist(features, backbone.features(views)).amin(dim=1).max() > 1e-3
        reference = KMeans(3, n_init=10, random_state=derive(0, "centres", t) % 2**32)
        assert np.allclose(
            reference.fit(F.normalize(features, dim=1)).cluster_centers_, centres, atol=1e-5
        )


def test_with_fewer_features_than_centres_some_stand_twice(backbone: Backbone, tools: Any) -> None:
    method = tools.new_method(backbone, {"name": "siprompts", "centres": 5})
    for features in (np.random.default_rng(0).normal(size=(3, 24)), np.ones((4, 24))):
        centres = method.cluster(features.astype(np.float32), 0)
        assert centres.shape == (5, 24)
        assert float(torch.cdist(torch.tensor(features).float(), centres).amin(dim=1).max()) < 1e-5


def test_a_head_starts_as_torchs_linear_layer_does(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "siprompts"})
    stream = make_stream([[*"abcdefgh"]], train=1)
    fit = tools.new_fit(method, stream)
    seen = []
    fit.on_fit = lambda name, module, data: seen.append(
        [p.detach().clone() for p in module[1].parameters()]
    )
    tools.teach(method, stream, fit=fit)
    bound, ((weight, bias),) = 24**-0.5, seen
    for values in (weight, bias):  # uniform in ±1/√d
        assert values.abs().max() <= bound and values.abs().max() > 0.7 * bound
        assert abs(float(values.mean())) < 3 * bound / math.sqrt(3 * values.numel())
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_a_session_trains_its_own_prompt_and_head_alone(
    learned: Any, images: Tensor, tools: Any
) -> None:
    method, _ = learned
    targets = torch.tensor([0, 3, 1, 0, 3])
    loss = method.loss(torch.tensor([0, 1, 3]), Batch(images, targets))["cls"]
    prompted = tools.forward(method.backbone, images, prompts=method.prompts[2].expand(5, -1, -1))[
        :, 0
    ]
    logits = prompted @ method.head.weights[2].T + method.head.biases[2]
    assert torch.allclose(loss, F.cross_entropy(logits, torch.tensor([0, 2, 1, 0, 2])), atol=1e-5)
    loss.backward()
    assert [prompt.grad is not None for prompt in method.prompts] == [False, False, True]
    assert [weight.grad is not None for weight in method.head.weights] == [False, False, True]

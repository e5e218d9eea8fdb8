"""S-iPrompts against its equations, one picture and one centre after the other."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.batches import Piece
from safecl.methods.siprompts import ABSENT

SESSIONS = [["a", "b", "c"], ["c", "a"], ["d", "b", "a"]]
MEMBERS = [[0, 1, 2], [0, 2], [0, 1, 3]]


@pytest.fixture(scope="module")
def learned(backbone: Backbone, make_stream: Any, tools: Any) -> Any:
    method = tools.new_method(backbone, {"name": "siprompts", "length": 2, "centres": 3})
    stream = make_stream(SESSIONS, train=5)
    tools.teach(method, stream)
    return method, stream


@pytest.mark.parametrize("distance", ["l1", "l2"])
def test_a_picture_goes_to_the_domain_of_the_nearest_centre(
    distance: str, learned: Any, images: Tensor, tools: Any
) -> None:
    method, _ = learned
    method.settings = method.settings.model_copy(update={"distance": distance})
    for image, found in zip(images, method.logits(images), strict=True):
        feature = F.normalize(tools.forward(method.backbone, image[None])[0, 0], dim=0)
        apart = [
            min(float((feature - c).abs().sum() if distance == "l1" else (feature - c).norm()) for c in centres)
            for centres in method.centres
        ]
        t = apart.index(min(apart))
        prompted = tools.forward(method.backbone, image[None], prompts=method.prompts[t][None])[:, 0]
        own = prompted @ method.head.weights[t].T + method.head.biases[t]
        expected = torch.full((4,), ABSENT)
        for column, value in zip(MEMBERS[t], own[0], strict=True):
            expected[column] = value
        assert torch.allclose(found, expected, atol=1e-4)


def test_the_centres_are_means_of_the_normalised_bare_features_nearest_to_them(learned: Any) -> None:
    method, stream = learned
    for t, part in enumerate(stream._parts):
        views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        features = F.normalize(method.backbone.features(views), dim=1)
        member = torch.cdist(features, method.centres[t]).argmin(dim=1)
        for k, centre in enumerate(method.centres[t]):
            assert torch.allclose(centre, features[member == k].mean(dim=0), atol=1e-5)


def test_a_session_trains_its_own_prompt_and_head_alone(learned: Any, images: Tensor, tools: Any) -> None:
    method, _ = learned
    targets = torch.tensor([0, 3, 1, 0, 3])
    loss = method.loss(torch.tensor([0, 1, 3]), Piece(images, targets))["cls"]
    prompted = tools.forward(method.backbone, images, prompts=method.prompts[2].expand(5, -1, -1))[:, 0]
    logits = prompted @ method.head.weights[2].T + method.head.biases[2]
    assert torch.allclose(loss, F.cross_entropy(logits, torch.tensor([0, 2, 1, 0, 2])), atol=1e-5)
    loss.backward()
    assert [prompt.grad is not None for prompt in method.prompts] == [False, False, True]
    assert [weight.grad is not None for weight in method.head.weights] == [False, False, True]

"""EASE against its equations, one class and one subspace after the other."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.ease import complete

SESSIONS = [["a", "b"], ["c", "d", "e"], ["f"]]
TASK = [0, 0, 1, 1, 1, 2]


def cosine(a: Any, b: Any) -> float:
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.fixture(scope="module", params=[0.0, 0.7], ids=["without PTM", "with PTM"])
def learned(
    request: pytest.FixtureRequest, backbone: Backbone, make_stream: Any, tools: Any
) -> Any:
    method = tools.new_method(backbone, {"name": "ease", "alpha": 0.3, "beta": request.param})
    stream = make_stream(SESSIONS, train=4)
    tools.teach(method, stream)
    return method, stream


def features(network: Any, part: Any, stream: Any) -> Any:
    views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
    with torch.no_grad():
        return network.features(views).double().numpy()


def by_hand(method: Any, stream: Any) -> Any:
    """W[n][c]: class means, and for old classes in new subspaces the sum that is weighted by
    similarity.
    """
    w: list[dict[int, Any]] = [{} for _ in range(3)]
    for t, part in enumerate(stream._parts):
        for n in range(t + 1):
            found = features(method.learners[n], part, stream)
            for label in part.classes:
                rows = [i for i, own in enumerate(part.train.labels) if own == label]
                w[n][method.classes.index(label)] = found[rows].mean(axis=0)
    real = [dict(each) for each in w]
    for n in range(3):
        for o in range(6):
            if o not in real[n]:
                b = TASK[o]
                chances = {j: math.exp(cosine(real[b][o], real[b][j])) for j in real[n]}
                total = sum(chances.values())
                w[n][o] = sum(chance / total * real[n][j] for j, chance in chances.items())
    return w


def test_missing_prototypes_are_sums_weighted_by_class_similarity(learned: Any) -> None:
    method, stream = learned
    expected = by_hand(method, stream)
    for n in range(3):
        for c in range(6):
            assert np.allclose(method.prototypes[n, c], expected[n][c], atol=1e-4), (n, c)


def test_logits_weigh_the_own_subspace_with_one_and_the_others_with_alpha(
    learned: Any, images: Tensor
) -> None:
    method, stream = learned
    w = by_hand(method, stream)
    own = [learner.features(images).detach().double().numpy() for learner in method.learners]
    bare = method.backbone.features(images).double().numpy()
    ptm = {
        method.classes.index(label): (
            features(method.backbone, part, stream)[
                [i for i, mine in enumerate(part.train.labels) if mine == label]
            ].mean(axis=0)
        )
        for part in stream._parts
        for label in part.classes
    }
    for i, found in enumerate(method.logits(images)):
        for c in range(6):
            z = sum(
                (1.0 if n == TASK[c] else 0.3 / 2) * cosine(own[n][i], w[n][c]) for n in range(3)
            ) + method.settings.beta * cosine(bare[i], ptm[c])
            assert float(found[c]) == pytest.approx(z, abs=1e-4)


def test_a_session_trains_its_own_adapter_alone(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "ease"})
    stream = make_stream(SESSIONS)
    fit = tools.new_fit(method, stream)
    trained = []
    fit.on_fit = lambda name, module, data: trained.append(
        [p.requires_grad for p in method.learners.parameters()]
    )
    tools.teach(method, stream, fit=fit)
    each = len(trained[0])
    assert [sum(one) for one in trained] == [each] * 3 and all(all(one[-each:]) for one in trained)
    # one class alone teaches nothing
    values = [learner.tuning()["0.up.weight"] for learner in method.learners][:2]
    assert all(value.any() for value in values) and not torch.equal(values[0], values[1])


def test_a_class_of_several_sessions_has_their_subspaces_as_its_own(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "ease", "alpha": 0.5})
    tools.teach(method, make_stream([["a", "b"], ["a"], ["c", "a"]]))
    third = 1 / 3
    expected = torch.tensor([[third, 1.0, 0.25], [third, 0.25, 0.25], [third, 0.25, 1.0]])
    assert torch.allclose(method.subspace_weights(), expected)


def test_what_is_known_stays_and_one_known_class_is_copied() -> None:
    means = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    known = torch.tensor([[True, True, True], [False, False, True]])
    found = complete(means, known)
    assert torch.equal(found[known], means[known])
    assert torch.allclose(found[1, 0], means[1, 2]) and torch.allclose(found[1, 1], means[1, 2])

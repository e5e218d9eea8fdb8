"""LoRanPAC's decomposition and head against plain least squares."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods import loranpac
from safecl.methods.parts import drop_class

SESSIONS = [["a", "b"], ["c", "d"], ["e", "a"]]
WHOLE = {"name": "loranpac", "size": 60, "cut": 0.0}


def lifted(method: Any, stream: Any) -> tuple[np.ndarray, np.ndarray]:
    """ReLU(f P) of all pictures of the stream (N, E), and their classes (N, C)."""
    rows = []
    labels = []
    for part in stream._parts:
        views = part.train.plain(range(len(part.train)), stream.transform).float() / 255
        rows.append(
            torch.relu(method.learner.features(views).detach() @ method.projection).double().numpy()
        )
        labels += part.train.labels
    return (
        np.concatenate(rows),
        np.eye(len(method.classes))[[method.classes.index(label) for label in labels]],
    )


@pytest.mark.parametrize("buffer", [loranpac.BUFFER, 3])
def test_without_a_cut_the_weights_are_those_of_least_norm(
    buffer: int, backbone: Backbone, make_stream: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the pictures of a session are decomposed three at a time."""
    monkeypatch.setattr(loranpac, "BUFFER", buffer)
    method = tools.new_method(backbone, WHOLE)
    stream = make_stream(SESSIONS, train=3)
    tools.teach(method, stream)
    h, y = lifted(method, stream)
    gram = (method.vectors * method.values.square()) @ method.vectors.T
    assert len(h) < 60 and np.allclose(gram, h.T @ h, rtol=1e-3, atol=1e-3 * np.abs(h.T @ h).max())
    expected = np.linalg.pinv(h) @ y
    assert np.allclose(method.weight, expected, atol=2e-2 * np.abs(expected).max())
    assert np.allclose(h @ method.weight.double().numpy(), y, atol=1e-2)  # it interpolates


def test_a_cut_keeps_so_many_vectors_which_stay_orthonormal(
    backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    stream = make_stream(SESSIONS, train=4)
    for settings, ranks in (({"cut": 0.25}, (6, 12, 18)), ({"cut": 0.25, "rank": 10}, (6, 10, 10))):
        method = tools.new_method(backbone, {"name": "loranpac", "size": 60, **settings})
        counts = []
        for number in (1, 2, 3):
            tools.teach(method, make_stream(SESSIONS, train=4), first=number, last=number)
            counts.append(len(method.values))
        assert tuple(counts) == ranks and int(method.count) == 24
        unit = method.vectors.T @ method.vectors
        assert torch.allclose(unit, torch.eye(len(unit)), atol=1e-5)
        exact = np.linalg.svd(lifted(method, stream)[0], compute_uv=False)
        assert (method.values.double().numpy() <= exact[: ranks[-1]] * (1 + 1e-5)).all()
        assert (method.values.diff() <= 0).all()
    few = tools.new_method(backbone, {"name": "loranpac", "size": 8})
    tools.teach(few, make_stream(SESSIONS, train=4))
    assert few.vectors.shape == (8, 6)  # three quarters of the random features at most


def test_the_sums_are_those_of_all_sessions_and_the_logits_are_linear_in_random_features(
    backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "loranpac", "size": 60})
    stream = make_stream(SESSIONS)
    assert tools.teach(method, stream).calls == [(1, "loranpac")]
    h, y = lifted(method, stream)
    assert np.allclose(method.sums, h.T @ y, rtol=1e-4, atol=1e-4)
    u = method.vectors.double().numpy()
    s = method.values.double().numpy()
    expected = u @ np.diag(1 / s**2) @ u.T @ h.T @ y
    assert np.allclose(method.weight, expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())
    own = torch.relu(method.learner.features(images).detach() @ method.projection) @ method.weight
    assert torch.allclose(method.logits(images), own, atol=1e-5)


def test_pictures_that_come_twice_do_no_harm(
    backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    """Their singular value is rounding alone, by whose square nothing may be divided."""
    method = tools.new_method(backbone, WHOLE, "none")
    for number in (1, 2, 3):
        stream = make_stream([["a", "b"]] * number)
        for part in stream._parts:
            part.train.arrays[:] = stream._parts[
                0
            ].train.arrays  # the pictures of the first session again
        tools.teach(method, stream, first=number, last=number)
    assert method.logits(images).abs().max() < 10


def test_a_vector_is_used_down_to_rounding_however_many_random_features_there_are(
    backbone: Backbone, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "loranpac", "size": 50_000}, "none")
    random = torch.Generator().manual_seed(0)
    method.vectors = torch.linalg.qr(torch.randn(50_000, 3, generator=random))[0]
    method.values = torch.tensor([100.0, 0.1, 1e-5])
    method.sums = torch.randn(50_000, 2, generator=random)
    method.refresh()
    along = method.vectors.T @ method.sums / method.values[:, None].square()
    assert torch.allclose(
        method.vectors.T @ method.weight, along * torch.tensor([[1.0], [1.0], [0.0]]), atol=1e-2
    )


def test_a_forgotten_class_takes_its_sums_along(
    backbone: Backbone, make_stream: Any, images: Tensor, tools: Any
) -> None:
    method = tools.new_method(backbone, WHOLE)
    tools.teach(method, make_stream(SESSIONS))
    expected = method.logits(images)[:, [0, 2, 3, 4]]
    drop_class(method, 1)
    method.refresh()
    assert torch.allclose(method.logits(images), expected, atol=1e-4)

"""CODA-Prompt against its equations, one picture and one component after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.coda import orthonormal
from safecl.methods.method import Batch

TARGETS = torch.tensor([2, 3, 2, 3, 3])


@pytest.fixture(scope="module")
def learned(make_backbone: Callable[..., Backbone], make_stream: Any, tools: Any) -> Any:
    settings = {"name": "coda", "components": 3, "length": 4, "blocks": 2}
    found = tools.new_method(make_backbone(depth=3), settings)
    fit = tools.new_fit(found, stream := make_stream([["a", "b"], ["c", "d"]]))
    starts = []
    fit.on_fit = lambda *_: starts.append(tools.snapshot(found))
    tools.teach(found, stream, fit=fit)
    return found, starts


def by_hand(method: Any, image: Tensor, forward: Any) -> Tensor:
    """Logits (C,) of one picture."""
    query = forward(method.backbone, image[None])[0, 0]
    prefixes = {}
    for b in range(2):
        prompt = torch.zeros(4, method.backbone.width)
        for session in range(2):
            for m in range(3):
                p, k, a = (
                    getattr(method.prompts, name)[session][b, m]
                    for name in ("components", "keys", "attention")
                )
                prompt = prompt + F.cosine_similarity(query * a, k, dim=0) * p
        prefixes[b] = prompt[None, :2], prompt[None, 2:]
    return method.head(forward(method.backbone, image[None], prefixes=prefixes)[:, 0])[0]


def test_a_prompt_is_the_weighted_sum_of_all_components(
    learned: Any, images: Tensor, tools: Any
) -> None:
    method, _ = learned
    expected = torch.stack([by_hand(method, image, tools.forward) for image in images])
    assert torch.allclose(method.logits(images), expected, atol=1e-5)
    terms = method.loss(torch.tensor([2, 3]), Batch(images, TARGETS))
    assert list(terms) == ["cls"]
    assert torch.allclose(terms["cls"], F.cross_entropy(expected[:, 2:], TARGETS - 2), atol=1e-5)


def test_new_components_start_orthonormal_to_all_before_and_those_stay_as_they_are(
    learned: Any,
) -> None:
    method, (first, second) = learned
    for name in ("components", "keys", "attention"):
        old, new = (second[f"prompts.{name}.{i}"].flatten(2) for i in (0, 1))
        for b in range(2):
            assert torch.allclose(new[b] @ new[b].T, torch.eye(3), atol=1e-5)
            assert torch.allclose(new[b] @ old[b].T, torch.zeros(3, 3), atol=1e-5)
        kept, trained = (getattr(method.prompts, name)[i].flatten(2) for i in (0, 1))
        assert torch.equal(kept, old) and not torch.equal(trained, new)
        assert not torch.equal(first[f"prompts.{name}.0"].flatten(2), old)


def test_without_room_for_more_orthogonal_vectors_they_are_unit_vectors() -> None:
    draw = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    found = orthonormal(draw, torch.randn(2, 6, generator=torch.Generator().manual_seed(1)))
    assert torch.allclose(found[:4] @ found[:4].T, torch.eye(4), atol=1e-5)
    assert torch.allclose(found.norm(dim=1), torch.ones(9)) and torch.allclose(
        found[4:], F.normalize(draw[4:], dim=1)
    )

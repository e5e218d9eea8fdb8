"""L2P against its equations, one picture after the other."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch

TARGETS = torch.tensor([2, 3, 2, 3, 3])


@pytest.fixture
def method(backbone: Backbone, make_stream: Any, tools: Any) -> Any:
    settings = {"name": "l2p", "pool": 4, "length": 3, "top_k": 2, "pull": 0.5}
    found = tools.new_method(backbone, settings)
    tools.teach(found, make_stream([["a", "b"], ["c", "d"]]))
    return found


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def by_hand(
    method: Any, image: Tensor, forward: Any, chosen: list[int] | None = None
) -> tuple[Tensor, float]:
    """Logits (C,) of one picture, and the sum of its cosines with the chosen keys."""
    query = forward(method.backbone, image[None])[0, 0]
    cosines = [cosine(query, key) for key in method.prompts.keys]
    chosen = chosen or sorted(range(4), key=lambda k: -cosines[k])[:2]
    tokens = (
        torch.cat([method.prompts.tokens[k] for k in chosen])
        + method.backbone.network.pos_embed[0, 0]
    )
    outputs = forward(method.backbone, image[None], prompts=tokens[None])[0, 1:7]
    return method.head(outputs.mean(dim=0)[None])[0], sum(cosines[k] for k in chosen)


def test_each_picture_gets_the_prompts_of_its_nearest_keys(
    method: Any, images: Tensor, tools: Any
) -> None:
    expected = torch.stack([by_hand(method, image, tools.forward)[0] for image in images])
    assert torch.allclose(method.logits(images), expected, atol=1e-5)


def test_the_loss_is_masked_cross_entropy_less_the_pull_of_the_chosen_keys(
    method: Any, images: Tensor, tools: Any
) -> None:
    terms = method.loss(torch.tensor([2, 3]), Batch(images, TARGETS))
    cls = 0.0
    pull = 0.0
    for image, target in zip(images, TARGETS.tolist(), strict=True):
        logits, cosines = by_hand(method, image, tools.forward)
        cls += math.log(sum(math.exp(float(logits[c])) for c in (2, 3))) - float(logits[target])
        pull += cosines
    assert float(terms["cls"]) == pytest.approx(cls / 5, rel=1e-4)
    assert float(terms["pull"]) == pytest.approx(-0.5 * pull / 5, rel=1e-4)


def test_the_gradient_reaches_chosen_prompts_and_keys_and_the_current_block_alone(
    method: Any, images: Tensor
) -> None:
    sum(method.loss(torch.tensor([2, 3]), Batch(images, TARGETS)).values()).backward()
    chosen = method.prompts.similarity(method.query(images)).topk(2).indices.unique().tolist()
    for values in (method.prompts.tokens.grad.flatten(1), method.prompts.keys.grad):
        assert [k for k in range(4) if values[k].any()] == sorted(chosen)
    assert method.head.weights[0].grad is None and method.head.weights[1].grad.any()


@pytest.mark.parametrize("batchwise", ["train", "always"])
def test_batch_wise_all_pictures_get_the_prompts_chosen_most_often(
    batchwise: str, method: Any, images: Tensor, tools: Any
) -> None:
    method.settings = method.settings.model_copy(update={"batchwise": batchwise})
    votes = Counter(
        method.prompts.similarity(method.query(images)).topk(2).indices.flatten().tolist()
    )
    ranked = [votes[k] for k in range(4)]
    chosen = torch.tensor(ranked, dtype=torch.float32).topk(2).indices.tolist()
    own = torch.stack([by_hand(method, image, tools.forward)[0] for image in images])
    common = torch.stack([by_hand(method, image, tools.forward, chosen)[0] for image in images])
    assert torch.allclose(
        method.logits(images), common if batchwise == "always" else own, atol=1e-5
    )
    features, _ = method.terms(Batch(images, TARGETS))
    assert torch.allclose(method.head(features), common, atol=1e-5)

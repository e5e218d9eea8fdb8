"""DualPrompt against its equations, one picture after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.methods.dualprompt import mixed_up
from safecl.methods.method import Batch

TARGETS = torch.tensor([2, 3, 2, 3, 3])


@pytest.fixture(scope="module")
def learned(make_backbone: Callable[..., Backbone], make_stream: Any, tools: Any) -> Any:
    settings = {"name": "dualprompt", "g_length": 2, "e_length": 3, "pull": 0.5}
    found = tools.new_method(make_backbone(depth=6), settings)
    fit = tools.new_fit(found, stream := make_stream([["a", "b"], ["c", "d"]]))
    starts = []
    fit.on_fit = lambda *_: starts.append([each.detach().clone() for each in found.prompts.experts])
    tools.teach(found, stream, fit=fit)
    return found, starts


def by_hand(method: Any, image: Tensor, expert: Tensor, forward: Any) -> Tensor:
    """Logits (C,) of one picture that gets ``expert`` (3, 2, L, d): general prompts in blocks 0 and
    1, it in 2 to 4.
    """
    general = method.prompts.general
    prefixes = {b: (general[b, :1], general[b, 1:]) for b in (0, 1)}
    prefixes |= {b + 2: (expert[b, :1], expert[b, 1:]) for b in range(3)}
    return method.head(forward(method.backbone, image[None], prefixes=prefixes)[:, 0])[0]


def test_the_expert_is_that_of_the_nearest_key(learned: Any, images: Tensor, tools: Any) -> None:
    method, _ = learned
    for image, found in zip(images, method.logits(images), strict=True):
        query = tools.forward(method.backbone, image[None])[0, 0]
        cosines = [float(F.cosine_similarity(query, key, dim=0)) for key in method.prompts.keys]
        expert = method.prompts.experts[max(range(2), key=cosines.__getitem__)]
        assert torch.allclose(found, by_hand(method, image, expert, tools.forward), atol=1e-5)


def test_training_uses_the_sessions_expert_and_pulls_its_key(
    learned: Any, images: Tensor, tools: Any
) -> None:
    method, _ = learned
    terms = method.loss(torch.tensor([2, 3]), Batch(images, TARGETS))
    logits = torch.stack(
        [by_hand(method, image, method.prompts.experts[1], tools.forward) for image in images]
    )
    assert torch.allclose(terms["cls"], F.cross_entropy(logits[:, 2:], TARGETS - 2), atol=1e-5)
    queries = tools.forward(method.backbone, images)[:, 0]
    mean = sum(float(F.cosine_similarity(q, method.prompts.keys[1], dim=0)) for q in queries) / 5
    assert float(terms["pull"]) == pytest.approx(-0.5 * mean, abs=1e-5)


def test_an_expert_starts_as_the_one_before_which_stays_as_it_was(learned: Any) -> None:
    method, starts = learned
    (first,), (before, second) = starts
    assert torch.equal(before, second) and not torch.equal(first, before)
    assert torch.equal(method.prompts.experts[0], before) and not torch.equal(
        method.prompts.experts[1], second
    )
    assert not torch.equal(*method.prompts.keys)


def test_the_mixed_up_reshape_gives_keys_for_values_and_values_for_keys(learned: Any) -> None:
    method, _ = learned
    expert = method.prompts.experts[1]
    prefixes = method.prefixes(mixed_up(expert, 4))
    for b in range(3):
        keys, values = prefixes[b + 2]
        # the first half of the batch has keys for both, the second values for both
        for i in range(4):
            same = expert[b, 0 if i < 2 else 1]
            assert torch.equal(keys[i], same) and torch.equal(values[i], same)


def test_a_batch_wise_choice_is_that_of_most_pictures(
    learned: Any, images: Tensor, tools: Any
) -> None:
    method, _ = learned
    chosen = method.prompts.similarity(method.query(images)).argmax(dim=1)
    method.settings = method.settings.model_copy(update={"batchwise": True})
    found = method.logits(images)
    method.settings = method.settings.model_copy(update={"batchwise": False})
    expert = method.prompts.experts[int(chosen.mode().values)]
    expected = torch.stack([by_hand(method, image, expert, tools.forward) for image in images])
    assert torch.allclose(found, expected, atol=1e-5)


def test_where_blocks_are_missing_the_last_one_has_both_prompts(
    backbone: Backbone, images: Tensor, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": "dualprompt", "g_length": 2, "e_length": 3})
    assert (method.g_blocks, method.e_blocks) == ([0], [0])
    expert = torch.randn(1, 2, 3, backbone.width)
    keys, values = method.prefixes(expert)[0]
    assert torch.equal(keys, torch.cat([method.prompts.general[0, 0], expert[0, 0]]))
    assert torch.equal(values, torch.cat([method.prompts.general[0, 1], expert[0, 1]]))

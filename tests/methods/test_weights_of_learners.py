"""How much each learner of SAFE counts: by its leave-one-out errors, in all sessions together."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from safecl.heads.aggregate import EQUALLY_GOOD, lead_weight
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.safe import SAFE
from safecl.streams.stream import Stream


@pytest.mark.parametrize(
    ("slow", "fast", "weight"), [(0, 0, 0.6), (5, 5, 0.6), (1, 2, 0.0), (2, 1, 1.0), (51, 49, 0.76), (49, 51, 0.44)]
)
def test_the_learner_with_less_error_counts_more_down_to_nothing_for_the_other(
    slow: float, fast: float, weight: float
) -> None:
    found = lead_weight(torch.tensor([slow, fast]).double())
    assert float(found) == pytest.approx(weight) and EQUALLY_GOOD == 0.6


@pytest.mark.parametrize("rounded", [False, True])  # as those of a model that keeps features are, less coarsely
def test_errors_are_those_of_heads_that_were_solved_without_the_picture(
    rounded: bool,
    new: Callable[..., SAFE],
    make_stream: Callable[..., Stream],
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a ridge regression on all other pictures; statistics that are stale have the features as they were."""
    given: list[tuple[str, Any, Any]] = []
    add = RidgeHead.add

    def note(head: RidgeHead, features: Any, targets: Any) -> Any:
        if rounded:
            head.before_add = lambda f, _: f.round()
        added = add(head, features, targets)
        given.append((str(id(head)), added, targets))
        return added

    monkeypatch.setattr(RidgeHead, "add", note)
    ridge = RidgeSettings(size=40, betas=(5.0,), scale="absolute", layers=1, patches=False, mirror=True)
    method = new(ridge=ridge, statistics="stale", pilot=False)
    tools.teach(method, make_stream([["a", "b"], ["c", "d"], ["e", "f", "g", "h"]], train=6))
    expected = []
    for head in (method.ridge_slow, method.ridge_fast):
        added = [(f, t) for name, f, t in given if name == str(id(head))]  # two classes are too few to judge by
        features, targets, error = torch.cat([f for f, _ in added]), torch.cat([t for _, t in added]), 0.0
        for turn in range(6):  # one picture of each class of the session at a time
            out = torch.tensor([int((targets == c).nonzero()[turn, 0]) for c in range(4, 8)])
            rest = torch.tensor([i for i in range(len(targets)) if i not in out])
            other = RidgeHead(24, ridge)
            other.read(head.reading)
            add(other, features[rest], targets[rest])
            other.solve()
            error += float((other.logits(features[out]) - F.one_hot(targets[out], 8)).square().sum())
        expected.append(error)
    torch.testing.assert_close(method.policy.judged, torch.tensor(expected), rtol=2e-3, atol=1e-3)
    images = torch.rand(3, 3, method.backbone.size, method.backbone.size)
    found, weight = method.all_logits(images), lead_weight(method.policy.judged)
    torch.testing.assert_close(found["safe"], (1 - weight) * found["slow"] + weight * found["fast"])
    assert torch.allclose(method.weights(found)["fast"], weight)


def test_merged_models_have_the_errors_of_both(
    new: Callable[..., SAFE], make_stream: Callable[..., Stream], tools: Any
) -> None:
    methods = [new(pilot=False) for _ in range(3)]
    for method, errors in zip(methods, ([4.0, 3.0], [9.0, 5.0], [1.0, 1.0]), strict=True):
        method.policy.judged = torch.tensor(errors)
    one, now, before = methods
    one.policy.merge(now.policy, before.policy, torch.zeros(0))
    assert one.policy.judged.tolist() == [12.0, 7.0]

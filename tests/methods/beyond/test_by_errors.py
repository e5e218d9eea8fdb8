"""How much each learner of SAFE counts: by its leave-one-out errors, in all sessions together."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.ensemble import EQUALLY_GOOD, lead_weight
from safecl.methods.method import all_logits
from safecl.methods.safe import SAFE
from safecl.streams.stream import Stream


@pytest.mark.parametrize(
    ("slow", "fast", "weight"),
    [(0, 0, 0.6), (5, 5, 0.6), (1, 2, 0.0), (2, 1, 1.0), (51, 49, 0.76), (49, 51, 0.44)],
)
def test_the_learner_with_less_error_counts_more_down_to_nothing_for_the_other(
    slow: float, fast: float, weight: float
) -> None:
    found = lead_weight(torch.tensor([slow, fast]).double())
    assert float(found) == pytest.approx(weight) and EQUALLY_GOOD == 0.6


# as those of a model that keeps features are, less coarsely
@pytest.mark.parametrize("rounded", [False, True])
def test_errors_are_those_of_heads_that_were_solved_without_the_picture(
    rounded: bool,
    new: Callable[..., SAFE],
    make_stream: Callable[..., Stream],
    tools: Any,
) -> None:
    """Against a ridge regression on all other pictures; statistics that are stale have the features
    as they were.
    """
    given: list[tuple[str, Any, Any]] = []

    def record(name: str, features: Any, targets: Any) -> Any:
        given.append((name, features.round() if rounded else features, targets))
        return given[-1][1]

    ridge = RidgeSettings(
        size=40, betas=(5.0,), scale="absolute", layers=1, patches=False, mirror=True
    )
    method = new(ridge=ridge, statistics="stale", beyond=False)
    stream = make_stream([["a", "b"], ["c", "d"], ["e", "f", "g", "h"]], train=6)
    fit = tools.new_fit(method, stream)
    fit.recorder = record
    tools.teach(method, stream, fit=fit)
    expected = []
    for own in ("ridge_slow", "ridge_fast"):
        # two classes are too few to judge by
        added = [(f, t) for name, f, t in given if name == own]
        features = torch.cat([f for f, _ in added])
        targets = torch.cat([t for _, t in added])
        error = 0.0
        for turn in range(6):  # one picture of each class of the session at a time
            out = torch.tensor([int((targets == c).nonzero()[turn, 0]) for c in range(4, 8)])
            rest = torch.tensor([i for i in range(len(targets)) if i not in out])
            other = RidgeHead(24, ridge)
            other.read(method.ridge_slow.reading)
            other.add(features[rest], targets[rest])
            other.solve()
            error += float(
                (other.logits(features[out]) - F.one_hot(targets[out], 8)).square().sum()
            )
        expected.append(error)
    torch.testing.assert_close(method.judged.sums, torch.tensor(expected), rtol=2e-3, atol=1e-3)
    images = torch.rand(3, 3, method.backbone.size, method.backbone.size)
    found = all_logits(method, images)
    weight = lead_weight(method.judged.sums)
    torch.testing.assert_close(found["safe"], (1 - weight) * found["slow"] + weight * found["fast"])
    assert torch.allclose(method.weights(found)["fast"], weight)


def test_merged_models_have_the_errors_of_both(
    new: Callable[..., SAFE], make_stream: Callable[..., Stream], tools: Any
) -> None:
    methods = [new(beyond=False) for _ in range(3)]
    for method, errors in zip(methods, ([4.0, 3.0], [9.0, 5.0], [1.0, 1.0]), strict=True):
        method.judged.sums = torch.tensor(errors)
    one, now, before = methods
    one.judged.merge(now.judged, before.judged, torch.zeros(0))
    assert one.judged.sums.tolist() == [12.0, 7.0]

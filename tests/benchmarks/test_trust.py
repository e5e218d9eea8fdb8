"""What the benchmark reports of a tiny model."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.heads.left_out import one_of_each


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module


@pytest.mark.parametrize("pilot", [0, 1])
def test_a_model_is_compared_with_pictures_held_back(
    pilot: int,
    benchmarks: Callable[[str], Any],
    new_model: Callable[..., Any],
    write_folder: Callable[..., Path],
    untuned: None,
    tmp_path: Path,
) -> None:
    trust = benchmarks("trust")
    for part, seed in (("train", 0), ("test", 1)):
        write_folder(tmp_path / "data" / part, "abcdef", 4, seed)
    data = trust.divided(tmp_path, trust.Cell("data", "micro", 5, 2, 4, 2, 0))
    assert [len(part) for part in data.sessions] == [10, 10] and (
        len(data.held),
        len(data.near),
    ) == (12, 16)
    learned, held, near = (
        set(map(str, part.labels)) for part in (trust.join(data.sessions), data.held, data.near)
    )
    assert learned == held and not held & near
    model = new_model(settings={"beyond": pilot})
    for pictures in data.sessions:
        model.learn(pictures)
    assert trust.frozen(model) == ("untuned" if pilot else "slow")
    found = trust.compare(model, data)
    calibration = model._fitted.header["calibration"]
    p = model.predict_proba(data.held)
    sure = p.max(axis=1)
    correct = model.classes_[p.argmax(axis=1)] == np.array(data.held.labels)
    assert found["said"] == calibration["accuracy"] and found["true"] == pytest.approx(
        correct.mean(), abs=1e-4
    )
    assert (found["judged"], found["tested"]) == (20, 12)
    bins = [np.floor(sure * 15) == b for b in range(16)]
    assert found["error"] == pytest.approx(
        sum(abs(sure[b].sum() - correct[b].sum()) for b in bins) / 12, abs=1e-4
    )
    sets = model.predict_sets(data.held)
    inside = [label in one for label, one in zip(data.held.labels, sets, strict=True)]
    assert found["sets"] == pytest.approx([np.mean(inside), np.mean([len(one) for one in sets])])
    for rate, (alarms, asked) in found["false_alarms"].items():
        said = [answer.unknown for answer in model.answers(data.held, unknown=rate)]
        assert (alarms, asked) == (said.count(True), 12 - said.count(None))
    assert found["false_alarms"][0.01] == [0, 0]  # of 20 pictures
    assert found["found"][0.2]["near"] == np.mean(
        [one.unknown for one in model.answers(data.near, unknown=0.2)]
    )
    assert {"largest logit", "energy", "disagreement", "relative Mahalanobis"} <= found[
        "scores"
    ].keys()
    assert len(trust.summary([trust.json.loads(trust.json.dumps(found))])) == 6 + len(
        found["scores"]
    )


def test_kept_pictures_are_scored_by_the_others(benchmarks: Callable[[str], Any]) -> None:
    unknowns = benchmarks("unknowns")
    dice = torch.Generator().manual_seed(0)
    targets = torch.arange(6).repeat(8)
    means = 4 * torch.randn(9, 16, generator=dice)
    kept, new = (means[targets] + torch.randn(48, 16, generator=dice) for _ in range(2))
    far = means[torch.arange(6, 9).repeat(10)] + torch.randn(30, 16, generator=dice)
    for name, score in unknowns.BY_FEATURES.items():
        own = unknowns.left_out(score, kept, targets, one_of_each(targets))
        here = one_of_each(targets) != 0
        assert torch.allclose(own[:1], score(kept[:1], kept[here], targets[here]), atol=1e-4), name
        assert unknowns.auroc(own, score(far, kept, targets)) > 0.7
        # neither looks more known
        assert 0.2 < unknowns.auroc(own, score(new, kept, targets)) < 0.8


def test_a_band_of_false_alarms_is_wider_by_the_pictures_that_set_the_threshold(
    benchmarks: Callable[[str], Any],
) -> None:
    trust = benchmarks("trust")
    assert trust.inside(0.05, 50, 1000) and not trust.inside(0.05, 30, 1000)
    assert trust.inside(0.05, 30, 1000, 200) and not trust.inside(0.05, 30, 1000, 10**6)

"""Temperatures, probabilities and thresholds against what is known of drawn logits."""

import math

import pytest
import torch

from safecl.classifier.calibrate import (
    calibrate,
    chosen,
    expected_error,
    fit_temperature,
    fit_trust,
    probabilities,
    threshold,
)

RANDOM = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(4000, 5, generator=RANDOM)
TARGETS = torch.multinomial(torch.softmax(LOGITS, dim=1), 1, generator=RANDOM)[:, 0]


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_temperature_undoes_a_factor_on_logits_that_were_honest(factor: float) -> None:
    assert fit_temperature(factor * LOGITS, TARGETS) == pytest.approx(factor, rel=0.1)
    found = calibrate(factor * LOGITS, TARGETS)
    p = probabilities(factor * LOGITS, found)
    assert float((p - torch.softmax(LOGITS, dim=1)).abs().mean()) < 0.02 and found["error"] < 0.03


def test_corrected_probabilities_keep_their_order_and_add_up_to_one() -> None:
    for slope, offset in ((0.4, -1.0), (1.0, 0.0), (2.0, 3.0), (0.01, -9.0)):
        p = probabilities(LOGITS, {"temperature": 0.5, "slope": slope, "offset": offset})
        assert torch.allclose(p.sum(dim=1), torch.ones(len(p)), atol=1e-5)
        assert torch.equal(p.argmax(dim=1), LOGITS.argmax(dim=1)) or offset == -9.0
        wanted = torch.sigmoid(slope * torch.logit(torch.softmax(2 * LOGITS, 1).amax(1), eps=1e-6) + offset)
        first, second = LOGITS.topk(2).values.T
        inside = (wanted > 0.21) & (wanted < 0.999) & (first - second > 0.01)  # of two equal ones none is above 0.5
        assert torch.allclose(p.amax(dim=1)[inside], wanted[inside], atol=1e-3)


def test_trust_is_that_of_a_logistic_regression() -> None:
    sure = torch.rand(20000, generator=RANDOM) * 0.98 + 0.01
    right = torch.rand(20000, generator=RANDOM) < torch.sigmoid(0.5 * torch.logit(sure) - 0.3)
    assert fit_trust(sure, right) == pytest.approx((0.5, -0.3), abs=0.05)
    assert fit_trust(torch.tensor([0.9]), torch.tensor([True])) == pytest.approx((1.0, 0.0), abs=0.2)


def test_none_wrong_of_a_few_pictures_is_no_certainty() -> None:
    logits = torch.eye(4).repeat(6, 1)
    p = probabilities(logits, calibrate(logits, torch.arange(24) % 4)).amax(dim=1)
    assert 0.8 < float(p.mean()) < 0.995


def test_a_threshold_is_crossed_as_often_as_promised() -> None:
    scores = torch.rand(199, generator=RANDOM).sort().values.tolist()
    assert sum(score < threshold(scores, 0.05) for score in scores) == 9  # the tenth of 200 places
    assert threshold(scores[:18], 0.05) == -math.inf and threshold(scores[:19], 0.05) == scores[0]


def test_the_calibration_error_is_the_mean_distance_of_confidence_and_accuracy() -> None:
    sure, right = torch.tensor([0.95, 0.95, 0.55, 0.55]), torch.tensor([True, True, True, False])
    assert expected_error(sure, right) == pytest.approx(0.05)
    assert expected_error(sure[:0], right[:0]) is None


def test_the_first_pictures_of_every_class_are_kept() -> None:
    assert chosen(torch.tensor([1, 0, 1, 1, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5]

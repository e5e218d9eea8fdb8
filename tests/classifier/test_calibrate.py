"""Temperatures, probabilities and thresholds against drawn logits; what a model says of itself against new pictures."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from safecl.classifier.calibrate import (
    calibrate,
    chosen,
    expected_error,
    fit_temperature,
    fit_trust,
    left_out_answers,
    probabilities,
    recalled,
    unknown_score,
)
from safecl.classifier.data import unlabelled
from safecl.classifier.enough import interval
from safecl.classifier.teach import embed
from safecl.methods.ranpac import RanPAC
from safecl.methods.safe import SAFE
from safecl.runtime.answer import quantile, thresholds
from safecl.streams.pictures.images import ArrayPictures

RANDOM = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(4000, 5, generator=RANDOM)
TARGETS = torch.multinomial(torch.softmax(LOGITS, dim=1), 1, generator=RANDOM)[:, 0]


def judged(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
    """The calibration by these logits, where half of the pictures show no more than all."""
    found = calibrate(targets, logits, logits)
    assert found is not None
    return found


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_temperature_undoes_a_factor_on_logits_that_were_honest(factor: float) -> None:
    assert fit_temperature(factor * LOGITS, TARGETS) == pytest.approx(factor, rel=0.1)
    found = judged(factor * LOGITS, TARGETS)
    p = probabilities(factor * LOGITS, found)
    assert float((p - torch.softmax(LOGITS, dim=1)).abs().mean()) < 0.02 and found["error"] < 0.03


def test_corrected_probabilities_keep_their_order_and_add_up_to_one() -> None:
    for slope, offset in ((0.4, -1.0), (1.0, 0.0), (2.0, 3.0), (0.01, -9.0)):
        p = probabilities(LOGITS, {"temperature": 0.5, "slope": slope, "offset": offset})
        assert torch.allclose(p.sum(dim=1), torch.ones(len(p)), atol=1e-5)
        assert torch.equal(p.argmax(dim=1), LOGITS.argmax(dim=1)) or offset == -9.0
        wanted = torch.sigmoid(slope * torch.logit(torch.softmax(2 * LOGITS, 1).amax(1), eps=1e-6) + offset)
        first, second = LOGITS.topk(2).values.T
        inside = (wanted > 0.21) & (wanted < 0.999) & (first - second > 0.6)  # of two that tie none is above 0.5
        assert torch.allclose(p.amax(dim=1)[inside], wanted[inside], atol=1e-3)


def test_rounding_decides_little_between_two_that_all_but_tie() -> None:
    corrected = {"temperature": 1.3, "slope": 1.0, "offset": 0.4}
    logits = torch.tensor([[3.0, 3.0 - 3e-5, -9.0], [3.0, 3.0 - 2e-6, -9.0], [3.0, 2.0, -9.0]])
    one, other = (probabilities(logits + torch.tensor([shift, 0.0, 0.0]), corrected) for shift in (0.0, 4e-6))
    assert (one - other).abs().max() < 1e-4 and one[2, 0] == pytest.approx(0.763, abs=2e-3)


def test_trust_is_that_of_a_logistic_regression() -> None:
    sure = torch.rand(20000, generator=RANDOM) * 0.98 + 0.01
    right = torch.rand(20000, generator=RANDOM) < torch.sigmoid(0.5 * torch.logit(sure) - 0.3)
    assert fit_trust(sure, right) == pytest.approx((0.5, -0.3), abs=0.05)
    assert fit_trust(torch.tensor([0.9]), torch.tensor([True])) == pytest.approx((1.0, 0.0), abs=0.2)


def test_none_wrong_of_a_few_pictures_is_no_certainty() -> None:
    logits = torch.eye(4).repeat(6, 1)
    p = probabilities(logits, judged(logits, torch.arange(24) % 4)).amax(dim=1)
    assert 0.8 < float(p.mean()) < 0.995


def test_a_threshold_is_crossed_as_often_as_promised() -> None:
    scores = torch.rand(199, generator=RANDOM).sort().values.tolist()
    assert sum(score < quantile(scores, 0.05) for score in scores) == 9  # the tenth of 200 places
    assert math.isnan(quantile(scores[:18], 0.05)) and quantile(scores[:19], 0.05) == pytest.approx(scores[0])
    for count, rate in ((30, 0.05), (150, 0.01), (60, 0.2)):  # of so many, and a new one
        drawn = torch.randn(4000, count + 1, generator=RANDOM)
        limits = [quantile(row.sort().values.tolist(), rate) for row in drawn[:, 1:]]
        alarms = (drawn[:, 0].double() < torch.tensor(limits, dtype=torch.float64)).double().mean()
        assert 0.6 * rate < float(alarms) < 1.1 * rate + 0.002


def test_a_class_has_its_own_threshold_where_it_has_pictures_enough() -> None:
    many, few = [i / 100 for i in range(99)], [5.0 + i for i in range(30)]  # 5 % are five, and one
    calibration = {"scores": [many, few, []]}
    own, common, none = thresholds(calibration, 0.05, 3).tolist()
    assert own == pytest.approx(quantile(many, 0.05)) and common == none == pytest.approx(quantile(many + few, 0.05))
    assert np.isnan(thresholds({"scores": [few[:10], few[:8], []]}, 0.05, 3)).all()
    assert np.isnan(thresholds(None, 0.05, 3)).all()
    for never in (None, 0.0):
        assert thresholds(calibration, never, 3).tolist() == [-math.inf] * 3


def test_the_accuracy_is_the_mean_over_classes_that_can_be_judged() -> None:
    targets, answers = torch.tensor([0, 0, 0, 0, 1, 1, 3]), torch.tensor([0, 0, 0, 1, 1, 3, 3])
    halved = torch.tensor([0, 1, 1, 1, 1, 3, 3])
    found = calibrate(targets, F.one_hot(answers, 5).float(), F.one_hot(halved, 5).float())
    assert found is not None and found["accuracy"] == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    assert found["classes"] == [[4, 3, 1], [2, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert found["interval"] == pytest.approx(interval(found["accuracy"], 9 / (1 / 4 + 1 / 2 + 1)))
    many = judged(LOGITS, TARGETS)
    assert many["interval"][1] - many["interval"][0] < 0.04


def test_a_picture_is_less_known_by_a_small_logit_or_by_a_small_likeness() -> None:
    calibration = {"scales": [[5.0, 2.0], [-200.0, 50.0]]}
    logits, likeness = torch.tensor([[5.0, 0], [0, 5.0], [1.0, 0]]), torch.tensor([-200.0, -400.0, -200.0])
    usual, far, unsure = unknown_score(logits, likeness, calibration).tolist()
    assert far < unsure < usual and far == pytest.approx(-4, abs=0.1) and unsure == pytest.approx(-2, abs=0.2)
    assert unknown_score(logits, None, calibration).tolist() == [5, 5, 1]
    assert unknown_score(logits, likeness, {"scales": None}).tolist() == [5, 5, 1]


def test_the_calibration_error_is_the_mean_distance_of_confidence_and_accuracy() -> None:
    sure, right = torch.tensor([0.95, 0.95, 0.55, 0.55]), torch.tensor([True, True, True, False])
    assert expected_error(sure, right) == pytest.approx(0.05)
    assert expected_error(sure[:0], right[:0]) is None


def test_the_first_pictures_of_every_class_are_kept() -> None:
    assert chosen(torch.tensor([1, 0, 1, 1, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5]


def blurred(classes: str, each: int, seed: list[int]) -> tuple[np.ndarray, list[str]]:
    """Pictures of four by four squares whose colours vary so much that some are confused with another class."""
    labels, noise = [label for label in classes for _ in range(each)], np.random.default_rng(seed)
    patterns = [np.random.default_rng(list(repr(label).encode())).uniform(40, 215, (4, 4, 3)) for label in labels]
    squares = np.array(patterns) + noise.normal(0, 60, (len(labels), 4, 4, 3))
    return squares.clip(0, 255).astype(np.uint8).repeat(4, axis=1).repeat(4, axis=2), labels


RIDGE = {"method.ridge": {"size": 200, "betas": (0.01,), "layers": 1, "patches": False, "mirror": False}}
MOVING = {
    **RIDGE,
    "method.pilot": 0,
    "method.guide.lambda_cos": 0.0,
    "train.lr": 0.2,
}


@pytest.mark.parametrize(
    ("name", "settings", "draws"),
    [
        ("safe", {**MOVING, "backbone.weights": "random"}, 1),  # six blocks: of two, no answer would be wrong
        ("ranpac", RIDGE, 1),
        ("simplecil", {}, 2),
        pytest.param("aper", {}, 2, marks=pytest.mark.slow),
    ],
)
def test_after_five_sessions_a_model_says_of_itself_what_new_pictures_show(
    name: str, settings: dict[str, Any], draws: int, new_model: Callable[..., Any]
) -> None:
    """SAFE's fast learner moves far in every session, so that nothing it gave to old pictures is true any more."""
    found = []
    for draw in range(draws):
        model = new_model(name, settings=settings, epochs=5)
        for session, classes in enumerate(("abc", "def", "ghi", "jkl", "mno")):
            lesson = model.learn(*blurred(classes, 8, [draw, session]))
        images, labels = blurred("abcdefghijklmno", 30, [draw, 99])
        p = model.predict_proba(images)
        found.append((np.mean(model.classes_[p.argmax(axis=1)] == labels), lesson.accuracy, p.max(axis=1).mean()))
    true, said, sure = np.mean(found, axis=0)
    assert 0.5 < true < 0.9
    assert (said, sure) == pytest.approx((true, true), abs=0.1)  # of 120 pictures a draw


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(("safe", {**MOVING, "method.answer.statistics": statistics}) for statistics in ("stale", "shared")),
        *((name, {}) for name in ("ease", "finetune", "lae", "slca", "ssiat", "siprompts", "l2p")),
    ],
)
def test_a_method_that_cannot_leave_pictures_out_claims_nothing_about_itself(
    name: str, settings: dict[str, Any], new_model: Callable[..., Any]
) -> None:
    model = new_model(name, settings=settings)
    for session, classes in enumerate(("abc", "def")):
        told = model.learn(*blurred(classes, 8, [0, session]))
    assert told.accuracy is None and not told.suspects and not told.confused
    assert sum("its probabilities are not calibrated" in warning for warning in told.warnings) == 1
    assert not any("too few to say" in warning for warning in told.warnings)
    assert model._fitted.header["calibration"] is None and np.isnan(model._snapshot().limits(0.05)).all()
    if name == "safe":  # what it kept of its first session does not calibrate it later
        model.forget("a")
        assert model._fitted.header["calibration"] is None
    assert model.predict_proba(blurred("b", 2, [1])[0]).sum(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_stale_statistics_are_those_of_today_until_the_fast_learner_moves(new_model: Callable[..., Any]) -> None:
    model = new_model(settings={"method.answer.statistics": "stale"})
    assert model.learn(*blurred("abc", 8, [0, 0])).accuracy is not None
    assert model.learn(*blurred("def", 8, [0, 1])).accuracy is None
    model.rollback()
    assert model._fitted.header["calibration"]["pictures"] == 24


@pytest.mark.parametrize("memory", ["statistics", "features"])
@pytest.mark.parametrize("name", ["safe", "ranpac"])
def test_a_lesson_computes_no_feature_again_and_judges_by_those_of_today(
    name: str, memory: str, new_model: Callable[..., Any], lesson: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, sessions = new_model(name, memory=memory), [lesson("abc"), lesson("da", seed=1)]
    with monkeypatch.context() as watched:
        for kind in (SAFE, RanPAC):
            watched.setattr(kind, "embed", lambda *_: pytest.fail("a second forward pass"))
        for session in sessions:
            model.learn(*session)
    fitted = model._fitted
    method = fitted.method(model._backbone(), learning=True).eval()
    method.refresh()
    images, labels = sessions[-1]
    pictures, cpu = ArrayPictures(images, labels), torch.device("cpu")
    learned = {name: method.networks[name].features for name in method.heads}
    today = embed(
        lambda x: {name: read(x) for name, read in learned.items()}, pictures, range(len(labels)), fitted.transform, cpu
    )
    old = recalled(method, fitted.state.kept, torch.arange(15))
    together = {network: torch.cat([old[network], rows]).half() for network, rows in today.items()}
    logits, _, likeness = left_out_answers(method, together, fitted.state.kept["targets"])
    calibration = fitted.header["calibration"]
    if likeness is not None:
        largest = logits.amax(dim=1)
        assert calibration["scales"][0] == pytest.approx([float(largest.mean()), float(largest.std())], rel=0.05)
        if memory == "features":  # rounded to bytes: much, beside the spread of such small features
            return
    known = unknown_score(logits, likeness, calibration)
    scores = [sorted(float(s) for s, z in zip(known, logits, strict=True) if int(z.argmax()) == c) for c in range(4)]
    assert list(map(len, calibration["scores"])) == list(map(len, scores))
    for one, other in zip(calibration["scores"], scores, strict=True):
        assert one == pytest.approx(other, rel=1e-3 if memory == "statistics" else 0.05, abs=1e-3)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_pictures_are_learned_and_saved(
    count: int, new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    """Left out together nothing remains of them, so nothing is known of how far a picture may lie from them."""
    model, picture = new_model(), lesson("a", 1)[0]
    model.fit(np.concatenate([picture] * count), ["a"] * count)
    model.save(tmp_path / "m.safecl")
    assert model._fitted.header["calibration"]["scales"] is None


def test_few_pictures_give_no_scale_of_likeness(new_model: Callable[..., Any], lesson: Callable[..., Any]) -> None:
    for each, known in ((2, False), (3, True)):  # without one of them 1 and 3 remain, less two classes
        model = new_model()
        model.fit(*lesson("ab", each))
        scales = model._fitted.header["calibration"]["scales"]
        assert (scales is not None) is known and np.isfinite(scales or 0).all()


def test_the_only_picture_of_a_class_judges_nothing(new_model: Callable[..., Any], lesson: Callable[..., Any]) -> None:
    model = new_model()
    told = model.learn(*lesson("abcdefghijkl", 1))
    assert told.accuracy is None and not told.suspects and not told.confused
    assert any(warning.startswith("0 pictures are too few to say how sure") for warning in told.warnings)
    assert model.predict_proba(lesson("a", 1)[0]).shape == (1, 12)
    told = model.learn(*lesson("mn", 5))
    assert told.accuracy is not None and model._fitted.header["calibration"]["pictures"] == 10
    assert not {label for _, label, _, _ in told.suspects} - {"m", "n"}
    model.forget("m")
    assert model._fitted.header["calibration"]["pictures"] == 5
    model.learn(*lesson("a", 1, seed=2))  # its second one
    assert model._fitted.header["calibration"]["pictures"] == 7


@pytest.mark.parametrize("name", ["ranpac", "simplecil"])
def test_a_picture_that_was_learned_again_is_left_out_with_its_twin(
    name: str, new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    """Its logits are those of a model that has learned all the others twice."""
    images, labels = lesson("abc", 4)
    whole, rest = (new_model(name, pet="none" if name == "ranpac" else None) for _ in range(2))
    rows = [i for i in range(len(labels)) if i % 4]  # without the first of each class, which are left out together
    for _ in range(2):
        whole.partial_fit(images, labels)
        rest.partial_fit(images[rows], [labels[i] for i in rows])
    method, kept = whole._fitted.method(whole._backbone(), learning=True), whole._fitted.state.kept
    assert len(kept["targets"]) == 24
    found = left_out_answers(method, recalled(method, kept, torch.arange(24)), kept["targets"])[0][::4].reshape(2, 3, 3)
    wanted = torch.cat([*rest._snapshot().logits(unlabelled(images[::4]))]).expand(2, 3, 3)
    if name == "simplecil":  # leaves them out of their own class alone
        found, wanted = found.diagonal(dim1=1, dim2=2), wanted.diagonal(dim1=1, dim2=2)
    assert torch.allclose(found, wanted, atol=0.02 if name == "ranpac" else 1e-3)


def test_a_picture_that_was_learned_as_two_classes_is_left_out_of_both(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    """Its own answers are then those of a head that was given neither."""
    model, (images, labels) = (
        new_model("ranpac", settings={"method.ridge": {**RIDGE["method.ridge"], "size": 60, "betas": (0.1,)}}),
        lesson("ab", 8),
    )
    model.learn(images, labels)
    model.learn(images[:1], ["b"], again=True)
    state, method = model._fitted.state, model._fitted.method(model._backbone(), learning=True)
    features, targets = recalled(method, state.kept, torch.arange(17)), state.kept["targets"]
    logits = left_out_answers(method, features, targets)[0]
    h = method.ridge.project(features["learner"].float()).double()
    rest = [row for row in range(17) if row % 8]  # every first one of a class, and the twin of one, is left out
    y = F.one_hot(targets).double()
    dual = torch.linalg.solve(h[rest] @ h[rest].T + method.ridge.beta * torch.eye(len(rest)).double(), y[rest])
    assert torch.allclose((h[[0, 8, 16]] @ h[rest].T @ dual).float(), logits[[0, 8, 16]], atol=1e-4)

"""Temperatures, probabilities and thresholds against drawn logits; what a model says of itself
against new pictures.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from safecl.classifier.answers.calibrate import (
    WEIGHTS,
    calibrate,
    chosen,
    energy,
    expected_error,
    fit_temperature,
    fit_trust,
    fit_weights,
    left_out_answers,
    probabilities,
    recalled,
    unknown_score,
)
from safecl.classifier.answers.enough import interval, strangers_text
from safecl.classifier.data import unlabelled
from safecl.classifier.teach import embed
from safecl.methods.parts import heads_of
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
        wanted = torch.sigmoid(
            slope * torch.logit(torch.softmax(2 * LOGITS, 1).amax(1), eps=1e-6) + offset
        )
        first, second = LOGITS.topk(2).values.T
        # of two that tie none is above 0.5
        inside = (wanted > 0.21) & (wanted < 0.999) & (first - second > 0.6)
        assert torch.allclose(p.amax(dim=1)[inside], wanted[inside], atol=1e-3)


def test_what_looks_hardly_known_is_no_surer_than_what_was_seen_of_its_kind() -> None:
    """Of eight, none, two and all look no more known."""
    found = {
        "temperature": 1.0,
        "slope": 1.0,
        "offset": 0.0,
        "scores": [[1, 2, 3], [4, 5, 6, 7, 8]],
    }
    logits = torch.tensor([[20.0, 0.0, 0.0], [0.4, 0.0, 0.0]]).repeat(3, 1)
    scores = torch.tensor([0.5, 0.5, 2.0, 2.0, 9.0, 9.0])
    p = probabilities(logits, found, scores)
    assert p[::2, 0].tolist() == pytest.approx([1 / 2, 3 / 4, 1], abs=1e-4)
    assert torch.allclose(p[1::2], torch.softmax(logits[1::2], dim=1), atol=1e-4)


def test_rounding_decides_little_between_two_that_all_but_tie() -> None:
    corrected = {"temperature": 1.3, "slope": 1.0, "offset": 0.4}
    logits = torch.tensor([[3.0, 3.0 - 3e-5, -9.0], [3.0, 3.0 - 2e-6, -9.0], [3.0, 2.0, -9.0]])
    one, other = (
        probabilities(logits + torch.tensor([shift, 0.0, 0.0]), corrected) for shift in (0.0, 4e-6)
    )
    assert (one - other).abs().max() < 1e-4 and one[2, 0] == pytest.approx(0.763, abs=2e-3)


def test_trust_is_that_of_a_logistic_regression() -> None:
    sure = torch.rand(20000, generator=RANDOM) * 0.98 + 0.01
    right = torch.rand(20000, generator=RANDOM) < torch.sigmoid(0.5 * torch.logit(sure) - 0.3)
    assert fit_trust(sure, right) == pytest.approx((0.5, -0.3), abs=0.05)
    assert fit_trust(torch.tensor([0.9]), torch.tensor([True])) == pytest.approx(
        (1.0, 0.0), abs=0.2
    )


def test_none_wrong_of_a_few_pictures_is_no_certainty() -> None:
    logits = torch.eye(4).repeat(6, 1)
    p = probabilities(logits, judged(logits, torch.arange(24) % 4)).amax(dim=1)
    assert 0.8 < float(p.mean()) < 0.995


def test_a_threshold_is_crossed_as_often_as_promised() -> None:
    scores = torch.rand(199, generator=RANDOM).sort().values.tolist()
    assert sum(score < quantile(scores, 0.05) for score in scores) == 9  # the tenth of 200 places
    assert math.isnan(quantile(scores[:18], 0.05)) and quantile(scores[:19], 0.05) == pytest.approx(
        scores[0]
    )
    for count, rate in ((30, 0.05), (150, 0.01), (60, 0.2)):  # of so many, and a new one
        drawn = torch.randn(4000, count + 1, generator=RANDOM)
        limits = [quantile(row.sort().values.tolist(), rate) for row in drawn[:, 1:]]
        alarms = (drawn[:, 0].double() < torch.tensor(limits, dtype=torch.float64)).double().mean()
        assert 0.6 * rate < float(alarms) < 1.1 * rate + 0.002


def test_a_class_has_its_own_threshold_where_it_has_pictures_enough() -> None:
    many = [i / 100 for i in range(99)]
    few = [5.0 + i for i in range(30)]  # 5 % are five, and one
    calibration = {"scores": [many, few, []]}
    own, common, none = thresholds(calibration, 0.05, 3).tolist()
    assert own == pytest.approx(quantile(many, 0.05)) and common == none == pytest.approx(
        quantile(many + few, 0.05)
    )
    assert np.isnan(thresholds({"scores": [few[:10], few[:8], []]}, 0.05, 3)).all()
    assert np.isnan(thresholds(None, 0.05, 3)).all()
    for never in (None, 0.0):
        assert thresholds(calibration, never, 3).tolist() == [-math.inf] * 3


def test_the_accuracy_is_the_mean_over_classes_that_can_be_judged() -> None:
    targets = torch.tensor([0, 0, 0, 0, 1, 1, 3])
    answers = torch.tensor([0, 0, 0, 1, 1, 3, 3])
    halved = torch.tensor([0, 1, 1, 1, 1, 3, 3])
    found = calibrate(targets, F.one_hot(answers, 5).float(), F.one_hot(halved, 5).float())
    assert found is not None
    assert found["classes"] == [[4, 3, 1], [2, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]
    counts = np.array([4 / 6, 2 / 4, 1 / 3])
    shares = counts / counts.sum()
    assert found["accuracy"] == pytest.approx(shares @ [3 / 4, 1 / 2, 1])
    assert found["interval"] == pytest.approx(
        interval(found["accuracy"], 1 / (shares**2 @ [1 / 4, 1 / 2, 1]))
    )
    many = judged(LOGITS, TARGETS)
    assert many["interval"][1] - many["interval"][0] < 0.04


def test_a_picture_is_less_known_by_a_small_logit_or_by_a_small_likeness() -> None:
    calibration = {"scales": [[5.0, 2.0], [-200.0, 50.0]]}
    logits = torch.tensor([[5.0, 0], [0, 5.0], [1.0, 0]])
    likeness = torch.tensor([-200.0, -400.0, -200.0])
    usual, far, unsure = unknown_score(logits, likeness, calibration).tolist()
    assert (
        far < unsure < usual
        and far == pytest.approx(-4, abs=0.1)
        and unsure == pytest.approx(-2, abs=0.2)
    )
    weighed = {**calibration, "weights": [2.0, 1.0], "temperature": 1.0}
    scores = 2 * (logits.logsumexp(dim=1) - 5) / 2 + (likeness + 200) / 50
    assert unknown_score(logits, likeness, weighed).tolist() == pytest.approx(scores.tolist())
    assert unknown_score(logits, None, calibration).tolist() == [5, 5, 1]
    assert unknown_score(logits, likeness, {"scales": None}).tolist() == [5, 5, 1]


def test_the_calibration_error_is_the_mean_distance_of_confidence_and_accuracy() -> None:
    sure = torch.tensor([0.95, 0.95, 0.55, 0.55])
    right = torch.tensor([True, True, True, False])
    assert expected_error(sure, right) == pytest.approx(0.05)
    assert expected_error(sure[:0], right[:0]) is None


def test_the_first_pictures_of_every_class_are_kept() -> None:
    assert chosen(torch.tensor([1, 0, 1, 1, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5]


def blurred(classes: str, each: int, seed: list[int]) -> tuple[np.ndarray, list[str]]:
    """Pictures of four by four squares whose colours vary so much that some are confused with
    another class.
    """
    labels = [label for label in classes for _ in range(each)]
    noise = np.random.default_rng(seed)
    patterns = [
        np.random.default_rng(list(repr(label).encode())).uniform(40, 215, (4, 4, 3))
        for label in labels
    ]
    squares = np.array(patterns) + noise.normal(0, 60, (len(labels), 4, 4, 3))
    return squares.clip(0, 255).astype(np.uint8).repeat(4, axis=1).repeat(4, axis=2), labels


RIDGE = {
    "method.ridge": {"size": 200, "betas": (0.01,), "layers": 1, "patches": False, "mirror": False}
}
MOVING = {
    **RIDGE,
    "beyond": 0,
    "method.guide.lambda_cos": 0.0,
    "train.lr": 0.2,
}


@pytest.mark.parametrize(
    ("name", "settings", "draws"),
    [
        # six blocks: of two, no answer would be wrong
        (
            "safe",
            {**MOVING, "backbone.weights": "random"},
            1,
        ),
        ("ranpac", RIDGE, 1),
        ("simplecil", {}, 2),
        pytest.param("aper", {}, 2, marks=pytest.mark.slow),
    ],
)
def test_after_five_sessions_a_model_says_of_itself_what_new_pictures_show(
    name: str, settings: dict[str, Any], draws: int, new_model: Callable[..., Any]
) -> None:
    """SAFE's fast learner moves far in every session, so that nothing it gave to old pictures is
    true any more.
    """
    found = []
    for draw in range(draws):
        model = new_model(name, settings=settings, epochs=None)
        for session, classes in enumerate(("abc", "def", "ghi", "jkl", "mno")):
            lesson = model.learn(*blurred(classes, 8, [draw, session]))
        images, labels = blurred("abcdefghijklmno", 30, [draw, 99])
        p = model.predict_proba(images)
        sets = zip(labels, model.predict_sets(images), strict=True)
        found.append(
            (
                np.mean(model.classes_[p.argmax(axis=1)] == labels),
                lesson.accuracy,
                p.max(axis=1).mean(),
                np.mean([label in one for label, one in sets]),
            )
        )
    true, said, sure, covered = np.mean(found, axis=0)
    assert covered == pytest.approx(0.9, abs=0.08)
    assert 0.5 < true < 0.9
    assert (said, sure) == pytest.approx((true, true), abs=0.1)  # of 120 pictures a draw


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(
            ("safe", {**MOVING, "method.answer.statistics": statistics})
            for statistics in ("stale", "shared")
        ),
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
    assert (
        model._fitted.header["calibration"] is None
        and np.isnan(model._snapshot().limits(0.05).scores).all()
    )
    if name == "safe":  # what it kept of its first session does not calibrate it later
        model.forget("a")
        assert model._fitted.header["calibration"] is None
    assert model.predict_proba(blurred("b", 2, [1])[0]).sum(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_stale_statistics_are_those_of_today_until_the_fast_learner_moves(
    new_model: Callable[..., Any],
) -> None:
    model = new_model(settings={"method.answer.statistics": "stale"})
    assert model.learn(*blurred("abc", 8, [0, 0])).accuracy is not None
    assert model.learn(*blurred("def", 8, [0, 1])).accuracy is None
    model.rollback()
    assert model._fitted.header["calibration"]["pictures"] == 24


@pytest.mark.parametrize("memory", ["statistics", "features"])
@pytest.mark.parametrize("name", ["safe", "ranpac"])
def test_a_lesson_computes_no_feature_again_and_judges_by_those_of_today(
    name: str,
    memory: str,
    new_model: Callable[..., Any],
    lesson: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = new_model(name, memory=memory)
    sessions = [lesson("abc"), lesson("da", seed=1)]
    with monkeypatch.context() as watched:
        for kind in (SAFE, RanPAC):
            watched.setattr(kind, "embed", lambda *_: pytest.fail("a second forward pass"))
        for session in sessions:
            model.learn(*session)
    fitted = model._fitted
    method = fitted.method(model._backbone(), learning=True).eval()
    method.refresh()
    images, labels = sessions[-1]
    pictures = ArrayPictures(images, labels)
    cpu = torch.device("cpu")
    learned = {name: method.networks[name].features for name in heads_of(method)}
    today = embed(
        lambda x: {name: read(x) for name, read in learned.items()},
        pictures,
        range(len(labels)),
        fitted.transform,
        cpu,
    )
    old = recalled(method, fitted.state.kept, torch.arange(15))
    together = {network: torch.cat([old[network], rows]).half() for network, rows in today.items()}
    logits, _, likeness = left_out_answers(method, together, fitted.state.kept["targets"])
    calibration = fitted.header["calibration"]
    if likeness is not None:
        known = energy(logits, calibration)
        assert calibration["scales"][0] == pytest.approx(
            [float(known.median()), float(known.median() - known.quantile(0.05))], rel=0.05
        )
        if memory == "features":  # rounded to bytes: much, beside the spread of such small features
            return
    known = unknown_score(logits, likeness, calibration)
    scores = [
        sorted(float(s) for s, z in zip(known, logits, strict=True) if int(z.argmax()) == c)
        for c in range(4)
    ]
    assert list(map(len, calibration["scores"])) == list(map(len, scores))
    for one, other in zip(calibration["scores"], scores, strict=True):
        assert one == pytest.approx(other, rel=1e-3 if memory == "statistics" else 0.05, abs=1e-3)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_pictures_are_learned_and_saved(
    count: int, new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    """Left out together nothing remains of them, so nothing is known of how far a picture may lie
    from them.
    """
    model = new_model()
    pictures = np.tile(lesson("a", 1)[0], (count, 1, 3, 1))
    pictures[:, 0, 0, 0] = range(count)  # far from the centre, which is all that heads see
    model.fit(pictures, ["a"] * count)
    model.save(tmp_path / "m.safecl")
    assert model._fitted.header["calibration"]["scales"] is None


def test_few_pictures_give_no_scale_of_likeness(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    # without one of them 1 and 3 remain, less two classes
    for each, known in (
        (2, False),
        (3, True),
    ):
        model = new_model()
        model.fit(*lesson("ab", each))
        scales = model._fitted.header["calibration"]["scales"]
        assert (scales is not None) is known and np.isfinite(scales or 0).all()


def test_the_only_picture_of_a_class_judges_nothing(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model = new_model()
    told = model.learn(*lesson("abcdefghijkl", 1))
    assert told.accuracy is None and not told.suspects and not told.confused
    assert any(
        warning.startswith("0 pictures are too few to say how sure") for warning in told.warnings
    )
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
    # without the first of each class, which are left out together
    rows = [i for i in range(len(labels)) if i % 4]
    for _ in range(2):
        whole.partial_fit(images, labels)
        rest.partial_fit(images[rows], [labels[i] for i in rows])
    method = whole._fitted.method(whole._backbone(), learning=True)
    kept = whole._fitted.state.kept
    assert len(kept["targets"]) == 24
    found = left_out_answers(method, recalled(method, kept, torch.arange(24)), kept["targets"])[0][
        ::4
    ].reshape(2, 3, 3)
    wanted = torch.cat([*rest._snapshot().logits(unlabelled(images[::4]))]).expand(2, 3, 3)
    if name == "simplecil":  # leaves them out of their own class alone
        found = found.diagonal(dim1=1, dim2=2)
        wanted = wanted.diagonal(dim1=1, dim2=2)
    assert torch.allclose(found, wanted, atol=0.02 if name == "ranpac" else 1e-3)


def test_a_picture_that_was_learned_as_two_classes_is_left_out_of_both(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    """Its own answers are then those of a head that was given neither."""
    model, (images, labels) = (
        new_model(
            "ranpac",
            settings={"method.ridge": {**RIDGE["method.ridge"], "size": 60, "betas": (0.1,)}},
        ),
        lesson("ab", 8),
    )
    model.learn(images, labels)
    model.learn(images[:1], ["b"], again=True)
    state = model._fitted.state
    method = model._fitted.method(model._backbone(), learning=True)
    features = recalled(method, state.kept, torch.arange(17))
    targets = state.kept["targets"]
    logits = left_out_answers(method, features, targets)[0]
    h = method.ridge.project(features["learner"].float()).double()
    # every first one of a class, and the twin of one, is left out
    rest = [row for row in range(17) if row % 8]
    y = F.one_hot(targets).double()
    dual = torch.linalg.solve(
        h[rest] @ h[rest].T + method.ridge.beta * torch.eye(len(rest)).double(), y[rest]
    )
    assert torch.allclose((h[[0, 8, 16]] @ h[rest].T @ dual).float(), logits[[0, 8, 16]], atol=1e-4)


@pytest.mark.parametrize("kind", ["arrays", "folder"])
def test_exact_copies_are_learned_once_and_prove_nothing(
    kind: str, new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    images, labels = lesson("ab", 3)
    rows = [*range(6), *[0] * 20, *[3] * 9]
    many: Any = images[rows], [labels[i] for i in rows]
    if kind == "folder":
        for n, i in enumerate(rows):
            (tmp_path / labels[i]).mkdir(exist_ok=True)
            Image.fromarray(images[i]).save(tmp_path / labels[i] / f"{n:03}.png")
        many = (tmp_path,)
    model = new_model()
    other = new_model()
    told = model.learn(*many)
    plain = other.learn(images, labels)
    assert told.pictures == 6 and told.classes == {"a": 3, "b": 3} and told.skipped == 0
    left = next(warning for warning in told.warnings if "copies" in warning)
    assert left.startswith("Left out 29 exact copies of other pictures: ")
    assert ("picture 6 = picture 0" if kind == "arrays" else "a/006.png = ") in left
    assert (told.accuracy, told.interval) == (plain.accuracy, plain.interval)
    said = [one._fitted.header["calibration"] for one in (model, other)]
    assert all(said[0][key] == said[1][key] for key in ("pictures", "classes", "confused"))
    assert np.allclose(model.decision_function(images), other.decision_function(images), atol=1e-3)


def test_thirty_copies_of_one_picture_are_no_evidence(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    images, labels = lesson("abc", 1)
    told = new_model().learn(np.repeat(images, 30, axis=0), np.repeat(labels, 30).tolist())
    assert (told.pictures, told.accuracy, told.interval) == (3, None, None)
    assert any(
        warning.startswith("0 pictures are too few to say how sure") for warning in told.warnings
    )


def test_pictures_that_were_learned_again_count_once_in_what_a_model_says_of_itself(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model, (images, labels) = new_model("simplecil"), lesson("abc", 8)
    model.learn(images, labels)
    model.learn(images, labels, again=True)
    for _ in range(2):
        calibration = model._fitted.header["calibration"]
        assert calibration["pictures"] == 24 and [row[0] for row in calibration["classes"]] == [
            8,
            8,
            8,
        ]
        model.correct(images[:1], "b")  # it is calibrated again
        model.correct(images[:1], "a")


def test_a_class_of_one_picture_that_was_learned_twice_judges_nothing(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model = new_model("simplecil")
    model.learn(*lesson("ab", 4))
    for again in (False, True):
        told = model.learn(*lesson("c", 1), again=again)
    assert told.interval == new_model("simplecil").learn(*lesson("ab", 4)).interval


def test_strangers_are_expected_to_be_noticed_as_often_as_a_model_without_their_class_does(
    new_model: Callable[..., Any],
) -> None:
    """Of a network that nothing has tuned that is exact, given the threshold."""
    settings = {**RIDGE, "method.ridge": {**RIDGE["method.ridge"], "betas": (0.01,)}}
    images, labels = blurred("abcdef", 10, [0, 0])
    model = new_model("ranpac", pet="none", settings=settings)
    model.learn(images, labels)
    calibration = model._fitted.header["calibration"]
    limit = thresholds(calibration, 0.05, 6)[0]
    noticed = 0
    for label in "abcdef":
        rows = [i for i, one in enumerate(labels) if one != label]
        without = new_model("ranpac", pet="none", settings=settings)
        without.learn(images[rows], [labels[i] for i in rows])
        strange = images[[i for i, one in enumerate(labels) if one == label]]
        noticed += sum(one.score < limit for one in without.explain(strange))
    found, asked = calibration["strangers"]
    assert asked == 60 and abs(found - noticed) <= 2
    said = strangers_text(calibration)
    assert f"about {100 * found / 60:.0f} % (" in said and strangers_text({}) == ""


def test_weights_of_the_score_go_to_what_tells_the_classes_that_were_left_out() -> None:
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 400, generator=draw)
    known = (noise[0], noise[1])
    by_energy = fit_weights(known, (noise[2] - 3, noise[3]))
    by_likeness = fit_weights(known, (noise[2], noise[3] - 3))
    assert by_energy[0] > 2 > by_likeness[0] and sum(by_energy) == pytest.approx(sum(WEIGHTS))
    # what says nothing of near strangers, or the opposite, may tell far ones
    assert fit_weights(known, (noise[2] - 3, noise[3] + 3)) == [2.5, 0.5] == by_energy
    assert by_likeness[0] == pytest.approx(1, abs=0.05)
    # where all say the opposite, nothing is learned from it
    assert fit_weights(known, (noise[2] + 3, noise[3] + 3)) == [*WEIGHTS]
    assert fit_weights(known, (noise[2] - 3, torch.full((400,), -torch.inf)))[1] > 0

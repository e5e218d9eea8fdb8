"""What SAFE's policy answers: constants with everything off, and what unseen pictures show otherwise."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.policy import MIN_GAIN, Policy
from safecl.methods.settings.safe import AnswerSettings, GuideSettings, SafeSettings, TransferSettings

TARGETS = torch.arange(8).repeat(8)


def cloud(signal: float) -> Tensor:
    """Features (64, 16) of which ``signal`` says how far the classes are apart."""
    draw = torch.Generator().manual_seed(0)
    centres, noise = torch.randn(8, 16, generator=draw), torch.randn(len(TARGETS), 16, generator=draw)
    return signal * centres[TARGETS] + noise


def lambda_cos(policy: Policy, ridge: Any, ptm: Tensor, slow: Tensor, fast: Tensor | None = None) -> float:
    """The answer to a session whose pictures have these features (64, 16); ``fast``: as ``slow`` by default."""
    fit = SimpleNamespace(features=lambda rows, _: (TARGETS[rows], ptm[rows]), agree=bool)
    session: Any = SimpleNamespace(only=lambda rows: rows)
    return policy.lambda_cos(ridge, None, [slow if fast is None else fast, slow], TARGETS, session, fit)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ptm", "slow", "released"), [(0.3, 3.0, True), (3.0, 3.0, False), (3.0, 0.3, False)])
def test_l_cos_is_dropped_where_tuning_tells_unseen_pictures_apart(ptm: float, slow: float, released: bool) -> None:
    policy, ridge = Policy(SafeSettings()), RidgeHead(16, RidgeSettings(size=100))
    assert lambda_cos(policy, ridge, cloud(ptm), cloud(slow)) == (0 if released else 25)
    assert policy.notes == {"released": released}
    other, known = (
        Policy(SafeSettings()),
        [torch.cat([one, -one], dim=1) for one in (cloud(slow), cloud(slow), cloud(ptm))],
    )
    fit: Any = SimpleNamespace(
        agree=bool
    )  # what is known is not asked for again; of two views the picture's own counts
    other.lambda_cos(ridge, None, known, TARGETS, None, fit)  # type: ignore[arg-type]
    assert torch.equal(other.errors, policy.errors)
    assert other.notes == policy.notes | {"helps": released}  # as the fast one is like the slow one here


@pytest.mark.parametrize("gains", [[0.0], [MIN_GAIN / 2], [2 * MIN_GAIN], [2 * MIN_GAIN, -MIN_GAIN], [-MIN_GAIN] * 2])
def test_l_cos_is_dropped_while_all_sessions_together_show_a_gain(gains: list[float]) -> None:
    errors: Iterator[float] = iter([error for gain in gains for error in (1.0, 1.0 - gain, 9.0)])
    ridge, policy = RidgeHead(16, RidgeSettings(size=10)), Policy(SafeSettings())
    ridge.leave_one_out = lambda f, y: torch.tensor([next(errors)])  # type: ignore[method-assign]
    found = [lambda_cos(policy, ridge, cloud(1.0), cloud(1.0)) for _ in gains]
    assert (found[-1] == 0) == (sum(gains) / len(gains) > MIN_GAIN)


@pytest.mark.parametrize(("ptm", "fast", "helps"), [(0.3, 3.0, True), (1.0, 1.0, False), (3.0, 0.3, False)])
def test_the_fast_learner_helps_where_it_tells_unseen_pictures_apart(ptm: float, fast: float, helps: bool) -> None:
    policy, ridge = Policy(SafeSettings()), RidgeHead(16, RidgeSettings(size=100))
    assert policy.fast_helps  # nothing has been judged
    lambda_cos(policy, ridge, cloud(ptm), cloud(1.0), cloud(fast))
    assert bool(policy.fast_helps) == helps
    other = Policy(SafeSettings(guide=GuideSettings(lambda_cos=0)))
    fit: Any = SimpleNamespace(agree=bool)
    known = [cloud(signal) for signal in (fast, 1.0, ptm)]
    assert other.lambda_cos(ridge, None, known, TARGETS, None, fit) == 0  # type: ignore[arg-type]
    assert other.notes == {"helps": helps} and torch.equal(other.errors, policy.errors)


@pytest.mark.parametrize("aggregation", ["errors", "entropy", "add", "max"])
def test_whether_the_fast_learner_helps_is_noted_where_its_weight_follows(aggregation: Any) -> None:
    policy = Policy(SafeSettings(answer=AnswerSettings(aggregation=aggregation)))
    fit: Any = SimpleNamespace(agree=bool)
    ridge, known = RidgeHead(16, RidgeSettings(size=100)), [cloud(signal) for signal in (0.3, 1.0, 3.0)]
    policy.lambda_cos(ridge, None, known, TARGETS, None, fit)  # type: ignore[arg-type]
    assert policy.notes == {"released": False} | ({"helps": False} if aggregation == "errors" else {})


def test_the_papers_policy_answers_constants() -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the paper looks at nothing")

    nothing: Any = SimpleNamespace(classes=(), leave_one_out=never, features=never, recipe=never, agree=never)
    for loss in ("correlation", "none"):
        transfer, guide = TransferSettings(loss=loss), GuideSettings(lambda_cos=50)
        policy = Policy(SafeSettings(transfer=transfer, guide=guide, pilot=0))
        given: list[Any] = [nothing] * 6
        assert policy.transfers(*given) == (loss == "correlation", 1, False)
        assert policy.lambda_cos(*given) == 50
        assert policy.kept(10, 100) == 1 and policy.share == 1

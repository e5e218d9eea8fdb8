"""What pictures that were new decide: whether L_cos is released, and whether the fast learner
helps.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.beyond.new_pictures import MIN_GAIN
from safecl.methods.safe import SAFE

TARGETS = torch.arange(8).repeat(8)
New = Callable[..., SAFE]


def cloud(signal: float) -> Tensor:
    """Features (64, 16) of which ``signal`` says how far the classes are apart."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 16, generator=draw)
    noise = torch.randn(len(TARGETS), 16, generator=draw)
    return signal * centres[TARGETS] + noise


def made(new: New, size: int = 100, **switches: Any) -> Any:
    """A SAFE whose ridge head reads 16 numbers."""
    method = new(**switches)
    method.ridge_slow = RidgeHead(16, RidgeSettings(size=size))
    return method


def guidance(method: Any, ptm: Tensor, slow: Tensor, fast: Tensor | None = None) -> float:
    """The answer to a session whose pictures have these features (64, 16); ``fast``: as ``slow`` by
    default.
    """
    fit: Any = SimpleNamespace(features=lambda rows, _: (TARGETS[rows], ptm[rows]), agree=bool)
    session: Any = SimpleNamespace(only=lambda rows: rows)
    before = {"slow": slow, "fast": slow if fast is None else fast}
    return float(method.guidance(before, TARGETS, session, fit))


def known(method: Any, fast: Tensor, slow: Tensor, ptm: Tensor) -> float:
    """Where the untuned backbone answers, and its features are known."""
    method.remember(16)
    fit: Any = SimpleNamespace(agree=bool)  # what is known is not asked for again
    before = {"fast": fast, "slow": slow, "untuned": ptm}
    return float(method.guidance(before, TARGETS, None, fit))


@pytest.mark.parametrize(
    ("ptm", "slow", "released"), [(0.3, 3.0, True), (3.0, 3.0, False), (3.0, 0.3, False)]
)
def test_l_cos_is_dropped_where_tuning_tells_unseen_pictures_apart(
    ptm: float, slow: float, released: bool, new: New
) -> None:
    method = made(new)
    assert guidance(method, cloud(ptm), cloud(slow)) == (0 if released else 25)
    assert method.notes == {"released": released}
    other = made(new)
    # of two views the picture's own counts
    known(other, *(torch.cat([one, -one], dim=1) for one in map(cloud, (slow, slow, ptm))))
    assert torch.equal(other.new_pictures.sums, method.new_pictures.sums)
    # as the fast one is like the slow one here
    assert other.notes == method.notes | {"helps": released}


@pytest.mark.parametrize(
    "gains", [[0.0], [MIN_GAIN / 2], [2 * MIN_GAIN], [2 * MIN_GAIN, -MIN_GAIN], [-MIN_GAIN] * 2]
)
def test_l_cos_is_dropped_while_all_sessions_together_show_a_gain(
    gains: list[float], new: New
) -> None:
    errors: Iterator[float] = iter([error for gain in gains for error in (1.0, 1.0 - gain, 9.0)])
    method = made(new, size=10)
    method.ridge_slow.leave_one_out = lambda f, y: torch.tensor([next(errors)])
    found = [guidance(method, cloud(1.0), cloud(1.0)) for _ in gains]
    assert (found[-1] == 0) == (sum(gains) / len(gains) > MIN_GAIN)


@pytest.mark.parametrize(
    ("ptm", "fast", "helps"), [(0.3, 3.0, True), (1.0, 1.0, False), (3.0, 0.3, False)]
)
def test_the_fast_learner_helps_where_it_tells_unseen_pictures_apart(
    ptm: float, fast: float, helps: bool, new: New
) -> None:
    method = made(new)
    assert method.fast_helps  # nothing has been judged
    guidance(method, cloud(ptm), cloud(1.0), cloud(fast))
    assert bool(method.fast_helps) == helps
    other = made(new, lambda_cos=0.0)  # nothing to release
    assert known(other, *map(cloud, (fast, 1.0, ptm))) == 0
    assert other.notes == {"helps": helps}
    assert torch.equal(other.new_pictures.sums, method.new_pictures.sums)


@pytest.mark.parametrize("aggregation", ["errors", "entropy", "add", "max"])
def test_whether_the_fast_learner_helps_is_noted_where_its_weight_follows(
    aggregation: str, new: New
) -> None:
    method = made(new, aggregation=aggregation)
    known(method, *map(cloud, (0.3, 1.0, 3.0)))
    noted = {"helps": False} if aggregation == "errors" else {}
    assert method.notes == {"released": False} | noted

"""Sets of classes that hold the right one as often as promised."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from safecl.runtime.answer import Limits, least, make_answers
from tests.conftest import raises

RANDOM = np.random.default_rng(0)


def of(*own: Sequence[float]) -> dict[str, list[list[float]]]:
    return {"own": [sorted(rows) for rows in own]}


@pytest.mark.parametrize(("count", "coverage"), [*product((9, 19, 20, 60), (0.8, 0.9, 0.95))])
def test_of_pictures_that_are_alike_no_more_miss_their_set_than_promised(
    count: int, coverage: float
) -> None:
    """Each of them in turn is the new one, whose own class is a member by the others."""
    p = RANDOM.random(count + 1)
    limits = [least(of(np.delete(p, i).tolist()), coverage, 1)[0] for i in range(len(p))]
    missed = int((p < limits).sum())
    if math.floor((1 - coverage) * (count + 1) + 1e-9):
        assert missed == math.floor((1 - coverage) * (count + 1) + 1e-9)
    else:
        assert np.isnan(limits).all()


def test_a_class_with_few_pictures_shares_its_limit_with_others_that_have_few() -> None:
    many, few, fewer = (RANDOM.random(n).tolist() for n in (30, 12, 8))
    own, shared, same, none = least(of(many, few, fewer, []), 0.9, 4)
    assert own == sorted(many)[2] and shared == same == none == sorted(few + fewer)[1]
    # too few of these even together, so that those of all decide
    assert least(of(many, few[:4]), 0.9, 2)[1] == sorted(many + few[:4])[2]


def test_too_few_pictures_cannot_tell() -> None:
    assert np.isnan(least(of([0.5] * 8, []), 0.9, 2)).all()
    assert np.isnan(least(None, 0.9, 2)).all() and np.isnan(least({"own": None}, 0.9, 2)).all()
    for share in (0.0, 1.0, math.nan):
        with raises("answer.sets.no-share"):
            least(None, share, 2)


def test_a_set_names_its_members_by_likelihood_and_may_be_empty() -> None:
    p = np.array([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]])
    limits = Limits(np.full(3, -math.inf), np.array([0.45, 0.4, 0.25]))
    found = [one.set for one in make_answers("abc", {"z": p}, np.zeros(3), limits, True)]
    assert found == [("b", "c"), ("c",), ("a",)]
    strict = Limits(limits.scores, np.full(3, 0.9))
    answers = list(make_answers("abc", {"z": p}, np.zeros(3), strict, True))
    assert [one.fields(False)["set"] for one in answers] == [[], [], ["a"]]
    plain = next(make_answers("abc", {"z": p}, np.zeros(3), Limits(limits.scores), True))
    assert "set" not in plain.fields(True)

"""Methods under stress: orders by likeness, every scenario a stream, a page of finished runs."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from safecl.engine.progress import Progress
from safecl.experiments.stress.orders import grouped
from safecl.experiments.stress.scenarios import EVERY, Base
from safecl.experiments.stress.stress import make_plan, run_stress
from safecl.streams.catalog import open_stream
from tests.conftest import raises


def inside(similar: np.ndarray, order: list[int], sizes: list[int]) -> float:
    """The likeness of all pairs that share a session."""
    session = np.repeat(np.arange(len(sizes)), sizes)
    place = np.empty(len(order), dtype=int)
    place[order] = session
    return float(similar[place[:, None] == place[None]].sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [[2, 2, 2], [3, 3], [1, 2, 3]])
def test_orders_are_as_good_as_any_that_an_exchange_leads_to(seed: int, sizes: list[int]) -> None:
    vectors = np.random.default_rng(seed).normal(size=(6, 3))
    similar = vectors @ vectors.T
    every = [inside(similar, list(order), sizes) for order in permutations(range(6))]
    for together in (True, False):
        order = grouped(similar, sizes, together)
        assert sorted(order) == list(range(6))
        sign = 1 if together else -1
        found = sign * inside(similar, order, sizes)
        for i in range(6):
            for j in range(i):
                other = list(order)
                other[i], other[j] = other[j], other[i]
                assert sign * inside(similar, other, sizes) <= found + 1e-9
        assert min(every) - 1e-9 <= sign * found <= max(every) + 1e-9


def test_like_classes_share_a_session_or_do_not() -> None:
    similar = np.kron(np.eye(3), np.ones((2, 2)))  # three pairs of twins
    mixed = similar[np.ix_([0, 2, 4, 1, 3, 5], [0, 2, 4, 1, 3, 5])]
    together = grouped(mixed, [2, 2, 2], True)
    assert {frozenset(together[i : i + 2]) for i in (0, 2, 4)} == {
        frozenset(pair) for pair in ((0, 3), (1, 4), (2, 5))
    }
    apart = grouped(mixed, [3, 3], False)
    for some in (apart[:3], apart[3:]):
        assert {i % 3 for i in some} == {0, 1, 2}


def test_every_scenario_is_a_stream_of_the_same_classes(make_backbone) -> None:
    stream = open_stream("glyphs", classes=12, sessions=2, train=6, test=1, size=16)
    base = Base(stream, make_backbone(), 0)
    made = {one.name: one.make(base) for one in EVERY}
    assert [name for name, found in made.items() if found is None] == [
        *(f"sessions-{n}" for n in (20, 50, 100, 300))
    ]
    for name, found in made.items():
        if found is not None:
            assert sorted(found.labels) == sorted(stream.labels), name
            tested = sum(len(found.test(i)) for i in range(1, len(found) + 1))
            assert tested == 12, name
    again = {one.name: one.make(Base(stream, base.backbone, 0)) for one in EVERY}
    for name, found in made.items():
        if found is not None:
            assert found.fingerprint() == again[name].fingerprint(), name


def test_a_stress_is_run_resumed_and_drawn(tmp_path: Path) -> None:
    words = ["stream.classes=4", "stream.train=2", "stream.test=2", "ridge.size=20"]
    plan = make_plan(["simplecil"], words, tmp_path, only=["usual", "strangers", "sessions-20"])
    made = run_stress(plan, Progress(), "safecl stress simplecil")
    assert list(plan.settings) == ["simplecil", "ranpac", "ranpac-no-pet"]
    assert [(one.scenario, one.preset) for one in made.results] == [
        (scenario, preset) for scenario in ("usual", "strangers") for preset in plan.settings
    ]
    assert made.left_out == ["20 sessions: there are only 4 classes"]
    for one in made.results:
        assert (one.strangers is not None) == (one.scenario == "strangers")
        assert one.final is not None and one.plasticity is not None and one.seconds > 0
    assert run_stress(plan, Progress()).results == made.results
    page = (tmp_path / "stress.html").read_text(encoding="utf-8")
    assert "strangers while learning" in page and "ranpac-no-pet" in page
    assert (tmp_path / "stress.svg").exists()
    rows = (tmp_path / "stress.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + len(made.results)


def test_wrong_words_are_answered_before_anything_is_run(tmp_path: Path) -> None:
    with raises("name.unknown.near", given="si-blury", near="si-blurry"):
        make_plan(["safe"], [], tmp_path, only=["si-blury"])
    with raises("name.unknown.near", given="ranpack", near="ranpac"):
        make_plan(["ranpack"], [], tmp_path)
    with raises("stress.full.no-stream"):
        make_plan(["safe"], [], tmp_path, "full")
    with raises("name.unknown.near", given="ridge.sise", near="ridge.size"):
        make_plan(["safe"], ["ridge.sise=3"], tmp_path)
    with raises("stress.words.idle", keys="method.guide.lambda_cos"):
        make_plan(["simplecil"], ["method.guide.lambda_cos=3"], tmp_path)
    assert list(tmp_path.iterdir()) == []

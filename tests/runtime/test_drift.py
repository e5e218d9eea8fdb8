"""Have pictures changed since the model was taught? Bets on ranks, and what they may cost."""

import copy
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from safecl.runtime.drift import LESS_KNOWN, LOOKS, Bets, Drift, Ranks, looks

RANDOM = np.random.default_rng(0)


def taught(count: int = 60, classes: int = 2) -> dict[str, Any]:
    """A calibration by ``count`` pictures of each class, whose looks and scores are drawn alike."""
    scores = [sorted(RANDOM.normal(size=count).tolist()) for _ in range(classes)]
    rows = [RANDOM.normal(size=(count, len(LOOKS))).tolist() for _ in range(classes)]
    return {"temperature": 1.0, "scores": scores, "looks": rows}


def shown(drift: Drift, count: int, score: float = 0.0, light: float = 0.0) -> Drift:
    for _ in range(count):
        look = RANDOM.normal(size=len(LOOKS))
        look[0] += light
        drift.see([int(RANDOM.integers(2))], [RANDOM.normal() + score], [look.tolist()])
    return drift


def test_a_rank_is_uniform_among_values_that_are_alike_also_where_some_are_equal() -> None:
    for values in ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 2.0, 3.0]):
        found = []
        for order in permutations(values):
            for draw in (0.25, 0.75):
                found.append(Ranks(sorted(order[:-1])).add(order[-1], draw))
        # every eighth is in the middle of its own eighth
        expected = np.repeat((np.arange(8) + 0.5) / 8, len(found) // 8)
        assert np.allclose(np.sort(found), expected, atol=1 / 16)


def test_a_bet_is_fair_so_that_a_stake_grows_by_chance_alone() -> None:
    """The mean over all ranks of what one more picture makes of the stakes is the stake itself."""
    u = (np.arange(600) + 0.5) / 600
    low = u**8 / 2  # denser where bets win most; their density is 4 u⁷
    for both, seen in ((True, [0.1] * 30), (True, [0.97, 0.5]), (False, [0.01, 0.8, 0.9])):
        bets = Bets(both)
        for p in seen:
            bets.see(p)
        mean = 0.0
        for p, density in zip(low, 4 * u**7, strict=True):
            for rank in (p, 1 - p):
                after = copy.deepcopy(bets)
                after.see(float(rank))
                mean += after.evidence * density / len(u)
        assert mean == pytest.approx(bets.evidence, rel=1e-3)


def test_quiet_streams_have_no_alarm_and_changed_ones_say_what_has_changed() -> None:
    model = taught()
    quiet = [shown(Drift(model, "ab"), 80) for _ in range(10)]
    assert not any(drift.alarm or drift.told or drift.changes for drift in quiet)
    dark = shown(shown(Drift(model, "ab"), 40), 40, light=-2)
    assert dark.changes == ["darker"] and 30 < dark.since < 50 and set(dark.affected) == {"a", "b"}
    assert f"Since picture {dark.since} of 80 " in dark.told and "they are darker" in dark.told
    assert all(at >= dark.since for at in dark.shown)
    assert shown(Drift(model, "ab"), 40, light=2).changes == ["lighter"]
    assert shown(Drift(model, "ab"), 60, score=-3).changes == [LESS_KNOWN]
    assert not shown(Drift(model, "ab"), 60, score=3).alarm


def test_the_same_picture_again_proves_nothing_more() -> None:
    drift = Drift(taught(), "ab")
    look = [-3.0] * len(LOOKS)
    drift.see([0], [-9.0], [look])
    before = drift.bets["light"].evidence
    drift.see([0] * 300, [-9.0] * 300, [look] * 300)
    assert drift.seen == 301 and not drift.alarm
    assert drift.bets["light"].evidence == before


def test_few_judged_pictures_cannot_tell_and_without_looks_what_is_known_still_does() -> None:
    assert not shown(Drift(taught(9), "ab"), 50, light=-9, score=-9).alarm
    assert not Drift(None, "ab").can_tell
    older = taught() | {"looks": None}
    assert shown(Drift(older, "ab"), 60, light=-9, score=-3).changes == [LESS_KNOWN]
    assert not shown(Drift(older, "ab"), 60, light=-9).alarm


def test_looks_are_those_of_numpy_and_torch_and_light_alone_changes_with_brightness() -> None:
    pictures = RANDOM.random((3, 3, 12, 10)).astype(np.float32)
    found = np.stack(looks(pictures), axis=1)
    assert np.allclose(torch.stack(looks(torch.from_numpy(pictures)), dim=1), found, atol=1e-5)
    half = np.stack(looks(pictures / 2), axis=1)
    assert np.allclose(half[:, 0], found[:, 0] / 2) and np.allclose(
        half[:, 1:], found[:, 1:], atol=1e-5
    )
    soft = (pictures + np.roll(pictures, 1, axis=3)) / 2
    place = list(LOOKS).index("sharpness")
    assert (np.stack(looks(soft), axis=1)[:, place] < found[:, place]).all()
    red = pictures * np.array([1.2, 1, 0.8], np.float32)[:, None, None]
    place = list(LOOKS).index("warmth")
    assert (np.stack(looks(red), axis=1)[:, place] > found[:, place]).all()

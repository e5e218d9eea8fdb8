"""Runs that differ in their seed alone are folded into one, whose numbers are means."""

from statistics import mean, stdev
from typing import Any

import pytest

from safecl.report.fold import fold, folded
from safecl.report.runs import read_run
from safecl.report.series import all_series


def test_only_runs_that_differ_in_the_seed_alone_are_folded(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{seed}", seed=seed)) for seed in (0, 1, 2)]
    other = read_run(make_run("ranpac", method="ranpac"))
    longer = read_run(make_run("longer", sessions=6))
    again = read_run(make_run("again", seed=2))
    assert fold([*runs, other, longer]) == [runs, [other], [longer]]
    assert fold([*runs, again]) == [[run] for run in (*runs, again)]


def test_every_number_is_the_mean_over_seeds_and_its_spread_their_standard_deviation(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{seed}", seed=seed, held_out=True)) for seed in (0, 1, 2)]
    together = folded(runs)
    apart = [all_series([run]) for run in runs]
    assert [one.name for one in together] == ["SAFE", "Slow", "Fast"] == [one.name for one in apart[0]]
    for place, one in enumerate(together):
        each = [series[place] for series in apart]
        for kind in ("final", "final_seen", "average", "average_seen", "forgetting", "backward"):
            values = [getattr(series, kind) for series in each]
            assert getattr(one, kind) == pytest.approx(mean(values)), kind
            assert one.deviation(kind) == pytest.approx(stdev(values)), kind
        for kind in ("pooled", "seen", "validation"):
            curves = zip(*(getattr(series, kind) for series in each), strict=True)
            assert getattr(one, kind) == [
                (points[0][0], pytest.approx(mean(value for _, value in points))) for points in curves
            ]
        assert one.rows[5][2] == pytest.approx(mean(series.rows[5][2] for series in each))


def test_one_run_is_itself_and_has_no_spread(make_run: Any) -> None:
    run = read_run(make_run(protocol="domain"))
    for one, alone in zip(folded([run]), all_series([run]), strict=True):
        for kind in ("pooled", "seen", "final", "average", "forgetting", "backward", "forward", "rows"):
            assert getattr(one, kind) == getattr(alone, kind)
        assert one.deviation("final") is None and one.band() == []


def test_seeds_that_have_not_come_as_far_end_the_mean(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{done}", seed=done, done=done)) for done in (5, 3, 0)]
    one = folded(runs)[0]
    assert [session for session, _ in one.pooled] == [1, 2, 3] == [session for session, *_ in one.band()]
    assert one.final == one.pooled[-1][1]

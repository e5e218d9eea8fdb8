"""Each output has one name and one colour, everywhere; of runs that differ in their seed alone, the
means.
"""

from statistics import mean, stdev
from typing import Any

import pytest

from safecl.report.colours import COLOURS, SPARE
from safecl.report.runs import read_run
from safecl.report.series import all_series, fold


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_and_colours_are_unique(make_run: Any) -> None:
    runs = [
        read_run(make_run(str(i), method=method))
        for i, method in enumerate(("safe", "safe", "ranpac", "joint"))
    ]
    series = all_series(runs)
    assert len({one.name for one in series}) == len(series) == 8
    assert len({one.colour for one in series}) == len(series)


def test_a_method_keeps_its_colour_whatever_stands_beside_it(make_run: Any) -> None:
    safe = read_run(make_run("a"))
    ranpac = read_run(make_run("b", method="ranpac"))
    for runs in ([safe], [safe, ranpac], [ranpac, safe]):
        assert {one.colour for one in all_series(runs) if one.output == "safe"} == {COLOURS["safe"]}


def test_ten_methods_have_ten_colours(make_run: Any) -> None:
    methods = ["a", "b", "c", "d", "e", "f", "g", "h", "ranpac", "finetune"]
    series = all_series(
        [read_run(make_run(method, method=method, sessions=1)) for method in methods]
    )
    assert len({one.colour for one in series}) == 10
    assert series[-2].colour == COLOURS["ranpac"] and series[-1].colour == COLOURS["finetune"]


def test_colours_stand_out_from_both_pages() -> None:
    for colour in (*COLOURS.values(), *SPARE):
        assert 1.05 / (luminance(colour.light) + 0.05) >= 3
        assert (luminance(colour.dark) + 0.05) / (luminance("#181e26") + 0.05) >= 3


def test_only_runs_that_differ_in_the_seed_alone_are_folded(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{seed}", seed=seed)) for seed in (0, 1, 2)]
    other = read_run(make_run("ranpac", method="ranpac"))
    longer = read_run(make_run("longer", sessions=6))
    again = read_run(make_run("again", seed=2))
    assert fold([*runs, other, longer]) == [runs, [other], [longer]]
    assert fold([*runs, again]) == [[run] for run in (*runs, again)]


def test_every_number_is_the_mean_over_seeds_and_its_spread_their_standard_deviation(
    make_run: Any,
) -> None:
    runs = [read_run(make_run(f"s{seed}", seed=seed, held_out=True)) for seed in (0, 1, 2)]
    together = all_series(runs, fold_seeds=True)
    apart = [all_series([run]) for run in runs]
    assert (
        [one.name for one in together] == ["SAFE", "Slow", "Fast"] == [one.name for one in apart[0]]
    )
    for place, one in enumerate(together):
        each = [series[place] for series in apart]
        for kind in ("final", "final_seen", "average", "average_seen", "forgetting"):
            values = [getattr(series, kind) for series in each]
            assert getattr(one, kind) == pytest.approx(mean(values)), kind
            assert one.deviation(kind) == pytest.approx(stdev(values)), kind
        for kind in ("pooled", "seen", "validation", "lost"):
            curves = zip(*(getattr(series, kind) for series in each), strict=True)
            assert getattr(one, kind) == [
                (points[0][0], pytest.approx(mean(value for _, value in points)))
                for points in curves
            ]
        assert one.rows[5][2] == pytest.approx(mean(series.rows[5][2] for series in each))


def test_one_run_is_itself_and_has_no_spread(make_run: Any) -> None:
    run = read_run(make_run(protocol="domain"))
    for one, alone in zip(all_series([run], fold_seeds=True), all_series([run]), strict=True):
        for kind in ("pooled", "seen", "final", "average", "forgetting", "rows"):
            assert getattr(one, kind) == getattr(alone, kind)
        assert one.deviation("final") is None and one.band() == []


def test_seeds_that_have_not_come_as_far_end_the_mean(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{done}", seed=done, done=done)) for done in (5, 3, 0)]
    one = all_series(runs, fold_seeds=True)[0]
    assert (
        [session for session, _ in one.pooled]
        == [1, 2, 3]
        == [session for session, *_ in one.band()]
    )
    assert one.final == one.pooled[-1][1]


def test_weights_are_means_by_class_in_the_order_of_learning(make_run: Any) -> None:
    run = read_run(make_run(sessions=2))
    found = run.weights()
    assert [one.label for one in found] == [
        label for part in run.facts.stream.sessions for label in part.classes
    ]
    assert found[0].fast == pytest.approx(0.46) and found[-1].session == 2
    assert read_run(make_run("other", method="ranpac")).weights() == []

"""Each output of each run has one name and one colour, everywhere."""

from typing import Any

from safecl.report.runs import read_run
from safecl.report.series import COLOURS, SPARE, all_series, display


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_display_names() -> None:
    assert [display(name) for name in ("safe", "ranpac", "finetune", "joint")] == [
        "SAFE",
        "RanPAC",
        "Fine-tuning",
        "Joint",
    ]


def test_names_and_colours_are_unique(make_run: Any) -> None:
    runs = [read_run(make_run(str(i), method=method)) for i, method in enumerate(("safe", "safe", "ranpac", "joint"))]
    series = all_series(runs)
    assert len({one.name for one in series}) == len(series) == 8
    assert len({one.colour for one in series}) == len(series)


def test_a_method_keeps_its_colour_whatever_stands_beside_it(make_run: Any) -> None:
    safe, ranpac = read_run(make_run("a")), read_run(make_run("b", method="ranpac"))
    for runs in ([safe], [safe, ranpac], [ranpac, safe]):
        assert {one.colour for one in all_series(runs) if one.output == "safe"} == {COLOURS["safe"]}


def test_ten_methods_have_ten_colours(make_run: Any) -> None:
    methods = ["a", "b", "c", "d", "e", "f", "g", "h", "ranpac", "finetune"]
    series = all_series([read_run(make_run(method, method=method, sessions=1)) for method in methods])
    assert len({one.colour for one in series}) == 10
    assert series[-2].colour == COLOURS["ranpac"] and series[-1].colour == COLOURS["finetune"]


def test_colours_stand_out_from_both_pages() -> None:
    for colour in (*COLOURS.values(), *SPARE):
        assert 1.05 / (luminance(colour.light) + 0.05) >= 3
        assert (luminance(colour.dark) + 0.05) / (luminance("#181e26") + 0.05) >= 3

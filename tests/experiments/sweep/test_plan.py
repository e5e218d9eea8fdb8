"""Which runs a sweep has, and what is wrong with them, before one starts."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from safecl.errors import SafeclError
from safecl.experiments.config import load, presets
from safecl.experiments.sweep.plan import Plan, make_plan
from safecl.methods.catalog import method_settings
from tests.conftest import raises


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    """``plan(*words, objective=None, **parts)``: the plan of a sweep file with those parts."""

    def write(*words: str, objective: str | None = None, **parts: Any) -> Plan:
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(parts, sort_keys=False))
        return make_plan(str(file), words, objective)

    return write


def titles(plan: Plan) -> list[str]:
    return [cell.title for cell in plan.cells]


def test_a_grid_is_every_combination_on_top_of_the_base(plan: Any) -> None:
    found = plan(
        base={"train": {"epochs": 3}},
        grid={"preset": ["safe", "ranpac"], "pet": ["ssf", "lora"], "seed": [0, 1]},
    )
    assert len(found.cells) == 8
    for cell in found.cells:
        words = [f"{key}={value}" for key, value in cell.varied.items() if key != "preset"]
        assert cell.settings == load(cell.varied["preset"], ["train.epochs=3", *words])


def test_a_key_that_a_method_lacks_is_left_out_and_runs_that_are_then_alike_are_one(
    plan: Any,
) -> None:
    grid = {
        "preset": ["ranpac", "simplecil"],
        "pet": ["ssf", "lora"],
        "ridge.size": [50, 60],
        "seed": [0],
    }
    found = plan(base={"train.epochs": 2}, grid=grid)
    assert [cell.settings.method.name for cell in found.cells] == ["ranpac"] * 4 + ["simplecil"]
    assert (
        found.cells[-1].settings == load("simplecil")
        and found.cells[-1].title == "preset=simplecil seed=0"
    )


def test_a_row_is_repeated_over_the_keys_that_it_does_not_name(plan: Any) -> None:
    row = {"preset": "aper", "pet": {"kind": "adapter", "bottleneck": 4}}
    found = plan(
        grid={"preset": ["safe"], "seed": [0, 1]}, runs=[row, {"method": "slca", "seed": 7}]
    )
    assert titles(found)[2:] == [
        "preset=aper pet.kind=adapter pet.bottleneck=4 seed=0",
        "preset=aper pet.kind=adapter pet.bottleneck=4 seed=1",
        "method=slca seed=7",
    ]
    assert found.cells[2].settings == load("aper", ["pet=adapter", "pet.bottleneck=4"])


def test_rows_alone_are_a_sweep(plan: Any) -> None:
    assert titles(plan(runs=[{"seed": 1}, {"seed": 2}])) == ["seed=1", "seed=2"]


def test_words_replace_the_values_of_the_grid_or_go_over_the_base(plan: Any) -> None:
    parts = {"base": {"train.epochs": 9}, "grid": {"preset": ["safe", "ranpac"], "seed": [0, 1, 2]}}
    found = plan("seed=[5]", "preset=safe", "train.epochs=1", **parts, runs=[{"preset": "aper"}])
    assert titles(found) == ["preset=safe seed=5"]  # the row has a preset that was not chosen
    assert found.cells[0].settings.train.epochs == 1
    assert titles(plan("seed=4", **parts)) == ["preset=safe seed=4", "preset=ranpac seed=4"]


def test_variants_of_the_base_depend_on_the_method(plan: Any) -> None:
    base = {
        "train": {"epochs": 3},
        "variants": [{"when": {"method": "slca"}, "train": {"epochs": 5}}],
    }
    found = plan(base=base, grid={"preset": ["safe", "slca"]})
    assert [cell.settings.train.epochs for cell in found.cells] == [3, 5]


def test_a_setting_of_training_is_of_use_where_one_of_the_runs_has_a_use_for_it(plan: Any) -> None:
    base = {"train.milestones": [3], "train.later_epochs": 2, "method.guide.cos_reduction": "sum"}
    grid = {"train.schedule": ["steps", "cosine"], "preset": ["safe", "ranpac"]}
    assert len(plan(base=base, grid=grid).cells) == 4
    with raises("sweep.plan.idle", keys=re.compile(r"train\.milestones$")):
        plan(base=base, grid={"preset": ["safe", "ranpac"]})
    with raises("sweep.plan.idle", keys=re.compile(r"train\.later_epochs$")):
        plan(base={"train.later_epochs": 2}, grid={"preset": ["ranpac", "aper"]})
    # whose default is none
    with raises("sweep.plan.idle", keys=re.compile(r"train\.later_horizon$")):
        plan(base={"train.later_horizon": 9}, grid={"train.schedule": ["constant"]})


def test_a_star_is_every_method_that_has_a_preset(plan: Any) -> None:
    found = plan(grid={"preset": "*"})
    assert {cell.settings.method.name for cell in found.cells} == method_settings().keys() & set(
        presets()
    )
    assert titles(found)[0] == "preset=simplecil"


def test_folders_are_named_by_what_decides_the_result(plan: Any) -> None:
    grid = {
        "preset": ["safe", "ranpac"],
        "pet": ["ssf", "adapter", "vpt_deep"],
        "seed": [0, 1],
        "ridge.size": [9, 8],
    }
    names = [cell.name for cell in plan(grid=grid).cells]
    assert len(set(names)) == 24 and not {character for name in names for character in name} & set(
        " /:="
    )
    assert [
        cell.name for cell in plan("device=cpu", "train.save_seconds=5", grid=grid).cells
    ] == names
    one = plan(grid={"seed": [3]}).cells[0]
    same = plan(base={"seed": 3}, runs=[{"preset": "safe"}]).cells[0]
    assert one.name == same.name and one.name.startswith("safe-glyphs-ssf-seed3-")


def test_runs_that_differ_in_the_seed_alone_are_one_configuration(plan: Any) -> None:
    cells = plan(grid={"pet": ["ssf", "lora"], "seed": [0, 1, 2]}).cells
    assert [
        cells.index(next(one for one in cells if one.configuration == cell.configuration))
        for cell in cells
    ] == [
        0,
        0,
        0,
        3,
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("parts", "refused"),
    [
        (
            {"grid": {"sede": [0]}},
            partial(
                raises,
                "name.unknown.near",
                what=re.compile(r"^setting, in .*mine\.yaml,$"),
                given="sede",
                near="seed",
            ),
        ),
        (
            {"grid": {"pet": [{"kind": "adapter", "botleneck": 4}]}},
            partial(raises, "name.unknown.near", given="pet.botleneck", near="pet.bottleneck"),
        ),
        (
            {"gird": {"seed": [0]}},
            partial(
                raises,
                "name.unknown.near",
                what=re.compile("^part of a sweep, in .*,$"),
                given="gird",
                near="grid",
            ),
        ),
        (
            {"grid": {"seed": []}},
            partial(raises, "sweep.grid.form", key="seed"),
        ),
        ({"grid": {"seed": 3}}, partial(raises, "sweep.grid.form", key="seed")),
        ({"grid": [1]}, partial(raises, "sweep.plan.form", part="grid")),
        (
            {"runs": {"seed": 1}},
            partial(raises, "sweep.plan.form", part="runs", list_of="a list of "),
        ),
        ({"base": {"seed": 1}}, partial(raises, "sweep.plan.empty")),
        (
            {"base": {"ridge.size": 5}, "grid": {"preset": ["simplecil"]}},
            partial(raises, "sweep.plan.idle", keys="ridge.size"),
        ),
        (
            {"grid": {"method.answer.gamma": [0, 9]}},
            partial(raises, "sweep.plan.idle", keys="method.answer.gamma"),
        ),
        (
            {"grid": {"preset": ["sfae"]}},
            partial(
                raises,
                "sweep.plan.wrong",
                lines=re.compile("preset=sfae: There is no preset 'sfae'; did you mean 'safe'"),
            ),
        ),
    ],
)
def test_a_wrong_sweep_is_one_sentence(
    plan: Any, parts: dict[str, Any], refused: Callable[[], Any]
) -> None:
    with refused():
        plan(**parts)


def test_all_wrong_runs_are_named_at_once(plan: Any) -> None:
    with pytest.raises(SafeclError) as error:
        plan(grid={"pet": ["ssf", "sff"], "train.epochs": [1, -1], "seed": [0, 1, 2]})
    said = str(error.value).splitlines()
    assert said[0].startswith("9 of 12 runs of the sweep") and said[0].endswith(
        "are wrong, and none was started:"
    )
    assert (
        len(said) == 3
        and all("seed=0; " in line for line in said[1:])
        and "and 3 more: " in said[2]
    )
    assert "train.epochs=-1 is wrong" in said[1] and "no pet 'sff'; did you mean 'ssf'" in said[2]


def test_a_sweep_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with raises("name.unknown", what="sweep", given="safe", known=re.compile("compare")):
        make_plan("safe")
    with raises("config.missing"):
        make_plan(str(tmp_path / "none.yaml"))


def test_an_objective_needs_held_out_pictures(plan: Any) -> None:
    with raises("sweep.plan.wrong", lines=re.compile("needs held-out training pictures")):
        plan(objective="validation.final", grid={"seed": [0]})
    assert plan(
        objective="validation.final", base={"stream.held_out": 0.2}, grid={"seed": [0]}
    ).cells


def test_the_sweeps_of_the_package_can_be_planned_and_have_three_seeds() -> None:
    found = make_plan("compare")
    methods = [cell.settings.method.name for cell in found.cells]
    assert all(methods.count(name) % 3 == 0 for name in methods) and {
        "safe",
        "ranpac",
        "simplecil",
    } <= set(methods)
    assert {cell.settings.stream.kind for cell in found.cells} == {"glyphs"}


def test_a_sweep_is_planned_without_torch() -> None:
    code = "import sys; from safecl.experiments.sweep.plan import make_plan; make_plan('compare')"
    code += "; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "False\n", ran.stderr


def test_a_word_on_the_method_is_used_by_every_method_of_the_grid_that_has_it(plan: Any) -> None:
    grid = {"method": ["safe", "ranpac", "aper"]}
    for found in (
        plan("method.scale=3", grid=grid),
        plan(base={"method.scale": 3}, grid=grid),
        plan("method.scale=3", base={"method": "safe"}, grid=grid),
    ):
        assert [cell.settings.method.scale for cell in found.cells] == [3, 3, 3]
    variants = [{"when": {"method": "ranpac"}, "method": {"scale": 3}}]
    found = plan(base={"variants": variants}, grid=grid)
    assert [cell.settings.method.scale for cell in found.cells] == [10, 3, 1]

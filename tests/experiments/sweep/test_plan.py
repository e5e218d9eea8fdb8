"""Which runs a sweep has, and what is wrong with them, before one starts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from safecl.errors import SafeclError
from safecl.experiments.config import load, presets
from safecl.experiments.sweep.plan import Plan, make_plan
from safecl.methods.catalog import method_settings


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
        base={"train": {"epochs": 3}}, grid={"preset": ["safe", "ranpac"], "pet": ["ssf", "lora"], "seed": [0, 1]}
    )
    assert len(found.cells) == 8
    for cell in found.cells:
        words = [f"{key}={value}" for key, value in cell.varied.items() if key != "preset"]
        assert cell.settings == load(cell.varied["preset"], ["train.epochs=3", *words])


def test_a_key_that_a_method_lacks_is_left_out_and_runs_that_are_then_alike_are_one(plan: Any) -> None:
    grid = {"preset": ["ranpac", "simplecil"], "pet": ["ssf", "lora"], "ridge.size": [50, 60], "seed": [0]}
    found = plan(base={"train.epochs": 2}, grid=grid)
    assert [cell.settings.method.name for cell in found.cells] == ["ranpac"] * 4 + ["simplecil"]
    assert found.cells[-1].settings == load("simplecil") and found.cells[-1].title == "preset=simplecil seed=0"


def test_a_row_is_repeated_over_the_keys_that_it_does_not_name(plan: Any) -> None:
    row = {"preset": "aper", "pet": {"kind": "adapter", "bottleneck": 4}}
    found = plan(grid={"preset": ["safe"], "seed": [0, 1]}, runs=[row, {"method": "slca", "seed": 7}])
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
    base = {"train": {"epochs": 3}, "variants": [{"when": {"method": "slca"}, "train": {"epochs": 5}}]}
    found = plan(base=base, grid={"preset": ["safe", "slca"]})
    assert [cell.settings.train.epochs for cell in found.cells] == [3, 5]


def test_a_star_is_every_method_that_has_a_preset(plan: Any) -> None:
    found = plan(grid={"preset": "*"})
    assert {cell.settings.method.name for cell in found.cells} == method_settings().keys() & set(presets())
    assert titles(found)[0] == "preset=simplecil"


def test_folders_are_named_by_what_decides_the_result(plan: Any) -> None:
    grid = {"preset": ["safe", "ranpac"], "pet": ["ssf", "adapter", "vpt_deep"], "seed": [0, 1], "ridge.size": [9, 8]}
    names = [cell.name for cell in plan(grid=grid).cells]
    assert len(set(names)) == 24 and not {character for name in names for character in name} & set(" /:=")
    assert [cell.name for cell in plan("device=cpu", "train.save_seconds=5", grid=grid).cells] == names
    one, same = plan(grid={"seed": [3]}).cells[0], plan(base={"seed": 3}, runs=[{"preset": "safe"}]).cells[0]
    assert one.name == same.name and one.name.startswith("safe-glyphs-ssf-seed3-")


def test_runs_that_differ_in_the_seed_alone_are_one_configuration(plan: Any) -> None:
    cells = plan(grid={"pet": ["ssf", "lora"], "seed": [0, 1, 2]}).cells
    assert [cells.index(next(one for one in cells if one.configuration == cell.configuration)) for cell in cells] == [
        0, 0, 0, 3, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"grid": {"sede": [0]}}, "There is no setting, in .*mine.yaml, 'sede'; did you mean 'seed'"),
        ({"grid": {"pet": [{"kind": "adapter", "botleneck": 4}]}}, "'pet.botleneck'; did you mean 'pet.bottleneck'"),
        ({"gird": {"seed": [0]}}, "no part of a sweep, in .*, 'gird'; did you mean 'grid'"),
        ({"grid": {"seed": []}}, r"grid: seed in .* must be a list of values, like seed: \[0, 1, 2\]"),
        ({"grid": {"seed": 3}}, "grid: seed in .* must be a list of values"),
        ({"grid": [1]}, "grid in .* must be keys and values"),
        ({"runs": {"seed": 1}}, "runs in .* must be a list of keys and values"),
        ({"base": {"seed": 1}}, "has no runs; give it a grid"),
        ({"base": {"ridge.size": 5}, "grid": {"preset": ["simplecil"]}}, "ridge.size means nothing to any run"),
        ({"grid": {"method.answer.gamma": [0, 9]}}, "method.answer.gamma means nothing to any run"),
        ({"grid": {"preset": ["sfae"]}}, "preset=sfae: There is no preset 'sfae'; did you mean 'safe'"),
    ],
)
def test_a_wrong_sweep_is_one_sentence(plan: Any, parts: dict[str, Any], says: str) -> None:
    with pytest.raises(SafeclError, match=says):
        plan(**parts)


def test_all_wrong_runs_are_named_at_once(plan: Any) -> None:
    with pytest.raises(SafeclError) as error:
        plan(grid={"pet": ["ssf", "sff"], "train.epochs": [1, -1], "seed": [0, 1, 2]})
    said = str(error.value).splitlines()
    assert said[0].startswith("9 of 12 runs of the sweep") and said[0].endswith("are wrong, and none was started:")
    assert len(said) == 3 and all("seed=0; " in line for line in said[1:]) and "and 3 more: " in said[2]
    assert "train.epochs=-1 is wrong" in said[1] and "no pet 'sff'; did you mean 'ssf'" in said[2]


def test_a_sweep_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SafeclError, match=r"no sweep 'safe'; choose one of: .*compare"):
        make_plan("safe")
    with pytest.raises(SafeclError, match="does not exist"):
        make_plan(str(tmp_path / "none.yaml"))


def test_an_objective_needs_held_out_pictures(plan: Any) -> None:
    with pytest.raises(SafeclError, match=r"needs held-out training pictures; set stream.held_out"):
        plan(objective="validation.final", grid={"seed": [0]})
    assert plan(objective="validation.final", base={"stream.held_out": 0.2}, grid={"seed": [0]}).cells


def test_the_sweeps_of_the_package_can_be_planned_and_have_three_seeds() -> None:
    found = make_plan("compare")
    methods = [cell.settings.method.name for cell in found.cells]
    assert all(methods.count(name) % 3 == 0 for name in methods) and {"safe", "ranpac", "simplecil"} <= set(methods)
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

"""The leaderboard: rows are what their runs were, and what was changed by hand is found."""

import json
from pathlib import Path

import pytest

from safecl import run
from safecl.experiments.leaderboard import add, check, read_board, tables, without_folder
from safecl.report.runs import find_runs, read_run
from safecl.report.series import all_series
from tests.conftest import raises

WORDS = ("stream=glyphs", "stream.classes=4", "stream.sessions=2", "stream.train=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        words = (*WORDS, "stream.test=3", f"seed={seed}")
        run("simplecil", *words, folder=top / f"s{seed}", show="quiet")
    return top


def test_seeds_of_one_configuration_are_one_row_with_the_numbers_of_their_runs(
    runs: Path, tmp_path: Path
) -> None:
    (file,) = add(find_runs([runs]), tmp_path)
    assert add([runs / "s1"], tmp_path) == [file]
    row = read_board(tmp_path)[file]
    assert [one.seed for one in row.runs] == [0, 1] and row.method == "simplecil"
    for one, folder in zip(row.runs, ("s0", "s1"), strict=True):
        series = all_series([read_run(runs / folder)])[0]
        assert one.numbers.final == pytest.approx(series.final)
        assert one.numbers.average == pytest.approx(series.average)
        assert one.numbers.forgetting == pytest.approx(series.forgetting)
        assert one.numbers.kept == read_run(runs / folder).metrics[-1].bytes_kept
    assert check(tmp_path)[0] == []
    (table,) = tables([row])
    assert "±" in table.rows[0][4].text


@pytest.mark.parametrize("what", ["final", "line", "seed", "settings", "session"])
def test_a_row_that_was_changed_by_hand_is_found(runs: Path, tmp_path: Path, what: str) -> None:
    (file,) = add(find_runs([runs]), tmp_path)
    row = json.loads(file.read_text(encoding="utf-8"))
    first = row["runs"][0]
    if what == "final":
        first["numbers"]["final"] += 0.01
    elif what == "line":
        first["lines"][0]["seconds"] /= 2
    elif what == "seed":
        first["seed"] = 1
    elif what == "settings":
        row["settings"]["train.epochs"] = 77
    else:
        first["lines"].pop()
    file.write_text(json.dumps(row), encoding="utf-8")
    assert check(tmp_path)[0]


def test_a_command_is_told_without_the_place_of_its_run() -> None:
    command = "safecl run safe 'stream=folder:my photos' --folder 'runs/a b' --track wandb"
    bare = "safecl run safe 'stream=folder:my photos' --track wandb"
    assert without_folder(command) == bare == without_folder(bare)
    assert without_folder("") == ""


def test_what_is_no_finished_run_and_no_row_is_one_sentence(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("{}", encoding="utf-8")
    with raises("leaderboard.row.unreadable", file=tmp_path / "odd.json"):
        check(tmp_path)
    with raises("leaderboard.folder.missing"):
        check(tmp_path / "none")
    half = tmp_path / "half"
    half.mkdir()
    for name in ("facts.json", "resolved.yaml", "fingerprint.json"):
        (half / name).write_bytes((runs / "s0" / name).read_bytes())
    with raises("leaderboard.run.unfinished", folder=half):
        add([half], tmp_path / "board")


def test_the_rows_of_the_repository_are_as_their_lines_say() -> None:
    problems, _ = check(Path(__file__).resolve().parents[2] / "benchmarks/leaderboard")
    assert problems == []

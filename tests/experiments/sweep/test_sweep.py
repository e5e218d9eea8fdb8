"""A sweep on real processes and on Ray, with a worker killed in each; and what the loop does with
how workers end.
"""

import csv
import json
import os
import re
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
import yaml
from safetensors.torch import save_file

from safecl.atomic import read_json
from safecl.errors import Stopped
from safecl.experiments.launch import launch
from safecl.experiments.sweep import cluster as sweep_ray
from safecl.experiments.sweep import sweep
from safecl.experiments.sweep.cluster import share_out
from safecl.experiments.sweep.done import check_rows, find_done
from safecl.experiments.sweep.plan import Cell, Plan, make_plan
from safecl.experiments.sweep.sweep import BUSY_PAUSE, RETRIES, Board, Loop, run_cells, run_sweep
from safecl.experiments.sweep.table import as_table
from safecl.experiments.sweep.worker import LOG, STATUS, Job, Outcome
from safecl.report.runs import read_run
from safecl.report.table import Table, as_csv
from tests.conftest import raises

TINY = {"name": "test_vit", "weights": "random", "image_size": 16}
STREAM = {"classes": 4, "sessions": 2, "train": 2, "test": 3}
SMALL = {"stream": STREAM, "backbone": TINY, "device": "cpu"}
SEEDS = {"seed": [0, 1]}
# On the embedded backbone: a run that lasts long enough to be killed while it trains.
BASE = {"stream": STREAM, "device": "cpu", "preset": "ranpac", "ridge.size": 50, "train.epochs": 1}


def plan(tmp_path: Path, **parts: Any) -> Plan:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(parts, sort_keys=False))
    return make_plan(str(file))


@contextmanager
def killer(folder: Path) -> Iterator[list[int]]:
    """Sends SIGKILL to the worker of the run in ``folder`` as soon as it trains; gives whom it has
    killed.
    """
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            status = read_json(folder / STATUS) or {}
            if "process" in status and (folder / "facts.json").exists():
                killed.append(status["process"])
                os.kill(killed[0], signal.SIGKILL)
                return

    thread = threading.Thread(daemon=True, target=watch)
    thread.start()
    yield killed
    over.set()
    thread.join()


def numbers(table: Table) -> list[dict[str, str]]:
    """The table, without clocks."""
    lines = csv.DictReader(as_csv(table).splitlines())
    return [{key: value for key, value in line.items() if key != "Time"} for line in lines]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]]]:
    """Two runs, each made in one go and without a sweep: their folder, and their table."""
    folder = tmp_path_factory.mktemp("straight")
    cells = plan(folder, base=BASE, grid=SEEDS).cells
    for cell in cells:
        launch(cell.settings, folder / cell.name)
    return folder, numbers(
        as_table("t", cells, {cell.name: read_run(folder / cell.name) for cell in cells})
    )


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_local_processes_one_of_them_killed_give_the_table_of_straight_runs(
    jobs: int,
    tmp_path: Path,
    straight: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = plan(tmp_path, base=BASE, grid=SEEDS)
    folder = tmp_path / "all"
    if jobs == 1:  # the other run was done by an earlier sweep
        shutil.copytree(straight[0] / found.cells[1].name, folder / found.cells[1].name)
    with killer(folder / found.cells[0].name) as killed:
        result = run_sweep(found, folder, jobs=jobs, show="plain", command="safecl sweep mine.yaml")
    assert killed and "ended by SIGKILL; it resumes." in capsys.readouterr().out
    assert not result.failed and numbers(result.table) == straight[1]
    assert read_run(folder / found.cells[0].name).facts.command == "safecl sweep mine.yaml"
    assert [file.name for file in result.files] == ["mine.csv", "mine.tex", "mine.html"]
    assert "standard deviation over seeds" in result.files[-1].read_text()
    monkeypatch.setattr(sweep, "Local", None)  # what is done is not started again
    monkeypatch.setattr(sweep, "write_page", lambda folders, target, *_: target)
    assert numbers(run_sweep(found, folder, show="quiet").table) == straight[1]


def test_no_code_of_the_current_folder_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a file there that is called as a module is keep a run from its work."""
    for module in ("yaml", "random", "torch"):
        (tmp_path / f"{module}.py").write_text("open('was run', 'w')\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    found = plan(tmp_path, base={**SMALL, "preset": "simplecil"}, grid={"seed": [0]})
    assert run_cells(found, Path("all"), show="quiet") == {}
    assert (
        find_done(found.cells, Path("all")) == {found.cells[0].name}
        and not Path("was run").exists()
    )


@pytest.mark.slow
def test_no_code_of_the_current_folder_is_run_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed; the extra ray brings it")
    (tmp_path / "timm.py").write_text("open('was run', 'w')\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = plan(tmp_path, base={**SMALL, "preset": "simplecil"}, grid={"seed": [0]})
    assert (
        run_cells(found, Path("all"), on="ray", show="quiet") == {} and not Path("was run").exists()
    )


@pytest.fixture
def two_machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray cluster of two machines with one core each."""
    pytest.importorskip("ray", reason="Ray is not installed; the extra ray brings it")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    for _ in range(2):
        cluster.add_node(num_cpus=1, include_dashboard=False)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield
    cluster.shutdown()


@pytest.mark.slow
def test_two_machines_of_one_core_with_a_killed_worker_give_the_table_of_straight_runs(
    tmp_path: Path, straight: Any, two_machines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "write_page", lambda folders, target, *_: target)
    found = plan(tmp_path, base=BASE, grid=SEEDS)
    folder = tmp_path / "all"
    lost, there = (cell.name for cell in found.cells)
    # done by an earlier sweep: the one left could take two cores
    shutil.copytree(straight[0] / there, folder / there)
    with killer(folder / lost) as killed:
        result = run_sweep(found, folder, on="ray", show="quiet")
    assert killed and not result.failed and numbers(result.table) == straight[1]
    assert (folder / lost / LOG).read_text().count("4 classes in 2 sessions") == 2  # started twice
    assert not (folder / there / LOG).exists()  # not started


@pytest.mark.parametrize(
    ("nodes", "jobs", "gpus", "shared"),
    [
        ([(1, 0), (1, 0)], 2, 0.0, (2, 1)),
        ([(1, 0), (1, 0)], 1, 0.0, (1, 1)),  # no task can have the cores of two machines
        ([(8, 0), (2, 0)], 2, 0.0, (2, 4)),  # two on the large one
        ([(8, 0), (2, 0)], 3, 0.0, (3, 2)),
        ([(3, 0), (3, 0)], 99, 0.0, (6, 1)),
        ([(16, 2), (64, 0)], 9, 0.5, (4, 4)),
        ([(16, 1), (16, 1)], 9, 1.0, (2, 16)),
        ([(0, 4)], 2, 1.0, (0, 1)),
    ],
)
def test_every_run_fits_on_one_machine_of_the_cluster(
    nodes: list[tuple[float, float]], jobs: int, gpus: float, shared: tuple[int, int]
) -> None:
    assert share_out([{"CPU": cpus, "GPU": of} for cpus, of in nodes], jobs, gpus) == shared


def test_without_ray_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises("sweep.ray.missing"):
        run_sweep(plan(tmp_path, base=BASE, grid={"seed": [0]}), tmp_path / "all", on="ray")


# The loop, with workers that only pretend


class Pretended:
    """An executor whose runs end, one a call, as told for their seeds; one that is done leaves a
    summary.
    """

    def __init__(self, outcomes: dict[int, list[Outcome]], jobs: int = 1) -> None:
        self.outcomes = {seed: deque(each) for seed, each in outcomes.items()}
        self.jobs = jobs
        self.threads = 1
        self.share = 1.0
        self.running: list[tuple[Cell, Path]] = []
        self.started: list[int] = []
        self.times: list[float] = []
        self.now: Callable[[], float] = lambda: 0.0
        self.stopped: list[bool] = []

    def room(self) -> bool:
        return len(self.running) < self.jobs

    def start(self, cell: Cell, folder: Path, job: Job) -> None:
        self.started.append(cell.settings.seed)
        self.times.append(self.now())
        self.running.append((cell, folder))

    def finished(self) -> list[tuple[Cell, Outcome]]:
        if not self.running:
            return []
        if self.stopped:
            ended = self.running
            self.running = []
            return [(cell, Outcome("stopped")) for cell, _ in ended]
        cell, _ = self.running[0]
        if not self.outcomes[cell.settings.seed]:
            return []
        self.running.pop(0)
        return [(cell, self.outcomes[cell.settings.seed].popleft())]

    def stop(self, at_once: bool = False) -> None:
        self.stopped.append(at_once)

    def close(self) -> None:
        pass


@pytest.fixture
def loop(tmp_path: Path) -> Callable[..., tuple[dict[str, str], Pretended]]:
    """``loop({seed: outcomes})``: the failures by run, and what was started."""

    def run(outcomes: dict[int, list[Outcome]], jobs: int = 1) -> tuple[dict[str, str], Pretended]:
        cells = plan(tmp_path, base=BASE, grid={"seed": list(outcomes)}).cells
        executor = Pretended(outcomes, jobs)
        executor.now = count(step=7.0).__next__  # seconds at a look
        failed = Loop(cells, tmp_path, executor, Board("quiet"), len(cells), now=executor.now).run(
            poll=0.0
        )
        return {
            next(cell.title for cell in cells if cell.name == name): text
            for name, text in failed.items()
        }, executor

    return run


DONE = Outcome("done")
DIED = Outcome("died", "Its process was ended by SIGSEGV")
FAILED = Outcome("failed", "No picture.")


def test_a_failed_run_does_not_stop_the_others(loop: Any) -> None:
    failed, executor = loop({0: [FAILED], 1: [DONE], 2: [DONE]})
    assert failed == {"seed=0": "No picture."} and executor.started == [0, 1, 2]


def test_a_run_whose_process_dies_is_started_again_some_times(loop: Any) -> None:
    failed, executor = loop({0: [DIED] * RETRIES + [DONE], 1: [DIED] * (RETRIES + 1)})
    assert executor.started == [0] * (RETRIES + 1) + [1] * (RETRIES + 1)
    assert (
        list(failed) == ["seed=1"]
        and f"SIGSEGV {RETRIES + 1} times; its log is " in failed["seed=1"]
    )


def test_a_run_that_another_sweep_works_on_is_waited_for(loop: Any) -> None:
    failed, executor = loop({0: [Outcome("busy"), Outcome("busy"), DONE], 1: [DONE]})
    assert not failed and executor.started == [0, 1, 0, 0]
    tries = [time for time, seed in zip(executor.times, executor.started, strict=True) if seed == 0]
    assert all(later - earlier > BUSY_PAUSE for earlier, later in pairwise(tries))


def test_a_stop_has_every_run_save_and_starts_no_other(loop: Any) -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    executors: list[Pretended] = []
    before = Pretended.__init__

    def keep(self: Pretended, *options: Any) -> None:
        before(self, *options)
        executors.append(self)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Pretended, "__init__", keep)
        loop({0: [], 1: [], 2: []}, jobs=2)
    assert executors[0].started == [0, 1] and executors[0].stopped == [False]


def test_a_finished_run_of_other_settings_is_not_taken_for_done(tmp_path: Path) -> None:
    one, other = plan(tmp_path, base=SMALL, grid={"preset": ["simplecil"], "seed": [0, 1]}).cells
    launch(one.settings, tmp_path / one.name)
    assert find_done([one, other], tmp_path) == {one.name}
    shutil.move(tmp_path / one.name, tmp_path / other.name)
    with raises(
        "sweep.folder.other-runs", lines=re.compile(r"seed=1: other settings: seed=0 \(now 1\)")
    ):
        find_done([one, other], tmp_path)
    (tmp_path / other.name / "summary.json").unlink()
    shutil.move(tmp_path / other.name, tmp_path / one.name)
    assert find_done([one, other], tmp_path) == set()


@pytest.mark.parametrize("change", ["a number", "a line twice", "a line less", "no check"])
def test_numbers_that_were_changed_are_never_averaged(change: str, tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, base=SMALL, grid={"preset": ["simplecil"]}).cells
    launch(cell.settings, tmp_path / cell.name)
    file = tmp_path / cell.name / "metrics.jsonl"
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    if change == "a number":
        lines[0]["classes_seen"] += 1
    elif change == "a line twice":
        lines.append(lines[-1])
    elif change == "a line less":
        del lines[-1]
    else:
        del lines[-1]["check"]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with raises("run.metrics.edited", file=file):
        find_done([cell], tmp_path)


def test_replaced_pictures_are_never_averaged_with_the_old_ones(
    tmp_path: Path, class_folder: Any, paint: Any
) -> None:
    folder = class_folder({f"{part}/{label}": 2 for part in ("train", "test") for label in "ab"})
    stream = {"kind": "folder", "path": str(folder), "step": 1, "cache": False}
    base = {"stream": stream, "backbone": TINY, "device": "cpu", "preset": "simplecil"}
    (first,) = plan(tmp_path, base=base, grid={"seed": [0]}).cells
    launch(first.settings, tmp_path / "all" / first.name)
    both = plan(tmp_path, base=base, grid={"seed": [0, 1]})
    assert find_done(both.cells, tmp_path / "all") == {first.name}
    paint(next((folder / "train" / "a").iterdir()), 99)
    with raises(
        "sweep.folder.other-runs",
        lines=re.compile("\n  seed=0: other data: training pictures of session"),
    ):
        run_sweep(both, tmp_path / "all", show="quiet")
    assert [path.name for path in (tmp_path / "all").iterdir()] == [first.name]
    shutil.rmtree(folder)  # nothing new can be learned: what is done stands
    assert find_done(both.cells, tmp_path / "all") == {first.name}


def test_runs_of_machines_with_other_pictures_are_not_averaged(
    tmp_path: Path, class_folder: Any, paint: Any
) -> None:
    folder = class_folder({f"{part}/{label}": 2 for part in ("train", "test") for label in "ab"})
    stream = {
        "kind": "folder",
        "path": str(folder),
        "step": 1,
        "order_seed": 1993,
        "split_seed": 0,
        "cache": False,
    }
    base = {"backbone": TINY, "device": "cpu", "preset": "simplecil"}
    both = plan(tmp_path, base={"stream": stream, **base}, grid={"seed": [0, 1]})
    for cell in both.cells:
        launch(cell.settings, tmp_path / "all" / cell.name)
    check_rows(both.cells, tmp_path / "all")
    # then the classes of a session differ with the seed, and may
    free = {
        **stream,
        "order_seed": "seed",
    }
    drawn = plan(tmp_path, base={"stream": free, **base}, grid={"seed": [0, 1]})
    for cell in drawn.cells:
        launch(cell.settings, tmp_path / "free" / cell.name)
    check_rows(drawn.cells, tmp_path / "free")
    known = tmp_path / "free" / drawn.cells[1].name / "fingerprint.json"
    other = json.loads(known.read_text())
    other["sessions"][0]["train"]["sum"] += 1  # as if one of its pictures were another one
    known.write_text(json.dumps(other))
    with raises(
        "sweep.folder.other-pictures", one=re.compile("seed=0$"), other="seed=1", what="pictures"
    ):
        check_rows(drawn.cells, tmp_path / "free")
    other["sessions"][0]["train"]["sum"] -= 1
    known.write_text(json.dumps({**other, "backbone": {**other["backbone"], "weights": "others"}}))
    with raises("sweep.folder.other-pictures", what=re.compile("^weights")):
        check_rows(drawn.cells, tmp_path / "free")
    shutil.rmtree(tmp_path / "all" / both.cells[1].name)
    paint(next((folder / "train" / "a").iterdir()), 99)
    launch(both.cells[1].settings, tmp_path / "all" / both.cells[1].name)
    shutil.rmtree(folder)  # the machine that writes the table cannot read them
    with raises(
        "sweep.folder.other-pictures",
        one=re.compile("seed=0$"),
        other="seed=1",
        what=re.compile("^pictures"),
    ):
        run_sweep(both, tmp_path / "all", show="quiet")


def test_replaced_weights_are_never_averaged_with_the_old_ones(
    tmp_path: Path, weights: Any
) -> None:
    base = {
        **SMALL,
        "preset": "simplecil",
        "backbone": {"name": "test_vit", "weights": str(weights(0))},
    }
    (first,) = plan(tmp_path, base=base, grid={"seed": [0]}).cells
    launch(first.settings, tmp_path / "all" / first.name)
    weights(1)
    with raises("sweep.folder.other-runs", lines=re.compile("seed=0: other weights of test_vit")):
        run_cells(plan(tmp_path, base=base, grid={"seed": [0, 1]}), tmp_path / "all", show="quiet")


@pytest.fixture
def weights(tmp_path: Path) -> Callable[[int], Path]:
    """``weights(seed)``: a file of weights that is written over the one before."""

    def write(seed: int) -> Path:
        torch.manual_seed(seed)
        vit = timm.create_model("test_vit", num_classes=0)
        save_file(vit.state_dict(), tmp_path / "weights.safetensors")
        return tmp_path / "weights.safetensors"

    return write


def test_a_ray_that_cannot_be_reached_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ray:
        job_config = SimpleNamespace(JobConfig=dict)

        @staticmethod
        def init(address: str, **_: Any) -> None:
            raise ConnectionError(f"nothing at {address}.\nmore")

    monkeypatch.setitem(sys.modules, "ray", Ray)  # type: ignore[arg-type]
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with raises(
        "sweep.ray.unreachable", address="10.0.0.1:6379", reason="nothing at 10.0.0.1:6379"
    ):
        run_sweep(plan(tmp_path, base=BASE, grid={"seed": [0]}), tmp_path / "all", on="ray")


def test_a_file_stops_a_task_of_ray_also_where_the_signal_is_blocked_and_does_so_once(
    tmp_path: Path,
) -> None:
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as Ray does in its workers
    try:
        (tmp_path / "stop").touch()
        sweep_ray._watch(tmp_path / "stop", threading.Event())
        assert asked == [signal.SIGINT]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises("report.folder.not-made"):
        run_sweep(plan(tmp_path, base=BASE, grid={"seed": [0]}), tmp_path / "file" / "all")


def test_a_run_whose_input_size_was_chosen_by_its_pictures_is_done(
    tmp_path: Path, class_folder: Any
) -> None:
    folder = class_folder({"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 1})
    stream = {"kind": "folder", "path": str(folder), "step": 1, "cache": False}
    base = {"stream": stream, "device": "cpu", "preset": "simplecil"}
    (cell,) = plan(tmp_path, base=base, grid={"seed": [0]}).cells
    assert cell.settings.backbone.image_size is None
    launch(cell.settings, tmp_path / cell.name)
    (other,) = plan(tmp_path, base={**base, "backbone.image_size": 96}, grid={"seed": [0]}).cells
    assert find_done([cell, other], tmp_path) == {cell.name}

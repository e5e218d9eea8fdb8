"""A run in its folder: it may be killed at any instant and ends the same; it is done once, and by
one process.
"""

import errno
import json
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine import folder as folders
from safecl.engine.checkpoint import encode, load_state
from safecl.engine.folder import States, claimed
from safecl.engine.progress import Progress
from safecl.engine.run import run
from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError, Stopped
from safecl.heads.settings import RidgeSettings
from safecl.methods.beyond.class_means import ClassMeans
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.method import Method, all_logits
from safecl.methods.ranpac import RanPAC
from safecl.pet.settings import pet_settings
from safecl.report.runs import read_run
from safecl.streams.stream import Stream
from tests.conftest import raises, tells

MakeStream = Callable[..., Stream]
SESSIONS = [["a", "b"], ["c"], ["d", "a"]]
# saves a checkpoint after every step
TRAIN = TrainSettings(epochs=1, batch_size=4, save_seconds=1e-9)
RIDGE = RidgeSettings(size=20, layers=1, patches=False, mirror=False)  # nothing is judged


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


class Ends(Progress):
    """Is killed when the first session has been learned."""

    def say(self, text: str) -> None:
        if text.startswith("Session 1 of"):
            raise Killed


class Notes(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def go(
    make_backbone: Callable[..., Backbone], make_stream: MakeStream
) -> Callable[..., tuple[Any, Method]]:
    """``go(folder)``: the same run, from a new process as it were; gives its summary and the
    method. ``made``: the class of the method, if not the one of that name.
    """
    backbone = make_backbone(depth=1)

    def start(
        folder: Path,
        name: str = "ranpac",
        sessions: Any = SESSIONS,
        progress: Any = None,
        fresh: bool = False,
        of: Backbone = backbone,
        settings: Any = None,
        flip: float = 0.5,
        made: Callable[..., Method] = make_method,
        accelerator: Accelerator | None = None,
        **options: Any,
    ) -> tuple[Any, Method]:
        stream = make_stream(sessions, **options)
        stream.transform = replace(stream.transform, flip=flip)
        kind = method_settings()[name]
        tiny = {"pet": pet_settings("adapter", bottleneck=4), "ridge": RIDGE}
        chosen = kind(**{key: tiny[key] for key in tiny if key in kind.model_fields})
        method = make_method(chosen, of) if made is make_method else made(of, chosen)
        summary = run(
            method,
            stream,
            folder,
            accelerator=accelerator or Accelerator(cpu=True),
            train=TRAIN,
            progress=progress,
            settings=settings,
            facts={"command": "safecl run"},
            fresh=fresh,
        )
        return summary, method

    return start


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics, without what a clock or a memory gauge says."""
    found = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    clocks = ("seconds", "phases", "images_per_second", "peak_memory", "check")
    return [{key: value for key, value in line.items() if key not in clocks} for line in found]


def losses(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "losses.jsonl").read_text().splitlines()]


def final_state(folder: Path) -> dict[str, torch.Tensor]:
    return load_state(sorted((folder / "state").glob("session_*.safetensors"))[-1])[0]


@pytest.mark.parametrize(
    ("name", "done", "step"),
    [
        ("ranpac", False, 2),
        ("safe", True, 5),
        ("safe untuned", False, 9),
        *(
            pytest.param(name, done, 1, marks=pytest.mark.slow)
            for name in ("ranpac", "safe", "safe untuned")
            for done in (False, True)
        ),
    ],
)
def test_a_run_killed_at_any_instant_ends_as_if_it_had_not_been(
    name: str,
    done: bool,
    step: int,
    go: Callable[..., tuple[Any, Method]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instant: just before, or just after (``done``), a file gets its name; every one of them,
    or some.

    With pilots, of which each is a phase, and which ask for the untuned backbone whatever they have
    gained.
    """
    rename = os.replace
    untuned = " " in name
    name = name.split()[0]
    sessions = [["a", "b", "c", "d"], ["e"]] if untuned else SESSIONS
    monkeypatch.setattr("safecl.methods.beyond.untuned.MIN_PILOT_GAIN", 2.0)

    def kill_at(instant: int | None) -> Callable[..., None]:
        def count(*paths: Any) -> None:
            nonlocal commits
            commits += 1
            if commits != instant or done:
                rename(*paths)
            if commits == instant:
                raise Killed

        return count

    def start(folder: Path, instant: int | None) -> Any:
        nonlocal commits
        commits = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", kill_at(instant))
            return go(folder, name, sessions)[0]

    commits = 0
    summary = start(tmp_path / "straight", None)
    total = commits
    expected = lines(tmp_path / "straight")
    state = final_state(tmp_path / "straight")
    assert (
        total > 10
        and ("ridge_untuned.weight" in state and state["ridge_untuned.weight"].numel() > 0)
        == untuned
    )
    for instant in range(1, total + 1, step):
        folder = tmp_path / str(instant)
        with pytest.raises(Killed):
            start(folder, instant)
        again, _ = go(folder, name, sessions)
        found = final_state(folder)
        assert lines(folder) == expected, instant
        assert losses(folder) == losses(tmp_path / "straight"), instant
        assert json.loads((folder / "summary.json").read_text())["final"] == summary["final"]
        assert not list((folder / "state").glob("fit_*"))
        assert all(torch.equal(found[key], value) for key, value in state.items()), instant
        assert again["final"] == summary["final"] and again["average"] == summary["average"]


def test_a_finished_run_is_only_read(go: Callable[..., tuple[Any, Method]], tmp_path: Path) -> None:
    first, taught = go(tmp_path)
    files = {
        path: path.stat().st_mtime_ns
        for path in tmp_path.rglob("*")
        if path.name != "lock" and path.is_file()
    }
    notes = Notes()
    second, restored = go(tmp_path, progress=notes)
    assert second == first and any("finished" in text for text in notes.said)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(taught.logits(images), restored.logits(images))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_and_the_run_goes_on(
    number: int,
    go: Callable[..., tuple[Any, Method]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, _ = go(tmp_path / "straight")
    real = torch.optim.SGD.step
    calls = [0]

    def interrupted(self: Any, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            os.kill(os.getpid(), number)
        return real(self, *arguments)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", interrupted)
        with pytest.raises(Stopped):
            go(tmp_path / "stopped")
    assert signal.getsignal(number) is before
    assert not (tmp_path / "stopped" / "summary.json").exists()
    assert go(tmp_path / "stopped")[0]["final"] == expected["final"]


def test_a_stop_is_heard_while_a_run_tests_itself(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    expected, _ = go(tmp_path / "straight")
    calls = [0]

    class Interrupted(ClassMeans):
        def answer(self, features: Any, *rest: Any) -> dict[str, Tensor]:
            calls[0] += 1
            if calls[0] == 2:  # the first of two tests after session 2
                os.kill(os.getpid(), signal.SIGTERM)
            return super().answer(features, *rest)

    with pytest.raises(Stopped):
        go(tmp_path / "stopped", made=Interrupted)
    assert calls[0] == 2
    assert go(tmp_path / "stopped")[0]["final"] == expected["final"]
    assert lines(tmp_path / "stopped") == lines(tmp_path / "straight")


def test_a_damaged_last_state_falls_back_to_the_one_before(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    expected, _ = go(tmp_path)
    newest = sorted((tmp_path / "state").glob("session_*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:50])
    notes = Notes()
    again, _ = go(tmp_path, progress=notes)
    assert again["final"] == expected["final"]
    assert any("damaged" in text for text in notes.said)


def test_a_run_in_which_two_steps_would_draw_the_same_resumes_to_the_same_result(
    make_backbone: Callable[..., Backbone], make_stream: MakeStream, tmp_path: Path
) -> None:
    """With this seed they are step 9 of session 1 and step 21 of session 2, which moves on."""
    train = TrainSettings(epochs=8, batch_size=1, guard=False)

    def start(name: str, progress: Progress | None = None) -> None:
        kind = method_settings()["finetune"](pet=pet_settings("ssf"))
        method = make_method(kind, make_backbone(depth=1), 1826412)
        stream = make_stream([["a"], ["b"]])
        options = {"train": train, "seed": 1826412, "progress": progress}
        run(method, stream, tmp_path / name, accelerator=Accelerator(cpu=True), **options)  # type: ignore[arg-type]

    start("straight")
    with pytest.raises(Killed):
        start("killed", Ends())
    start("killed")
    straight, resumed = (final_state(tmp_path / name) for name in ("straight", "killed"))
    assert all(torch.equal(value, resumed[name]) for name, value in straight.items())
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")


def edited(rows: list[str], number: int) -> list[str]:
    """With another accuracy after a session."""
    line = json.loads(rows[number])
    line["pooled"] = dict.fromkeys(line["pooled"], 0.123)
    return [*rows[:number], json.dumps(line), *rows[number + 1 :]]


HARMS: dict[str, Callable[[list[str]], list[str]]] = {
    "the last number": lambda rows: edited(rows, len(rows) - 1),
    "an earlier number": lambda rows: edited(rows, 0),
    "a lost line": lambda rows: rows[1:],
    "a doubled line": lambda rows: [rows[0], *rows],
    "the last doubled": lambda rows: [*rows, rows[-1]],
    "another order": lambda rows: rows[::-1],
    "a bare line": lambda rows: ['{"session": 1}', *rows[1:]],
    "a bare last line": lambda rows: [*rows[:-1], f'{{"session": {len(rows)}}}'],
}


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("harm", HARMS)
def test_metrics_that_are_not_as_they_were_left_are_refused_before_training(
    harm: str, finished: bool, go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    """The state before them is used where the lines of its sessions are right."""
    expected, _ = go(tmp_path / "straight")
    shutil.copytree(tmp_path / "straight", tmp_path / "run")
    if not finished:
        (tmp_path / "run" / "summary.json").unlink()
    file = tmp_path / "run" / "metrics.jsonl"
    notes = Notes()
    file.write_text("\n".join(HARMS[harm](file.read_text().splitlines())) + "\n")
    wrong = (
        r"metrics\.jsonl is not as it was when session_000\d\.safetensors was saved: a line of the"
        r" first "
    )
    if "last" in harm:
        again, _ = go(tmp_path / "run", progress=notes)
        assert sum(bool(re.search(wrong, text)) for text in notes.said) == 1
        assert again["final"] == expected["final"] and again["average"] == expected["average"]
        assert lines(tmp_path / "run") == lines(tmp_path / "straight")
    else:
        with raises("state.none-left", error=re.compile(wrong), folder=tmp_path / "run"):
            go(tmp_path / "run", progress=notes)


def test_lines_of_another_run_are_not_taken_for_those_of_this_one(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    """Also those of a first session, which no earlier line follows from."""
    for name, words in (("one", {}), ("other", {"seed": 1})):
        go(tmp_path / name, sessions=[["a", "b"]], settings=words)
    shutil.copy(tmp_path / "other" / "metrics.jsonl", tmp_path / "one")
    with raises("state.none-left") as refused:
        go(tmp_path / "one", sessions=[["a", "b"]], settings={})
    cause = refused.value.fields["error"]
    tells(cause, "state.lines-differ", state=re.compile("^session_0001"))


def test_a_state_of_another_run_is_refused_and_the_one_before_used(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    expected, _ = go(tmp_path / "one")
    go(tmp_path / "other", "finetune")
    newest, foreign = (
        sorted((tmp_path / name / "state").glob("session_*.safetensors"))[-1]
        for name in ("one", "other")
    )
    newest.write_bytes(foreign.read_bytes())
    notes = Notes()
    assert go(tmp_path / "one", progress=notes)[0]["final"] == expected["final"]
    assert any(
        "belongs to another run" in text and "The state before it is used" in text
        for text in notes.said
    )


def test_when_no_state_can_be_used_the_run_does_not_start_over_by_itself(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    expected, _ = go(tmp_path)
    for file in (tmp_path / "state").glob("session_*.safetensors"):
        file.write_bytes(file.read_bytes()[:50])
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "lock"
    }
    with raises("state.none-left", error=re.compile("damaged ")):
        go(tmp_path)
    assert {path: path.read_bytes() for path in before} == before
    assert go(tmp_path, fresh=True)[0]["final"] == expected["final"]


def test_a_state_of_a_newer_version_is_refused_and_the_one_before_used(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    expected, _ = go(tmp_path)
    newest = sorted((tmp_path / "state").glob("session_*.safetensors"))[-1]
    save_file({}, newest, {"format": "99", "facts": "{}"})
    notes = Notes()
    assert go(tmp_path, progress=notes)[0]["final"] == expected["final"]
    assert any("newer safecl" in text for text in notes.said)


def test_a_state_whose_numbers_say_something_else_today_is_refused_though_it_fits(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("safecl.engine.folder.MEANING", 1)
        go(tmp_path)
    with raises("state.none-left") as refused:
        go(tmp_path)
    tells(refused.value.fields["error"], "state.other-version")


def test_finished_phases_of_a_session_are_not_trained_again(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first session of SAFE is some pilots and then the slow learner; a stop comes before its
    last step.
    """
    sessions = [["a", "b", "c", "d"], ["e"]]
    expected, _ = go(tmp_path / "straight", "safe", sessions)
    first = json.loads((tmp_path / "straight" / "metrics.jsonl").read_text().splitlines()[0])
    *pilots, slow = (phase["phase"] for phase in first["phases"])
    assert len(pilots) > 1 and slow == "slow"
    real = torch.optim.SGD.step
    steps = [0]
    last = sum(phase["steps"] for phase in first["phases"])

    def killed(self: Any, *arguments: Any) -> Any:
        steps[0] += 1
        if steps[0] == last:
            raise Killed
        return real(self, *arguments)

    def counted(self: Any, *arguments: Any) -> Any:
        steps[0] += 1
        return real(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(torch.optim.SGD, "step", killed)
        go(tmp_path / "killed", "safe", sessions)
    assert (tmp_path / "killed" / "state" / f"fit_1_{pilots[-1]}.safetensors").exists()
    steps[0] = 0
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", counted)
        assert go(tmp_path / "killed", "safe", sessions)[0]["final"] == expected["final"]
    assert steps[0] == 1 + 1  # what was left of the slow learner, and the fast one in session 2
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")


@pytest.mark.parametrize(
    "harm", [errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.slow), "gone"]
)
def test_a_disk_that_fills_up_or_goes_loses_no_good_state(
    harm: int | str,
    go: Callable[..., tuple[Any, Method]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every commit of the run in turn: one sentence, the last good state stays, and the run ends
    as it would.
    """
    folder = tmp_path / "run"
    expected = go(tmp_path / "straight")[0]
    real = os.fsync
    fails = [0]
    aside = tmp_path / "aside"

    def failing(descriptor: int) -> None:
        # a folder that is not synced loses nothing yet
        fails[0] -= stat.S_ISREG(os.fstat(descriptor).st_mode)
        if fails[0] != 0 or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return real(descriptor)
        if harm == "gone":
            folder.rename(aside)
            return real(descriptor)
        raise OSError(harm, os.strerror(harm))  # type: ignore[arg-type]

    def good() -> int:
        states = sorted((folder / "state").glob("session_*"), reverse=True)
        return max((load_state(file)[1]["session"] for file in states), default=0)

    reached = 0
    at = 1
    while True:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            fails[0] = at
            try:
                summary, _ = go(folder)
                break
            except SafeclError as error:
                assert "could not be written" in str(error) and "\n" not in str(error)
        if harm == "gone":
            aside.rename(folder) if not folder.exists() else None
        assert good() >= reached
        reached = good()
        at = at + 2
    if aside.exists():  # it went with the very last commit
        aside.rename(folder)
    assert summary["final"] == expected["final"] and reached >= 1
    assert losses(folder) == losses(tmp_path / "straight") and lines(folder) == lines(
        tmp_path / "straight"
    )


def test_a_folder_has_one_run_at_a_time(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    with claimed(tmp_path), raises("run.folder.busy"):
        go(tmp_path)
    go(tmp_path)
    assert (tmp_path / "lock").exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with raises("file.place.not-writable"):
        go(tmp_path / "run")


@pytest.mark.parametrize("name", ["safe", "ranpac", "finetune"])
def test_a_run_says_what_it_is_and_what_it_took(
    name: str, go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    _, method = go(tmp_path, name)
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (
        facts["method"] == name
        and facts["processes"] == 1
        and facts["libraries"]["torch"]
        and facts["hardware"]
    )
    for line in [
        json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]:
        seconds = line["seconds"]
        assert seconds["total"] == pytest.approx(
            seconds["fit"] + seconds["statistics"] + seconds["evaluate"]
        )
        assert seconds["fit"] == pytest.approx(sum(phase["seconds"] for phase in line["phases"]))
        assert line["peak_memory"] >= max([1, *(phase["peak_memory"] for phase in line["phases"])])
        assert line["bytes_kept"] >= line["parameters"]["stored"]  # a number takes a byte or more
    run = read_run(tmp_path)  # and a reader of the folder finds it all
    assert run.done == run.total == 3 and run.parameters.learnable == sum(
        p.numel() for p in method.parameters()
    )


def test_a_tracker_of_experiments_gets_losses_and_metrics(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    logged: list[tuple[int, dict[str, float]]] = []

    class Tracked(Accelerator):
        def log(self, values: Any, step: Any = None, log_kwargs: Any = None) -> None:
            logged.append((step, values))

    go(tmp_path, accelerator=Tracked(cpu=True))
    assert [step for step, _ in logged] == sorted(step for step, _ in logged)
    names = {name for _, values in logged for name in values}
    assert {
        "ranpac/loss",
        "ranpac/lr",
        "pooled/ranpac",
        "forgetting/ranpac",
        "peak_memory",
    } <= names
    assert all(isinstance(value, int | float) for _, values in logged for value in values.values())


@pytest.mark.parametrize("name", ["safe", "ranpac", "finetune"])
def test_the_accuracies_are_those_of_the_answers(
    name: str, go: Callable[..., tuple[Any, Method]], make_stream: MakeStream, tmp_path: Path
) -> None:
    summary, method = go(tmp_path, name)
    stream = make_stream(SESSIONS)
    accuracy: dict[str, list[float]] = {output: [] for output in method.outputs}
    counts = []
    for number in (1, 2, 3):
        test = stream.test(number)
        counts.append(len(test))
        answers = all_logits(method, test.plain(range(len(test)), stream.transform).float() / 255)
        for output, logits in answers.items():
            guesses = [method.classes[int(i)] for i in logits.argmax(dim=1)]
            accuracy[output].append(
                float(np.mean([a == b for a, b in zip(guesses, test.labels, strict=True)]))
            )
    last = lines(tmp_path)[-1]
    assert last["accuracy"] == accuracy and last["test_counts"] == counts
    for output in method.outputs:
        assert summary["final"][output] == pytest.approx(
            np.average(accuracy[output], weights=counts)
        )


def test_class_streams_are_tested_on_what_was_seen_and_domain_streams_on_every_domain(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    go(tmp_path / "class")
    assert [len(line["test_counts"]) for line in lines(tmp_path / "class")] == [1, 2, 3]
    go(tmp_path / "domain", sessions=[["a", "b"]] * 3, protocol="domain")
    assert [len(line["test_counts"]) for line in lines(tmp_path / "domain")] == [3, 3, 3]


# -- a run goes on with what it began with ---------------------------------------------------------


def stopped_after_one(
    go: Callable[..., tuple[Any, Method]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed in its second session."""
    real = RanPAC.learn

    def die(self: Any, session: Any, fit: Any) -> None:
        if session.number == 2:
            raise Killed
        real(self, session, fit)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RanPAC, "learn", die)
        go(folder)


@pytest.fixture(scope="module")
def begun(
    go: Callable[..., tuple[Any, Method]], tmp_path_factory: pytest.TempPathFactory
) -> dict[bool, Path]:
    """Two runs that began alike: finished, and stopped after one session."""
    folders = {finished: tmp_path_factory.mktemp("begun") for finished in (True, False)}
    go(folders[True])
    with pytest.MonkeyPatch.context() as patch:
        stopped_after_one(go, folders[False], patch)
    return folders


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sessions": [*SESSIONS, ["x"]]}, "other data: the class x is new and not learned;"),
        (
            {"sessions": [["a", "b"], ["x"], ["d", "a"]]},
            "the class x is new and not learned and the class c is gone;",
        ),
        (
            {"sessions": [["b", "a"], ["c"], ["d", "a"]]},
            "session 1 had the classes a, b and now has b, a",
        ),
        ({"sessions": SESSIONS[:2]}, "the class d is gone"),
        ({"sessions": [*SESSIONS, ["a"]]}, "3 sessions, and now there are 4"),
        (
            {"train": 4},
            "session 1 had 6 training pictures and now has 8, and the new ones were not learned;",
        ),
        ({"train": 2}, "session 1 had 6 training pictures and now has 4;"),
        ({"test": 3}, "session 1 had 4 test pictures and now has 6"),
        ({"seed": 1}, "training pictures of session 1 have changed"),
        ({"settings": {"train": {"epochs": 2}}}, "train.epochs=1 (now 2)"),
        ({"flip": 0.0}, "other views of the pictures: {"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
@pytest.mark.parametrize("finished", [False, True])
def test_other_data_or_settings_are_refused_and_the_run_stays_as_it_was(
    finished: bool,
    change: dict[str, Any],
    told: str,
    begun: dict[bool, Path],
    go: Callable[..., tuple[Any, Method]],
    tmp_path: Path,
) -> None:
    shutil.copytree(begun[finished], tmp_path, dirs_exist_ok=True)
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "lock"
    }
    with pytest.raises(SafeclError) as caught:
        go(tmp_path, **change)
    assert (
        told in str(caught.value)
        and "--folder" in str(caught.value)
        and "--fresh" in str(caught.value)
    )
    assert ("holds a finished run" if finished else "holds a run") in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before
    assert go(tmp_path)[0]["sessions"] == 3  # with what it began with it goes on


def test_other_weights_under_the_same_name_are_refused(
    go: Callable[..., tuple[Any, Method]],
    make_backbone: Callable[..., Backbone],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped_after_one(go, tmp_path, monkeypatch)
    with raises("run.folder.other-run", found=re.compile("other weights of tiny")):
        go(tmp_path, of=make_backbone(seed=1, depth=1))


def test_a_fresh_start_waits_for_its_claim_and_never_deletes_the_lock(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    go(tmp_path)
    states = sorted((tmp_path / "state").iterdir())
    with claimed(tmp_path), raises("run.folder.busy"):
        go(tmp_path, fresh=True)
    assert sorted((tmp_path / "state").iterdir()) == states and (tmp_path / "summary.json").exists()
    lock = (tmp_path / "lock").stat().st_ino
    notes = Notes()
    go(tmp_path, fresh=True, progress=notes)
    assert (tmp_path / "lock").stat().st_ino == lock and not any(
        "finished already" in text for text in notes.said
    )


def test_a_fresh_start_empties_a_run_and_nothing_else(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    go(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    go(tmp_path / "run", fresh=True)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with raises("run.folder.strangers"):
        go(tmp_path / "other", fresh=True)
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_the_predictions_of_the_last_session_are_kept_picture_by_picture(
    go: Callable[..., tuple[Any, Method]], make_stream: MakeStream, tmp_path: Path
) -> None:
    summary, method = go(tmp_path, "safe")
    found = [json.loads(text) for text in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    tests = [make_stream(SESSIONS).test(number) for number in (1, 2, 3)]
    assert [(line["session"], line["label"]) for line in found] == [
        (number, label) for number, test in enumerate(tests, 1) for label in test.labels
    ]
    for output in method.outputs:
        right = [line["predicted"][output] == line["label"] for line in found]
        assert np.mean(right) == pytest.approx(summary["final"][output])


def test_pictures_are_kept_by_chance_and_of_the_pairs_that_are_confused(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    class Rolled(RanPAC):
        """The index of every answer is one too high."""

        def answer(self, features: Any, *rest: Any) -> dict[str, Tensor]:
            return {"ranpac": super().answer(features, *rest)["ranpac"].roll(1, dims=1)}

    go(tmp_path, made=Rolled)
    found = json.loads((tmp_path / "examples.json").read_text())
    assert {example["why"] for example in found} == {"chance", "pair"}
    for example in found:
        assert (tmp_path / example["file"]).stat().st_size
        if example["why"] == "pair":
            assert example["predictions"]["ranpac"] != example["label"]


def test_the_weights_of_the_learners_are_kept_with_the_predictions(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    go(tmp_path / "safe", "safe")
    for text in (tmp_path / "safe" / "predictions.jsonl").read_text().splitlines():
        weights = json.loads(text)["weights"]
        assert weights.keys() == {"slow", "fast"} and sum(weights.values()) == pytest.approx(
            1, abs=1e-3
        )
    go(tmp_path / "ranpac")
    assert "weights" not in (tmp_path / "ranpac" / "predictions.jsonl").read_text()


def test_a_run_without_a_test_picture_has_no_accuracy(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    notes = Notes()
    summary, _ = go(tmp_path, test=0, progress=notes)
    assert summary["final"] == {"ranpac": None} and summary["average"] == {"ranpac": None}
    assert summary["test_pictures"] == 0 and (tmp_path / "predictions.jsonl").read_text() == ""
    told = [text for text in notes.said if text.startswith("Session")]
    assert len(told) == summary["sessions"] and all(
        "accuracy – on the test pictures" in text for text in told
    )
    assert not any("0.0" in text for text in notes.said)


def test_a_domain_stream_tells_both_accuracies(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    notes = Notes()
    go(tmp_path, sessions=[["a", "b"]] * 2, protocol="domain", progress=notes)
    told = [text for text in notes.said if text.startswith("Session")]
    assert len(told) == 2
    for text, line in zip(told, lines(tmp_path), strict=True):
        seen, pooled = (f"{100 * line[kind]['ranpac']:.1f} %" for kind in ("seen", "pooled"))
        assert (
            f"accuracy {seen} on the test pictures of the domains learned so far, {pooled} on all"
            in text
        )


def test_what_a_method_decides_is_noted_with_the_session(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    go(tmp_path / "safe", "safe", sessions=[["a", "b", "c", "d"], ["e"], ["f"]])
    first, *later = (line["notes"] for line in lines(tmp_path / "safe"))
    assert (
        first.keys() == {"pilots", "gain", "transfer", "kept", "untuned"}
        and first["pilots"] is True
    )
    for number, line in enumerate(later, 2):
        assert line.keys() == {"released", "average", *(["helps"] if first["untuned"] else [])}
        # Classes of one size: those of the session over all, and of that what pilots keep of a
        # tuning.
        assert line["average"] == pytest.approx(first["kept"] / (3 + number))
    go(tmp_path / "ranpac")
    assert not any("notes" in line for line in lines(tmp_path / "ranpac"))


def test_a_run_that_fails_keeps_its_sentence_until_it_is_started_again(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise SafeclError("package.says", sentence="The picture cat.png has gone.")

    with monkeypatch.context() as patch, pytest.raises(SafeclError):
        patch.setattr(RanPAC, "learn", fail)
        go(tmp_path)
    assert json.loads((tmp_path / "failed.json").read_text()) == {
        "error": "The picture cat.png has gone."
    }
    go(tmp_path)
    assert not (tmp_path / "failed.json").exists()
    with pytest.raises(SafeclError):  # a run that is refused has not failed
        go(tmp_path, seed=1)
    assert not (tmp_path / "failed.json").exists()


def test_a_run_that_goes_on_inside_a_session_says_at_once_where(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.optim.SGD.step
    steps = [0]

    def killed(self: Any, *arguments: Any) -> Any:
        steps[0] += 1
        if steps[0] == 4:  # two of session 1, and one of session 2
            raise Killed
        return real(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(torch.optim.SGD, "step", killed)
        go(tmp_path, "finetune", train=8, sessions=[["a"], ["b"]])
    notes = Notes()
    go(tmp_path, "finetune", train=8, sessions=[["a"], ["b"]], progress=notes)
    assert notes.said[0] == "Resuming in session 2 of 2."


def test_a_summary_that_is_damaged_is_computed_again(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    expected, _ = go(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    go(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["final"] == expected["final"]


def test_pictures_held_out_are_validated_after_every_session_and_never_trained_on(
    go: Callable[..., tuple[Any, Method]], tmp_path: Path
) -> None:
    summary, _ = go(tmp_path, train=4, held_out=0.25)
    found = [
        json.loads(text)["validation"]
        for text in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["counts"] for line in found] == [[2], [2, 1], [2, 1, 2]]
    assert summary["validation"]["final"] == found[-1]["pooled"]
    assert read_run(tmp_path).metrics[-1].validation is not None
    images = [
        json.loads(text)["phases"] for text in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert images[0][0]["images"] == 6  # of 8


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            lambda z: {"ranpac": z[:, :1]},
            r"Wrong.answer gives \(\d+, 1\) for ranpac, but there are .* 2 classes",
        ),
        (lambda z: {"RanPAC": z}, "gives RanPAC, but its outputs are ranpac"),
    ],
)
def test_logits_of_the_wrong_shape_or_name_are_refused(
    answer: Any, told: str, go: Any, tmp_path: Path
) -> None:
    class Wrong(RanPAC):
        def answer(self, features: Any, *rest: Any) -> dict[str, Tensor]:
            found: dict[str, Tensor] = answer(super().answer(features, *rest)["ranpac"])
            return found

    with pytest.raises(ValueError, match=told):
        go(tmp_path, made=Wrong)


def test_a_loss_without_names_is_refused(go: Any, tmp_path: Path) -> None:
    class Nameless(RanPAC):
        def learn(self, session: Any, fit: Any) -> None:
            fit("learner", self.learner, session, lambda batch: torch.zeros(()))

    with pytest.raises(TypeError, match="must give its terms by name"):
        go(tmp_path, made=Nameless)


def test_a_state_appears_when_what_it_waits_for_is_done_and_not_after_an_error(
    make_backbone: Callable[..., Backbone], tmp_path: Path
) -> None:
    method = make_method(
        method_settings()["ranpac"](ridge=RidgeSettings(size=8)), make_backbone(depth=1)
    )
    file = tmp_path / "state/session_0001.safetensors"
    file.parent.mkdir()
    with pytest.raises(ValueError, match="no"), States(tmp_path, {}) as states:
        states.begin(method, 1)
        raise ValueError("no")
    assert not list(file.parent.iterdir())
    with States(tmp_path, {}) as states:
        states.begin(method, 1)
        assert not file.exists()
        states.end()
    assert load_state(file)[1]["session"] == 1 and list(file.parent.iterdir()) == [file]


def test_a_state_that_is_still_being_written_is_the_one_before_the_next_session(
    make_backbone: Callable[..., Backbone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_method(
        method_settings()["ranpac"](ridge=RidgeSettings(size=8)), make_backbone(depth=1)
    )
    (tmp_path / "state").mkdir()
    go_on = threading.Event()
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    monkeypatch.setattr(folders, "encode", lambda *given: go_on.wait(20) and encode(*given))
    with States(tmp_path, {}) as states:
        states.begin(method, 1)
        states.end()  # does not wait for the disk
        with torch.no_grad():
            for tensor in method.state_dict().values():
                tensor.add_(1)
        method.classes.append("new")
        go_on.set()
    found, facts = load_state(tmp_path / "state/session_0001.safetensors")
    assert facts["classes"] == [] and all(
        torch.equal(found[name], tensor) for name, tensor in before.items()
    )


def test_a_full_disk_ends_the_run_at_the_next_state(
    make_backbone: Callable[..., Backbone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_method(
        method_settings()["ranpac"](ridge=RidgeSettings(size=8)), make_backbone(depth=1)
    )
    (tmp_path / "state").mkdir()

    def full(*_: Any, **__: Any) -> None:
        raise SafeclError("package.says", sentence="full")

    monkeypatch.setattr(folders, "write_bytes", full)
    with raises("package.says", sentence="full"), States(tmp_path, {}) as states:
        states.begin(method, 1)
        states.end()
        states.begin(method, 2)
    with raises("package.says", sentence="full"), States(tmp_path, {}) as states:
        states.begin(method, 1)
        states.end()
    assert not list((tmp_path / "state").iterdir())

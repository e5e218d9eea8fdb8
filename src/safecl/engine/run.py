"""A method over a stream, in one folder."""

import contextlib
import fcntl
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

import safecl
from safecl.engine.checkpoint import load_state, save_state, write_json, write_lines
from safecl.engine.examples import write_examples
from safecl.engine.feed import Feed
from safecl.engine.fit import Fitting, Stopped, TrainSettings
from safecl.engine.metrics import History
from safecl.engine.track import Tracker
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.streams.images import Transform
from safecl.streams.stream import Stream


def run(
    accelerator: Accelerator,
    method: Method,
    stream: Stream,
    train: TrainSettings,
    transform: Transform,
    seed: int,
    folder: Path,
    tracker: Tracker,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Learn every session of ``stream``, evaluate after each, and keep all that is needed to go on after a kill.

    Gives the summary. A folder that already holds part of this very run is continued; one that holds all of it is
    only read.
    """
    state = folder / "state"
    with _claimed(folder), _stoppable() as stop:
        state.mkdir(exist_ok=True)
        history = History(method.outputs)
        done = _restore(method, state, history, folder, tracker)
        if done == len(stream):
            tracker.say(f"{folder} is finished already: {done} sessions.")
            return history.summary()
        if done:
            tracker.say(f"Going on after session {done} of {len(stream)}.")
        write_json(folder / "facts.json", {**facts, **describe(accelerator, method, stream, seed)})
        fit = Fitting(accelerator, method, train, transform, seed, tracker, state, stop)
        fit.losses = _lines(folder / "losses.jsonl", done)
        for number in range(done + 1, len(stream) + 1):
            began = time.monotonic()
            fit.seconds, fit.pictures_seen = {"fit": 0.0, "features": 0.0}, 0
            session = stream.open(number)
            method.meet(session.classes)
            method.learn(session, fit)
            learned = time.monotonic()
            accuracy, counts = evaluate(method, stream, number, transform, fit, tracker)
            session.close()
            seconds = {
                "fit": fit.seconds["fit"],
                "statistics": learned - began - fit.seconds["fit"],
                "evaluate": time.monotonic() - learned,
                "total": time.monotonic() - began,
            }
            line = history.add(
                number,
                accuracy,
                counts,
                name=session.name,
                classes_seen=len(method.classes),
                seconds=seconds,
                pictures_per_second=fit.pictures_seen / max(fit.seconds["fit"], 1e-9),
                peak_memory=_peak_memory(accelerator.device),
                **method.facts(),
            )
            if accelerator.is_main_process:
                write_lines(folder / "metrics.jsonl", history.lines)
                write_lines(folder / "losses.jsonl", fit.losses)
                _keep(method, state, number)
            scores = "  ".join(f"{output} {line['pooled'][output]:.1%}" for output in method.outputs)
            tracker.say(f"Session {number} of {len(stream)}: {len(method.classes)} classes  {scores}")
            if stop():
                raise Stopped
        summary = history.summary()
        if accelerator.is_main_process:
            write_examples(folder, method, stream, transform, accelerator.device)
            write_json(folder / "summary.json", summary)
        return summary


@torch.no_grad()
def evaluate(
    method: Method, stream: Stream, upto: int, transform: Transform, fit: Fitting, tracker: Tracker
) -> tuple[dict[str, list[float]], list[int]]:
    """Accuracy by output on the test pictures of each session, and how many there are.

    Class-incremental: the sessions seen so far. Domain-incremental: every domain, those to come as well.
    """
    sessions = range(1, (len(stream) if stream.protocol == "domain" else upto) + 1)
    index = {label: i for i, label in enumerate(method.classes)}
    accuracy: dict[str, list[float]] = {output: [] for output in method.outputs}
    counts = [len(stream.test(i)) for i in sessions]
    method.eval()
    with tracker.phase(f"Session {upto}  evaluation", sum(counts)) as phase:
        for i in sessions:
            pictures = stream.test(i)
            targets = torch.tensor([index.get(label, -1) for label in pictures.labels], dtype=torch.long)
            found: dict[str, list[Tensor]] = {output: [] for output in method.outputs}
            mine = fit._share(len(pictures))
            for images in Feed(pictures, transform, method.backbone.device).plain(mine):
                for output, logits in method.all_logits(images).items():
                    found[output].append(logits.argmax(dim=1))
                phase.advance(len(images))
            for output, chunks in found.items():
                guesses = fit._gather(torch.cat(chunks), len(pictures)).cpu() if chunks else targets[:0]
                right = (guesses == targets).sum().item() if len(targets) else 0
                accuracy[output].append(right / max(len(targets), 1))
    return accuracy, counts


def describe(accelerator: Accelerator, method: Method, stream: Stream, seed: int) -> dict[str, Any]:
    """What a reader of the folder will want to know of where its numbers come from."""
    sessions = [{"name": name, "classes": list(classes)} for name, classes in stream.sessions]
    return {
        "version": safecl.__version__,
        "method": method.name,
        "main": method.outputs[-1],
        "outputs": list(method.outputs),
        "stream": {"name": stream.name, "protocol": stream.protocol, "sessions": sessions},
        "backbone": {"name": method.backbone.name, "width": method.backbone.width, "size": method.backbone.size},
        "seed": seed,
        "device": str(accelerator.device),
        "processes": accelerator.num_processes,
        "hardware": _hardware(accelerator.device),
        "libraries": {"python": platform.python_version(), "torch": torch.__version__},
        "git": _revision(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _keep(method: Method, state: Path, number: int) -> None:
    """Save the state after a session; only then is what it replaces thrown away."""
    file = state / f"session_{number:04d}.safetensors"
    save_state(file, method.state_dict(), {"session": number, "classes": method.classes})
    older = sorted(state.glob("session_*.safetensors"))[:-2]  # the one before stays, should this one be damaged
    for stale in [*older, *state.glob(f"fit_{number}_*.safetensors"), *state.glob(".*.part")]:
        stale.unlink(missing_ok=True)


def _restore(method: Method, state: Path, history: History, folder: Path, tracker: Tracker) -> int:
    """Load the newest good state; gives the number of its session, 0 if there is none."""
    for file in sorted(state.glob("session_*.safetensors"), reverse=True):
        try:
            tensors, facts = load_state(file)
            lines = _lines(folder / "metrics.jsonl", facts["session"])
            if len(lines) < facts["session"]:
                raise SafeclError(f"{folder / 'metrics.jsonl'} lacks sessions that {file.name} has learned.")
        except SafeclError as error:
            tracker.say(f"{error} The state before it is used.")
            continue
        method.restore(tensors, facts["classes"])
        history.lines = lines
        return int(facts["session"])
    return 0


def _lines(path: Path, upto: int) -> list[dict[str, Any]]:
    """The lines of sessions up to ``upto``; a torn last line is left out."""
    found = []
    for text in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if line["session"] <= upto:
                found.append(line)
    return found


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """One run a folder at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise SafeclError(f"The run folder {folder} cannot be written ({error.strerror}).") from error
    with file:
        try:
            # Processes of one distributed run share the folder; only the first of them claims it.
            if int(os.environ.get("RANK", "0")) == 0:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SafeclError(f"Another run is using {folder}; wait for it, or choose another folder.") from error
        yield


@contextlib.contextmanager
def _stoppable() -> Iterator[Any]:
    """SIGINT and SIGTERM ask the run to save and stop; a second one stops it at once."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever started it decides
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def _revision() -> str | None:
    """The git revision of the working folder, if it is one."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        return answer.stdout.strip()
    return None

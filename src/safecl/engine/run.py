"""A method over a stream, in one folder."""

import contextlib
import time
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from safecl.engine.checkpoint import append_lines, read_lines, write_json, write_lines
from safecl.engine.evaluate import evaluate
from safecl.engine.examples import write_examples
from safecl.engine.facts import describe, owner, sizes
from safecl.engine.fit import Fitting, TrainSettings
from safecl.engine.folder import claimed, keep_state, newest_state, tidy
from safecl.engine.metrics import History
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress, Quiet
from safecl.engine.stop import stoppable
from safecl.errors import Stopped
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
    progress: Progress,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Learn every session of ``stream``, evaluate after each, and keep all that is needed to go on after a kill.

    Gives the summary. A folder that already holds part of this very run is continued; one that holds all of it is
    only read. Of several processes only the main one touches the folder.
    """
    processes, history, who = Processes(accelerator), History(method.outputs), owner(method, stream, seed)
    progress = progress if processes.main else Quiet()
    with contextlib.ExitStack() as stack:
        processes.once(lambda: stack.enter_context(claimed(folder)))
        stop = stack.enter_context(stoppable())
        names = set(method.state_dict())
        state = processes.once(lambda: newest_state(folder, who, names, progress.say))
        if state is not None:
            method.restore(state[0], state[1]["classes"])
            history.lines = state[2]
        done = len(history.lines)
        if done == len(stream) and processes.once(lambda: (folder / "summary.json").exists()):
            progress.say(f"{folder} is finished already: {done} sessions.")
            return history.summary()
        if done:
            progress.say(f"Going on after session {done} of {len(stream)}.")
        known = {**facts, **describe(processes, method, stream, seed)}
        processes.once(lambda: _prepare(folder, known, history))
        fit = Fitting(accelerator, method, train, transform, seed, progress, folder / "state", stop)
        fit.steps = history.lines[-1]["steps"] if done else 0
        for number in range(done + 1, len(stream) + 1):
            line = _learn(method, stream, number, fit, history)

            def write(line: dict[str, Any] = line, number: int = number) -> None:
                append_lines(folder / "losses.jsonl", fit.losses)
                write_lines(folder / "metrics.jsonl", history.lines)
                write_json(folder / "facts.json", {**known, "parameters": line["parameters"]})
                keep_state(folder, method, number, who)

            processes.once(write)
            fit.forget()
            accelerator.log(_flat(line), step=fit.steps)
            scores = "  ".join(f"{output} {line['pooled'][output]:.1%}" for output in method.outputs)
            progress.say(f"Session {number} of {len(stream)}: {len(method.classes)} classes  {scores}")
            if processes.any(stop()) and number < len(stream):
                raise Stopped
        summary = history.summary()
        processes.once(lambda: write_examples(folder, method, stream, transform, processes.device))
        processes.once(lambda: write_json(folder / "summary.json", summary))
        return summary


def _learn(method: Method, stream: Stream, number: int, fit: Fitting, history: History) -> dict[str, Any]:
    """Learn one session and test; gives its line of the metrics."""
    began = time.monotonic()
    session = stream.open(number)
    method.register_classes(session.classes)
    method.learn(session, fit)
    learned = time.monotonic()
    accuracy, counts = evaluate(method, stream, number, fit)
    session.close()
    fit.measure()
    fitted, images = sum(phase["seconds"] for phase in fit.phases), sum(phase["images"] for phase in fit.phases)
    seconds = {
        "fit": fitted,
        "statistics": learned - began - fit.spent,
        "evaluate": time.monotonic() - learned,
    }
    return history.add(
        number,
        accuracy,
        counts,
        name=session.name,
        classes_seen=len(method.classes),
        steps=fit.steps,
        seconds={**seconds, "total": sum(seconds.values())},
        phases=fit.phases,
        images_per_second=images / fitted if fitted else None,
        peak_memory=fit.peak,
        parameters=sizes(method),
        **method.facts(),
    )


def _prepare(folder: Path, facts: dict[str, Any], history: History) -> None:
    """Say what the run is, and take out what a killed process left that does not count any more."""
    tidy(folder, len(history.lines))
    write_json(folder / "facts.json", facts)
    losses = folder / "losses.jsonl"
    if losses.exists():
        write_lines(losses, read_lines(losses, len(history.lines)))


def _flat(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a session that a tracker can draw."""
    kinds = ("pooled", "task_mean", "forgetting", "seconds")
    values = {f"{kind}/{key}": value for kind in kinds for key, value in line[kind].items()}
    return {**values, "peak_memory": line["peak_memory"], "bytes_kept": line["bytes_kept"]}

"""A method over a stream, in one folder."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from safecl.atomic import append_lines, read_json, read_lines, write_json, write_lines
from safecl.engine import folder as folders
from safecl.engine.evaluate import Answers, evaluate
from safecl.engine.examples import write_examples
from safecl.engine.facts import describe, footprint, sizes
from safecl.engine.fit import Trainer
from safecl.engine.identity import identity
from safecl.engine.learn import learn
from safecl.engine.metrics.history import History
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress
from safecl.engine.settings import TrainSettings
from safecl.engine.stop import stoppable
from safecl.errors import Stopped
from safecl.lines import counted
from safecl.methods.method import Method, restore
from safecl.settings import flatten
from safecl.streams.stream import Session, Stream

# Of a session's numbers, what experiment trackers get.
LOGGED = ("pooled", "seen", "task_mean", "forgetting", "seconds", "peak_memory", "bytes_kept")


def run(
    method: Method,
    stream: Stream,
    folder: Path,
    *,
    accelerator: Accelerator,
    train: TrainSettings,
    seed: int = 0,
    progress: Progress | None = None,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    fresh: bool = False,
    metrics: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Learn every session of ``stream``, evaluate after each, and keep all that is needed to go on
    after a kill.

    Gives the summary. A folder that already holds part of this very run is continued; one that
    holds all of it is only read; one that holds another run is refused, unless ``fresh``: then it
    is emptied first.

    ``settings``: what the method was made from; with data and weights they say which run this is.
    ``facts``: notes for facts.json. ``metrics``: see ``History``.
    """
    processes = Processes(accelerator)
    progress = progress if progress is not None and processes.main else Progress()
    known = {
        "method": method.settings.model_dump(mode="json"),
        "train": train.model_dump(mode="json"),
        "seed": seed,
    }
    this = identity({**flatten(known), **flatten(settings or {})}, method.backbone, stream)
    with contextlib.ExitStack() as stack:
        processes.once(lambda: stack.enter_context(folders.claimed(folder)))
        if fresh:
            processes.once(lambda: folders.clear(folder))
        processes.once(lambda: folders.begin(folder, this, settings or {}))
        if processes.main:
            stack.enter_context(folders.noting_failure(folder))
        stop = stack.enter_context(stoppable())
        state, lines = processes.once(
            lambda: folders.restore_newest(folder, this, method, progress.say)
        )
        if state and not processes.main:
            restore(method, state["tensors"], state["classes"])
        history = History(method.outputs, lines, metrics)
        done = len(lines)
        del state
        if done == len(stream) and processes.once(
            lambda: read_json(folder / "summary.json") is not None
        ):
            progress.say(f"{folder} is finished already: {done} sessions; --fresh runs it again.")
            return history.summary()
        about = {**(facts or {}), **describe(processes, method, stream, seed)}
        if where := processes.once(lambda: _prepare(folder, about, lines, len(stream))):
            progress.say(where)
        fit = Trainer(
            accelerator, method, train, stream.transform, seed, progress, folder / "state", stop
        )
        fit.steps = lines[-1]["steps"] if done else 0
        for line in lines:
            fit.drawn(line["session"], line.get("draws", []))
        answers = None
        states = stack.enter_context(folders.States(folder, this))
        for number in range(done + 1, len(stream) + 1):
            notes = learn(method, session := stream.open(number), fit)
            processes.once(partial(states.begin, method, number, [*history.lines]))
            line, answers = _tested(method, stream, session, notes, fit, history)
            line[folders.CHECK] = states.check(history.lines)
            processes.once(partial(append_lines, folder / "losses.jsonl", fit.losses))
            processes.once(partial(append_lines, folder / "metrics.jsonl", [line]))
            # last: a kill before it repeats the session, and nothing else
            processes.once(states.end)
            chosen = flatten({kind: line[kind] for kind in LOGGED})
            logged = {
                key.replace(".", "/"): value for key, value in chosen.items() if value is not None
            }
            accelerator.log(logged, step=fit.steps)
            progress.say(f"Session {number} of {len(stream)}: {_scores(line, stream, method)}")
            if processes.any(stop()) and number < len(stream):
                raise Stopped
        if answers is None:  # an earlier process learned the last session
            fit.begin(len(stream))
            answers = evaluate(
                method, [stream.test(i) for i in stream.tested(len(stream))], fit, "evaluation"
            )
        summary = history.summary()
        processes.once(states.wait)
        processes.once(lambda: _finish(folder, answers, stream, summary))
        return summary


def _finish(folder: Path, answers: Answers, stream: Stream, summary: dict[str, Any]) -> None:
    """Write what the page of the run shows; the summary comes last and says that the run is
    finished.
    """
    answers.write(folder / "predictions.jsonl")
    write_examples(folder, answers, stream.transform)
    write_json(folder / "summary.json", summary)


def _tested(
    method: Method,
    stream: Stream,
    session: Session,
    notes: dict[str, Any],
    fit: Trainer,
    history: History,
) -> tuple[dict[str, Any], Answers]:
    """Test after a session, which took what ``notes`` say; gives its line of the metrics and the
    answers.
    """
    number = session.number
    before = time.monotonic()
    answers = evaluate(method, [stream.test(i) for i in stream.tested(number)], fit, "evaluation")
    validation = [stream.validation(i) for i in stream.tested(number)]
    checked = evaluate(method, validation, fit, "validation") if any(map(len, validation)) else None
    seconds = {**notes.pop("seconds"), "evaluate": time.monotonic() - before}
    times = {**seconds, "total": sum(seconds.values())}
    about = {"name": session.name, "classes_seen": len(method.classes), "seconds": times, **notes}
    about |= {"peak_memory": fit.peak, "parameters": sizes(method), **footprint(method)}
    scores = (checked.accuracy(), checked.counts) if checked else None
    said = {
        output: (answers.targets, found, answers.confidence[output])
        for output, found in answers.predicted.items()
    }
    learned = len(stream.brought(number))
    line = history.add(answers.accuracy(), answers.counts, learned, scores, said, **about)
    return line, answers


def _scores(line: Mapping[str, Any], stream: Stream, method: Method) -> str:
    """The accuracy after a session, of a domain-incremental stream on what was learned and on all;
    of parts, too.
    """

    def scores(kind: str) -> list[str]:
        return ["–" if value is None else f"{100 * value:.1f} %" for value in line[kind].values()]

    domain = stream.protocol == "domain"
    *parts, own = scores("seen" if domain else "pooled")  # the method's own answer comes last
    named = ", ".join(f"{name} {part}" for name, part in zip(method.outputs, parts, strict=False))
    known = f"{method.settings.title} knows {counted(line['classes_seen'], 'class', 'classes')}"
    where = f" of the domains learned so far, {scores('pooled')[-1]} on all" if domain else ""
    return f"{known}, accuracy {own} on the test pictures{where}{f' ({named})' if named else ''}"


def _prepare(folder: Path, facts: Mapping[str, Any], lines: folders.Lines, sessions: int) -> str:
    """Remove what a killed process left of the session after the last state; gives where the run
    resumes, in words.

    ``lines``: the metrics of the sessions that are done.
    """
    done = len(lines)
    folders.tidy(folder, done, *folder.glob(".*.part"), *folder.glob("state/.*.part"))
    write_json(folder / "facts.json", facts)
    losses = folder / "losses.jsonl"
    for file, kept in ((losses, read_lines(losses, done)), (folder / "metrics.jsonl", lines)):
        if file.exists():
            write_lines(file, kept)
    if done == sessions:
        return f"Resuming after session {done} of {sessions}, the last one."
    begun = done or any((folder / "state").glob("fit_*_*.safetensors"))
    return f"Resuming in session {done + 1} of {sessions}." if begun else ""

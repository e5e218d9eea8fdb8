"""The process that changes model files, one job at a time: python -m safecl.serve.learner DEVICE.

A line in: a job to do, or the wish to stop it. Lines out: how far it is, and last what came of it. It ends when the
other side of its standard input does; being killed at any instant leaves the old model or the new one.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from safecl.atomic import write_json
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.store import ModelFile
from safecl.engine.progress import Phase, Progress
from safecl.errors import Busy, SafeclError, Stopped
from safecl.lines import counted
from safecl.outputs import locked
from safecl.serve.about import answer_of
from safecl.serve.limits import OURS
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.load import readers

EFFECT = "effect.json"  # in the folder of a job: what it is about to make of the model
EVERY = 0.1  # seconds between two lines on progress
SHARE = 0.5  # of what is left that a phase is taken for: how many there will be is not known


class Told(Progress):
    """Progress that is told to the service. What a phase adds is a share of what was left before it."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell, self.done, self.last = tell, 0.0, 0.0

    def say(self, text: str) -> None:
        self.tell(said=text)

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        before = self.done

        def show(phase: Phase) -> None:
            self.done = before + (1 - before) * SHARE * min(phase.done / max(phase.total, 1), 1.0)
            now = time.monotonic()
            if now - self.last >= EVERY:
                self.last = now
                left = (now - phase.started) * (phase.total - phase.done) / max(phase.done - phase.skipped, 1)
                self.tell(progress=round(self.done, 3), seconds_left=round(left, 1), said=title)

        yield Phase(title, total, done, show)
        self.done = before + (1 - before) * SHARE


def _free(path: str, stop: Callable[[], bool]) -> tuple[ExitStack, Path]:
    """What holds the lock of a model, as soon as no other command changes it, and the file."""
    while not stop():
        held = ExitStack()
        try:
            return held, held.enter_context(locked(path))
        except Busy:
            time.sleep(EVERY)
    raise Stopped


class Learner:
    """Does jobs; the backbone stays loaded between them."""

    def __init__(self, device: Any) -> None:
        self.device, self._loaded = device, None

    def do(self, job: dict[str, Any], tell: Callable[..., None], stop: Callable[[], bool]) -> dict[str, Any]:
        """``job``: its own facts, the ``path`` of the model and the ``folder`` of its pictures; gives what came of it.

        Before the model is written, what the job is about to make of it is: the ids of the steps that it adds and takes
        back. So a job that was killed in between is not done twice.
        """
        folder = Path(job["folder"])
        held, file = _free(job["path"], stop)
        with held:
            steps = {entry["id"] for entry in ModelFile(file).header["history"]}
            if (effect := folder / EFFECT).exists():
                outcome = dict(json.loads(effect.read_bytes()))
                if steps.issuperset(outcome["made"]) and steps.isdisjoint(outcome["gone"]):
                    return outcome
            model = ContinualClassifier.load(file, device=self.device)
            model._loaded = self._loaded
            files = [File.at(folder / f"{i:05d}") for i in range(job["pictures"])]
            pictures = FilePictures(files, job["labels"] or [""] * len(files))
            outcome, now = self._done(model, job, pictures, tell, stop), {entry["id"] for entry in model.history_}
            if job["what"] != "queue":
                outcome |= {"made": sorted(now - steps), "gone": sorted(steps - now)}
                write_json(effect, outcome)
                model.save(file)
            self._loaded = model._loaded
            return outcome

    def _done(
        self, model: ContinualClassifier, job: dict[str, Any], pictures: FilePictures, tell: Any, stop: Any
    ) -> dict[str, Any]:
        what, told = job["what"], dict[str, Any](said=None, result={})
        if what == "queue":
            first = [
                (one.index, one.worth, answer_of(one.answer, False)) for one in model.queue(pictures, job["count"])
            ]
            keys = ("index", "worth", "answer")
            return {**told, "result": {"first": [dict(zip(keys, one, strict=True)) for one in first]}}
        if what == "rollback":
            told["said"] = model.rollback()
        elif what == "correct":
            told["said"] = model.correct(pictures, pictures.labels)
        else:
            work = Path(job["folder"], "work")
            with ThreadPoolExecutor(1, initializer=give_way) as pool:
                learn = partial(model.learn, pictures, name=job["name"], progress=Told(tell), folder=work, stop=stop)
                lesson = pool.submit(learn).result()
            told["result"] = {
                key: getattr(lesson, key) for key in ("pictures", "skipped", "new", "accuracy", "warnings")
            }
            told["said"] = f"Learned {counted(lesson.pictures, 'picture')} of {counted(len(lesson.classes), 'class')}."
        return told


def give_way() -> None:
    """Answers come before lessons; a person waits for a correction. On Linux each thread has a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def main(device: str) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints
    orders, unwanted = queue.Queue[dict[str, Any]](), set[str]()

    def hear() -> None:
        for line in sys.stdin:
            order = json.loads(line)
            unwanted.add(order["stop"]) if "stop" in order else orders.put(order)
        os._exit(0)

    def tell(folder: str = "", **facts: Any) -> None:
        text = json.dumps(facts)  # in which no path is of use to who reads it
        try:
            print(text.replace(f"{folder}/", "picture ") if folder else text, file=out, flush=True)
        except OSError:  # nobody hears
            os._exit(0)

    threading.Thread(target=hear, daemon=True).start()
    torch.set_num_threads(readers())
    learner = Learner(device)
    tell(ready=True)
    while True:
        job = orders.get()
        try:
            tell(job["folder"], end="done", **learner.do(job, tell, partial(unwanted.__contains__, job["id"])))
        except Stopped:
            tell(end="stopped")
        except (SafeclError, OSError) as error:
            tell(job["folder"], end="failed", error=str(error))
        except Exception:
            traceback.print_exc()
            tell(end="failed", error=OURS)


if __name__ == "__main__":
    main(sys.argv[1])

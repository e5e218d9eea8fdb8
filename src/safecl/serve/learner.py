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
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from safecl.atomic import write_json
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.history import CORRECTIONS, as_label
from safecl.classifier.store import ModelFile
from safecl.engine.progress import Phase, Progress
from safecl.errors import SafeclError, Stopped
from safecl.lines import counted
from safecl.outputs import locked
from safecl.serve.about import answer_of
from safecl.streams.labels import Label
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.load import readers

EFFECT = "effect.json"  # in the folder of a job: what it is about to make of the model
OURS = "The job failed for a reason that is safecl's own; the log of the service has it."
EVERY = 0.1  # seconds between two lines on progress
SHARE = 0.5  # of what is left that a phase is taken for: how many there will be is not known


class Told(Progress):
    """Progress that is told to the service. What a phase adds is a share of what was left before it."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell, self.done, self.last, self.began = tell, 0.0, 0.0, time.monotonic()

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


class Learner:
    """Does jobs; the backbone stays loaded between them."""

    def __init__(self, device: Any) -> None:
        self.device, self._loaded = device, None

    def do(self, job: dict[str, Any], tell: Callable[..., None], stop: Callable[[], bool]) -> dict[str, Any]:
        """``job``: its own facts, the ``path`` of the model and the ``folder`` of its pictures; gives what came of it.

        Before the model is written, what the job is about to make of it is: the number of the step that it adds or
        takes back. So a job that was killed in between is not done twice.
        """
        with locked(job["path"]) as file:
            effect, what = Path(job["folder"], EFFECT), job["what"]
            if effect.exists() and (done := _done(json.loads(effect.read_bytes()), file)) is not None:
                return done
            model = ContinualClassifier.load(file, device=self.device)
            model._loaded = self._loaded
            files = [File.at(Path(job["folder"], f"{i:05d}")) for i in range(job["pictures"])]
            labels = [_label(model, label) for label in job["labels"]]
            pictures = FilePictures(files, labels or [""] * len(files))  # type: ignore[arg-type]
            if what == "queue":
                first = model.queue(pictures, job["count"])
                found = [
                    {"index": one.index, "worth": one.worth, "answer": answer_of(one.answer, False)} for one in first
                ]
                outcome: dict[str, Any] = {"said": None, "result": {"first": found}}
            else:
                outcome = self._change(model, job, pictures, labels, tell, stop)
                write_json(effect, outcome)
                model.save(file)
            self._loaded = model._loaded
            return outcome

    def _change(
        self,
        model: ContinualClassifier,
        job: dict[str, Any],
        pictures: FilePictures,
        labels: list[Label | None],
        tell: Callable[..., None],
        stop: Callable[[], bool],
    ) -> dict[str, Any]:
        if job["what"] == "rollback":
            steps = [one for one in model.history_ if one["what"] in ("learn", *CORRECTIONS)]
            model.rollback()
            known = counted(len(model.classes_), "class")
            said = f"The model is as it was before {steps[-1]['name']!r}; it knows {known}."
            return {"gone": steps[-1]["id"], "said": said, "result": {}}
        if job["what"] == "correct":
            said, result = model.correct(pictures, labels), {}
        else:
            work = Path(job["folder"], "work")
            lesson = model.learn(pictures, name=job["name"], progress=Told(tell), folder=work, stop=stop)
            result = {key: getattr(lesson, key) for key in ("pictures", "skipped", "new", "accuracy", "warnings")}
            said = f"Learned {counted(lesson.pictures, 'picture')} of {counted(len(lesson.classes), 'class')}."
        return {"made": model.history_[-1]["id"], "said": said, "result": result}


def _done(effect: dict[str, Any], file: Path) -> dict[str, Any] | None:
    """What a job was about to do, if that is what the model says."""
    steps = {entry["id"] for entry in ModelFile(file).header["history"]}
    there = effect["made"] in steps if "made" in effect else effect["gone"] not in steps
    return effect if there else None


def _label(model: ContinualClassifier, label: Label | None) -> Label | None:
    return as_label(model._fitted.header, label) if isinstance(label, str) else label


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
        print(text.replace(f"{folder}/", "picture ") if folder else text, file=out, flush=True)

    threading.Thread(target=hear, daemon=True).start()
    torch.set_num_threads(max(readers() - max(readers() // 2, 1), 1))  # beside those that answer
    with suppress(OSError, AttributeError):
        os.nice(5)  # answers come first
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

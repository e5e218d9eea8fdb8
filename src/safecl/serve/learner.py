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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from safecl.atomic import write_json
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.state import grams_of
from safecl.classifier.store import ModelFile
from safecl.engine.progress import Phase, Progress
from safecl.errors import Busy, SafeclError, Stopped
from safecl.lines import counted
from safecl.outputs import locked
from safecl.serve.about import answer_of
from safecl.serve.decoding import Decoders
from safecl.serve.limits import MAX_WAITING, OURS, check_step
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.load import readers

EFFECT = "effect.json"  # in the folder of a job: what it is about to make of the model
EVERY = 0.1  # seconds between two lines on progress
SHARE = 0.5  # of what is left that a phase is taken for: how many there will be is not known


@dataclass(eq=False, repr=False)
class Sent(FilePictures):
    """Pictures that were sent, decoded by processes with little memory; ``looked``: is called after each."""

    decoders: Decoders
    looked: Callable[[], None] = lambda: None

    def reduced(self, index: int, least: int | None = None) -> Image.Image:
        (found,) = self.decoders.submit([self.read(index)], least or 0, 0).result()
        self.looked()
        if isinstance(found, str):
            raise UnreadableError(self.where(index), found)
        return Image.fromarray(found)


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


class Learner:
    """Does jobs; the backbone and the model of the last one stay loaded, and so do the processes that decode."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._loaded: Any = None
        self.last: tuple[Path, ContinualClassifier] | None = None  # as that file holds it
        self._decoders = behind(partial(Decoders, min(readers(), 2), MAX_WAITING))

    def warm(self, path: Path) -> None:
        """Have at hand what the first correction needs; what fails here fails again in a job, which says so."""
        with suppress(Exception):
            made = (model := self._opened(path))._fitted
            made.grams = grams_of(made.method(model._backbone(), learning=True))
            self.last, self._loaded = (path, model), model._loaded

    def do(self, job: dict[str, Any], tell: Callable[..., None], stop: Callable[[], bool]) -> dict[str, Any]:
        """``job``: its own facts, the ``path`` of the model and the ``folder`` of its pictures; gives what came of it.

        Before the model is written, what the job is about to make of it is: the id of the step that it adds or takes
        back. So a job that was killed in between is not done twice.
        """
        path, effect, back = Path(job["path"]), Path(job["folder"], EFFECT), job["what"] == "rollback"
        if effect.exists():
            outcome = dict(json.loads(effect.read_bytes()))
            if any(entry["id"] == outcome["step"] for entry in ModelFile(path).header["history"]) is not back:
                return outcome
        if stop():
            raise Stopped
        with locked(path) as file:
            if back:
                check_step(ModelFile(file).header, job["step"])
            model = self._opened(file)
            outcome = self._done(model, job, tell, stop)
            if job["what"] != "queue":
                outcome["step"] = job["step"] or model.history_[-1]["id"]
                write_json(effect, outcome)
                model.save(file)
            self.last, self._loaded = (file, model), model._loaded
            return outcome

    def _opened(self, file: Path) -> ContinualClassifier:
        """The model in ``file``: that of the last job, if nothing else has changed the file since."""
        (last, model), self.last = self.last or (None, None), None  # a job that fails may leave it half changed
        found = ModelFile(file)
        if model is None or last != file or model._known.get(file.resolve()) != found.digest:
            model = ContinualClassifier.load(found, device=self.device)
            model._loaded = self._loaded
        return model

    def _done(self, model: ContinualClassifier, job: dict[str, Any], tell: Any, stop: Any) -> dict[str, Any]:
        files = [File.at(Path(job["folder"], f"{i:05d}")) for i in range(job["pictures"])]
        pictures, shown = Sent(files, job["labels"] or [""] * len(files), decoders=self._decoders), Told(tell)
        if job["what"] == "rollback":
            return {"said": model.rollback()}
        if job["what"] == "learn":
            work = Path(job["folder"], "work")
            lesson = behind(partial(model.learn, pictures, name=job["name"], progress=shown, folder=work, stop=stop))
            said = f"Learned {counted(lesson.pictures, 'picture')} of {counted(len(lesson.classes), 'class')}."
            keys = ("pictures", "skipped", "new", "accuracy", "warnings")
            return {"said": said, "result": {key: getattr(lesson, key) for key in keys}}
        with shown.phase("Looking at the pictures", len(files)) as phase:
            pictures.looked = phase.advance
            if job["what"] == "correct":
                return {"said": model.correct(pictures, pictures.labels)}
            first = model.queue(pictures, job["count"])
            told = [{"index": i.index, "worth": i.worth, "answer": answer_of(i.answer, False)} for i in first]
            return {"result": {"first": told}}


def behind(call: Callable[[], Any]) -> Any:
    """Make a call that gives way to answers, as a correction does not, for which a person waits."""

    def give_way() -> None:
        if sys.platform == "linux":  # where each thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)

    with ThreadPoolExecutor(1, initializer=give_way) as pool:
        return pool.submit(call).result()


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
        text = json.dumps(facts)
        for path, name in ((folder, "picture "), (Path(folder).parents[1], "")) if folder else ():
            text = text.replace(json.dumps(f"{path}/")[1:-1], name)  # no folder is of use to who reads it
        try:
            print(text, file=out, flush=True)
        except OSError:  # nobody hears
            os._exit(0)

    threading.Thread(target=hear, daemon=True).start()
    torch.set_num_threads(readers())
    learner = Learner(device)
    while True:
        if "warm" in (job := orders.get()):
            behind(partial(learner.warm, Path(job["warm"])))
            continue
        try:
            tell(job["folder"], end="done", **learner.do(job, tell, partial(unwanted.__contains__, job["id"])))
        except Busy:  # another command changes the model
            time.sleep(EVERY)
            orders.put(job)
        except Stopped:
            tell(end="stopped")
        except SafeclError as error:
            tell(job["folder"], end="failed", error=str(error))
        except OSError as error:
            tell(end="failed", error=f"The job could not be done ({error.strerror or error}).")
        except Exception:
            traceback.print_exc()
            tell(end="failed", error=OURS)


if __name__ == "__main__":
    main(sys.argv[1])

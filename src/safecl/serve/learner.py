"""The process that changes model files, one job at a time: python -m safecl.serve.learner DEVICE.

A line in: a job to do, or the wish to stop it. Lines out: how far it is, and last what came of it.
It ends when the other side of its standard input does; being killed at any instant leaves the old
model or the new one.
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
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from safecl.atomic import write_json
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.edits.steps import ready
from safecl.classifier.model import Model
from safecl.classifier.modelfile.store import ModelFile
from safecl.classifier.teach import Lesson
from safecl.engine.progress import Phase, Progress
from safecl.errors import Busy, SafeclError, Stopped
from safecl.lines import as_json, counted
from safecl.outputs import locked
from safecl.serve.about import answer_of
from safecl.serve.decoding import Decoders
from safecl.serve.jobs import EXPORT
from safecl.serve.limits import MAX_WAITING, OURS, check_step
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.load import readers

EFFECT = "effect.json"  # in the folder of a job: what it is about to make of the model
EVERY = 0.1  # seconds between two lines on progress
MAX_QUICK = 20  # pictures of a correction that is answered at once
SHARE = 0.5  # of what is left that a phase is taken for: how many there will be is not known


@dataclass(eq=False, repr=False)
class Sent(FilePictures):
    """Pictures that were sent, decoded by processes with little memory; ``looked``: is called after
    each.
    """

    decoders: Decoders
    looked: Callable[[], None] = lambda: None

    def reduced(self, index: int, least: int | None = None) -> Image.Image:
        (found,) = self.decoders.submit([self.read(index)], least or 0, 0).result()
        self.looked()
        if isinstance(found, str):
            raise UnreadableError(self.where(index), found)
        return Image.fromarray(found)


class Told(Progress):
    """Progress that is told to the service. What a phase adds is a share of what was left before
    it.
    """

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell = tell
        self.done = 0.0
        self.last = 0.0

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
                left = (
                    (now - phase.started)
                    * (phase.total - phase.done)
                    / max(phase.done - phase.skipped, 1)
                )
                self.tell(progress=round(self.done, 3), seconds_left=round(left, 1), said=title)

        yield Phase(title, total, done, show)
        self.done = before + (1 - before) * SHARE


class Learner:
    """Does jobs; the backbone and the model of the last one stay loaded, and so do the processes
    that decode.
    """

    def __init__(self, device: Any, niceness: int = 0) -> None:
        self.device = device
        self.niceness = niceness  # of training
        self._loaded: Any = None
        self.last: tuple[Path, ContinualClassifier] | None = None  # as that file holds it
        self._decoders = make_decoders()

    def warm(self, path: Path) -> None:
        """Have at hand what the first correction needs; what fails here fails again in a job, which
        says so.
        """
        with suppress(Exception):
            made = (model := self._opened(path))._fitted  # what is not there yet has none
            made.warm = ready(made.at_hand(model._backbone()))
            self.last = (path, model)
            self._loaded = model._loaded

    def do(
        self, job: dict[str, Any], tell: Callable[..., None], stop: Callable[[], bool]
    ) -> dict[str, Any]:
        """``job``: its own facts, the ``path`` of the model and the ``folder`` of its pictures;
        gives what came of it.

        Before the model is written, what the job is about to make of it is: the id of the step that
        it adds or takes back. So a job that was killed in between is not done twice. A model that
        answers before it is tuned is written twice.
        """
        path = Path(job["path"])
        effect = Path(job["folder"], EFFECT)
        back = job["what"] == "rollback"
        if effect.exists():
            outcome = dict(json.loads(effect.read_bytes()))
            past = [one["id"] for one in ModelFile(path).header["history"]] if path.exists() else []
            if (outcome["step"] in past) is not back and not outcome.get("tuning"):
                return outcome
        if stop():
            raise Stopped
        with locked(path) as file:
            if back:
                check_step(ModelFile(file).header, job["step"])
            model = self._opened(file)
            before = there = model._model  # None: it has learned nothing yet

            def write(outcome: dict[str, Any]) -> None:
                nonlocal there
                if model._model is not there:
                    outcome["step"] = job["step"] or model.history_[-1]["id"]
                    write_json(effect, outcome)
                    model.save(file)
                    there = model._model

            def answers(outcome: dict[str, Any]) -> None:
                write({**outcome, "tuning": True})
                tell(said=f"{outcome['said']} It answers, and is tuned.")

            outcome = self._done(model, job, tell, stop, answers)
            write(outcome)
            if model._model is not before:
                outcome["step"] = job["step"] or model.history_[-1]["id"]
            self.last = (file, model)
            self._loaded = model._loaded
            return outcome

    def _opened(self, file: Path) -> ContinualClassifier:
        """The model in ``file``: that of the last job, if nothing else has changed the file
        since.
        """
        # a job that fails may leave it half changed
        (last, model), self.last = (
            self.last or (None, None),
            None,
        )
        if not file.exists():
            model = ContinualClassifier(device=self.device)
            model._loaded = self._loaded
            return model
        found = ModelFile(file)
        if model is None or last != file or model._known.get(file.resolve()) != found.digest:
            model = ContinualClassifier.load(found, device=self.device)
            model._loaded = self._loaded
        return model

    def _done(
        self, model: ContinualClassifier, job: dict[str, Any], tell: Any, stop: Any, answers: Any
    ) -> dict[str, Any]:
        files = [File.at(Path(job["folder"], f"{i:05d}")) for i in range(job["pictures"])]
        pictures = Sent(files, job["labels"] or [""] * len(files), decoders=self._decoders)
        shown = Told(tell)
        if job["what"] == "rollback":
            return {"said": model.rollback()}
        if job["what"] == "audit":
            return {"result": model.audit().fields(f"{job['model']}.safecl", job["count"])}
        if job["what"] == "export":
            out = Path(job["folder"]).with_suffix(EXPORT)
            tell(said="Writing the file, and comparing its answers")
            return dict(
                behind(partial(exported, model._fitted, out, job["precision"], stop), self.niceness)
            )
        if job["what"] == "learn":
            lesson = partial(self._lesson, model, pictures, job, shown, stop, answers)
            return dict(behind(lesson, self.niceness))
        with shown.phase("Looking at the pictures", len(files)) as phase:
            pictures.looked = phase.advance
            if job["what"] == "correct":
                few = len(files) <= MAX_QUICK
                return {"said": model._corrected(pictures, pictures.labels, quick=few)}
            first = model.queue(pictures, job["count"])
            told = [
                {"index": i.index, "worth": i.worth, "answer": answer_of(i.answer, False)}
                for i in first
            ]
            return {"result": {"first": told}}

    def _lesson(
        self,
        model: ContinualClassifier,
        pictures: Sent,
        job: dict[str, Any],
        shown: Any,
        stop: Any,
        answers: Callable[[dict[str, Any]], None],
    ) -> Any:
        """With processes of its own that decode, so that they give way as well; ``answers`` is told
        what came of it before the model is tuned.
        """
        work = Path(job["folder"], "work")
        decoders = make_decoders()
        try:
            given = replace(pictures, decoders=decoders)
            lesson = model.learn(
                given,
                name=job["name"],
                progress=shown,
                folder=work,
                stop=stop,
                ready=lambda first: answers(told_of(first)),
            )
        finally:
            decoders.close()
        return told_of(lesson)


def exported(model: Model, out: Path, precision: Any, stop: Callable[[], bool]) -> dict[str, Any]:
    """Write a model for other programs; gives what is said of the file."""
    from safecl.classifier.answers.export import export_onnx

    try:
        check = export_onnx(model, out, precision, force=True)
        if stop():
            raise Stopped
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    share = f"{100 * check.agreement:.1f} %"
    said = f"{share} of its answers to {counted(check.pictures, 'drawn picture')} are the model's."
    return {"said": said, "result": {"bytes": out.stat().st_size}}


def told_of(lesson: Lesson) -> dict[str, Any]:
    """What came of a lesson."""
    learned = (
        f"Learned {counted(lesson.pictures, 'picture')} of {counted(len(lesson.classes), 'class')}."
    )
    said = learned if lesson.pictures else lesson.warnings[0]
    keys = ("pictures", "skipped", "new", "accuracy", "interval", "warnings")
    return {"said": said, "result": {key: getattr(lesson, key) for key in keys}}


def make_decoders() -> Decoders:
    """With the priority of the thread that makes them."""
    return Decoders(min(readers(), 2), MAX_WAITING)


def behind(call: Callable[[], Any], niceness: int) -> Any:
    """Make a call that gives way to answers, for training: a person waits for anything else."""

    def give_way() -> None:
        if sys.platform == "linux":  # where each thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

    with ThreadPoolExecutor(1, initializer=give_way) as pool:
        # with the locks that this thread holds
        return pool.submit(copy_context().run, call).result()


def main(device: str, niceness: int) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints
    orders = queue.Queue[dict[str, Any]]()
    unwanted = set[str]()

    def hear() -> None:
        try:
            for line in sys.stdin:
                order = json.loads(line)
                unwanted.add(order["stop"]) if "stop" in order else orders.put(order)
        except Exception:  # nothing would stop this process any more
            traceback.print_exc()
        os._exit(0)

    def tell(folder: str = "", **facts: Any) -> None:
        text = as_json(facts, ascii=True)
        for path, name in ((folder, "picture "), (Path(folder).parents[1], "")) if folder else ():
            # no folder is of use to who reads it
            text = text.replace(json.dumps(f"{path}/")[1:-1], name)
        try:
            print(text, file=out, flush=True)
        except OSError:  # nobody hears
            os._exit(0)

    threading.Thread(target=hear, daemon=True).start()
    torch.set_num_threads(readers())
    learner = Learner(device, niceness)
    while True:
        if "warm" in (job := orders.get()):
            learner.warm(Path(job["warm"]))
            continue
        try:
            tell(
                job["folder"],
                end="done",
                **learner.do(job, tell, partial(unwanted.__contains__, job["id"])),
            )
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
    main(sys.argv[1], int(sys.argv[2]))

"""What changes models: jobs, kept in a folder beside the model until they have ended, and done by one process."""

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safecl.atomic import exclusive, write_json
from safecl.errors import SafeclError
from safecl.serve.decoding import end
from safecl.serve.limits import MAX_JOBS, MAX_SPOOL, Refused, busy

MAX_ENDED = 100  # that are remembered of each model
MAX_ATTEMPTS = 3  # of a job in which the process dies
DIED = f"The process that learns has died {MAX_ATTEMPTS} times at this job; the log of the service may say why."
LOOK = 1.0  # seconds between looks at the files
STOP_SECONDS = 30.0  # for a job to save its place
TOLD = ("id", "model", "what", "state", "progress", "seconds_left", "said", "error", "result", "version", "step")
KEPT = (*TOLD, "created", "pictures", "bytes", "labels")
LOCK = ".lock"  # in the folder of jobs, held by the service that does them
ENDED = ("done", "failed", "stopped")


class Jobs:
    """The jobs of all models, oldest first. A picture is kept until its job has ended.

    ``changed``: is called with the name of a model that was changed; gives its version.
    """

    def __init__(self, paths: Mapping[str, Path], device: str, changed: Callable[[str], str]) -> None:
        self.paths, self.device, self.changed = paths, device, changed
        self.all: dict[str, dict[str, Any]] = {}
        self._news, self.closed = threading.Condition(), threading.Event()
        self._adding, self._sending, self._unwanted = threading.Lock(), threading.Lock(), set[str]()
        self._process: subprocess.Popen[str] | None = None
        self._spools = contextlib.ExitStack()
        with self._spools:
            for name in paths:
                self._recover(name)
            self._spools = self._spools.pop_all()
        self.all = dict(sorted(self.all.items(), key=lambda item: item[1]["created"]))
        self._thread = threading.Thread(target=self._run, daemon=True, name="jobs")
        self._thread.start()

    def folder(self, name: str) -> Path:
        path = self.paths[name]
        return path.with_name(f".{path.name}.jobs")

    async def find(self, job: str) -> dict[str, Any]:
        if job not in self.all:
            raise Refused(404, "There is no such job, or it ended long ago.")
        return self.all[job]

    def told(self, job: dict[str, Any]) -> dict[str, Any]:
        return {key: job[key] for key in TOLD}

    def counts(self) -> dict[str, int]:
        states = [job["state"] for job in list(self.all.values())]
        return {state: states.count(state) for state in ("waiting", "running", *ENDED)}

    def add(self, model: str, what: str, pictures: Sequence[bytes], labels: Sequence[Any], **more: Any) -> Any:
        """Keep a job, and have it done in its turn."""
        with self._adding:  # so that none sees the room that another one takes
            size, kept = sum(map(len, pictures)), [one for one in list(self.all.values()) if one["state"] not in ENDED]
            if self.counts()["waiting"] >= MAX_JOBS or sum(one["bytes"] for one in kept) + size > MAX_SPOOL:
                raise busy()
            job: dict[str, Any] = dict.fromkeys(TOLD) | {"id": uuid.uuid4().hex, "model": model, "what": what}
            job |= {"state": "waiting", "progress": 0.0, "created": time.time()}
            job |= {"pictures": len(pictures), "bytes": size, "labels": list(labels), **more}
            folder = self.folder(model) / job["id"]
            try:
                folder.parent.mkdir(mode=0o700, exist_ok=True)
                folder.mkdir(mode=0o700)
                for i, data in enumerate(pictures):
                    (folder / f"{i:05d}").write_bytes(data)
                write_json(folder.with_suffix(".json"), job)
            except (OSError, SafeclError) as error:
                shutil.rmtree(folder, ignore_errors=True)
                reason = getattr(error, "strerror", None) or error
                raise Refused(507, f"The job cannot be kept beside the model ({reason}).") from error
            with self._news:
                self.all[job["id"]] = job
                self._news.notify_all()
        return self.told(job)

    def stop(self, job: dict[str, Any]) -> None:
        """A job that waits ends now, one at work as soon as it can."""
        with self._news:
            if job["state"] in ENDED:
                raise Refused(409, f"The job is {job['state']} already.")
            if job["state"] == "waiting":
                return self._end(job, "stopped")
            self._unwanted.add(job["id"])
        self._send({"stop": job["id"]})

    def close(self) -> None:
        """Stop; the job at work saves its place, and goes on when the service starts again."""
        with self._news:
            self.closed.set()
            self._news.notify_all()
        self._send(*({"stop": job["id"]} for job in list(self.all.values()) if job["state"] == "running"))
        self._thread.join(STOP_SECONDS)
        end(self._process)
        self._spools.close()

    def _recover(self, name: str) -> None:
        folder = self.folder(name)
        if folder.is_symlink():
            raise SafeclError(f"{folder} is a link, and would be followed to another folder; delete it.")
        with contextlib.suppress(OSError):  # where it cannot be made, jobs are refused one by one
            folder.mkdir(mode=0o700, exist_ok=True)
            busy = f"Another service has the jobs of {self.paths[name]}; stop it, or serve a copy of the model."
            self._spools.enter_context(exclusive(folder / LOCK, busy, str(folder)))
        for path in folder.glob("*.json"):
            with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
                job = json.loads(path.read_bytes())
                job |= {"id": path.stem, "model": name, "state": job["state"] if job["state"] in ENDED else "waiting"}
                self.all[path.stem] = {key: job[key] for key in KEPT} | job
        for path in folder.glob("*/"):
            if path.name not in self.all or self.all[path.name]["state"] in ENDED:
                shutil.rmtree(path, ignore_errors=True)

    def _end(self, job: dict[str, Any], state: str, **facts: Any) -> None:
        """Who sees that it has ended sees that its pictures are gone."""
        progress, folder = 1.0 if state == "done" else job["progress"], self.folder(job["model"]) / job["id"]
        end = {**job, **facts, "state": state, "seconds_left": None, "labels": [], "progress": progress}
        for _ in range(2):  # before the pictures go, so that a kill does not run it again; and with the room that makes
            with contextlib.suppress(OSError, SafeclError):
                write_json(folder.with_suffix(".json"), end)
            shutil.rmtree(folder, ignore_errors=True)
        job.update(end)
        self._unwanted.discard(job["id"])
        ended = [one for one in self.all.values() if one["model"] == job["model"] and one["state"] in ENDED]
        for old in ended[:-MAX_ENDED]:
            self.all.pop(old["id"])
            with contextlib.suppress(OSError):
                folder.with_name(f"{old['id']}.json").unlink()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            self._start()
            self._send({"warm": str(next(iter(self.paths.values())))})  # so that the first job need not wait
        while True:
            with self._news:
                self._news.wait_for(lambda: self.closed.is_set() or self.counts()["waiting"])
                if self.closed.is_set():
                    return
                job = next(job for job in self.all.values() if job["state"] == "waiting")
                job["state"] = "running"
            tried = (self._do(job) for _ in range(MAX_ATTEMPTS) if not self.closed.is_set())
            came = next((came for came in tried if came is not None), {"end": "failed", "error": DIED})
            if not self.closed.is_set() or came["end"] == "done":  # otherwise it goes on when the service starts again
                facts = dict.fromkeys(("said", "error", "result")) | {key: came[key] for key in TOLD if key in came}
                try:
                    facts["version"] = self.changed(job["model"])
                except Exception:  # the model that answers stays
                    traceback.print_exc()
                with self._news:
                    self._end(job, came["end"], **facts)

    def _do(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """What came of a job; None: the process has died, or none could be started."""
        place = {"path": str(self.paths[job["model"]]), "folder": str(self.folder(job["model"]) / job["id"])}
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None and self._process.stdout is not None
            before = [{"stop": job["id"]}] if job["id"] in self._unwanted else []  # another process was told so
            self._send(*before, {**job, **place})
            for line in self._process.stdout:
                told = json.loads(line)
                if "end" in told:
                    return dict(told)
                job.update({key: value for key, value in told.items() if key in TOLD})
        except Exception:
            traceback.print_exc()
        end(self._process)
        return None

    def _start(self) -> None:
        # A group of its own: Ctrl-C is for the service. In a session of its own priorities would not count (autogroup).
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "safecl.serve.learner", self.device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", process_group=0,
        )  # fmt: skip

    def _send(self, *orders: dict[str, Any]) -> None:
        with self._sending, contextlib.suppress(OSError, ValueError):  # it has died, which shows when it is read
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.writelines(f"{json.dumps(order)}\n" for order in orders)
                self._process.stdin.flush()


def watch(paths: Mapping[str, Path], reload: Callable[[str], str], closed: threading.Event) -> None:
    """Have files read that something else has changed; one that cannot be leaves the model that answers."""
    seen: dict[str, Any] = {}
    while not closed.wait(LOOK):
        for name, path in paths.items():
            with contextlib.suppress(OSError, SafeclError, RuntimeError):
                mark = (found := path.stat()).st_ino, found.st_size, found.st_mtime_ns
                if seen.get(name) != mark:
                    reload(name)
                    seen[name] = mark

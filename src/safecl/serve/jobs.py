"""What changes models: jobs, kept in a folder beside the model until they have ended, and done by
one process.
"""

import contextlib
import json
import shutil
import subprocess
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safecl.atomic import exclusive, write_json
from safecl.errors import Busy, SafeclError
from safecl.process import own_python
from safecl.serve.decoding import end
from safecl.serve.faults import log, sentence
from safecl.serve.limits import MAX_JOBS, MAX_SPOOL, OURS, Refused, busy

MAX_ENDED = 100  # that are remembered of each model
MAX_ATTEMPTS = 3  # of a job in which the process dies
DIED = (
    f"The process that learns has died {MAX_ATTEMPTS} times at this job; the log of the service may"
    " say why."
)
LOST = "What was kept of this job is damaged, so it is not done; ask for it again."
LOOK = 1.0  # seconds between looks at the files
STOP_SECONDS = 30.0  # for a job to save its place
NICENESS = 15  # of threads that train, where each has a priority: answers come first
TOLD = (
    "id",
    "model",
    "what",
    "state",
    "progress",
    "seconds_left",
    "said",
    "error",
    "result",
    "version",
    "step",
)
KEPT = (*TOLD, "created", "pictures", "bytes", "labels")
EXPORT = ".onnx"  # what a job has exported, beside its folder
LOCK = ".lock"  # in the folder of jobs, held by the service that does them
ENDED = ("done", "failed", "stopped")


class Jobs:
    """The jobs of all models, oldest first. A picture is kept until its job has ended.

    ``changed``: is called with the name of a model that was changed; gives its version, or raises
    what it has told.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        device: str,
        changed: Callable[[str], str],
        niceness: int = NICENESS,
    ) -> None:
        self.paths = paths
        self.device = device
        self.niceness = niceness
        self.changed = changed
        self.all: dict[str, dict[str, Any]] = {}
        self._news = threading.Condition()
        self.closed = threading.Event()
        self._adding = threading.Lock()
        self._sending = threading.Lock()
        self._unwanted = set[str]()
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
            raise Refused(404, "serve.job.missing")
        return self.all[job]

    def told(self, job: dict[str, Any]) -> dict[str, Any]:
        return {key: job[key] for key in TOLD}

    def counts(self) -> dict[str, int]:
        states = [job["state"] for job in list(self.all.values())]
        return {state: states.count(state) for state in ("waiting", "running", *ENDED)}

    def add(
        self, model: str, what: str, pictures: Sequence[bytes], labels: Sequence[Any], **more: Any
    ) -> Any:
        """Keep a job, and have it done in its turn."""
        with self._adding:  # so that none sees the room that another one takes
            size = sum(map(len, pictures))
            kept = [one for one in list(self.all.values()) if one["state"] not in ENDED]
            if (
                self.counts()["waiting"] >= MAX_JOBS
                or sum(one["bytes"] for one in kept) + size > MAX_SPOOL
            ):
                raise busy()
            job: dict[str, Any] = dict.fromkeys(TOLD) | {
                "id": uuid.uuid4().hex,
                "model": model,
                "what": what,
            }
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
                raise Refused(507, "serve.job.not-kept", reason=reason) from error
            with self._news:
                self.all[job["id"]] = job
                self._news.notify_all()
        return self.told(job)

    def stop(self, job: dict[str, Any]) -> None:
        """A job that waits ends now, one at work as soon as it can."""
        with self._news:
            if job["state"] in ENDED:
                raise Refused(409, "serve.job.ended", state=job["state"])
            if job["state"] == "waiting":
                return self._end(job, "stopped")
            self._unwanted.add(job["id"])
        self._send({"stop": job["id"]})

    def exported(self, job: dict[str, Any]) -> Path:
        """Where the file is that a job has made."""
        return self.folder(job["model"]) / f"{job['id']}{EXPORT}"

    def close(self) -> None:
        """Stop; the job at work saves its place, and goes on when the service starts again."""
        with self._news:
            self.closed.set()
            self._news.notify_all()
        self._send(
            *({"stop": job["id"]} for job in list(self.all.values()) if job["state"] == "running")
        )
        self._thread.join(STOP_SECONDS)
        end(self._process)
        self._spools.close()

    def _recover(self, name: str) -> None:
        folder = self.folder(name)
        if folder.is_symlink():
            raise SafeclError("folder.link", folder=folder)
        with contextlib.suppress(OSError):  # where it cannot be made, jobs are refused one by one
            folder.mkdir(mode=0o700, exist_ok=True)
            busy = Busy("serve.jobs.busy", path=self.paths[name])
            self._spools.enter_context(exclusive(folder / LOCK, busy, str(folder)))
        for path in folder.glob("*.json"):
            try:
                job = _kept(path)
            except (
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
                RecursionError,
                OSError,
            ) as error:
                log(f"{path} is damaged, so its job is not done ({type(error).__name__}: {error}).")
                job = dict.fromkeys(KEPT) | {
                    "created": time.time(),
                    "pictures": 0,
                    "bytes": 0,
                    "labels": [],
                }
                job |= {"state": "failed", "progress": 0.0, "error": LOST}
            self.all[path.stem] = job | {"id": path.stem, "model": name}
        for path in folder.glob(f"*{EXPORT}"):
            if path.stem not in self.all:
                path.unlink(missing_ok=True)
        for path in folder.glob("*/"):
            if path.name not in self.all or self.all[path.name]["state"] in ENDED:
                _delete(path)

    def _end(self, job: dict[str, Any], state: str, **facts: Any) -> None:
        """Who sees that it has ended sees that its pictures are gone."""
        progress = 1.0 if state == "done" else job["progress"]
        folder = self.folder(job["model"]) / job["id"]
        end = {
            **job,
            **facts,
            "state": state,
            "seconds_left": None,
            "labels": [],
            "progress": progress,
        }
        for last in (
            False,
            True,
        ):
            # before the pictures go, so that a kill does not run it again; with the room it makes
            try:
                write_json(folder.with_suffix(".json"), end)
            except (OSError, SafeclError) as error:
                if last:
                    log(
                        f"That the job {job['id']} has ended is not kept, so a restart may do it"
                        f" again: {error}"
                    )
            _delete(folder)
        job.update(end)
        self._unwanted.discard(job["id"])
        ended = [
            one
            for one in self.all.values()
            if one["model"] == job["model"] and one["state"] in ENDED
        ]
        for old in ended[:-MAX_ENDED]:
            self.all.pop(old["id"])
            with contextlib.suppress(OSError):
                folder.with_name(f"{old['id']}.json").unlink()
        made = [one for one in ended if one["what"] == "export" and one["state"] == "done"]
        for path in folder.parent.glob(f"*{EXPORT}"):
            if not made or path.stem != made[-1]["id"]:  # one of each model is kept
                with contextlib.suppress(OSError):
                    path.unlink()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            self._start()
            # so that the first job need not wait
            self._send({"warm": str(next(iter(self.paths.values())))})
        while True:
            with self._news:
                self._news.wait_for(lambda: self.closed.is_set() or self.counts()["waiting"])
                if self.closed.is_set():
                    return
                job = next(job for job in self.all.values() if job["state"] == "waiting")
                job["state"] = "running"
            try:
                self._finish(job)
            except Exception:  # those that wait are done all the same
                traceback.print_exc()
                job.update(state="failed", error=OURS)

    def _finish(self, job: dict[str, Any]) -> None:
        """Have a job done, and tell what came of it."""
        tried = (self._do(job) for _ in range(MAX_ATTEMPTS) if not self.closed.is_set())
        came = next((came for came in tried if came is not None), {"end": "failed", "error": DIED})
        if self.closed.is_set() and came["end"] != "done":
            # it goes on when the service starts again
            return
        facts = dict.fromkeys(("said", "error", "result")) | {
            key: came[key] for key in TOLD if key in came
        }
        try:
            facts["version"] = self.changed(job["model"])
        except Exception as error:  # the model that answers stays
            if came.get("step"):
                why = sentence(error, self.paths[job["model"]])
                facts["error"] = (
                    f"The model has changed, and until it can be read the old one answers: {why}"
                )
        with self._news:
            self._end(job, came["end"], **facts)

    def _do(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """What came of a job; None: the process has died, or none could be started."""
        place = {
            "path": str(self.paths[job["model"]]),
            "folder": str(self.folder(job["model"]) / job["id"]),
        }
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None and self._process.stdout is not None
            # another process was told so
            before = [{"stop": job["id"]}] if job["id"] in self._unwanted else []
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
        # A group of its own: Ctrl-C is for the service. In a session of its own priorities would
        # not count (autogroup).
        self._process = subprocess.Popen(
            own_python("safecl.serve.learner", self.device, str(self.niceness)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            process_group=0,
        )

    def _send(self, *orders: dict[str, Any]) -> None:
        with (
            self._sending,
            contextlib.suppress(OSError, ValueError),
        ):
            # it has died, which shows when it is read
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.writelines(f"{json.dumps(order)}\n" for order in orders)
                self._process.stdin.flush()


def _kept(path: Path) -> dict[str, Any]:
    """The job in a file; one that had not ended waits again."""
    job = json.loads(path.read_bytes())
    found: dict[str, Any] = {key: job[key] for key in KEPT} | job
    found |= {"created": float(job["created"]), "bytes": int(job["bytes"])}
    return found | {"state": job["state"] if job["state"] in ENDED else "waiting"}


def _delete(folder: Path) -> None:
    """Delete the pictures of a job, which are promised to go at its end."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log(f"{folder} could not be deleted; it may hold pictures that were sent.")


def watch(paths: Mapping[str, Path], reload: Callable[[str], str], closed: threading.Event) -> None:
    """Have files read that something else has changed; one that cannot be is read again, until it
    can.
    """
    seen: dict[str, Any] = {}
    while not closed.wait(LOOK):
        for name, path in paths.items():
            mark = _mark(path)
            if name not in seen or seen[name] != mark:
                with contextlib.suppress(Exception):  # which ``reload`` keeps and tells
                    reload(name)
                    seen[name] = mark


def _mark(path: Path) -> tuple[int, ...] | None:
    """What is another one once the file is; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    # a copy may keep size and time of the last change, but not the time at which it was made
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

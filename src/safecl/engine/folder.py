"""The folder of a run: one run at a time, and always a good state in it."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from safecl.atomic import exclusive, read_json, read_lines, write_bytes, write_json
from safecl.engine.checkpoint import Copied, copied, encode, load_state
from safecl.engine.identity import FILE, Identity, difference, digest
from safecl.errors import SafeclError
from safecl.methods.method import Method

# What a run leaves in its folder; the state goes first and the settings last, so that half of it is still a run.
WRITTEN = ("state", "metrics.jsonl", "losses.jsonl", "summary.json", "facts.json", "predictions.jsonl", "examples.json",
           "examples", "report.html", "failed.json", "trackers", FILE, "resolved.yaml")  # fmt: skip

MEANING = 2  # of the numbers in a state: to be raised when they say something else, of the same shapes or not
Lines = list[dict[str, Any]]


def claimed(folder: Path) -> contextlib.AbstractContextManager[None]:
    """The folder, and the one for states in it, as long as no other process has claimed it. The lock file stays."""
    busy = f"Another run is using {folder}; wait for it, or choose another folder."
    return exclusive(folder / "lock", busy, f"The run folder {folder}", folder / "state")


def clear(folder: Path) -> None:
    """Forget the run in a folder that is claimed; files that a run does not write are left alone."""
    strangers = {entry.name for entry in folder.iterdir()} - {"state", "lock"}
    if strangers and not (folder / "resolved.yaml").is_file() and not (folder / FILE).is_file():
        raise SafeclError(f"{folder} holds something that is no run, so it is not emptied; choose another folder.")
    try:
        for name in WRITTEN:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (folder / "state").mkdir()
    except OSError as error:
        raise SafeclError(f"The run folder {folder} cannot be emptied ({error.strerror}).") from error


def begin(folder: Path, identity: Identity, settings: Mapping[str, Any]) -> None:
    """Note what the run is, and all of its ``settings``, or refuse a folder that holds another one."""
    before = read_json(folder / FILE)
    if before is None:
        if any((folder / "state").glob("session_*.safetensors")):
            raise SafeclError(
                f"{folder} holds a run whose {FILE} is missing or damaged, so what it learned from is unknown; choose "
                "another folder with --folder, or start anew with --fresh."
            )
        resolved = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        write_bytes(folder / "resolved.yaml", resolved.encode())
        write_json(folder / FILE, identity)
    elif found := difference(before, identity):
        kind = "a finished run" if (folder / "summary.json").exists() else "a run"
        raise SafeclError(
            f"{folder} holds {kind} with {found}; choose another folder with --folder, teach a model instead "
            "(safecl learn), or start anew with --fresh, which deletes what was learned."
        )


@contextlib.contextmanager
def noting_failure(folder: Path) -> Iterator[None]:
    """Keep the sentence of an error that ends a run in failed.json, until the run is started again."""
    file = folder / "failed.json"
    file.unlink(missing_ok=True)
    try:
        yield
    except SafeclError as error:
        with contextlib.suppress(SafeclError):  # where nothing can be written, the error itself says so
            write_json(file, {"error": str(error)})
        raise


class States(contextlib.AbstractContextManager["States"]):
    """Writes the states of a run in a thread, while it is tested and learns on; an error is raised by a later call."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.folder, self.identity, self.pool = folder, digest(identity), ThreadPoolExecutor(1)
        self.file, self.place, self.copying = folder, Future[Path](), Future[Copied]()
        self.written: Future[None] = self.pool.submit(lambda: None)

    def begin(self, method: Method, session: int) -> None:
        """Write the state after a session aside, when the one before is in place; it must not change until ``end``."""
        self.wait()
        self.file, self.place = self.folder / "state" / f"session_{session:04d}.safetensors", Future[Path]()
        facts = {"session": session, "classes": [*method.classes], "identity": self.identity, "meaning": MEANING}
        self.copying = self.pool.submit(copied, method.state_dict())
        self.written = self.pool.submit(self._write, self.copying, facts)

    def _write(self, copying: Future[Copied], facts: dict[str, Any]) -> None:
        write_bytes(self.file, *encode(copying.result(), facts), onto=self.place.result)
        tidy(self.folder, facts["session"])

    def end(self) -> None:
        """Let it appear once it is written, and what it replaces go; the method may change now."""
        self.copying.result()
        self.copying = Future()  # nobody holds the copy once it is written
        self.place.set_result(self.file)

    def wait(self) -> None:
        self.written.result()

    def __exit__(self, *error: object) -> None:
        unfinished = self.place.cancel()  # changes nothing once it is set
        self.pool.shutdown()
        if not unfinished:
            self.wait()


def tidy(folder: Path, done: int, *more: Path) -> None:
    """Delete what is not needed after session ``done``: older states, checkpoints of its phases, and ``more``."""
    state = folder / "state"
    older = sorted(state.glob("session_*.safetensors"))[:-2]  # the one before stays, should this one be damaged
    phases = [file for file in state.glob("fit_*_*.safetensors") if int(file.name.split("_")[1]) <= done]
    for stale in [*older, *phases, *more]:
        with contextlib.suppress(OSError):  # it does no harm where it is
            stale.unlink(missing_ok=True)


def restore_newest(
    folder: Path, identity: Identity, method: Method, say: Callable[[str], None]
) -> tuple[Mapping[str, Any], Lines]:
    """Put ``method`` into the newest state that is whole and of this run; gives that and its lines of metrics."""
    files = sorted((folder / "state").glob("session_*.safetensors"), reverse=True)
    for file in files:
        try:
            tensors, facts = load_state(file)
            if facts.get("identity") != digest(identity):
                raise SafeclError(f"The state file {file} belongs to another run.")
            if facts.get("meaning") != MEANING:
                raise SafeclError(f"The state file {file} is of another version of safecl, which can continue it.")
            lines = read_lines(folder / "metrics.jsonl", facts["session"])
            if len(lines) < facts["session"]:
                raise SafeclError(f"{folder / 'metrics.jsonl'} lacks sessions that {file.name} has learned.")
            method.restore(tensors, facts["classes"])
        except SafeclError as error:
            if file is files[-1]:
                raise SafeclError(f"{error} No other state is left in {folder}; start anew with --fresh.") from error
            say(f"{error} The state before it is used.")
            continue
        return {"tensors": tensors, "classes": facts["classes"]}, lines
    return {}, []

"""The folder of a run: one run at a time, and always a good state in it."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from safecl.atomic import exclusive, read_json, read_lines, write_bytes, write_json
from safecl.engine.checkpoint import Copied, copied, encode, load_state
from safecl.engine.identity import FILE, Identity, difference, digest
from safecl.errors import Busy, SafeclError
from safecl.lines import counted
from safecl.methods.method import Method, restore

# What a run leaves in its folder; the state goes first and the settings last, so that half of it is
# still a run.
WRITTEN = (
    "state",
    "metrics.jsonl",
    "losses.jsonl",
    "summary.json",
    "facts.json",
    "predictions.jsonl",
    "examples.json",
    "examples",
    "report.html",
    "failed.json",
    "trackers",
    FILE,
    "resolved.yaml",
)

CHECK = "check"  # key of the digest that a line of the metrics ends with
# of the numbers in a state: to be raised when they say something else, of the same shapes or not
MEANING = 2
Lines = list[dict[str, Any]]


def claimed(folder: Path) -> contextlib.AbstractContextManager[None]:
    """The folder, and the one for states in it, as long as no other process has claimed it. The
    lock file stays.
    """
    busy = Busy("run.folder.busy", folder=folder)
    return exclusive(folder / "lock", busy, f"The run folder {folder}", folder / "state")


def clear(folder: Path) -> None:
    """Forget the run in a folder that is claimed; files that a run does not write are left
    alone.
    """
    strangers = {entry.name for entry in folder.iterdir()} - {"state", "lock"}
    if strangers and not (folder / "resolved.yaml").is_file() and not (folder / FILE).is_file():
        raise SafeclError("run.folder.strangers", folder=folder)
    try:
        for name in WRITTEN:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (folder / "state").mkdir()
    except OSError as error:
        raise SafeclError("run.folder.not-emptied", folder=folder, reason=error.strerror) from error


def begin(folder: Path, identity: Identity, settings: Mapping[str, Any]) -> None:
    """Note what the run is, and all of its ``settings``, or refuse a folder that holds another
    one.
    """
    before = read_json(folder / FILE)
    if before is None:
        if any((folder / "state").glob("session_*.safetensors")):
            raise SafeclError("run.facts.missing", folder=folder, file=FILE)
        resolved = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        write_bytes(folder / "resolved.yaml", resolved.encode())
        write_json(folder / FILE, identity)
    elif found := difference(before, identity):
        kind = "a finished run" if (folder / "summary.json").exists() else "a run"
        raise SafeclError("run.folder.other-run", folder=folder, kind=kind, found=found)


@contextlib.contextmanager
def noting_failure(folder: Path) -> Iterator[None]:
    """Keep the sentence of an error that ends a run in failed.json, until the run is started
    again.
    """
    file = folder / "failed.json"
    file.unlink(missing_ok=True)
    try:
        yield
    except SafeclError as error:
        with contextlib.suppress(SafeclError):
            # where nothing can be written, the error itself says so
            write_json(file, {"error": str(error)})
        raise


class States(contextlib.AbstractContextManager["States"]):
    """Writes the states of a run in a thread, while it is tested and learns on; an error is raised
    by a later call.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.folder = folder
        self.identity = digest(identity)
        self.pool = ThreadPoolExecutor(1)
        self.file = folder
        self.place = Future[Path]()
        self.copying = Future[Copied]()
        self.written: Future[None] = self.pool.submit(lambda: None)

    def begin(self, method: Method, session: int, lines: Sequence[dict[str, Any]] = ()) -> None:
        """Write the state after a session aside, when the one before is in place; it must not
        change until ``end``.

        ``lines``: of the metrics of the sessions before; the state remembers them.
        """
        self.wait()
        self.file = self.folder / "state" / f"session_{session:04d}.safetensors"
        self.place = Future[Path]()
        facts = {
            "session": session,
            "classes": [*method.classes],
            "identity": self.identity,
            "meaning": MEANING,
        }
        facts["lines"] = self.check(lines)
        self.copying = self.pool.submit(copied, method.state_dict())
        self.written = self.pool.submit(self._write, self.copying, facts)

    def check(self, lines: Sequence[dict[str, Any]]) -> str:
        """A digest of lines of metrics, which the last of them carries and the next state
        remembers.
        """
        return check(self.identity, lines)

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
    """Delete what is not needed after session ``done``: older states, checkpoints of its phases,
    and ``more``.
    """
    state = folder / "state"
    # the one before stays, should this one be damaged
    older = sorted(state.glob("session_*.safetensors"))[:-2]
    phases = [
        file for file in state.glob("fit_*_*.safetensors") if int(file.name.split("_")[1]) <= done
    ]
    for stale in [*older, *phases, *more]:
        with contextlib.suppress(OSError):  # it does no harm where it is
            stale.unlink(missing_ok=True)


def restore_newest(
    folder: Path, identity: Identity, method: Method, say: Callable[[str], None]
) -> tuple[Mapping[str, Any], Lines]:
    """Put ``method`` into the newest state that is whole and of this run; gives that and its lines
    of metrics.
    """
    files = sorted((folder / "state").glob("session_*.safetensors"), reverse=True)
    for file in files:
        try:
            tensors, facts = load_state(file)
            if facts.get("identity") != digest(identity):
                raise SafeclError("state.other-run", path=file)
            if facts.get("meaning") != MEANING:
                raise SafeclError("state.other-version", path=file)
            lines = read_lines(folder / "metrics.jsonl", facts["session"])
            if not _as_noted(lines, facts):
                raise SafeclError(
                    "state.lines-differ",
                    metrics=folder / "metrics.jsonl",
                    state=file.name,
                    sessions=counted(facts["session"], "session"),
                )
            restore(method, tensors, facts["classes"])
        except SafeclError as error:
            if file is files[-1]:
                raise SafeclError("state.none-left", error=error, folder=folder) from error
            say(f"{error} The state before it is used.")
            continue
        return {"tensors": tensors, "classes": facts["classes"]}, lines
    return {}, []


def check(identity: str, lines: Sequence[dict[str, Any]]) -> str:
    """A digest of lines of metrics of a run, whatever their own say."""
    bare = [{key: value for key, value in line.items() if key != CHECK} for line in lines]
    # as they are read again
    return digest({"identity": identity, "lines": json.loads(json.dumps(bare))})


def check_metrics(folder: Path, identity: Identity) -> None:
    """Refuse the metrics of a finished run that are not as it wrote them."""
    file = folder / "metrics.jsonl"
    sessions = len(identity["sessions"])
    lines = read_lines(file, sessions)
    noted = [line[CHECK] for line in lines if CHECK in line]
    # lines of the first release have no check
    same = noted[-1] == check(digest(identity), lines) if noted else bool(lines)
    if len(lines) != sessions or not same:
        raise SafeclError("run.metrics.edited", file=file)


def _as_noted(lines: Lines, facts: Mapping[str, Any]) -> bool:
    """Whether these are the lines that a state with such ``facts`` was saved after."""
    if len(lines) != int(facts["session"]):
        return False
    if "lines" not in facts:  # which states of the first release do not have
        return True
    before = check(facts["identity"], lines[:-1])
    now = check(facts["identity"], lines)
    return (before, now) == (facts["lines"], lines[-1].get(CHECK))

"""The folder of a run: one run at a time, and always a good state in it."""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from safecl.engine.checkpoint import load_state, read_lines, save_state
from safecl.errors import SafeclError
from safecl.methods.method import Method

State = tuple[dict[str, Tensor], dict[str, Any], list[dict[str, Any]]]  # tensors, facts, lines of metrics


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, and the one for states in it, as long as no other process has claimed it."""
    try:
        (folder / "state").mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise SafeclError(f"The run folder {folder} cannot be written ({error.strerror}).") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SafeclError(f"Another run is using {folder}; wait for it, or choose another folder.") from error
        yield


def keep_state(folder: Path, method: Method, session: int, owner: dict[str, Any]) -> None:
    """Save the state after a session; only then is what it replaces thrown away."""
    file = folder / "state" / f"session_{session:04d}.safetensors"
    save_state(file, method.state_dict(), {"session": session, "classes": method.classes, "owner": owner})
    tidy(folder, session)


def tidy(folder: Path, done: int) -> None:
    """Throw away what is not needed after session ``done``: older states, places in its phases, files half written."""
    state = folder / "state"
    older = sorted(state.glob("session_*.safetensors"))[:-2]  # the one before stays, should this one be damaged
    places = [file for file in state.glob("fit_*_*.safetensors") if int(file.name.split("_")[1]) <= done]
    for stale in [*older, *places, *state.glob(".*.part"), *folder.glob(".*.part")]:
        with contextlib.suppress(OSError):  # it does no harm where it is
            stale.unlink(missing_ok=True)


def newest_state(folder: Path, owner: dict[str, Any], names: set[str], say: Callable[[str], None]) -> State | None:
    """The newest state that is whole, of this run, and goes with the metrics; None if there is none.

    ``owner``: what the run is, as ``keep_state`` was told; ``names``: of the tensors that the method wants.
    """
    for file in sorted((folder / "state").glob("session_*.safetensors"), reverse=True):
        try:
            tensors, facts = load_state(file)
            if facts.get("owner") != owner or tensors.keys() != names:
                raise SafeclError(f"The state file {file} belongs to another run.")
            lines = read_lines(folder / "metrics.jsonl", facts["session"])
            if len(lines) < facts["session"]:
                raise SafeclError(f"{folder / 'metrics.jsonl'} lacks sessions that {file.name} has learned.")
        except SafeclError as error:
            say(f"{error} The state before it is used.")
            continue
        return tensors, facts, lines
    return None

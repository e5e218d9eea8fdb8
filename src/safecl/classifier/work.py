"""The folder in which a session is learned: what a stopped command has saved there is used again by the same one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safecl.atomic import write_json
from safecl.errors import SafeclError


def begin(folder: Path, identity: dict[str, Any], say: Callable[[str], None]) -> None:
    """Make the folder, or resume in it; what another command left there is dropped."""
    file, identity = folder / "job.json", json.loads(json.dumps(identity))  # as it is read
    try:
        if folder.is_dir():
            if json.loads(file.read_bytes()) == identity:
                say("Resuming where the same command was stopped.")
            else:
                shutil.rmtree(folder)
                say("Another command was stopped here before it was finished; what it had begun is dropped.")
    except (OSError, ValueError):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(exist_ok=True)
        write_json(file, identity)
    except OSError as error:
        raise SafeclError(f"{folder} cannot be written ({error.strerror or error}).") from error

"""Processes that the package starts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from safecl.engine.facts import revision
from safecl.process import own_python

MONITOR = "#!/bin/sh\ntouch {mark}\n"
SOURCES = Path(__file__).parents[1] / "src" / "safecl"


def test_python_is_started_by_one_function_which_keeps_the_current_folder_out() -> None:
    asked = {
        path.name
        for path in SOURCES.rglob("*.py")
        if "sys.executable" in path.read_text(encoding="utf-8")
    }
    assert asked == {"process.py"} and own_python("safecl.x", "a")[1:] == [
        "-P",
        "-m",
        "safecl.x",
        "a",
    ]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_git_runs_nothing_that_the_current_folder_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monitor = tmp_path / "monitor"
    monitor.write_text(MONITOR.format(mark=tmp_path / "mark"))
    monitor.chmod(0o755)
    who = ["-c", "user.name=a", "-c", "user.email=a@a"]
    for words in (
        ["init", "-q"],
        ["add", "monitor"],
        [*who, "commit", "-qm", "a"],
        ["config", "core.fsmonitor", str(monitor)],
    ):
        subprocess.run(["git", *words], check=True)
    assert len(revision() or "") == 40
    assert not (tmp_path / "mark").exists()
    subprocess.run(["git", "status"], check=True, stdout=subprocess.DEVNULL)
    # so the monitor would have been run
    assert (tmp_path / "mark").exists()

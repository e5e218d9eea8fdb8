"""Run folders to list and show, and a real pseudo-terminal to show them on."""

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _write_run(folder: Path, method: str = "safe", protocol: str = "class", **facts: Any) -> Path:
    """A finished run of three sessions, as the engine leaves it."""
    outputs = ["slow", "fast", "safe"] if method == "safe" else [method]
    sessions = [
        {"name": f"classes {2 * i + 1}-{2 * i + 2}", "classes": [f"class {2 * i}", "Zürich"]}
        for i in range(3)
    ]
    stream = {"name": "photos", "protocol": protocol, "sessions": sessions}
    title = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning", "slca": "SLCA"}.get(
        method, method
    )
    about = {
        "method": method,
        "title": title,
        "main": method,
        "outputs": outputs,
        "stream": stream,
        "pet": "ssf",
    }
    about |= {"seed": 0, **facts}
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text(json.dumps(about))
    (folder / "resolved.yaml").write_text(f"method: {{name: {method}, scale: 10.0}}\nseed: 0\n")
    lines = []
    for t in (1, 2, 3):
        row = [0.98765, 0.87654, 0.76543][: 3 if protocol == "domain" else t]
        numbers = {output: sum(row) / len(row) for output in outputs}
        seen = {output: sum(row[:t]) / t for output in outputs}
        lines.append(
            {
                "session": t,
                "name": sessions[t - 1]["name"],
                "classes_seen": 2 * t,
                "test_counts": [100] * len(row),
                "accuracy": dict.fromkeys(outputs, row),
                "pooled": numbers,
                "seen": seen,
                "forgetting": dict.fromkeys(outputs, 0.12345),
                "peak_memory": 1_234_567_890,
                "bytes_kept": 98_765_432,
                "seconds": {"fit": 83.4, "statistics": 12.3, "evaluate": 4.5, "total": 100.2},
                "images_per_second": 1234.5,
            }
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "summary.json").write_text("{}")
    return folder


@pytest.fixture
def write_run() -> Callable[..., Path]:
    """``write_run(folder, method, protocol, **facts)``: a finished run."""
    return _write_run


@pytest.fixture
def say(
    place: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """``say("predict", …)``: (exit code, standard output, standard error) of a command in the
    module's ``place``.
    """
    monkeypatch.chdir(place)
    return command


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., str]:
    """``terminal(80, "print(1)")``: what a program shows on a terminal of 80 columns, without
    colours.
    """

    def show(columns: int, program: str, **environment: str) -> str:
        ready, go = os.pipe()
        process, screen = pty.fork()
        if process == 0:
            os.read(ready, 1)  # until the width is set
            os.chdir(tmp_path)
            hidden = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
            clean = {key: value for key, value in os.environ.items() if key not in hidden}
            os.execve(
                sys.executable,
                [sys.executable, "-c", program],
                {**clean, "TERM": "xterm", **environment},
            )
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        os.write(go, b"1")
        os.close(ready)
        os.close(go)
        shown = b""
        while True:
            try:
                part = os.read(screen, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(screen)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
        assert code == 0, text
        return text

    return show

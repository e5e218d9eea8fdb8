"""A process that forks a command of safecl on demand, so that all of them import what they need
once.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
import threading
from typing import Any

import torch

from safecl.cli import main as cli

NEEDED = (
    "accelerate",
    "jinja2",
    "safecl.classifier.edits.merge",
    "safecl.classifier.answers.page",
    "safecl.classifier.teach",
    "safecl.cli.models",
    "safecl.methods.safe",
    "sklearn.base",
    "timm",
)
CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir")


def watch(word: str) -> None:
    """``@FILE``: note each change of a hidden file of a model there; ``@N:SECONDS``: die that long
    after the N-th.

    ``@BYTES``: no file can become longer, as on a full disk. ``@interrupt``: Ctrl-C at the
    first step that is saved once the model answers; what is said goes into the file ``said``.
    """
    if word == "interrupt":
        interrupt()
        return
    if word.isdigit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(word), int(word)))
        return
    count = [0]

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def see(event: str, args: tuple[Any, ...]) -> None:
        if event not in CHANGES or ".safecl." not in str(args[0]):
            return
        count[0] += 1
        if ":" not in word:
            os.write(notes, f"{event} {args[0]}\n".encode())
        elif count[0] == int(word.split(":")[0]):
            seconds = float(word.split(":")[1])
            threading.Timer(seconds, kill).start() if seconds else kill()

    if ":" not in word:
        notes = os.open(word, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.addaudithook(see)


def interrupt() -> None:
    os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    answers = [False]

    def see(event: str, args: tuple[Any, ...]) -> None:
        path = str(args[0]) if event in CHANGES else ""
        if event == "os.rename" and "/fit_" not in path and ".work" not in path:
            answers[0] |= str(args[1]).endswith(".safecl")
        elif answers[0] and "fit_" in path:
            answers[0] = False
            os.kill(os.getpid(), signal.SIGINT)

    sys.addaudithook(see)


def serve() -> None:
    """A line in: a folder and words as JSON. A line out: the process that runs them there; another:
    its exit code.
    """
    for name in NEEDED:
        importlib.import_module(name)
    gc.disable()  # a forked process would copy all memory only to look through it
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            folder, *words = json.loads(line)
            os.chdir(folder)
            if words[0].startswith("@"):
                watch(words.pop(0)[1:])
            sys.argv = ["safecl", *words]
            os.dup2(2, 1)
            try:
                cli.main()
            except SystemExit as end:
                sys.stderr.flush()
                os._exit(int(end.code or 0))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve()

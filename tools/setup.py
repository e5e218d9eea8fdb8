"""Make .venv: an environment with the tested dependencies and safecl itself, editable.

Called by make before every target; the usual case, nothing to do, only compares a stamp. Whatever
goes wrong is one sentence. The syntax stays old on purpose: a Python that is too old must still be
able to read this file and say so.
"""

from __future__ import print_function

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "ready")
LOG = os.path.join(VENV, "setup.log")
LOCK = os.path.join(ROOT, ".venv.lock")

OLDEST = (3, 11)
CANDIDATES = ("python3.14", "python3.13", "python3.12", "python3.11", "python3", "python")
NEEDED_GB = 3
EVERY = 20  # seconds between two lines that say how far it is
WIDTH = 70  # characters of such a line
PROBE = "import sys, ensurepip, venv; sys.exit(sys.version_info < %r)" % (OLDEST,)
NO_ROOM = re.compile(r"No space left on device|Errno 28\b|Disk quota exceeded", re.I)
NO_INDEX = re.compile(
    r"connection broken by|Max retries exceeded|name resolution|timed out|ProxyError|SSLError", re.I
)


class Problem(Exception):
    """What is wrong and what to do, in one sentence."""


def main(wanted=""):
    try:
        if made(wanted) != requirements():
            python = find_python(wanted)
            if sys.version_info < OLDEST:  # the rest is written for the Python just found
                os.execvp(python, [python, os.path.abspath(__file__), wanted])
            set_up(python, wanted)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; the next call starts the set-up again.", file=sys.stderr)
        return 130
    except (IOError, OSError) as error:
        print("The set-up needs to write in {}, but: {}.".format(ROOT, error), file=sys.stderr)
        return 2
    return 0


def find_python(wanted=""):
    """The first Python that is new enough and can make environments."""
    for name in [wanted] if wanted else CANDIDATES:
        try:
            if subprocess.Popen([name, "-c", PROBE], stderr=subprocess.PIPE).wait() == 0:
                return name
        except (IOError, OSError):
            continue
    raise Problem(
        "safecl needs Python {}.{} or newer with its venv module (on Debian or Ubuntu the package"
        " python3-venv), and {}: install one, or name it with make PYTHON=...".format(
            OLDEST[0], OLDEST[1], wanted + " is none" if wanted else "there is none"
        )
    )


def set_up(python, wanted):
    """Make the environment; one process at a time. A killed attempt leaves no stamp."""
    if os.name == "nt":
        raise Problem(
            "make works on Linux and macOS; on Windows install with pip install -e .[dev]."
        )
    import fcntl

    with open(LOCK, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is under way; waiting for it ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        before = made(wanted)
        if before == requirements():
            return
        print("Setting up .venv: once, some minutes ...", flush=True)
        if before:
            python = read(STAMP).split("\n")[1]
            os.remove(STAMP)  # should this be killed, .venv is made anew
        else:
            if shutil.disk_usage(ROOT).free < NEEDED_GB * 10**9:
                raise Problem(
                    "The disk is too full: make {} GB of room in {} and try again.".format(
                        NEEDED_GB, ROOT
                    )
                )
            shutil.rmtree(VENV, ignore_errors=True)
            os.mkdir(VENV)
            run([python, "-m", "venv", VENV], lock)
        try:
            run(
                [PYTHON, "-m", "pip", "install", "-c", "constraints.txt", "-e", ".[dev,docs]"], lock
            )
        except Problem:
            if before:  # what worked is kept for the next attempt
                write_stamp(python, "failed")
            raise
        write_stamp(python, requirements())


def write_stamp(python, key):
    with open(STAMP, "w") as file:
        file.write("\n".join([ROOT, python, key]))


def made(wanted):
    """The requirements that .venv was made for; nothing where it is half made, of another place or
    another Python.
    """
    place, python, key = (read(STAMP) + "\n\n").split("\n")[:3]
    return key if place == ROOT and wanted in ("", python) and os.path.exists(PYTHON) else ""


def requirements():
    text = read(os.path.join(ROOT, "pyproject.toml")) + read(os.path.join(ROOT, "constraints.txt"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def tell(over):
    """Print now and then what the log ends with, until it is ``over``."""
    start = time.time()
    while not over.wait(EVERY):
        last = read(LOG).strip().split("\n")[-1]
        print(
            "  {:.0f} s  {}".format(time.time() - start, last.strip()[:WIDTH]).rstrip(), flush=True
        )


def run(command, lock):
    """Run a command with its output in the log. It inherits the lock: if this process is killed,
    nobody interferes.
    """
    settings = dict(os.environ, PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    for misleading in ("PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
        settings.pop(misleading, None)
    over = threading.Event()
    teller = threading.Thread(target=tell, args=(over,))
    teller.start()
    try:
        with open(LOG, "w") as log:
            code = subprocess.call(
                command, cwd=ROOT, env=settings, stdout=log, stderr=log, pass_fds=[lock.fileno()]
            )
    finally:
        over.set()
        teller.join()
    if code:
        raise Problem(explain(read(LOG)))


def explain(output):
    """One sentence for what a failed command printed."""
    if NO_ROOM.search(output):
        return "The disk is full: make {} GB of room in {} and try again.".format(NEEDED_GB, ROOT)
    if NO_INDEX.search(output):
        return (
            "The package index cannot be reached: check the network (and pip's proxy settings) and"
            " try again."
        )
    errors = [line.strip() for line in output.split("\n") if "error" in line.lower()] or [
        "it ended without a word"
    ]
    return "The set-up failed: {} (the whole log is in {}).".format(errors[-1].rstrip("."), LOG)


def read(path):
    """The text of a file; nothing where there is none."""
    try:
        with io.open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (IOError, OSError):
        return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))

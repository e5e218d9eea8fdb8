"""Make .venv ready: an environment with the tested dependencies and safecl itself, editable.

Called by make before every target, so the usual case (nothing to do) only compares a stamp.
Whatever goes wrong is said in one sentence. The syntax stays old on purpose: a Python that is
too old must still be able to read this file and say so.
"""

from __future__ import print_function

import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "ready")
LOG = os.path.join(VENV, "setup.log")
LOCK = os.path.join(ROOT, ".venv.lock")  # beside .venv, as it outlives it; says "busy" while .venv is half made

OLDEST = (3, 11)
CANDIDATES = ("python3.13", "python3.12", "python3.11", "python3", "python")
GIGABYTE = 10**9
ROOM_FOR_ALL, ROOM_FOR_UPDATE, ROOM_FOR_DOWNLOADS = 3.0, 0.5, 1.0

PROBE = "import sys; print('%d.%d' % sys.version_info[:2]); import ensurepip, venv"
NO_ROOM = re.compile(r"No space left on device|Errno 28\b|Disk quota exceeded", re.I)
NO_INDEX = re.compile(
    r"connection broken by|Max retries exceeded|Failed to establish a new connection|Name or service not known"
    r"|name resolution|Network is unreachable|Connection refused|Read timed out|ConnectTimeout|ProxyError|SSLError",
    re.I,
)


class Problem(Exception):
    """What is wrong and what to do, in one sentence."""


def main(wanted=""):
    try:
        if not is_ready(wanted):
            python = find_python(wanted)
            if sys.version_info < OLDEST:  # the rest is written for the Python just found
                os.execvp(python, [python, os.path.abspath(__file__), wanted])
            set_up(python, wanted)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; the next call starts the set-up afresh.", file=sys.stderr)
        return 130
    except (IOError, OSError) as error:
        print(explain_os_error(error), file=sys.stderr)
        return 2
    return 0


def is_ready(wanted=""):
    """Whether .venv was finished for just these requirements (and for the Python asked for, if any)."""
    stamp = read(STAMP).split("\n")
    if not os.path.exists(PYTHON) or stamp[:2] != [ROOT, requirements_key()]:
        return False
    return not wanted or stamp[2:3] == [probe(wanted)[0]]


def set_up(python, wanted=""):
    import fcntl

    started = time.time()
    with open(LOCK, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is under way; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready(wanted):
            return
        version = probe(python)[0]
        fresh = is_busy(lock) or not is_usable(version if wanted else "")
        check_room(ROOM_FOR_ALL if fresh else ROOM_FOR_UPDATE)
        print("Setting up .venv with Python {}: once, some minutes ...".format(version if fresh else venv_version()))
        sys.stdout.flush()

        set_busy(lock, True)
        if fresh:
            remove(VENV)
            os.mkdir(VENV)
            check(run([python, "-m", "venv", VENV], lock))
        remove(STAMP)
        install = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        install += ["-c", "constraints.txt", "-e", ".[dev,docs]"]
        code, output = run(install, lock)
        if code > 0 and "Installing collected packages" not in output:
            set_busy(lock, False)  # it gave up before it touched anything: what is there can be kept
        check((code, output))
        write(STAMP, "\n".join([ROOT, requirements_key(), venv_version()]))
        set_busy(lock, False)
    print("Ready after {:.0f} s.".format(time.time() - started))


# Looking around


def find_python(wanted=""):
    """The first Python that is new enough and can make environments."""
    too_old, no_venv = [], []
    for name in [wanted] if wanted else CANDIDATES:
        version, has_venv = probe(name)
        if version and as_tuple(version) < OLDEST:
            too_old.append("{} is {}".format(name, version))
        elif version and not has_venv:
            no_venv.append(name)
        elif version:
            return name
    if no_venv:
        raise Problem(
            "{} cannot make virtual environments: install its venv module (on Debian or Ubuntu the package "
            "python3-venv), or name another Python with make PYTHON=...".format(no_venv[0])
        )
    raise Problem(
        "safecl needs Python {}.{} or newer, but {}: install one, or name it with make PYTHON=...".format(
            OLDEST[0],
            OLDEST[1],
            " and ".join(too_old) or ("{} does not start".format(wanted) if wanted else "none is here"),
        )
    )


def probe(python):
    """(version as "3.11", whether it has venv); the version is empty if it does not start."""
    try:
        process = subprocess.Popen([python, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except (IOError, OSError):
        return "", False
    version = process.communicate()[0].decode("ascii", "replace").strip()
    return version, process.returncode == 0


def is_usable(version):
    """Whether a .venv that is already there can be kept: it works, was made at this place, has the right Python."""
    made_at = read(STAMP).split("\n")[0]
    works = probe(PYTHON)[0] and subprocess.call(
        [PYTHON, "-c", "import pip"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return (
        works == 0 and made_at in ("", ROOT) and as_tuple(venv_version()) >= OLDEST and version in ("", venv_version())
    )


def venv_version():
    return probe(PYTHON)[0]


def as_tuple(version):
    return tuple(int(part) for part in version.split("."))


def check_room(needed):
    free = free_gigabytes(ROOT)
    if free < needed:
        raise Problem(
            "The disk is too full: the environment needs about {:.1f} GB and {} has {:.1f} GB free; "
            "make room and try again.".format(needed, ROOT, free)
        )
    downloads = tempfile.gettempdir()
    if needed == ROOM_FOR_ALL and free_gigabytes(downloads) < ROOM_FOR_DOWNLOADS:
        raise Problem(
            "The disk is too full: the downloads need about {:.1f} GB and {} has {:.1f} GB free; make room, or name "
            "another folder with TMPDIR=...".format(ROOM_FOR_DOWNLOADS, downloads, free_gigabytes(downloads))
        )


def free_gigabytes(folder):
    import shutil

    return shutil.disk_usage(folder).free / GIGABYTE


def requirements_key():
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update(read(os.path.join(ROOT, name)).encode("utf-8"))
    return digest.hexdigest()


# Doing things


def run(command, lock):
    """Run a command, its output to the log and its latest step to the terminal: (exit status, output).

    The command inherits the lock: if this process is killed, nobody touches .venv before the command has ended too.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PIP_TARGET", "PIP_PREFIX")
    }
    environment.update(PIP_USER="0", PYTHONUNBUFFERED="1")
    lines, rolling = [], sys.stdout.isatty()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        pass_fds=[lock.fileno()],
    )
    try:
        for line in process.stdout:
            lines.append(line)
            if rolling and re.match(r"(Collecting|\s*Downloading|Installing|Building)\b", line):
                print("\r\033[K  " + line.strip()[:70], end="")
                sys.stdout.flush()
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    finally:
        if rolling:
            print("\r\033[K", end="")
    output = "".join(lines)
    if os.path.isdir(VENV):
        write(LOG, output, may_fail=True)
    return code, output


def check(result):
    code, output = result
    if code != 0:
        raise Problem(explain(output))


def explain(output):
    """One sentence for what a failed command printed."""
    if NO_ROOM.search(output):
        return "The disk is full: make about {:.0f} GB of room in {} and try again.".format(ROOM_FOR_ALL, ROOT)
    if NO_INDEX.search(output):
        return "The package index cannot be reached: check the network (and pip's proxy settings) and try again."
    errors = [line.strip() for line in output.split("\n") if "error" in line.lower()] or ["it ended without a word"]
    return "The set-up failed: {} (the whole log is in {}).".format(errors[-1].rstrip("."), LOG)


def explain_os_error(error):
    if NO_ROOM.search(str(error)):
        return explain(str(error))
    return "The set-up needs to write in {}, but: {}.".format(ROOT, error)


def is_busy(lock):
    lock.seek(0)
    return lock.read() == "busy"


def set_busy(lock, busy):
    lock.seek(0)
    lock.truncate()
    lock.write("busy" if busy else "")
    lock.flush()


def read(path):
    try:
        with io.open(path, encoding="utf-8") as file:
            return file.read()
    except (IOError, OSError):
        return ""


def write(path, text, may_fail=False):
    """Put a file in place whole: first beside it, then renamed."""
    try:
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".part", path)
    except OSError:
        if not may_fail:
            raise


def remove(path):
    import shutil

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))

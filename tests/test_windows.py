"""What Windows lacks is asked for before it is used, and what stands in for it does the same.

Windows itself is tested by the workflow alone: here the names that it lacks are taken away.
"""

import ast
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from PIL import Image

import safecl

SOURCES = sorted(Path(safecl.__file__).parent.rglob("*.py"))
# Of the modules os and signal: "Availability: Unix" in Python's documentation.
LACKING = {
    "os": """chown fchmod fchown fork forkpty getegid geteuid getgid getgroups getpgid getpriority
      getsid getuid killpg lchown mkfifo mknod nice pread preadv pwrite pwritev register_at_fork
      sched_getaffinity sched_setaffinity sched_yield setgid setpgid setpriority setsid setuid
      statvfs sync sysconf uname wait wait3 wait4 waitid""",
    "signal": """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2
      alarm pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait""",
}
NEEDED = "register_at_fork"  # by Python's own modules, where there is a fork
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "syslog"}
ASKED = ("hasattr(os", "os.name", "sys.platform", "suppress(ImportError", "except ImportError")

SCRIPT = """
import json, os, signal, sys
for name in {os}: delattr(os, name)
for name in {signal}: delattr(signal, name)
from pathlib import Path
from safecl.classifier.modelfile.store import ModelFile
from safecl.ram import cores
from safecl.streams.pictures.find import File, opened
from safecl.streams.pictures.shards import Shard, contents
tar, model = map(Path, sys.argv[1:])
found, rest = contents(tar)
with Shard(tar) as shard:
    read = [shard.at(info.offset_data, info.size).hex() for _, info in found]
    odd = [shard.at(10**9, 5).hex(), shard.at(0, 0).hex()]
file = ModelFile(model)
print(json.dumps([[list(folders) for folders, _ in found], read, odd, file.digest,
                  [file.raw(name).hex()[:64] for name in file.sizes], cores() > 0]))
"""


def test_what_windows_lacks_is_asked_for_before_it_is_used() -> None:
    wrong = []
    for path in SOURCES:
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        spans = [
            (node.lineno, node.end_lineno or 0, ast.get_source_segment(text, node) or "")
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
        ]
        for node in ast.walk(tree):
            uses = []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                uses = [node.attr] if node.attr in LACKING.get(node.value.id, "").split() else []
            elif isinstance(node, ast.Import):
                uses = [one.name for one in node.names if one.name in MODULES]
            around = (
                [part for start, end, part in spans if start <= node.lineno <= end] if uses else []
            )
            if uses and not any(asked in part for part in around for asked in ASKED):
                wrong.append(f"{path.name}:{node.lineno} {uses[0]}")
    assert wrong == []


def test_without_the_names_that_windows_lacks_the_same_is_read(
    tmp_path: Path, new_model: Any, lesson: Any
) -> None:
    model = new_model("simplecil")
    model.learn(*lesson("ab", 2))
    model.save(tmp_path / "m.safecl")
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        for label in "ab":
            data = io.BytesIO()
            Image.new("RGB", (9, 9), {"a": "red", "b": "blue"}[label]).save(data, "PNG")
            for name, content in ((f"{label}.png", data.getvalue()), (f"{label}.cls", b"one\r\n")):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    here = []
    for gone in ({"os": [], "signal": []}, used()):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(**gone), "shard.tar", "m.safecl"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        here.append(json.loads(done.stdout))
    assert here[0] == here[1]
    assert here[0][0] == [["one"], ["one"]] and all(
        one.startswith("89504e47") for one in here[0][1]
    )


def used() -> dict[str, list[str]]:
    """Of the names that Windows lacks, those that the package names, but for one that Python's own
    modules need on this system.
    """
    text = "".join(path.read_text("utf-8") for path in SOURCES)
    return {
        module: [name for name in names.split() if name != NEEDED and f"{module}.{name}" in text]
        for module, names in LACKING.items()
    }

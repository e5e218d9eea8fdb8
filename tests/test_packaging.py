"""What a newcomer meets first: the two commands, the set-up behind them, the pinned
dependencies.
"""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

import safecl

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FULL_DISK = (
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
)
OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: Failed to"
    " establish a new connection: [Errno -3] Temporary failure in name resolution'\nERROR: Could"
    " not find a version that satisfies the requirement hatchling (from versions: none)"
)


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/setup.py at work in an empty checkout, with commands that only pretend."""
    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    spec = importlib.util.spec_from_file_location(
        "setup_under_test", tmp_path / "tools" / "setup.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.commands = []
    module.output = ""
    module.code = 0

    def pretend(command: list[str], stdout: Any, **_: Any) -> int:
        """Make the environment's Python; pip prints ``output`` and ends with ``code``."""
        module.commands.append(command)
        if "venv" in command:
            Path(module.PYTHON).parent.mkdir()
            Path(module.PYTHON).symlink_to(sys.executable)
            return 0
        if isinstance(module.code, BaseException):
            raise module.code
        stdout.write(module.output)
        return int(module.code)

    monkeypatch.setattr(subprocess, "call", pretend)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100e9))
    module.CANDIDATES = (sys.executable,)
    return module


def calls(setup: ModuleType, word: str) -> int:
    return sum(word in command for command in setup.commands)


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.endswith(".\n") and "Traceback" not in error
    return error


# The files agree with each other


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in script if not line.startswith(("#", "set ", "cd "))]
    blocks = re.findall(
        r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert commands == ["make test"]
    assert [block.strip() for block in blocks if block.startswith("make ")] == [
        "make demo",
        "make test",
    ]
    assert "make test" in (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_constraints_pin_every_declared_dependency_within_its_range() -> None:
    requirements = pytest.importorskip("packaging.requirements")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {normal(name): version for name, version in pins.items()}
    assert len(pinned) == len(pins)
    project = PYPROJECT["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    for text in project["dependencies"] + extras:
        requirement = requirements.Requirement(text)
        assert requirement.specifier.contains(pinned[normal(requirement.name)]), text


def test_no_constraint_belongs_to_one_platform_only() -> None:
    assert not re.search(r"nvidia|cuda|triton|\+cpu|@ ", uncommented(ROOT / "constraints.txt"))


def test_package_changelog_and_citation_name_the_same_version_and_day() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(
        r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$",
        (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert newest is not None
    assert (citation["version"], citation["date-released"]) == newest.groups() and newest[
        1
    ] == safecl.__version__


def test_workflows_test_what_is_advertised_and_publish_without_a_secret() -> None:
    files = (ROOT / ".github/workflows").glob("*.yml")
    flows = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}
    tested = flows["test"]["jobs"]["test"]["strategy"]["matrix"]
    named = " ".join(PYPROJECT["project"]["classifiers"])
    assert re.findall(r"Python :: (3\.\d+)", named) == tested["python"]
    assert ("macos-latest" in tested["os"]) == ("MacOS" in named)
    assert ("windows-latest" in tested["os"]) == ("Windows" in named)
    publish = flows["release"]["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and "with" not in publish["steps"][-1]
    assert flows["release"]["jobs"]["package"]["uses"] == "./.github/workflows/package.yml"
    assert "secrets" not in "".join(
        file.read_text(encoding="utf-8") for file in (ROOT / ".github/workflows").iterdir()
    )


def test_the_set_up_asks_for_the_python_that_the_package_asks_for(setup: ModuleType) -> None:
    assert PYPROJECT["project"]["requires-python"] == ">={}.{}".format(*setup.OLDEST)


# The set-up


def test_a_second_call_finds_everything_ready(setup: ModuleType) -> None:
    assert setup.main() == 0 and calls(setup, "pip") == 1
    assert setup.main() == 0 and calls(setup, "pip") == 1


def test_a_long_set_up_says_what_it_is_doing(
    setup: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(setup.LOG).parent.mkdir()
    Path(setup.LOG).write_text("Collecting timm\n  Downloading torch.whl (146 MB)\n")
    waits = iter((False, True))
    setup.tell(SimpleNamespace(wait=lambda seconds: next(waits)))
    assert capsys.readouterr().out == "  0 s  Downloading torch.whl (146 MB)\n"


def test_changed_requirements_update_the_environment_in_place(setup: ModuleType) -> None:
    setup.main()
    Path(setup.ROOT, "constraints.txt").write_text("torch==2.10.0\n")
    assert setup.main() == 0 and calls(setup, "pip") == 2 and calls(setup, "venv") == 1
    assert setup.main() == 0 and calls(setup, "pip") == 2


def test_a_named_python_is_used_and_stays(setup: ModuleType, tmp_path: Path) -> None:
    other = tmp_path / "other-python"
    other.symlink_to(sys.executable)
    setup.main()
    assert setup.main(str(other)) == 0 and setup.commands[-2][0] == str(other)  # made anew with it
    assert setup.main() == setup.main(str(other)) == 0 and calls(setup, "venv") == 2


@pytest.mark.parametrize("update", [False, True])
def test_an_environment_killed_half_made_is_made_anew(update: bool, setup: ModuleType) -> None:
    if update:
        setup.main()
        Path(setup.ROOT, "constraints.txt").write_text("torch==2.10.0\n")
    made = calls(setup, "venv")
    setup.code = Killed()
    with pytest.raises(Killed):
        setup.main()
    setup.code = 0
    Path(setup.VENV, "left-over").touch()
    assert setup.main() == 0 and calls(setup, "venv") == made + 2 - update
    assert not Path(setup.VENV, "left-over").exists()


def test_a_moved_checkout_is_made_anew(setup: ModuleType) -> None:
    setup.main()
    Path(setup.STAMP).write_text(
        Path(setup.STAMP).read_text(encoding="utf-8").replace(setup.ROOT, "/elsewhere")
    )
    assert setup.main() == 0 and calls(setup, "venv") == 2


def test_two_set_ups_at_once_take_turns(setup: ModuleType) -> None:
    import fcntl

    setup.main()
    stamp = Path(setup.STAMP).read_text(encoding="utf-8")
    Path(setup.STAMP).write_text("")
    with open(setup.LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, "tools/setup.py", sys.executable],
            cwd=setup.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert second.stdout is not None
        # printed only where somebody else holds the lock
        assert "waiting" in second.stdout.readline()
        Path(setup.STAMP).write_text(stamp)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert second.communicate(timeout=20)[0] == "" and second.returncode == 0


# What it says when it cannot


def test_an_old_python_can_read_the_set_up() -> None:
    source = (ROOT / "tools/setup.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 4))
    assert not any(
        isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr) for node in ast.walk(tree)
    )


@pytest.mark.parametrize("lack", ["import sys; sys.version_info = (3, 8)", "raise ImportError"])
@pytest.mark.parametrize("named", [False, True])
def test_an_old_python_or_one_without_venv_is_one_sentence(
    named: bool, lack: str, setup: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "old-python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{lack};'\"$2\"\n")
    python.chmod(0o755)
    setup.CANDIDATES = ("no-such-python", str(python))
    assert setup.main(str(python) if named else "") == 2
    sentence = one_sentence(capfd)
    assert (
        "needs Python 3.11 or newer with its venv module" in sentence and "make PYTHON=" in sentence
    )
    assert (str(python) in sentence) is named and not Path(setup.VENV).exists()


def test_a_full_disk_is_one_sentence_before_anything_is_made(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0.2e9))
    assert setup.main() == 2
    assert "disk is too full" in one_sentence(capsys) and not setup.commands


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (FULL_DISK, "disk is full"),
        (OFFLINE, "index cannot be reached"),
        (
            "ERROR: No matching distribution found for torch==0.0",
            "No matching distribution found for torch==0.0",
        ),
        ("", "ended without a word"),
    ],
)
def test_a_failed_install_is_one_sentence_and_can_be_tried_again(
    setup: ModuleType, capsys: pytest.CaptureFixture[str], output: str, says: str
) -> None:
    setup.output = output
    setup.code = 1
    assert setup.main() == 2
    assert says in one_sentence(capsys)
    setup.code = 0
    assert setup.main() == 0 and setup.made("") == setup.requirements()


def test_a_failed_update_keeps_the_environment(setup: ModuleType) -> None:
    setup.main()
    Path(setup.ROOT, "constraints.txt").write_text("torch==2.10.0\n")
    setup.code = 1
    assert setup.main() == setup.main() == 2
    setup.code = 0
    assert setup.main() == 0 and calls(setup, "venv") == 1


def test_a_folder_that_cannot_be_written_is_one_sentence(
    setup: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.LOCK = str(Path(setup.ROOT, "pyproject.toml", "lock"))
    assert setup.main() == 2
    assert "needs to write" in one_sentence(capsys)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def uncommented(path: Path) -> str:
    return "\n".join(
        line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    )

"""What a newcomer meets first: the two commands, the set-up behind them, the pinned dependencies."""

import ast
import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FULL_DISK = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: Failed to establish a new "
    "connection: [Errno -3] Temporary failure in name resolution'\n"
    "ERROR: Could not find a version that satisfies the requirement hatchling (from versions: none)"
)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/setup.py at work in an empty checkout, on a roomy disk, with a pip that only pretends."""
    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    spec = importlib.util.spec_from_file_location("setup_under_test", tmp_path / "tools" / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.commands = []

    def pretend(command: list[str], lock: object) -> tuple[int, str]:
        module.commands.append(command)
        if "venv" in command:
            python = Path(module.PYTHON)
            python.parent.mkdir()
            python.symlink_to(sys.executable)
        return 0, "Successfully installed"

    monkeypatch.setattr(module, "run", pretend)
    monkeypatch.setattr(module, "CANDIDATES", (sys.executable,))
    monkeypatch.setattr(module, "free_gigabytes", lambda folder: 100.0)
    return module


def pip_calls(setup: ModuleType) -> int:
    return sum("pip" in command for command in setup.commands)


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.endswith(".\n") and "Traceback" not in error
    return error


# The files agree with each other


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text().splitlines()
    commands = [line for line in script if not line.startswith(("#", "set ", "cd "))]
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert commands == ["make test"]
    assert [block.strip() for block in blocks if block.startswith("make ")] == ["make demo", "make test"]
    assert "make test" in (ROOT / ".github/workflows/test.yml").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_constraints_pin_every_declared_dependency_within_its_range() -> None:
    requirements = pytest.importorskip("packaging.requirements")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
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


def test_the_set_up_asks_for_the_python_that_the_package_asks_for(setup: ModuleType) -> None:
    assert PYPROJECT["project"]["requires-python"] == ">={}.{}".format(*setup.OLDEST)


# The set-up


def test_a_second_call_finds_everything_ready(setup: ModuleType) -> None:
    assert setup.main() == 0 and pip_calls(setup) == 1
    assert setup.main() == 0 and pip_calls(setup) == 1


def test_changed_requirements_update_the_environment_in_place(setup: ModuleType) -> None:
    setup.main()
    Path(setup.ROOT, "constraints.txt").write_text("torch==2.10.0\n")
    assert setup.main() == 0
    assert pip_calls(setup) == 2 and sum("venv" in command for command in setup.commands) == 1


def test_an_environment_killed_half_made_is_made_anew(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def kill(command: list[str], lock: object) -> tuple[int, str]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(setup, "run", kill)
        with pytest.raises(Killed):
            setup.main()
    Path(setup.VENV, "left-over").touch()
    assert setup.main() == 0 and setup.is_ready()
    assert not Path(setup.VENV, "left-over").exists()


def test_a_moved_checkout_is_not_ready(setup: ModuleType) -> None:
    setup.main()
    Path(setup.STAMP).write_text(Path(setup.STAMP).read_text().replace(setup.ROOT, "/elsewhere"))
    assert not setup.is_ready() and not setup.is_usable("")


def test_two_set_ups_at_once_take_turns(setup: ModuleType) -> None:
    import fcntl

    with open(setup.LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = "import sys; sys.path.insert(0, 'tools'); import setup; setup.probe = lambda p: ('3.11', True); " + (
            "setup.is_usable = setup.is_ready = lambda *a: bool(print('asked', flush=True)) or True; setup.set_up('p')"
        )
        second = subprocess.Popen([sys.executable, "-c", code], cwd=setup.ROOT, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert "waiting" in second.stdout.readline()  # printed only where the lock is held by somebody else
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert second.communicate(timeout=20)[0] == "asked\n"
        assert second.returncode == 0


# What it says when it cannot


def test_an_old_python_can_read_the_set_up() -> None:
    source = (ROOT / "tools/setup.py").read_text()
    tree = ast.parse(source, feature_version=(3, 4))
    assert not any(isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr) for node in ast.walk(tree))


@pytest.mark.parametrize("wanted", ["", "some-python"])
def test_an_old_python_is_one_sentence(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wanted: str
) -> None:
    monkeypatch.setattr(setup, "probe", lambda python: ("3.8", True))
    assert setup.main(wanted) == 2
    sentence = one_sentence(capsys)
    assert "needs Python 3.11 or newer" in sentence and "is 3.8" in sentence
    assert not Path(setup.VENV).exists()


def test_a_python_without_venv_is_one_sentence(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "probe", lambda python: ("3.12", False))
    assert setup.main() == 2
    assert "venv module" in one_sentence(capsys)


def test_a_full_disk_is_one_sentence_before_anything_is_made(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "free_gigabytes", lambda folder: 0.2)
    assert setup.main() == 2
    assert "disk is too full" in one_sentence(capsys) and not setup.commands


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (FULL_DISK, "disk is full"),
        (OFFLINE, "index cannot be reached"),
        ("ERROR: No matching distribution found for torch==0.0", "No matching distribution found for torch==0.0"),
        ("", "ended without a word"),
    ],
)
def test_a_failed_install_is_one_sentence_and_can_be_tried_again(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str, says: str
) -> None:
    pretend = setup.run
    with monkeypatch.context() as patch:
        patch.setattr(setup, "run", lambda command, lock: (1, output) if "pip" in command else pretend(command, lock))
        assert setup.main() == 2
    assert says in one_sentence(capsys) and not setup.is_ready()
    assert setup.main() == 0 and setup.is_ready()


def test_a_folder_that_cannot_be_written_is_one_sentence(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(python: str, wanted: str = "") -> None:
        raise PermissionError(errno.EACCES, "Permission denied", setup.LOCK)

    monkeypatch.setattr(setup, "set_up", refuse)
    assert setup.main() == 2
    assert "needs to write" in one_sentence(capsys)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def uncommented(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))

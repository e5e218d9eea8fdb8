"""Outputs: the real file behind a name, its lock, its rights, and what may be replaced."""

import errno
import os
import re
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from safecl.atomic import replacing, write_bytes
from safecl.outputs import KINDS, check_output, locked, write_output
from safecl.report.page import save
from safecl.report.table import as_csv, as_latex, as_markdown, make_table
from safecl.report.templates import render
from tests.conftest import raises

CSV = b'"c",d\n'  # the first name quoted, as we do


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, new_model: Any, lesson: Any) -> dict[str, bytes]:
    """A file of each kind, as we write it; of ONNX its beginning, since tracing a network takes
    long.
    """
    from matplotlib.figure import Figure

    from safecl.classifier.answers.weights import export_safetensors
    from safecl.classifier.model import Model

    table = make_table("Sizes", ("class", "share"), [["a", "1"]])
    folder = tmp_path_factory.mktemp("ours")
    svg, png = (file.read_bytes() for file in save(Figure(), folder / "figure"))
    texts = {"csv": as_csv(table), "tex": as_latex(table, "sizes"), "md": as_markdown(table)}
    texts["page"] = render("reproduction.html", title="Us", about="", targets=[])
    model = new_model("simplecil")
    model.learn(*lesson("ab", 2))
    model.save(folder / "m.safecl")
    export_safetensors(Model.open(folder / "m.safecl"), folder / "all")
    binary = {"svg": svg, "png": png, "safetensors": (folder / "all").read_bytes()}
    binary["onnx"] = b"\x08\x0a\x12\x06safecl\x1a\x050.1.0" + bytes(100)
    return binary | {kind: text.encode() for kind, text in texts.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_replaces_one_of_its_kind_and_nothing_else(
    kind: str, ours: dict[str, bytes], tmp_path: Path
) -> None:
    file = tmp_path / "out"
    for there in (None, b"", ours[kind]):
        if there is not None:
            file.write_bytes(there)
        write_output(file, ours[kind], kind)
        assert file.read_bytes() == ours[kind]
    page = b"<!DOCTYPE html>\n<html><head><title>safecl, by somebody</title></head></html>"
    others = [
        page,
        b"PK\x03\x04 a zip",
        b'{"a": 1,\n "b": 2}',
        b"Dear Ann,\nthe pictures are here, all of them.\n",
        b"class,share\na,1\n",
        b'"class","share"\n"a","1"\n',
        b"\xef\xbb\xbfclass;share\na;1\n",
        bytes(5000),
        b'\x10\n\0\0\0\0\0\0{"__metadata__":{"mine":"yes"}}',
        b"\x08\x0a\x12\x07pytorch",
        *(ours[one] for one in ours if one != kind),
    ]
    for other in others:
        file.write_bytes(other)
        with raises(
            "output.not-ours", path=file, why=f"is no {kind} of safecl", way=re.compile("^move it")
        ):
            write_output(file, ours[kind], kind)
        with raises("output.not-ours", way=re.compile("give another name, or --force")):
            check_output(file, kind, False)
        assert file.read_bytes() == other
        write_output(file, ours[kind], kind, True)
        assert file.read_bytes() == ours[kind]


def test_folders_and_devices_are_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, refused in (
        ("pipe", partial(raises, "output.no-file")),
        ("folder", partial(raises, "output.no-file", what=re.compile("a folder"))),
    ):
        with refused():
            write_output(tmp_path / name, b"x", "csv", True)
        assert not (tmp_path / name).is_file()
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/table.csv").write_text('"a",b\n')
    (tmp_path / "one").symlink_to("deep/table.csv")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    write_output(tmp_path / "two", CSV, "csv")
    assert (tmp_path / "deep/table.csv").read_text() == '"c",d\n'
    assert (tmp_path / "one").is_symlink() and (tmp_path / "two").is_symlink()
    for name, target in (("loop", "loop"), ("gone", "nowhere.csv")):
        (tmp_path / name).symlink_to(target)
        with raises("output.link.dangling", path=tmp_path / name):
            write_output(tmp_path / name, CSV, "csv")
    assert sorted(os.listdir(tmp_path)) == ["deep", "gone", "loop", "one", "two"]


def test_all_spellings_of_a_file_have_one_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    (home / "m").write_text('"a",b\n')
    (tmp_path / "link").symlink_to(home / "m")
    (tmp_path / "folder").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "sub")
    names = [
        "../m",
        "~/m",
        str(home / "m"),
        str(home / "sub/../m"),
        str(tmp_path / "link"),
        str(tmp_path / "folder/m"),
    ]
    with FileLock(home / ".m.lock"):
        for name in names:
            with raises("output.busy", path=name), locked(name):
                pass
            with raises("output.busy", path=name):
                write_output(name, CSV, "csv", True)
    for name in names:
        with locked(name) as file, locked(names[0]):  # what holds it may take it again
            assert file.samefile(home / "m")
            with raises("output.busy"):
                _elsewhere(lambda: write_output(names[1], CSV, "csv"))
    assert sorted(os.listdir(home)) == ["m", "sub"] and (home / "m").read_text() == '"a",b\n'


def _elsewhere(work: Callable[[], None]) -> None:
    """Do it in another thread; an error is raised here."""
    found: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(daemon=True, target=run)
    thread.start()
    thread.join()
    if found:
        raise found[0]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_rights_and_owner_of_a_file_are_kept(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_text("old")
    file.chmod(mode)
    if os.geteuid() == 0:
        os.chown(file, 4321, 1234)
    before = file.stat()
    with replacing(file) as opened:
        opened.write(b"new")
        half = next(tmp_path.glob(".m.*.part")).stat()
        assert stat.S_IMODE(half.st_mode) == 0o600  # nobody else reads half of it
    after = file.stat()
    assert file.read_bytes() == b"new" and stat.S_IMODE(after.st_mode) == mode
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_rights_that_the_umask_leaves(
    umask: int, mode: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        write_bytes(tmp_path / "m", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == mode


def test_an_owner_that_cannot_be_kept_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("safecl.atomic.os.fchown", refused)
    (tmp_path / "m").write_text("old")
    write_bytes(tmp_path / "m", b"new")
    assert (tmp_path / "m").read_bytes() == b"new"


def test_the_next_writer_deletes_what_a_killed_one_left_and_no_other_file(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    left = [".m.csv.1.part", f".m.csv.{os.getppid()}.part", ".m.csv.lock"]
    strangers = [
        ".m.csv.x.part",
        ".n.csv.1.part",
        "m.csv.1.part",
        ".m.csv.1.part.txt",
        ".mxcsv.1.part",
    ]
    for name in (*left, *strangers):
        (tmp_path / name).write_text("half")
    (tmp_path / ".m.csv.2.part").symlink_to(victim)
    # where the new file is about to be written
    (tmp_path / f".m.csv.{os.getpid()}.part").symlink_to(victim)
    write_output(tmp_path / "m.csv", CSV, "csv")
    assert sorted(os.listdir(tmp_path)) == sorted([*strangers, ".m.csv.2.part", "m.csv", "victim"])
    assert victim.read_text() == "kept" and not (tmp_path / "m.csv").is_symlink()


@pytest.mark.parametrize("call", ["open", "fsync", "fchmod", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_cannot_be_written_is_a_sentence_and_the_old_file_stays(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.csv"
    file.write_text('"a",b\n')

    def failing(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(f"safecl.atomic.os.{call}", failing)
        # what is opened first is the lock
        wanted = "file.place.not-writable" if call == "open" else "file.not-written"
        with raises(wanted, reason=os.strerror(code)):
            write_output(file, CSV, "csv")
    assert file.read_text() == '"a",b\n' and os.listdir(tmp_path) == ["m.csv"]


def test_a_folder_that_cannot_be_synced_is_said_and_the_new_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr("safecl.atomic.os.fsync", failing)
    with pytest.warns(
        UserWarning, match=r"m.csv is written, but a power failure may undo that \(Input/output"
    ):
        write_output(tmp_path / "m.csv", CSV, "csv")
    assert (tmp_path / "m.csv").read_bytes() == CSV and os.listdir(tmp_path) == ["m.csv"]


def test_a_write_protected_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.csv").write_text('"a",b\n')
    monkeypatch.setattr("safecl.outputs.os.access", lambda path, how: how != os.W_OK)
    with raises("output.protected", path=re.compile(r"m\.csv$")):
        write_output(tmp_path / "m.csv", CSV, "csv", True)
    assert os.listdir(tmp_path) == ["m.csv"] and (tmp_path / "m.csv").read_text() == '"a",b\n'


def test_an_error_of_writing_without_a_number_is_told_in_its_words(tmp_path: Path) -> None:
    with (
        raises("file.not-written", reason="the disk is gone"),
        replacing(tmp_path / "a"),
    ):
        raise OSError("the disk is gone")

"""Archives are not trusted, and an unfinished folder is never seen."""

import io
import os
import shutil
import stat
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from PIL import Image

from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.archive import md5_of, open_source
from safecl.streams.datasets.dataset import Archive
from safecl.streams.datasets.prepare import prepare
from tests.conftest import raises

CUB = replace(DATASETS["cub"], archives=(Archive("cub.zip"),))


def png(colour: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 4), (colour, 0, 0)).save(out, "PNG")
    return out.getvalue()


def small_zip(path: Path, extra: dict[str, bytes] | None = None) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(6):
            archive.writestr(f"cub/{'train' if i < 4 else 'test'}/bird{i % 2}/{i}.png", png(i))
        for name, data in (extra or {}).items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "name",
    ["../evil.png", "/etc/evil.png", "cub/train/../../../evil.png", "C:/evil.png", "..\\evil.png"],
)
def test_a_zip_that_points_outside_writes_nothing_there(tmp_path: Path, name: str) -> None:
    archive = small_zip(tmp_path / "deep/cub.zip", {name: png(9)})
    open_source(archive, tmp_path / "deep/work")
    assert all(
        found.is_relative_to(tmp_path / "deep/work/cub.zip") for found in tmp_path.rglob("*evil*")
    )
    assert not Path("/etc/evil.png").exists()


def test_a_link_in_a_zip_becomes_a_plain_file(tmp_path: Path) -> None:
    archive = small_zip(tmp_path / "cub.zip")
    with zipfile.ZipFile(archive, "a") as out:
        link = zipfile.ZipInfo("cub/train/bird0/link.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        out.writestr(link, "/etc/passwd")
    made = prepare(CUB, archive, tmp_path / "root") / "train/bird0/link.png"
    assert not made.is_symlink() and made.read_text() == "/etc/passwd"


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_a_link_or_device_in_a_tar_is_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        member = tarfile.TarInfo("n01/a.png")
        member.type = kind
        member.linkname = "/etc/passwd"
        archive.addfile(member)
    with raises("dataset.archive.damaged", path=tmp_path / "x.tar"):
        open_source(tmp_path / "x.tar", tmp_path / "work")


def test_a_tar_that_points_outside_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        member = tarfile.TarInfo("../../evil.png")
        archive.addfile(member, io.BytesIO())
    with raises("dataset.archive.damaged", path=tmp_path / "x.tar"):
        open_source(tmp_path / "x.tar", tmp_path / "work")
    assert not list(tmp_path.rglob("evil*"))


def test_a_wrong_md5_is_refused_unless_it_is_unpacked_by_hand(tmp_path: Path) -> None:
    archive = small_zip(tmp_path / "cub.zip")
    why = f"its md5 is {md5_of(archive)}, not 85e342a2d5f941e740193602057df7a5"
    with raises("dataset.archive.not-published", why=why):
        prepare(DATASETS["cub"], archive, tmp_path / "root")
    shutil.unpack_archive(archive, tmp_path / "by hand")
    assert prepare(DATASETS["cub"], tmp_path / "by hand", tmp_path / "root").is_dir()


def test_what_was_killed_starts_over_and_is_seen_only_when_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = small_zip(tmp_path / "cub.zip")
    root = tmp_path / "root"
    copy = shutil.copyfileobj
    copied = 0

    def dies_in_the_third(source: IO[bytes], out: IO[bytes], *size: int) -> None:
        nonlocal copied
        copied += 1
        copy(source, out, *size)
        if copied == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfileobj", dies_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        prepare(CUB, archive, root)
    assert not (root / "cub").exists() and not (root / ".cub.partial").exists()
    stranger = root / ".cub.partial/unpacked/cub.zip/cub/train/bird0/stranger.png"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"of a call that was killed at once")
    prepare(CUB, archive, root)
    assert (
        len([path for path in (root / "cub").rglob("*.png") if path.stat().st_size]) == 6
        and copied == 9
    )
    assert not list(root.rglob("*.partial"))


def test_preparing_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    archive = small_zip(tmp_path / "cub.zip")
    said = []
    place = prepare(CUB, archive, tmp_path / "root")
    archive.unlink()
    assert prepare(CUB, archive, tmp_path / "root", say=said.append) == place
    assert "already" in said[0]


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    archive = small_zip(tmp_path / "cub.zip")
    data = bytearray(archive.read_bytes())
    data[60:70] = b"\0" * 10
    archive.write_bytes(bytes(data))
    with raises("dataset.archive.damaged"):
        prepare(CUB, archive, tmp_path / "root")
    archive.write_bytes(bytes(data[:200]))
    with raises("dataset.archive.not-whole"):
        prepare(CUB, archive, tmp_path / "root")


def test_an_archive_of_something_else_is_one_sentence(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cub.zip", "w") as archive:
        archive.writestr("holiday/beach.txt", b"sand")
    with raises("dataset.source.no-folders"):
        prepare(CUB, tmp_path / "cub.zip", tmp_path / "root")
    with raises("dataset.source.missing"):
        prepare(CUB, tmp_path / "nothing.zip", tmp_path / "root")


def test_a_folder_source_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.png").write_bytes(png(1))
    os.symlink(tmp_path / "secret.png", tmp_path / "in" / "link.png")
    assert open_source(tmp_path / "in", tmp_path / "work").names == []


def test_an_unpacked_folder_is_copied_and_stays(tmp_path: Path) -> None:
    with zipfile.ZipFile(small_zip(tmp_path / "cub.zip")) as archive:
        archive.extractall(tmp_path / "mine")
    prepare(CUB, tmp_path / "mine", tmp_path / "root")
    assert (
        len(list((tmp_path / "mine").rglob("*.png")))
        == len(list((tmp_path / "root/cub").rglob("*.png")))
        == 6
    )


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with raises("dataset.not-written", title="CUB-200-2011", reason="No space left on device"):
        prepare(CUB, small_zip(tmp_path / "cub.zip"), tmp_path / "root")
    assert [path.name for path in (tmp_path / "root").iterdir()] == [".cub.lock"]

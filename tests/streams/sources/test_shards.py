"""Pictures in tar shards are those of the folder that was packed: by value, by fingerprint, and
when somebody lies.
"""

import gzip
import io
import json
import os
import re
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.data import labelled
from safecl.engine.identity import data_of, difference, of_parts
from safecl.errors import SafeclError
from safecl.streams.catalog import check_stream, open_stream
from safecl.streams.pictures.decode import decode
from safecl.streams.pictures.find import opened
from safecl.streams.settings import parse_stream
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import Stream
from tests.conftest import raises


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def pack(
    top: Path, out: Path, shards: int = 2, prefix: str = "", form: int = tarfile.PAX_FORMAT
) -> Path:
    """The files below ``top`` in sorted order, cut into shards."""
    files = sorted(path for path in top.rglob("*") if path.is_file())
    out.mkdir(parents=True)
    for number, some in enumerate(np.array_split(np.arange(len(files)), shards)):
        with tarfile.open(out / f"{number}.tar", "w", format=form) as tar:
            for i in some:
                add(tar, prefix + files[i].relative_to(top).as_posix(), files[i].read_bytes())
    return out


def one_shard(path: Path, *members: tuple[str, bytes], **fields: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            add(tar, name, data, **fields)
    return path


def said(path: Path) -> str:
    with pytest.raises(SafeclError) as error:
        read_folder(path)
    assert str(error.value).count("\n") == 0 and str(error.value).endswith(".")
    return str(error.value)


@pytest.fixture
def png(paint: Callable[..., Path], tmp_path: Path) -> bytes:
    return paint(tmp_path / "one.png", seed=9).read_bytes()


@pytest.mark.parametrize(
    ("counts", "shards", "prefix", "form"),
    [
        ({"ant": 7, "bee": 5, "cat/attic": 2, "cat": 3}, 3, "", tarfile.PAX_FORMAT),
        ({"a" * 90 + "/" + "b" * 90: 5, "käfer ñ": 5, "train": 5}, 2, "./", tarfile.GNU_FORMAT),
        (
            {f"{d}/{c}": 5 for d in ("photo", "art") for c in ("dog", "cat")},
            1,
            "",
            tarfile.USTAR_FORMAT,
        ),
    ],
)
def test_shards_are_the_stream_of_the_folder_they_were_made_from(
    class_folder, tmp_path: Path, counts: dict[str, int], shards: int, prefix: str, form: int
) -> None:
    top = class_folder(counts)
    streams = [
        open_stream(f"folder:{path}", size=16, cache=False, held_out=0.2)
        for path in (top, pack(top, tmp_path / "shards", shards, prefix, form))
    ]
    whole, cut = streams
    assert (
        data_of(cut) == data_of(whole)
        and cut.sessions == whole.sessions
        and cut.split == whole.split
    )
    assert cut.fingerprint() == whole.fingerprint()
    for number in range(1, len(whole) + 1):
        for part in (Stream.test, Stream.validation, lambda stream, n: stream.copy().open(n).train):
            ours, theirs = (part(stream, number) for stream in (cut, whole))
            assert list(ours.labels) == list(theirs.labels)
            every = range(len(ours))
            assert [ours.digest(i) for i in every] == [theirs.digest(i) for i in every]
            if len(ours):
                assert ours.plain(every, cut.transform).equal(theirs.plain(every, whole.transform))


def test_a_run_that_began_on_a_folder_goes_on_with_its_shards(
    class_folder, make_backbone, tmp_path: Path
) -> None:
    top = class_folder({"ant": 7, "bee": 5, "cat": 3})
    backbone = make_backbone()

    def identity(path: Path) -> dict[str, Any]:
        settings = parse_stream(f"folder:{path}")
        stream = open_stream(settings, size=16)
        return of_parts({"stream": settings.model_dump(), "seed": 0}, backbone, data_of(stream))

    shards = pack(top, tmp_path / "shards")
    begun = identity(top)
    assert difference(begun, identity(shards)) is None
    data = (shards / "1.tar").read_bytes()
    at = data.rindex(b"IEND")
    (shards / "1.tar").write_bytes(data[: at - 9] + bytes([data[at - 9] ^ 1]) + data[at - 8 :])
    assert "pictures of session" in str(difference(begun, identity(shards)))


def test_train_and_test_shards_lie_in_folders_of_these_names(class_folder, tmp_path: Path) -> None:
    top = class_folder({"train/ant": 3, "train/bee": 2, "test/ant": 1, "test/bee": 2})
    for part in ("train", "test"):
        pack(top / part, tmp_path / "shards" / part)
    ours = read_folder(tmp_path / "shards")
    theirs = read_folder(top)
    assert ours.train.fingerprint() == theirs.train.fingerprint() and ours.split == theirs.split
    assert ours.test.fingerprint() == theirs.test.fingerprint() and len(ours.test) == 3
    assert "test/ant/000.png is in no class folder; expected" in said(
        pack(top, tmp_path / "mixed", 1)
    )


def test_one_shard_is_read_by_its_path_and_learned_from(class_folder, tmp_path: Path) -> None:
    top = class_folder({"ant": 3, "bee": 2})
    path = pack(top, tmp_path / "shards", 1) / "0.tar"
    found, name = labelled(path)
    assert found.fingerprint() == labelled(top)[0].fingerprint() and name == "0.tar"
    with raises("stream.name.folder", text=str(path)):
        open_stream(str(path))


def test_samples_of_webdataset_are_pictures_in_the_folders_of_their_labels(
    class_folder, tmp_path: Path
) -> None:
    top = class_folder({"7": 3, "kea": 2})
    with tarfile.open(tmp_path / "samples.tar", "w") as tar:
        for number, path in enumerate(sorted(top.rglob("*.png"))[::-1]):  # in whatever order
            label = path.parent.name
            sample = f"{path.parent.name}-{path.stem}"
            path.rename(path.with_name(f"{sample}.png"))
            add(tar, f"{sample}.png", path.with_name(f"{sample}.png").read_bytes())
            text = (
                json.dumps({"label": 7 if label == "7" else label, "n": 1})
                if number % 2
                else f"{label}\n"
            )
            add(tar, f"{sample}.{'json' if number % 2 else 'cls'}", text.encode())
            add(tar, f"{sample}.txt", b"a caption")
    with pytest.warns(
        UserWarning, match=r"^5 files are omitted without the ending of a picture: .*kea-001\.txt"
    ):
        ours = read_folder(tmp_path / "samples.tar")
        theirs = read_folder(top)
    assert ours.classes == theirs.classes == ("7", "kea")
    assert ours.train.fingerprint() == theirs.train.fingerprint()
    assert ours.test.fingerprint() == theirs.test.fingerprint()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"b.png": b"x"}, "1 of its pictures have no label"),
        ({"cat/b.png": b"x"}, "1 of its pictures have no label"),
        ({"a.seg.png": b"x"}, r"a\.cls is not the label of one picture"),
        ({"b.png": b"x", "b.cls": b" "}, r"b\.cls is not the label"),
        ({"b.png": b"x", "b.json": b'{"label": true}'}, r"b\.json is not the label"),
        ({"b.png": b"x", "b.json": b"[1]"}, ""),
        ({"b.png": b"x", "b.json": b"[" * 100_000}, ""),
        ({"b.png": b"x", "b.cls": b"\xff"}, ""),
    ],
)
def test_a_sample_without_one_label_is_refused(
    tmp_path: Path, png: bytes, more: dict[str, bytes], why: str
) -> None:
    one_shard(tmp_path / "s.tar", ("a.png", png), ("a.cls", b"ant"), *more.items())
    with raises("pictures.shard.unreadable", why=re.compile(why)):
        read_folder(tmp_path / "s.tar")


@pytest.mark.parametrize(
    "fields",
    [{"type": kind, "linkname": "/etc/passwd"} for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)]
    + [{"type": kind} for kind in (tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE)]
    + [
        {
            "pax_headers": {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.realsize": "9",
            }
        }
    ],
)
def test_links_devices_and_sparse_members_are_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    assert "cannot be read (" in said(one_shard(tmp_path / "s.tar", ("ant/1.png", b""), **fields))


@pytest.mark.parametrize(
    "name", ["../ant/1.png", "ant/../../1.png", "/etc/ant/1.png", "ant//1.png"]
)
def test_a_name_is_no_path(tmp_path: Path, png: bytes, name: str) -> None:
    assert "leads elsewhere" in said(one_shard(tmp_path / "s.tar", (name, png)))


def test_a_name_may_be_there_once(tmp_path: Path, png: bytes) -> None:
    one_shard(tmp_path / "in/a.tar", ("ant/1.png", png), ("ant/1.png", png))
    assert "a.tar hold two pictures ant/1.png" in said(tmp_path / "in/a.tar")
    one_shard(tmp_path / "over/a.tar", ("ant/1.png", png))
    one_shard(tmp_path / "over/b.tar", ("ant/1.png", png))
    assert "over hold two pictures ant/1.png" in said(tmp_path / "over")


def test_a_damaged_shard_is_one_sentence_wherever_it_breaks(class_folder, tmp_path: Path) -> None:
    path = pack(class_folder({"ant": 3, "bee": 3}), tmp_path / "shards", 1) / "0.tar"
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0")) + 511 & ~511
    for cut in (0, 100, 512, 700, end // 2, end - 512, end):
        path.write_bytes(whole[:cut])
        assert "cannot be read" in said(path.parent), cut
    for at in range(0, end, 512):  # a block that is no header, or another one
        path.write_bytes(whole[:at] + b"\xff" * 512 + whole[at + 512 :])
        try:
            read_folder(path.parent)
        except SafeclError as error:
            assert "\n" not in str(error)
    path.write_bytes(whole[: end + 1024] + whole)
    assert "goes on behind its end" in said(path.parent)
    path.write_bytes(gzip.compress(whole))
    assert "uncompressed" in said(path.parent)
    path.unlink()
    path.symlink_to("nothing")
    assert "cannot be read" in said(path.parent)


def test_a_header_that_claims_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    for size in (1 << 33, -512):
        info = tarfile.TarInfo("././@LongLink")
        info.type = tarfile.GNUTYPE_LONGNAME
        info.size = size
        with open(tmp_path / "s.tar", "wb") as file:
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.truncate(1 << 34)  # sparse
        assert "a header is too long" in said(tmp_path / "s.tar")
    with open(tmp_path / "s.tar", "wb") as file:  # members that lead back to themselves
        info = tarfile.TarInfo("ant/1.png")
        info.size = -512
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    assert "cannot be read" in said(tmp_path / "s.tar")


def test_an_empty_or_broken_picture_is_named_with_its_shard(tmp_path: Path, png: bytes) -> None:
    names = [
        (f"{label}/{i}.png", png + bytes([i, len(label)]))
        for i in range(3)
        for label in ("ant", "beetle")
    ]
    path = one_shard(tmp_path / "s.tar", *names, ("ant/empty.png", b""), ("ant/text.png", b"text"))
    assert "s.tar/ant/empty.png (an empty file)" in said(path)
    with pytest.warns(
        UserWarning, match=r"2 pictures are omitted as unreadable: .*s\.tar/ant/empty\.png"
    ):
        assert len(read_folder(path, unreadable="skip", test_fraction=0).train) == 6
    assert "2 pictures cannot be read" in check_stream(parse_stream(f"folder:{path}")).problems[0]


def test_what_is_no_picture_is_left_out_and_what_is_not_read_is_said(
    tmp_path: Path, png: bytes
) -> None:
    members = [
        ("ant/1.png", png),
        ("ant/.2.png", png),
        ("__MACOSX/ant/3.png", png),
        ("ant/notes.txt", b"x"),
    ]
    path = one_shard(tmp_path / "s.tar", *members, ("ant/4.psd", b"x"))
    with pytest.warns(UserWarning) as told:
        assert read_folder(path).train.labels == ["ant"]
    kinds, others = (str(one.message) for one in told)
    assert kinds.startswith("1 picture is omitted of a kind that is not read, ") and kinds.endswith(
        "s.tar/ant/4.psd."
    )
    assert others == f"1 file is omitted without the ending of a picture: {path}/ant/notes.txt."
    assert "no picture in a class folder" in said(
        one_shard(tmp_path / "none.tar", ("ant/.notes", b"x"))
    )
    assert "is in no class folder" in said(one_shard(tmp_path / "flat.tar", ("1.png", png)))


def test_a_shard_beside_class_folders_is_omitted_with_a_warning(
    class_folder, tmp_path: Path, png: bytes
) -> None:
    top = class_folder({"ant": 2, "bee": 2})
    before = read_folder(top).train.fingerprint()
    one_shard(top / "backup.tar", ("ant/9.png", png))
    one_shard(top / "bee" / "more.tar", ("ant/9.png", png))
    with pytest.warns(
        UserWarning, match=r"2 shards are omitted beside folders .*backup\.tar, .*bee/more\.tar"
    ):
        assert read_folder(top).train.fingerprint() == before


def test_what_lies_beside_shards_is_said(tmp_path: Path, png: bytes) -> None:
    top = tmp_path / "shards"
    top.mkdir()
    one_shard(top / "s.tar", ("ant/1.png", png), ("bee/2.png", png + b"2"))
    (top / "README.md").write_text("x")
    with pytest.warns(UserWarning, match=rf"^1 file is omitted without .*: {top}/README\.md"):
        assert read_folder(top).classes == ("ant", "bee")


def test_a_shard_that_is_replaced_is_noticed(class_folder, tmp_path: Path) -> None:
    path = pack(class_folder({"ant": 4, "bee": 3}), tmp_path / "shards", 1) / "0.tar"
    pictures = read_folder(path, test_fraction=0).train
    pictures.decode(0)
    (tmp_path / "other").write_bytes(path.read_bytes())
    os.replace(tmp_path / "other", path)
    for change in (lambda: None, path.unlink):
        change()
        with raises("picture.changed", where=f"{path}/ant/001.png"):
            pictures.decode(1)


def test_a_shard_put_in_place_of_one_of_its_size_and_time_is_read(tmp_path: Path, paint) -> None:
    ant, bee = (paint(tmp_path / f"{seed}.bmp", seed).read_bytes() for seed in (1, 2))
    path = one_shard(tmp_path / "s.tar", ("ant/1.bmp", ant), ("bee/2.bmp", bee))
    before = path.stat()
    first = read_folder(path, test_fraction=0).train
    assert first.decode(0).tobytes() == decode(ant, "ant").tobytes()
    known = first.fingerprint()
    other = one_shard(tmp_path / "other", ("ant/1.bmp", bee), ("bee/2.bmp", ant))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)
    assert path.stat().st_size == before.st_size
    now = read_folder(path, test_fraction=0).train
    assert now.decode(0).tobytes() == decode(bee, "bee").tobytes()
    assert now.fingerprint() != known


def test_threads_and_forks_share_one_open_file_per_shard(class_folder, tmp_path: Path) -> None:
    top = class_folder({"ant": 20, "bee": 20})
    pictures, files = (
        read_folder(path, test_fraction=0).train for path in (pack(top, tmp_path / "s"), top)
    )
    opened.cache_clear()
    expected = [files.digest(i) for i in range(40)]
    wrong = list[int]()

    def read(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(40)
        wrong.extend(i for i in order if pictures.digest(i) != expected[i])

    threads = [threading.Thread(daemon=True, target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        read(9)
        os._exit(bool(wrong))
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0 and not wrong and opened.cache_info().currsize == 2

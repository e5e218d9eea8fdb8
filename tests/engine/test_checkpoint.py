"""A file is whole or not there, whatever goes wrong while it is written; what cannot be trusted is
refused.
"""

import errno
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from safecl import atomic
from safecl.atomic import append_lines, read_lines, write_bytes, write_json, write_lines
from safecl.engine.checkpoint import load_state, save_state
from safecl.errors import SafeclError
from tests.conftest import raises

OLD = {"w": torch.arange(6.0).reshape(2, 3)}
NEW = {"w": torch.zeros(200, 300)}


def refuse(number: int) -> Callable[..., Any]:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


class Faulty:
    """A file that writes a part of what it is given, and then fails."""

    def __init__(self, file: Any, number: int, part: float) -> None:
        self.file = file
        self.number = number
        self.part = part

    def write(self, data: bytes) -> int:
        self.file.write(data[: int(len(data) * self.part)])
        self.file.flush()
        raise OSError(self.number, os.strerror(self.number))

    def __enter__(self) -> "Faulty":
        return self

    def __exit__(self, *caught: Any) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def break_writing(
    monkeypatch: pytest.MonkeyPatch, number: int, part: float, kind: str = "w"
) -> None:
    """Let files opened to write ("w") or to add to ("a") fail; a file is opened by its path or by
    its descriptor.
    """

    def breaking(real: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(what: Path | int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            file = real(what, mode, *arguments, **options)
            return Faulty(file, number, part) if kind in mode else file

        return faulty

    monkeypatch.setattr(Path, "open", breaking(Path.open))
    monkeypatch.setattr(atomic, "open", breaking(open), raising=False)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch, int], None]] = {
    "open": lambda patch, number: patch.setattr(os, "open", refuse(number)),
    "write": lambda patch, number: break_writing(patch, number, 0.0),
    "short write": lambda patch, number: break_writing(patch, number, 0.7),
    "fsync": lambda patch, number: patch.setattr(os, "fsync", refuse(number)),
    "rename": lambda patch, number: patch.setattr(os, "replace", refuse(number)),
}


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=["full", "broken", "quota"]
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_leaves_the_file_before_it_intact(
    fault: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state.safetensors"
    save_state(file, OLD, {"session": 1})
    before = file.read_bytes()
    with monkeypatch.context() as patch:
        FAULTS[fault](patch, number)
        with pytest.raises(SafeclError) as caught:
            save_state(file, NEW, {"session": 2})
    assert str(file) in str(caught.value) and os.strerror(number) in str(caught.value)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [file.name]  # nothing left lying around
    assert load_state(file)[1] == {"session": 1}
    save_state(file, NEW, {"session": 2})  # and once there is room again, it works
    assert load_state(file)[1] == {"session": 2}


@pytest.mark.parametrize("moment", ["write", "fsync", "rename"])
def test_a_process_killed_at_any_moment_leaves_the_old_file_or_the_new_one(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Nothing catches it, as nothing catches SIGKILL."""

    def die(*arguments: Any, **options: Any) -> Any:
        raise Killed

    file = tmp_path / "state.safetensors"
    save_state(file, OLD, {"session": 1})
    with monkeypatch.context() as patch:
        if moment == "write":
            patch.setattr(Faulty, "write", die)
            break_writing(patch, errno.EIO, 0.5)
        else:
            patch.setattr(os, {"fsync": "fsync", "rename": "replace"}[moment], die)
        with pytest.raises(Killed):
            save_state(file, NEW, {"session": 2})
    assert load_state(file)[1] == {"session": 1}
    save_state(file, NEW, {"session": 2})
    assert load_state(file)[1] == {"session": 2}


def test_the_data_is_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync = os.fsync
    rename = os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: order.append("sync") or sync(descriptor))
    monkeypatch.setattr(os, "replace", lambda a, b: order.append("rename") or rename(a, b))
    write_bytes(tmp_path / "file", b"data")
    # the file, its name, and the folder that holds the name
    assert order == [
        "sync",
        "rename",
        "sync",
    ]


def test_a_missing_or_read_only_folder_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises("file.not-written"):
        write_bytes(tmp_path / "none" / "file", b"data")
    monkeypatch.setattr(os, "open", refuse(errno.EROFS))
    with raises("file.not-written"):
        write_bytes(tmp_path / "file", b"data")


def test_json_and_lines_keep_every_letter(tmp_path: Path) -> None:
    value = [{"label": "Größe ✓", "number": 0.1}, {"label": "line\nbreak", "number": None}]
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text()) == value
    write_lines(tmp_path / "a.jsonl", value)
    text = (tmp_path / "a.jsonl").read_text()
    assert "Größe ✓" in text and [json.loads(line) for line in text.splitlines()] == value


@pytest.mark.parametrize("fault", ["write", "short write", "fsync"])
def test_lines_that_cannot_be_added_are_taken_back(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "losses.jsonl"
    append_lines(file, [{"session": 1}])
    with monkeypatch.context() as patch:
        (
            break_writing(patch, errno.ENOSPC, 0.5, "a")
            if "write" in fault
            else FAULTS[fault](patch, errno.ENOSPC)
        )
        with raises("file.not-written"):
            append_lines(file, [{"session": 2, "much": "x" * 100}])
    append_lines(file, [{"session": 2}])
    assert file.read_text() == '{"session": 1}\n{"session": 2}\n'


def test_of_a_line_for_which_there_is_half_the_room_nothing_stays(tmp_path: Path) -> None:
    file = tmp_path / "losses.jsonl"
    append_lines(file, [{"session": 1}])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 40, hard))
        with raises("file.not-written"):
            append_lines(file, [{"session": 2, "much": "x" * 100}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == '{"session": 1}\n'


def test_lines_are_read_up_to_a_session_and_torn_ones_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert read_lines(file, 5) == []
    file.write_bytes(
        b'{"session": 1}\n{"session": 2, "name": "e"}\n[3]\n{"session": 3}\n{"session": 3, "nam'
    )
    assert [line["session"] for line in read_lines(file, 3)] == [1, 2, 3]
    assert [line["session"] for line in read_lines(file, 2)] == [1, 2]


# -- tensors ---------------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.lists(st.integers(0, 3), max_size=3),
            st.sampled_from(
                [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]
            ),
        ),
        max_size=4,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_every_tensor_comes_back_to_the_bit(
    tmp_path: Path, shapes: dict[str, tuple[list[int], torch.dtype]]
) -> None:
    tensors = {name: (torch.randn(shape) * 9).to(dtype) for name, (shape, dtype) in shapes.items()}
    facts = {"classes": ["a", 3, "é"], "names": list(tensors)}
    save_state(tmp_path / "state", tensors, facts)
    found, read = load_state(tmp_path / "state")
    assert read == facts and found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_views_and_gradients_are_stored_as_plain_values(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    tensors: dict[str, Tensor] = {
        "transposed": whole.T,
        "column": whole[:, 1],
        "parameter": torch.nn.Parameter(whole.clone()),
        "rows": whole[:2],
        "whole": whole,
        "square": whole[:, :3],
        "square transposed": whole[:, :3].T,
    }
    save_state(tmp_path / "state", tensors, {})
    found, _ = load_state(tmp_path / "state")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_tensor_under_two_names_is_stored_once(tmp_path: Path) -> None:
    big = torch.randn(100, 100)
    save_state(tmp_path / "twice", {"slow.gram": big, "fast.gram": big, "small": torch.ones(1)}, {})
    save_state(tmp_path / "once", {"slow.gram": big, "small": torch.ones(1)}, {})
    assert (tmp_path / "twice").stat().st_size < (tmp_path / "once").stat().st_size + 200
    assert set(load_file(tmp_path / "twice")) == {"slow.gram", "small"}
    found, _ = load_state(tmp_path / "twice")
    assert torch.equal(found["slow.gram"], big) and torch.equal(found["fast.gram"], big)


def test_empty_tensors_are_not_taken_for_one_another(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(0, 5), "b": torch.zeros(3, 0), "c": torch.zeros(0)}
    save_state(tmp_path / "state", tensors, {})
    found, _ = load_state(tmp_path / "state")
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: t.shape for name, t in tensors.items()
    }


# -- what is refused -------------------------------------------------------------------------------


def sentence(file: Path) -> str:
    with pytest.raises(SafeclError) as caught:
        load_state(file)
    text = str(caught.value)
    assert str(file) in text and "\n" not in text and text.endswith(".")
    return text


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    sentence(tmp_path / "none")
    sentence(tmp_path)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.2, 0.9, 0.9999])
def test_a_cut_file_is_refused(part: float, tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_state(file, NEW, {"session": 1})
    whole = file.read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    assert "damaged" in sentence(file)


@pytest.mark.parametrize("place", [0.3, 0.7, 0.99999])
def test_a_flipped_bit_is_noticed(place: float, tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_state(file, NEW, {"session": 1})
    whole = bytearray(file.read_bytes())
    whole[int(place * len(whole))] ^= 4
    file.write_bytes(whole)
    assert "damaged" in sentence(file)


def test_a_longer_file_or_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_state(file, OLD, {})
    file.write_bytes(file.read_bytes() + b"more")
    sentence(file)
    file.write_bytes(b"\x89PNG\r\n" * 100)
    sentence(file)


def test_weights_that_are_no_state_are_refused(tmp_path: Path) -> None:
    for metadata in (None, {"format": "pt"}, {"facts": "{}"}):
        save_file(OLD, tmp_path / "weights", metadata)
        assert "not written by safecl" in sentence(tmp_path / "weights")


@pytest.mark.parametrize(
    "metadata",
    [
        {"format": "one", "facts": "{}"},
        {"format": "1", "facts": "{broken"},
        {"format": "1", "facts": "{}", "alias": "[broken"},
        {"format": "1", "facts": "{}", "alias": '{"a": "nobody"}'},
    ],
    ids=["format", "facts", "alias", "owner"],
)
def test_a_header_that_makes_no_sense_is_refused(metadata: dict[str, str], tmp_path: Path) -> None:
    save_file(OLD, tmp_path / "state", metadata)
    sentence(tmp_path / "state")


def test_a_newer_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    save_state(tmp_path / "state", OLD, {})
    with safe_open(tmp_path / "state", "pt") as file:
        metadata = file.metadata()
    save_file(OLD, tmp_path / "state", {**metadata, "format": "99"})
    assert "newer" in sentence(tmp_path / "state") and "update" in sentence(tmp_path / "state")


def test_a_symmetric_matrix_takes_half_the_room(tmp_path: Path) -> None:
    h = torch.randn(100, 300)
    gram = h.T @ h
    gram = (gram + gram.T) / 2
    save_state(tmp_path / "half", {"gram": gram, "same": gram, "other": h}, {})
    tensors, _ = load_state(tmp_path / "half")
    assert all(
        torch.equal(tensors[name], value)
        for name, value in {"gram": gram, "same": gram, "other": h}.items()
    )
    assert (tmp_path / "half").stat().st_size < h.nbytes + 0.51 * gram.nbytes + 2000


def test_a_state_is_a_safetensors_file_for_everyone_else(tmp_path: Path) -> None:
    tensors = {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.tensor(True),
        "empty": torch.zeros(0, 4),
    }
    save_state(tmp_path / "state", tensors, {"session": 3})
    found = load_file(tmp_path / "state")
    assert found.keys() == tensors.keys() and all(
        torch.equal(found[name], tensors[name]) for name in tensors
    )

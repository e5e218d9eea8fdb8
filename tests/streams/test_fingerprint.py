"""A fingerprint stays when data is moved, copied or touched, and changes when pictures do."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from safecl.streams.drawn.glyphs import GlyphPictures
from safecl.streams.pictures.cache import cached
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import ArrayPictures, Pictures, Transform, join
from safecl.streams.sources.arrays import Images, from_hugging_face, from_torch
from safecl.streams.sources.folder import read_folder
from safecl.streams.sources.table import read_manifest
from safecl.streams.stream import Part, Stream


def of_folder(top: Path) -> Any:
    return read_folder(top, test_fraction=0).train.fingerprint()


@pytest.fixture
def top(class_folder: Callable[..., Path]) -> Path:
    return class_folder({"ant": 4, "bee": 3})


def test_a_moved_copied_or_touched_folder_keeps_its_fingerprint(top: Path, tmp_path: Path) -> None:
    before = of_folder(top)
    shutil.copytree(top, tmp_path / "elsewhere" / "copy")
    assert of_folder(tmp_path / "elsewhere" / "copy") == before
    for path in top.rglob("*.png"):
        os.utime(path, (5, 5))
    assert of_folder(top) == before
    assert of_folder(top.rename(tmp_path / "moved")) == before


def add(top: Path) -> None:
    shutil.copy(top / "ant/000.png", top / "ant/new.png")


def remove(top: Path) -> None:
    (top / "bee/001.png").unlink()


def rename_class(top: Path) -> None:
    (top / "bee").rename(top / "cat")


def move_between_classes(top: Path) -> None:
    (top / "ant/003.png").rename(top / "bee/003.png")


def swap(top: Path) -> None:
    a = top / "ant/000.png"
    b = top / "bee/000.png"
    first = a.read_bytes()
    second = b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def replace_with_one_of_the_same_size(top: Path) -> None:
    path = top / "ant/001.png"
    path.write_bytes(path.read_bytes()[::-1])


@pytest.mark.parametrize(
    "change",
    [add, remove, rename_class, move_between_classes, swap, replace_with_one_of_the_same_size],
)
def test_changed_pictures_change_the_fingerprint(top: Path, change: Callable[[Path], None]) -> None:
    before = of_folder(top)
    change(top)
    assert of_folder(top) != before


def test_a_moved_table_keeps_its_fingerprint(tmp_path: Path, paint) -> None:
    for i in range(4):
        paint(tmp_path / "a" / f"{i}.png")
    (tmp_path / "a/t.csv").write_text(
        "path,label\n" + "\n".join(f"{i}.png,{'xy'[i % 2]}" for i in range(4))
    )
    before = read_manifest(tmp_path / "a/t.csv").train.fingerprint()
    (tmp_path / "a").rename(tmp_path / "b")
    assert read_manifest(tmp_path / "b/t.csv").train.fingerprint() == before


class Counted(FilePictures):
    """Notes which pictures are read."""

    def __init__(self, folder: Path, count: int) -> None:
        for i in range(count):
            (folder / f"{i}.png").write_bytes(b"%d" % i)
        super().__init__([File.at(folder / f"{i}.png") for i in range(count)], ["c"] * count)
        self.seen: list[int] = []

    def read(self, index: int) -> bytes:
        self.seen.append(index)
        return super().read(index)


def test_one_replaced_file_of_equal_size_is_noticed(tmp_path: Path) -> None:
    for i in range(300):
        (tmp_path / "c").mkdir(exist_ok=True)
        Image.new("L", (4, 4), i % 251).save(tmp_path / "c" / f"{i:03d}.bmp")
    before = of_folder(tmp_path)
    Image.new("L", (4, 4), 255).save(tmp_path / "c" / "001.bmp")
    assert of_folder(tmp_path) != before


def test_a_replaced_file_of_equal_size_and_time_is_noticed_among_thousands(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for i in range(4200):
        (tmp_path / "c" / f"{i:04d}.pgm").write_bytes(b"P5 1 1 255\n%c" % (i % 256))
    before = of_folder(tmp_path)
    path = tmp_path / "c" / "0101.pgm"  # which no even sample of 4096 holds
    then = path.stat()
    path.write_bytes(b"P5 1 1 255\n!")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert of_folder(tmp_path) != before


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 300])
def test_a_file_is_read_once_for_its_digest_every_fingerprint_and_the_cache(
    tmp_path: Path, count: int
) -> None:
    pictures = Counted(tmp_path, count)
    whole = pictures.fingerprint()
    assert sorted(pictures.seen) == list(range(count)) and whole == pictures.fingerprint()
    half = pictures.subset(range(count // 2))
    assert half.fingerprint()["pictures"] == count // 2
    assert [half.digest(i) for i in range(len(half))] == [
        pictures.digest(i) for i in range(count // 2)
    ]
    assert len(pictures.seen) == count


@given(st.integers(0, 40), st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_the_sum_depends_on_no_order_or_split(count: int, seed: int, at: int) -> None:
    arrays = np.arange(count * 12, dtype=np.uint8).reshape(count, 2, 2, 3)
    pictures = ArrayPictures(arrays, ["c"] * count)
    order = np.random.default_rng(seed).permutation(count).tolist()
    halves = [pictures.subset(part).fingerprint() for part in (order[:at], order[at:])]
    whole = pictures.fingerprint()
    assert sum(half["sum"] for half in halves) % 2**64 == whole["sum"]
    assert sum(half["pictures"] for half in halves) == whole["pictures"] == count


def test_a_subset_has_the_fingerprint_of_the_same_pictures_on_their_own(
    top: Path, tmp_path: Path
) -> None:
    whole = read_folder(top, test_fraction=0).train
    bees = [i for i, label in enumerate(whole.labels) if label == "bee"]
    subset = whole.subset(bees).fingerprint()
    before = whole.fingerprint()
    through = cached(whole, Transform(size=8), tmp_path / "cache")
    assert through.fingerprint() == before and through.subset(bees).fingerprint() == subset
    session = Stream("x", [Part("x", ("ant", "bee"), whole, whole)]).open(1)
    assert (
        session.train.fingerprint() == before
        and session.part(["bee"]).train.fingerprint() == subset
    )
    ants = [i for i in range(len(whole)) if i not in bees]
    assert join([whole.subset(ants), whole.subset(bees)]).fingerprint() == before
    shutil.rmtree(top / "ant")
    assert of_folder(top) == subset != before


def test_arrays_are_known_by_all_their_bytes() -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (100, 4, 4, 3), dtype=np.uint8)
    labels: list[Any] = [i % 3 for i in range(100)]
    before = ArrayPictures(arrays, labels).fingerprint()["digest"]
    assert ArrayPictures(arrays.copy(), labels).fingerprint()["digest"] == before
    seen = {before, ArrayPictures(arrays, [str(label) for label in labels]).fingerprint()["digest"]}
    seen.add(ArrayPictures(arrays.reshape(100, 2, 8, 3), labels).fingerprint()["digest"])
    for position in (0, 37, 99):
        changed = arrays.copy()
        changed[position, 1, 2, 0] ^= 1
        seen.add(ArrayPictures(changed, labels).fingerprint()["digest"])
    assert len(seen) == 6
    wide = ArrayPictures(arrays.reshape(100, 2, 8, 3), labels)
    assert [wide.digest(i) for i in range(3)] == [Pictures.digest(wide, i) for i in range(3)]


def test_glyphs_are_known_by_what_defines_them_without_being_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("safecl.streams.drawn.glyphs.draw")

    def of(*words: Any) -> str:
        return str(GlyphPictures(*words).fingerprint()["digest"])

    variants = [
        (["A", "B"], range(3)),
        (["B", "A"], range(3)),
        (["A", "B"], range(1, 4)),
        (["A", "B"], range(3), 1),
        (["A", "B"], range(3), 0, "neon"),
    ]
    assert of(*variants[0]) == of(*variants[0])
    assert len({of(*words) for words in variants}) == len(variants)


@pytest.mark.parametrize("changed", [0, 37, 99])
def test_torch_datasets_and_lists_of_pictures_with_equal_labels_are_known_by_every_picture(
    changed: int,
) -> None:
    labels: list[Any] = [i % 3 for i in range(100)]

    def of_torch(pictures: torch.Tensor, labels: list[Any] = labels) -> str:
        return str(
            from_torch(torch.utils.data.TensorDataset(pictures, torch.tensor(labels))).fingerprint()
        )

    def of_list(pictures: torch.Tensor, labels: list[Any] = labels) -> str:
        return str(Images(list(pictures), labels).fingerprint()["digest"])

    pictures = torch.rand(100, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    other = pictures.clone()
    other[changed, 0, 0, 0] = 1 - other[changed, 0, 0, 0].round()
    for of in (of_torch, of_list):
        assert of(pictures) == of(pictures.clone()) != of(other)
        assert of(pictures) != of(pictures, [0, 0, *labels[2:]])


def test_a_list_is_known_by_its_pixels_whatever_holds_them() -> None:
    array = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    forms = [array, Image.fromarray(array), torch.from_numpy(array).permute(2, 0, 1)]
    assert len({Images([form], ["a"]).fingerprint()["digest"] for form in forms}) == 1
    assert (
        Images([array.reshape(6, 4, 3)], ["a"]).fingerprint()
        != Images([array], ["a"]).fingerprint()
    )


def test_a_picture_of_a_torch_dataset_is_made_once_for_its_fingerprint() -> None:
    made: list[int] = []

    class Slow(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        targets = (0, 1, 0, 1)

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            made.append(index)
            return torch.full((3, 2, 2), index / 4), index % 2

    stream = from_torch(Slow(), test_fraction=0)
    assert stream.fingerprint() == stream.joint().fingerprint() and sorted(made) == [0, 1, 2, 3]


def test_hugging_face_datasets_are_known_by_their_own_fingerprint() -> None:
    class Rows:
        features = dict.fromkeys(("image", "label"))

        def __init__(self, fingerprint: str) -> None:
            self._fingerprint = fingerprint

        def __getitem__(self, key: str) -> list[str]:
            return ["kea", "auk"] * 5

    def of(fingerprint: str) -> str:
        return str(from_hugging_face({"train": Rows(fingerprint)}).fingerprint())

    assert of("a") == of("a") != of("b")


def test_pictures_of_an_unknown_kind_are_known_by_labels_and_pixels() -> None:
    class Other(Pictures):
        def __init__(self, labels: list[str], grey: int = 0) -> None:
            self.labels = labels
            self.grey = grey

        def decode(self, index: int) -> Any:
            return Image.new("RGB", (2, 2), (self.grey,) * 3)

    assert (
        Other(["a", "bc"]).fingerprint()
        != Other(["ab", "c"]).fingerprint()
        == Other(["ab", "c"]).fingerprint()
    )
    assert Other(["a"], 1).fingerprint() != Other(["a"]).fingerprint()

"""Picture files: read as they were found, or one sentence that names the file."""

import os
from pathlib import Path

import pytest

from safecl.errors import SafeclError
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File


def test_a_file_that_goes_away_is_named(tmp_path: Path, paint) -> None:
    path = paint(tmp_path / "a.png")
    pictures = FilePictures([File.at(path)], ["a"])
    path.unlink()
    with pytest.raises(SafeclError, match=r"a\.png has changed or gone"):
        pictures.decode(0)


def test_a_file_that_changes_is_named(tmp_path: Path, paint) -> None:
    path = paint(tmp_path / "a.png", seed=1)
    pictures = FilePictures([File.at(path)], ["a"])
    paint(path, seed=2, size=(30, 30))
    os.utime(path, ns=(1, 1))
    with pytest.raises(SafeclError, match=r"a\.png has changed"):
        pictures.decode(0)


def test_identity_changes_with_a_file_and_only_then(tmp_path: Path, paint) -> None:
    paths = [paint(tmp_path / f"{i}.png") for i in range(3)]

    def identity() -> str:
        return FilePictures([File.at(p) for p in paths], ["a", "b", "c"]).identity()

    before = identity()
    assert identity() == before
    os.utime(paths[1], ns=(5, 5))
    assert identity() != before

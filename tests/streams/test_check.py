"""What may come in is used, and every sentence on what may not is handed to whoever asks."""

import re
from pathlib import Path

import numpy as np
import pytest

from safecl.errors import SafeclError
from safecl.streams.check import Offered, collect
from safecl.streams.pictures.images import ArrayPictures
from tests.conftest import raises


def pictures(labels: str, seed: int = 0) -> ArrayPictures:
    """A different picture for each letter, which is its class."""
    random = np.random.default_rng(seed)
    arrays = random.integers(0, 256, (len(labels), 4, 4, 3), dtype=np.uint8)
    return ArrayPictures(arrays, list(labels))


def test_a_test_split_is_drawn_of_every_class_where_there_is_none() -> None:
    data = collect(Offered("x", pictures("aaaaabbbbb")), test_fraction=0.4, split_seed=3)
    assert sorted(data.train.labels) == list("aaabbb") and sorted(data.test.labels) == list("aabb")
    assert data.split == "40% of every class held out for testing, seed 3"
    again = collect(Offered("x", pictures("aaaaabbbbb")), test_fraction=0.4, split_seed=3)
    assert data.test.fingerprint() == again.test.fingerprint()


def test_a_test_split_is_drawn_of_every_domain_too() -> None:
    domains = ["u", "u", "v", "v"] * 2
    offered = Offered("x", pictures("aaaabbbb"), train_domains=domains)
    data = collect(offered, test_fraction=0.5)
    assert data.domains == ("u", "v") and data.train_domains is not None
    shown = zip(data.train_domains, data.train.labels, strict=True)
    assert sorted(shown) == [("u", "a"), ("u", "b"), ("v", "a"), ("v", "b")]


def test_the_order_of_the_classes_is_kept_where_it_is_known() -> None:
    offered = Offered("x", pictures("abab"), pictures("ab", 1), classes=("b", "c", "a"))
    assert collect(offered).classes == ("b", "a")


def test_every_refusal_is_handed_on_and_the_rest_is_used() -> None:
    said: list[SafeclError] = []
    train = pictures("aAb")
    offered = Offered("x", train, pictures("bc", 1), place="the table")
    data = collect(offered, test_fraction=0.3, refuse=said.append)
    assert [str(error) for error in said] == [
        "the table has test pictures of its own, so stream.test_fraction=0.3 means nothing; omit"
        " it.",
        "The classes 'a' and 'A' of the table differ only in spelling; use one name for both.",
        "The class 'c' of the table has test pictures but no training picture.",
    ]
    assert data.train.labels == list("aAb") and data.test.labels == list("bc")
    with pytest.raises(SafeclError) as caught:
        collect(offered, test_fraction=0.3)
    assert str(caught.value) == str(said[0])


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_a_fraction_is_below_one(fraction: float) -> None:
    with raises("stream.test-fraction.range"):
        collect(Offered("x", pictures("aabb")), test_fraction=fraction)


def test_a_file_in_two_classes_is_refused_unless_it_is_allowed(paint, tmp_path: Path) -> None:
    from safecl.streams.sources.folder import read_folder

    for folder in ("ant", "bee"):
        (tmp_path / folder).mkdir()
        for seed in (1, 2):
            paint(tmp_path / folder / f"{folder}{seed}.png", seed=seed + 10 * (folder == "bee"))
    paint(tmp_path / "ant" / "same.png", seed=7)
    paint(tmp_path / "bee" / "same.png", seed=7)
    with raises("pictures.two-classes", names=re.compile(r"ant/same\.png \(ant\) and .*\(bee\)")):
        read_folder(tmp_path, test_fraction=0)
    allowed = read_folder(tmp_path, test_fraction=0, duplicates="allow")
    assert len(allowed.train) == 6

"""Streams by name, and the nearest right name for a wrong one."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from safecl.streams.catalog import open_stream, read, seeded
from safecl.streams.pictures.cache import CachedPictures
from safecl.streams.settings import FolderSettings, canonical, names, parse_stream
from safecl.streams.stream import class_order
from tests.conftest import raises


def test_all_named_streams_are_listed() -> None:
    assert names() == [
        "glyphs",
        "cifar100",
        "imagenet-r",
        "imagenet-a",
        "cub",
        "omnibenchmark",
        "vtab",
        "domainnet",
        "cars",
        "food101",
        "core50",
        "office-home",
        "flowers102",
        "pets",
        "aircraft",
        "dtd",
        "eurosat",
        "gtsrb",
        "cifar10",
        "svhn",
        "stl10",
    ]


def test_a_folder_nobody_prepared_is_a_stream(class_folder) -> None:
    top = class_folder(dict.fromkeys(("ant", "bee", "cat", "dog"), 6))
    stream = open_stream(f"folder:{top}", first=2, step=1, size=16, held_out=0.2, order_seed=None)
    assert stream.sessions == [
        ("classes 1-2", ("ant", "bee")),
        ("class 3", ("cat",)),
        ("class 4", ("dog",)),
    ]
    assert stream.transform.size == 16
    session = stream.open(1)
    assert session.train.plain([0, 1], stream.transform).shape == (2, 3, 16, 16)
    assert session.train.canvas([0], stream.transform)[0].shape == (1, 3, 24, 24)
    assert (len(session.train), len(stream.validation(1)), len(stream.test(1))) == (8, 2, 2)


def test_the_cache_lies_beside_the_data_and_is_not_data(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    for _ in range(2):
        stream = open_stream(f"folder:{top}", size=16)
        assert stream.labels and len(stream.open(1).train.plain(range(8), stream.transform)) == 8
        assert (top / ".safecl-cache").is_dir()
    assert {p.name for p in class_folder({"cat": 5}, top="other").iterdir()} == {"cat"}


def test_split_and_class_order_follow_the_seed_of_a_run_unless_they_are_given(class_folder) -> None:
    top = class_folder(dict.fromkeys("abcdefgh", 9))

    def opened(**seeds: int | None) -> tuple[set[str], list[str]]:
        stream = open_stream(f"folder:{top}", cache=False, step=8, **seeds)
        test = stream.test(1)
        return {test.where(i) for i in range(len(test))}, stream.labels

    (split, order), (other_split, other_order) = opened(seed=0), opened(seed=1)
    assert split != other_split and order != other_order and opened() == opened(seed=0)
    assert opened(seed=0, split_seed=5)[0] == opened(seed=1, split_seed=5)[0] != split
    assert (
        opened(seed=0, order_seed=1993)[1]
        == opened(seed=1, order_seed=1993)[1]
        == class_order("abcdefgh", 1993)
    )
    assert opened(seed=1, order_seed=None)[1] == list("abcdefgh")
    assert opened(seed=0, order_seed=7)[0] == split and opened(seed=0, split_seed=7)[1] == order


def test_pictures_that_were_read_before_are_split_as_they_were_read(class_folder) -> None:
    settings = FolderSettings(path=str(class_folder(dict.fromkeys("ab", 9))), cache=False)
    whole = open_stream(settings, seed=3)
    given, other = (
        open_stream(settings, seed=3, data=read(one)) for one in (seeded(settings, 3), settings)
    )
    assert whole.fingerprint() == given.fingerprint() != other.fingerprint()


def test_the_order_and_the_split_of_published_datasets_do_not_follow_the_seed() -> None:
    settings = parse_stream("cifar100")
    assert seeded(settings, 1) == settings and settings.order_seed == 1993


def test_the_cache_can_be_turned_off(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    stream = open_stream(f"folder:{top}", size=16, cache=False)
    stream.open(1).train.plain([0], stream.transform)
    assert not (top / ".safecl-cache").exists()
    assert not isinstance(stream.test(1), CachedPictures)


class Split:
    """The part of a Hugging Face split that is used; counts what is decoded."""

    def __init__(self) -> None:
        self.features = {"image": None, "label": None}
        self.decoded = 0
        self._fingerprint = "abc"

    def __getitem__(self, key: str | int) -> object:
        if isinstance(key, str):
            return ["kea", "auk"] * 5
        self.decoded += 1
        return {"image": Image.new("RGB", (6, 6), (key, 0, 0))}


def test_a_hugging_face_dataset_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Split()
    monkeypatch.setattr(
        "safecl.streams.sources.arrays.load_hugging_face", lambda name: {"train": split}
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stream = open_stream("hf:somebody/birds", size=4)
    session = stream.open(1)
    measured = split.decoded
    for _ in range(2):
        session.train.canvas(range(8), stream.transform)
        session.train.plain(range(8), stream.transform)
    assert sorted(stream.labels) == ["auk", "kea"]
    assert split.decoded - measured == 8 and (tmp_path / "safecl").is_dir()


def test_a_manifest_is_a_stream(tmp_path: Path, paint) -> None:
    rows = [f"{paint(tmp_path / f'{i}.png').name},{'xyz'[i % 3]}" for i in range(12)]
    (tmp_path / "m.csv").write_text("path,label\n" + "\n".join(rows))
    assert sorted(open_stream(f"csv:{tmp_path / 'm.csv'}", size=8).labels) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        (
            "cifar1000",
            {},
            partial(raises, "name.unknown.near", what="stream", given="cifar1000", near="cifar100"),
        ),
        (
            "glyphs",
            {"clases": 3},
            partial(raises, "stream.key.unknown", hint=re.compile("stream\\.classes")),
        ),
        (
            "folder:/x",
            {"unreadible": "skip"},
            partial(raises, "stream.key.unknown", hint=re.compile("stream\\.unreadable")),
        ),
        (
            "folder:/x",
            {"step": 0},
            partial(raises, "setting.value.wrong", key="stream.step", given="0"),
        ),
        (
            "vtab",
            {"test_fraction": 0.1},
            partial(raises, "stream.key.unknown", name="test_fraction", kind="dataset"),
        ),
        ("glyphs", {"step": 3}, partial(raises, "stream.glyphs.cut")),
    ],
)
def test_a_wrong_name_or_option_is_one_sentence(
    name: str, options: dict[str, object], refused: Callable[[], Any]
) -> None:
    with refused():
        open_stream(name, **options)


def test_settings_and_their_short_form_open_the_same_stream(class_folder) -> None:
    top = class_folder(dict.fromkeys(("ant", "bee", "cat", "dog"), 6))
    by_settings = open_stream(
        FolderSettings(path=str(top), step=1, order=("dog", "bee")), size=8, seed=3
    )
    by_words = open_stream(f"folder:{top}", size=8, seed=3, step=1, order=["dog", "bee"])
    assert by_settings.sessions == by_words.sessions and by_settings.transform == by_words.transform
    with pytest.raises(TypeError, match="step"):
        open_stream(FolderSettings(path=str(top)), step=2)


def test_what_would_have_no_effect_is_refused(class_folder) -> None:
    plain = class_folder({"ant": 5, "bee": 5}, top="plain")
    domains = class_folder(
        {f"{d}/{c}": 5 for d in ("sun", "snow") for c in ("ant", "bee")}, top="domains"
    )
    with raises("stream.key.idle", key="domains", chosen="class"):
        open_stream(f"folder:{plain}", domains=["sun"])
    for key, value in (("first", 2), ("step", 1), ("order", ["ant"])):
        with raises("stream.key.idle", key=key, chosen="domain"):
            open_stream(f"folder:{domains}", **{key: value})


def test_a_class_called_by_a_number_may_be_ordered_by_it(class_folder) -> None:
    top = class_folder({"10": 3, "2": 3})
    assert open_stream(f"folder:{top}", order=[10, "2"], step=1, cache=False).labels == ["10", "2"]
    with raises("name.unknown", given="3"):
        open_stream(f"folder:{top}", order=[3])


@pytest.mark.parametrize("spelling", ["CIFAR-100", "cifar_100", "Cifar100"])
def test_usual_spellings_are_understood(spelling: str) -> None:
    assert canonical(spelling) == "cifar100"


def test_transform_options_reach_the_transform(class_folder) -> None:
    top = class_folder({"ant": 3, "bee": 3})
    transform = open_stream(
        f"folder:{top}", size=20, flip=0.0, scale=[0.5, 1.0], margin=1.0, cache=False
    ).transform
    assert (transform.size, transform.resize, transform.flip, transform.scale) == (
        20,
        20,
        0.0,
        (0.5, 1.0),
    )
    with raises("stream.size.range"):
        open_stream(f"folder:{top}", size=0)


def test_the_embedded_stream_is_opened_by_name() -> None:
    pytest.importorskip("safecl.streams.drawn.glyphs")
    stream = open_stream("glyphs", classes=4, sessions=2, train=2, test=1)
    assert len(stream) == 2 and len(stream.labels) == 4

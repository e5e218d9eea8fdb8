"""One settings class a kind of stream: short forms, round trips, and a sentence for everything that
is wrong.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from safecl.errors import SafeclError
from safecl.streams.settings import (
    KINDS,
    DatasetSettings,
    FolderSettings,
    GlyphsSettings,
    HuggingFaceSettings,
    StreamSettings,
    TableSettings,
    parse_stream,
    short_form,
)
from tests.conftest import raises

union: TypeAdapter[Any] = TypeAdapter(StreamSettings)


@pytest.mark.parametrize(
    ("text", "settings", "title"),
    [
        ("glyphs", GlyphsSettings(), "glyphs"),
        ("folder:/data/My Photos", FolderSettings(path="/data/My Photos"), "my-photos"),
        ("folder:photos/", FolderSettings(path="photos/"), "photos"),
        ("csv:~/birds.csv", TableSettings(kind="csv", path="~/birds.csv"), "birds"),
        ("hf:somebody/birds", HuggingFaceSettings(name="somebody/birds"), "birds"),
        ("cifar100", DatasetSettings(name="cifar100"), "cifar100"),
        ("CIFAR-100", DatasetSettings(name="cifar100"), "cifar100"),
        ("imagenet_r", DatasetSettings(name="imagenet-r"), "imagenet-r"),
    ],
)
def test_a_short_form_is_the_settings_it_stands_for(text: str, settings: Any, title: str) -> None:
    assert union.validate_python(short_form(text)) == parse_stream(text) == settings
    assert settings.title == title


def test_the_title_of_this_folder_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Holiday").mkdir()
    monkeypatch.chdir(tmp_path / "Holiday")
    assert parse_stream("folder:.").title == "holiday"
    assert parse_stream("folder:/").title == "pictures"


@pytest.mark.parametrize(
    "settings",
    [
        GlyphsSettings(protocol="mixed", classes=7, held_out=0.1),
        FolderSettings(
            path="x",
            first=3,
            step=2,
            order=("a", 7),
            order_seed=None,
            scale=(0.5, 1.0),
            cache=False,
        ),
        TableSettings(path="x", domains=("a", "b"), unreadable="skip", cache="/fast"),
        HuggingFaceSettings(name="x", image="img", split_seed=3),
        DatasetSettings(name="vtab", root="/data", flip=0.0, margin=1.0),
    ],
)
def test_settings_survive_being_written_and_read(settings: Any) -> None:
    assert union.validate_json(settings.model_dump_json()) == settings
    assert (
        parse_stream(
            settings.model_dump(mode="json", exclude_defaults=True) | {"kind": settings.kind}
        )
        == settings
    )


def test_paths_may_be_path_objects() -> None:
    assert FolderSettings(path=Path("a/b"), cache=Path("/fast")) == FolderSettings(
        path="a/b", cache="/fast"
    )
    assert DatasetSettings(name="cub", root=Path("/data")).root == "/data"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cifar1000", "There is no stream 'cifar1000'; did you mean 'cifar100'?"),
        ("foldr:/x", "There is no stream 'foldr:/x'; did you mean 'folder:PATH'?"),
        ("folder:", "The stream 'folder:' lacks what comes after the colon: write folder:PATH."),
        ("hf:", "The stream 'hf:' lacks what comes after the colon: write hf:NAME."),
        ("csv:", "The stream 'csv:' lacks what comes after the colon: write csv:FILE."),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(text: str, sentence: str) -> None:
    with pytest.raises(SafeclError) as caught:
        short_form(text)
    assert str(caught.value) == sentence


def test_a_bare_path_is_told_how_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label")
    for path, named in ((tmp_path, "folder"), (tmp_path / "t.csv", "table")):
        with raises(f"stream.name.{named}", text=path):
            short_form(str(path))


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        (
            {"kind": "glyphs", "clases": 3},
            partial(
                raises,
                "stream.key.unknown",
                name="clases",
                kind="glyphs",
                hint=re.compile(r"^did you mean 'stream\.classes'"),
            ),
        ),
        (
            {"kind": "glyphs", "step": 3},
            partial(raises, "stream.glyphs.cut", name="step"),
        ),
        (
            {"kind": "folder", "path": "x", "sessions": 4},
            partial(
                raises,
                "stream.sessions.cut",
                kind="folder",
                keys=re.compile(r"^stream\.step, the classes of each"),
            ),
        ),
        (
            {"kind": "folder", "path": "x", "split_seed": "sed"},
            partial(
                raises,
                "setting.value.wrong",
                key=re.compile("split_seed$"),
                given="sed",
                reason="a whole number is needed",
            ),
        ),
        (
            {"kind": "folder", "path": "x", "split_seed": -1},
            partial(
                raises,
                "setting.value.wrong",
                key="stream.split_seed",
                given="-1",
                reason=re.compile("it must be 0 or more"),
            ),
        ),
        (
            {"kind": "folder", "path": "x", "unreadible": 1},
            partial(
                raises,
                "stream.key.unknown",
                kind="folder",
                hint="did you mean 'stream.unreadable'?",
            ),
        ),
        (
            {"kind": "folder", "path": "x", "image": "a"},
            partial(raises, "stream.key.unknown", name="image", kind="folder"),
        ),
        (
            {"kind": "dataset", "name": "vtab", "test_fraction": 0.1},
            partial(
                raises, "stream.key.unknown", name="test_fraction", kind=re.compile("^dataset")
            ),
        ),
        (
            {"kind": "dataset", "name": "vtap"},
            partial(raises, "name.unknown.near", what="dataset", given="vtap", near="vtab"),
        ),
        (
            {"kind": "foldr"},
            partial(
                raises, "name.unknown.near", what="stream.kind =", given="foldr", near="folder"
            ),
        ),
        ({"kind": "folder"}, partial(raises, "stream.key.missing", name="path")),
        (
            {"kind": "folder", "path": "x", "step": 0},
            partial(
                raises,
                "setting.value.wrong",
                key="stream.step",
                given="0",
                reason=re.compile("it must be above 0"),
            ),
        ),
        (
            {"kind": "folder", "path": "x", "step": "a"},
            partial(raises, "setting.value.wrong", key="stream.step", given="a"),
        ),
        (
            {"kind": "folder", "path": "x", "held_out": 1},
            partial(raises, "setting.value.wrong", key="stream.held_out", given="1"),
        ),
        (
            {"kind": "folder", "path": "x", "unreadable": "skp"},
            partial(
                raises, "name.unknown.near", what="stream.unreadable =", given="skp", near="skip"
            ),
        ),
        (
            {"kind": "folder", "path": "x", "protocol": "clas"},
            partial(
                raises, "name.unknown.near", what="stream.protocol =", given="clas", near="class"
            ),
        ),
        (
            {"kind": "folder", "path": "x", "scale": [1]},
            partial(raises, "setting.value.wrong", key="stream.scale", given="[1]"),
        ),
        (
            {"kind": "folder", "path": "x", "scale": [0.5, 0.1]},
            partial(raises, "setting.value.wrong", key="stream.scale", given="[0.5, 0.1]"),
        ),
        (
            {"kind": "folder", "path": "x", "scale": [0.5, 2]},
            partial(raises, "setting.value.wrong", key="stream.scale"),
        ),
        (
            {"kind": "folder", "path": "x", "ratio": [0, 2]},
            partial(raises, "setting.value.wrong", key="stream.ratio"),
        ),
        (
            {"kind": "folder", "path": "x", "flip": 2},
            partial(raises, "setting.value.wrong", key="stream.flip", given="2"),
        ),
        (
            {"kind": "folder", "path": "x", "cache": 3},
            partial(raises, "setting.value.wrong", key="stream.cache", given="3"),
        ),
        (
            {"kind": "folder", "path": "x", "order": "a"},
            partial(raises, "setting.value.wrong", key="stream.order", given="a"),
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_key_as_it_is_typed(
    values: dict[str, Any], refused: Callable[[], Any]
) -> None:
    with refused() as caught:
        parse_stream(values)
    assert "\n" not in str(caught.value) and str(caught.value).endswith((".", "?", "…"))


def test_settings_are_frozen_and_refuse_what_they_do_not_know() -> None:
    settings = FolderSettings(path="x")
    with pytest.raises(ValidationError):
        settings.path = "y"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        GlyphsSettings(path="x")  # type: ignore[call-arg]


def test_every_setting_is_described() -> None:
    for kind in KINDS.values():
        for name, field in kind.model_fields.items():
            assert field.description or name == "kind", (kind, name)

"""A folder nobody prepared: every layout is understood, everything doubtful is said."""

import os
import re
import unicodedata
import warnings
from pathlib import Path

import pytest

from safecl.streams.collection import make_stream
from safecl.streams.pictures import kinds
from safecl.streams.sources.folder import read_folder
from tests.conftest import raises


def test_class_folders_without_a_test_split_get_a_stratified_one(class_folder) -> None:
    data = read_folder(class_folder({"ant": 10, "bee": 5, "cat": 20}))
    assert data.classes == ("ant", "bee", "cat")
    assert [list(data.test.labels).count(c) for c in data.classes] == [2, 1, 4]
    assert [list(data.train.labels).count(c) for c in data.classes] == [8, 4, 16]
    assert "20% of every class" in data.split


def test_the_split_depends_on_the_seed_alone(class_folder) -> None:
    top = class_folder({"ant": 10, "bee": 10})

    def chosen(seed: int) -> list[str]:
        data = read_folder(top, split_seed=seed)
        return [data.test.where(i) for i in range(len(data.test))]

    assert chosen(0) == chosen(0) != chosen(1)


@pytest.mark.parametrize("test", ["test", "val", "Test", "validation"])
def test_train_and_test_folders_are_taken_as_they_are(class_folder, test: str) -> None:
    data = read_folder(
        class_folder({"train/ant": 3, "train/bee": 2, f"{test}/ant": 1, f"{test}/bee": 1})
    )
    assert (len(data.train), len(data.test), data.classes) == (5, 2, ("ant", "bee"))


def test_a_class_may_be_called_train(class_folder) -> None:
    assert read_folder(class_folder({"bus": 5, "train": 5, "tram": 5})).classes == (
        "bus",
        "train",
        "tram",
    )


SPLIT = {f"{part}/{c}": n for part, n in (("train", 2), ("val", 1), ("test", 3)) for c in "ab"}


def test_test_is_preferred_to_val_which_is_said_to_be_left_out(class_folder, paint) -> None:
    top = class_folder(SPLIT)
    left = (
        r"^val/ \(2 pictures\) in .* is left out: only train/ and test/ are read; stream.held_out"
        r" takes"
    )
    with pytest.warns(UserWarning, match=left):
        assert len(read_folder(top).test) == 6
    paint(top / "stray.png")
    (top / "scripts").mkdir()
    with pytest.warns(UserWarning, match=r"^stray.png, val/ \(2 pictures\) in .* are left out: "):
        assert len(read_folder(top).train) == 4


def test_a_half_of_a_split_folder_is_read_alone(class_folder) -> None:
    top = class_folder(SPLIT)
    left = (
        r"^test/ \(6 pictures\), val/ \(2 pictures\) in .*: only train/ is read; safecl eval"
        r" measures on another"
    )
    with pytest.warns(UserWarning, match=left):
        data = read_folder(top, only="train", test_fraction=0)
    assert (len(data.train), len(data.test)) == (4, 0)
    left = (
        r"^train/ \(4 pictures\), val/ \(2 pictures\) in .* are left out: only test/ is read; give"
        r" another folder"
    )
    with pytest.warns(UserWarning, match=left):
        data = read_folder(top, only="test", test_fraction=0)
    assert (len(data.train), len(data.test)) == (6, 0)


@pytest.mark.parametrize("inside", ["images", "jpg"])
@pytest.mark.parametrize("split", [False, True])
def test_the_one_folder_in_every_class_is_no_class(class_folder, inside: str, split: bool) -> None:
    parts = ["train/", "test/"] if split else [""]
    top = class_folder({f"{part}{c}/{inside}": 5 for part in parts for c in ("cat", "dog")})
    with pytest.warns(
        UserWarning,
        match=rf"is read as the classes cat, dog; if '{inside}', the one folder in each, ",
    ):
        data = read_folder(top)
    assert data.classes == ("cat", "dog") and data.train_domains is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_folder(top, protocol="domain").classes == (inside,)  # who says so means it
        assert read_folder(top, protocol="class").classes == ("cat", "dog")


def test_a_folder_that_holds_all_is_one_class_and_may_be_meant_otherwise(class_folder) -> None:
    top = class_folder({"images/cat": 5, "images/dog": 5})
    with pytest.warns(
        UserWarning,
        match=r"is read as one class, 'images'; if its folders \(cat, dog\) are classes, give",
    ):
        assert read_folder(top).classes == ("images",)
    assert read_folder(top / "images").classes == ("cat", "dog")


def test_domains_are_seen_and_become_sessions(class_folder) -> None:
    counts = {
        f"{s}/{d}/{c}": n
        for s, n in (("train", 2), ("test", 1))
        for d in ("photo", "art")
        for c in ("dog", "cat")
    }
    stream = make_stream(read_folder(class_folder(counts)))
    assert stream.protocol == "domain"
    assert stream.sessions == [("art", ("cat", "dog")), ("photo", ("cat", "dog"))]
    assert [len(session.train) for session in stream] == [4, 4]
    assert [len(stream.test(n)) for n in (1, 2)] == [2, 2]


def test_domains_that_show_other_classes_make_a_mixed_stream(class_folder) -> None:
    stream = make_stream(
        read_folder(class_folder({"one/cat": 5, "one/dog": 5, "two/dog": 5, "two/emu": 5}))
    )
    assert stream.protocol == "mixed"
    assert stream.sessions == [("one", ("cat", "dog")), ("two", ("dog", "emu"))]
    assert stream.labels == ["cat", "dog", "emu"]


def test_domain_order_is_the_users(class_folder) -> None:
    data = read_folder(
        class_folder({f"{d}/{c}": 5 for d in ("x", "y", "z") for c in ("cat", "dog")})
    )
    assert [name for name, _ in make_stream(data, domains=["z", "x"]).sessions] == ["z", "x"]
    with raises("name.unknown.near", given="xx"):
        make_stream(data, domains=["xx"])


def test_folders_inside_a_class_belong_to_it(class_folder) -> None:
    data = read_folder(class_folder({"cat/kitchen": 5, "cat/garden": 5, "dog/yard": 5}))
    assert data.classes == ("cat", "dog") and data.train_domains is None


def test_an_empty_class_folder_is_left_out_and_said(class_folder) -> None:
    with pytest.warns(UserWarning, match="1 class folder is omitted as empty in .*: 'unicorn'"):
        data = read_folder(class_folder({"cat": 3, "dog": 3, "unicorn": 0}))
    assert data.classes == ("cat", "dog")


def test_a_class_with_one_picture_keeps_it_for_training(class_folder) -> None:
    data = read_folder(class_folder({"cat": 5, "dodo": 1}), test_fraction=0.5)
    assert list(data.train.labels).count("dodo") == 1
    assert "dodo" not in data.test.labels


def test_a_folder_without_pictures_is_one_sentence(tmp_path: Path, class_folder) -> None:
    with raises("pictures.folder.no-classes"):
        read_folder(class_folder({"cat": 0}))
    with raises("pictures.folder.missing"):
        read_folder(tmp_path / "nowhere")


def test_a_picture_outside_of_every_class_is_named(class_folder, paint) -> None:
    top = class_folder({"cat": 2, "dog": 2})
    paint(top / "stray.png")
    with raises("pictures.folder.stray", path=str(top / "stray.png")):
        read_folder(top)


@pytest.mark.parametrize("other", ["Cat", "cat ", "cat_", "ｃａｔ"])
def test_one_class_under_two_spellings_is_refused(class_folder, other: str) -> None:
    with raises("name.alike", why="differ only in spelling"):
        read_folder(class_folder({"cat": 2, other: 2}))


def test_two_unicode_forms_of_one_name_are_refused(class_folder) -> None:
    forms = [unicodedata.normalize(form, "çay") for form in ("NFC", "NFD")]
    with raises("name.alike", why="differ only in spelling"):
        read_folder(class_folder({f"train/{forms[0]}": 2, f"test/{forms[1]}": 2}))


def test_one_picture_in_two_classes_is_refused_with_both_names(class_folder, paint) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    paint(top / "cat" / "same.png", seed=1)
    paint(top / "dog" / "twin.png", seed=1)
    with raises(
        "pictures.two-classes", names=re.compile(r"same\.png \(cat\) and .*twin\.png \(dog\)")
    ):
        read_folder(top)
    assert len(read_folder(top, duplicates="allow", test_fraction=0).train) == 8


def test_a_test_picture_that_was_learned_is_left_out_and_said(class_folder, paint) -> None:
    top = class_folder({"train/cat": 3, "train/dog": 3, "test/cat": 2, "test/dog": 2})
    paint(top / "train/cat/a.png", seed=1)
    paint(top / "test/cat/b.png", seed=1)
    with pytest.warns(UserWarning, match=r"omitted from the test .*b\.png.*a\.png"):
        data = read_folder(top)
    assert len(data.test) == 4


def test_a_class_that_is_only_in_the_test_is_refused(class_folder) -> None:
    with raises("stream.class.untrained", label="emu"):
        read_folder(class_folder({"train/cat": 2, "test/cat": 1, "test/emu": 1}))


def test_names_may_be_numbers_unicode_and_spaces(class_folder) -> None:
    names = ["10", "2", "日本 語", "naïve café", "emoji 🐈", "100%"]
    data = read_folder(class_folder(dict.fromkeys(names, 5)))
    assert data.classes == tuple(sorted(names))
    stream = make_stream(data, first=2, step=2, order_seed=None)
    for session in stream:
        assert {type(label) for label in session.classes} == {str}
        session.train.decode(0)


def test_links_in_a_circle_end(class_folder) -> None:
    top = class_folder({"cat": 5, "dog": 5})
    os.symlink(top, top / "cat" / "loop")
    os.symlink(top / "dog", top / "dog" / "self")
    assert len(read_folder(top, test_fraction=0).train) == 10


def test_linked_class_folders_are_followed(class_folder, tmp_path: Path) -> None:
    elsewhere = class_folder({"x": 4}, top="elsewhere")
    top = class_folder({"cat": 5})
    os.symlink(elsewhere / "x", top / "dog")
    assert read_folder(top).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("target", "reason"), [("odd.png", "a link to itself"), ("nothing.png", "a link to nothing")]
)
def test_a_link_that_leads_nowhere_is_an_unreadable_picture(
    class_folder, target: str, reason: str
) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    os.symlink(target, top / "cat" / "odd.png")
    with raises(
        "pictures.unreadable",
        names=re.compile(rf"odd\.png \({reason}\)"),
        hint=re.compile(r"set stream\.unreadable=skip"),
    ):
        read_folder(top)
    with pytest.warns(UserWarning, match=r"1 picture is omitted as unreadable: .*odd\.png"):
        assert len(read_folder(top, unreadable="skip", test_fraction=0).train) == 6


def test_what_is_not_a_plain_file_is_an_unreadable_picture(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    os.mkfifo(top / "cat" / "pipe.png")
    with raises("pictures.unreadable", names=re.compile(r"pipe\.png \(not a plain file\)")):
        read_folder(top)


def test_a_class_folder_that_is_a_link_to_nothing_is_said(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    os.symlink("gone", top / "bird")
    os.symlink("fish", top / "fish")
    with pytest.warns(UserWarning, match=r"2 class folders are omitted as empty in .*: 'bird', "):
        assert read_folder(top).classes == ("cat", "dog")


@pytest.mark.parametrize("broken", ["text", "link", "empty"])
def test_a_folder_without_a_readable_picture_is_one_sentence(class_folder, broken: str) -> None:
    top = class_folder({"train/cat": 2, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    for part in ("test", "train"):
        for path in (top / part).glob("*/*"):
            path.unlink()
            if broken == "link":
                os.symlink("nothing", path)
            else:
                path.write_text("hello" if broken == "text" else "")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with raises("stream.pictures.none-readable", part=" test" if part == "test" else ""):
                read_folder(top, unreadable="skip")


def test_a_class_without_a_readable_picture_is_left_out_and_said(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3, "emu": 0})
    (top / "emu" / "x.png").write_text("hello")
    with pytest.warns(
        UserWarning, match=r"1 class is omitted from .*, with no picture that can be read: 'emu'"
    ):
        assert read_folder(top, unreadable="skip").classes == ("cat", "dog")


def test_pictures_that_an_extra_would_read_are_left_out_with_its_name(
    class_folder, monkeypatch
) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    for name in ("a.heic", "b.HEIF", "c.jxl", "d.psd"):
        (top / "cat" / name).write_bytes(b"x")
    monkeypatch.setattr(kinds, "reader", lambda kind: None)
    hint = (
        r"\(HEIC, which pip install 'safecl\[heic\]' reads; JPEG XL, which pip install"
        r" 'safecl\[jxl\]' reads\)"
    )
    with pytest.warns(
        UserWarning,
        match=rf"4 pictures are omitted of a kind that is not read, .* {hint}: .*a\.heic, ",
    ):
        assert len(read_folder(top, test_fraction=0).train) == 6
    monkeypatch.setattr(kinds, "reader", lambda kind: open)
    with pytest.warns(UserWarning, match=r"1 picture is omitted of a kind .* PNG: .*d\.psd"):
        assert len(read_folder(top, test_fraction=0).train) == 9


def test_a_class_name_that_is_not_utf8_is_one_sentence(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    os.rename(top / "dog", os.fsencode(top) + b"/caf\xe9")
    with raises("name.of.not-utf", what="class", label="caf\udce9") as caught:
        read_folder(top)
    assert str(caught.value).encode()


def test_a_picture_name_that_is_not_utf8_is_read_and_shown(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    os.rename(top / "dog" / "000.png", os.fsencode(top) + b"/dog/caf\xe9.png")
    data = read_folder(top, test_fraction=0)
    where = next(i for i in range(6) if "caf" in data.train.where(i))
    assert data.train.where(where).encode().endswith(b"caf\\udce9.png")
    assert data.train.decode(where).mode == "RGB" and data.train.fingerprint()["pictures"] == 6


def test_other_files_are_not_pictures(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (top / "cat" / name).write_text("x")
    (top / ".hidden").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_folder(top, test_fraction=0).train) == 6
    for name in ("a.pdf", "dog/film.mp4", "cat/notes.txt", "cat/IMG_7"):
        (top / name).write_text("x")
    (top / "cat" / "gone.txt").symlink_to("nothing")
    left = (
        r"^4 files are omitted without the ending of a picture: .*a\.pdf, .*IMG_7, .*notes\.txt,"
        r" .*film\.mp4\.$"
    )
    with pytest.warns(UserWarning, match=left):
        assert len(read_folder(top, test_fraction=0).train) == 6


def test_empty_files_are_refused_before_anything_is_learned(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    (top / "cat" / "zero.jpg").touch()
    with raises("pictures.unreadable", names=re.compile(r"zero\.jpg \(an empty file\)")):
        read_folder(top)


def test_unreadable_pictures_can_be_skipped(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    (top / "cat" / "zero.jpg").touch()
    (top / "dog" / "text.jpg").write_text("hello")
    with pytest.warns(UserWarning, match="2 pictures are omitted as unreadable"):
        assert len(read_folder(top, unreadable="skip", test_fraction=0).train) == 6


def test_a_truncated_picture_names_the_key_that_helps(class_folder) -> None:
    top = class_folder({"cat": 3, "dog": 3})
    path = top / "cat" / "000.png"
    path.write_bytes(path.read_bytes()[:-60])
    data = read_folder(top, test_fraction=0)
    with raises(
        "picture.unreadable",
        where=re.compile(r"000\.png$"),
        remedy=re.compile(r".*set stream\.unreadable=skip"),
    ):
        data.train.decode(0)

"""The embedded stream: what a picture depends on, which characters there are, and how sessions are
cut.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.streams.catalog import open_stream
from safecl.streams.drawn.drawing import FACES, SANS, STYLES, Difficulty, draw, upright
from safecl.streams.drawn.glyphs import DOMAINS, POOL, GlyphPictures, glyphs
from safecl.streams.pictures.images import Transform
from tests.conftest import raises

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from pretrain_characters import PRETRAINING_POOL

SMALL = {"classes": 6, "sessions": 3, "train": 4, "test": 2}


def random(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_picture_depends_on_seed_class_and_index_alone_and_is_drawn_once() -> None:
    some = GlyphPictures(["A", "§"], range(3), seed=5)
    other = GlyphPictures(["Ж", "§"], range(1, 4), seed=5)
    assert some.array(4) is other.array(3)  # § number 1, whatever stands around it
    assert (
        np.array_equal(some.array(4), draw("§", random(5, ord("§"), 1)))
        and not some.array(4).flags.writeable
    )
    assert not np.array_equal(some.array(4), some.array(5))
    assert not np.array_equal(some.array(4), GlyphPictures(["§"], [1], seed=6).array(0))


def test_both_views_are_the_drawing_itself_at_its_own_size() -> None:
    pictures = GlyphPictures(["A", "B"], range(2))
    transform = Transform(size=64, margin=1.0)
    expected = torch.from_numpy(np.stack([pictures.array(i) for i in range(4)])).permute(0, 3, 1, 2)
    assert torch.equal(pictures.plain(range(4), transform), expected)
    canvas, shapes = pictures.canvas(range(4), transform)
    assert torch.equal(canvas, expected)
    assert torch.equal(shapes, torch.ones(4, 3))


def test_other_sizes_are_resized() -> None:
    pictures = GlyphPictures(["A"], range(1))
    assert pictures.plain([0], Transform(size=32, margin=1.0)).shape == (1, 3, 32, 32)
    assert pictures.canvas([0], Transform(size=96, margin=1.0))[0].shape == (1, 3, 64, 64)
    assert pictures.canvas([0], Transform(size=24, margin=1.0))[0].shape == (1, 3, 48, 48)


def test_pools_are_large_and_disjoint() -> None:
    assert len(POOL) == len(set(POOL)) >= 200
    assert len(PRETRAINING_POOL) == len(set(PRETRAINING_POOL)) >= 600
    assert not set(POOL) & set(PRETRAINING_POOL)


@pytest.mark.parametrize("face", [FACES[0], FACES[4], FACES[8]])
def test_every_character_of_the_pool_has_ink_of_its_own(face: str) -> None:
    missing = upright("\U0010fffd", face).tobytes()
    images = [upright(character, face) for character in POOL]
    drawn = [image.tobytes() for image in images]
    assert min(np.asarray(image).sum() / 255 for image in images) > 20
    assert len(set(drawn)) == len(POOL)
    assert missing not in drawn


def test_no_pretraining_character_looks_like_one_of_the_pool() -> None:
    face = FACES[0]
    missing = upright("\U0010fffd", face).tobytes()
    others = {upright(character, face).tobytes() for character in PRETRAINING_POOL}
    assert len(others) == len(PRETRAINING_POOL)
    assert missing not in others
    assert not others & {upright(character, face).tobytes() for character in POOL}


@pytest.mark.parametrize("character", ["A", PRETRAINING_POOL[-1]])
@pytest.mark.parametrize("style", STYLES)
def test_every_style_shows_the_character(style: str, character: str) -> None:
    """The picture differs from the one drawn, with the same dice, of an empty mask's neighbour
    character.
    """
    picture = draw(character, random(1), style, faces=SANS)
    assert picture.shape == (64, 64, 3)
    assert picture.dtype == np.uint8
    assert (
        np.abs(picture.astype(int) - draw("W", random(1), style, faces=SANS).astype(int)).mean() > 1
    )


def test_styles_differ() -> None:
    """Each style has its own mean colour and busyness: nearest style means tell most single
    pictures apart.
    """

    def described(style: str, number: int) -> np.ndarray:
        picture = draw(POOL[number], random(7, number), style).astype(float)
        edges = np.abs(np.diff(picture, axis=0)).mean()
        return np.array(
            [*picture.mean((0, 1)), picture.std(), 3 * edges, *np.percentile(picture, [5, 50, 95])]
        )

    means = {style: np.mean([described(style, i) for i in range(12)], axis=0) for style in DOMAINS}
    asked = [(style, described(style, i)) for style in DOMAINS for i in range(12, 20)]
    right = [
        style == min(means, key=lambda s: float(np.linalg.norm(means[s] - x))) for style, x in asked
    ]
    assert len(DOMAINS) >= 6
    assert np.mean(right) > 0.5  # chance is one in seven


def test_on_a_plate_hue_alone_tells_the_character_from_the_ground() -> None:
    """The two halves of a picture are as bright as each other, and differ in colour more than in
    brightness.
    """
    halves = Image.new("L", (64, 64))
    halves.paste(255, (32, 0, 64, 64))
    grey = []
    colour = []
    for number in range(20):
        picture = STYLES["plate"](halves, random(number), Difficulty())
        left = picture[:, :26].mean((0, 1))
        right = picture[:, 38:].mean((0, 1))
        grey.append((right - left) @ np.array([0.3, 0.59, 0.11]))
        colour.append(np.abs(right - left).max())
    assert np.abs(grey).max() < 0.03 < 0.1 < min(colour)


def test_class_incremental_sessions_bring_new_classes() -> None:
    stream = glyphs()
    classes = [names for _, names in stream.sessions]
    assert [len(names) for names in classes] == [10] * 5
    assert len({c for names in classes for c in names}) == 50
    stream = glyphs(**SMALL)
    for session in stream:
        assert Counter(session.train.labels) == dict.fromkeys(session.classes, 4)
        assert Counter(stream.test(session.number).labels) == dict.fromkeys(session.classes, 2)


def test_each_session_of_new_classes_can_have_a_style_of_its_own() -> None:
    plain = glyphs(**SMALL)
    styled = glyphs(**SMALL, styles=["scene", "plate", "neon"])
    assert [name for name, _ in styled.sessions] == [
        "scene, classes 1-2",
        "plate, classes 3-4",
        "neon, classes 5-6",
    ]
    assert [names for _, names in styled.sessions] == [names for _, names in plain.sessions]
    for number, style in enumerate(["scene", "plate", "neon"], 1):
        expected = GlyphPictures(
            styled.sessions[number - 1][1], [1_000_000, 1_000_001], style=style
        )
        tests = styled.test(number)
        assert [np.array_equal(tests.decode(i), expected.array(i)) for i in range(4)] == [True] * 4
    assert np.array_equal(styled.test(1).decode(0), plain.test(1).decode(0))
    # whatever else can be drawn
    assert DOMAINS == (
        "print",
        "outline",
        "chalk",
        "neon",
        "halftone",
        "emboss",
        "sketch",
    )


@pytest.mark.parametrize("protocol", ["class", "domain", "mixed"])
def test_every_picture_is_of_the_difficulty_that_was_asked_for(protocol: str) -> None:
    mild, hard = (glyphs(protocol, **SMALL, difficulty=level) for level in ("mild", "hard"))  # type: ignore[arg-type]
    assert mild.fingerprint() != hard.fingerprint()
    for one, other in zip(mild, hard, strict=True):
        pairs = [(one.train.decode(i), other.train.decode(i)) for i in range(len(one.train))]
        assert not any(np.array_equal(*pair) for pair in pairs)
        label = one.train.labels[-1]
        style = one.name if protocol == "domain" else "scene"
        number = {
            "class": 3,
            "domain": 4 * one.number - 1,
            "mixed": 3 if one.number == 1 else 3 + one.number,
        }[protocol]
        assert np.array_equal(
            pairs[-1][0], draw(label, random(0, ord(label), number), style, Difficulty())
        )


def test_the_seed_chooses_order_and_pictures() -> None:
    assert glyphs(seed=1).sessions == glyphs(seed=1).sessions
    assert glyphs(seed=1).sessions != glyphs(seed=2).sessions


def test_domain_incremental_sessions_bring_new_styles_of_the_same_classes() -> None:
    stream = glyphs("domain", train=1, test=1)
    assert len(stream) >= 6
    assert len({names for _, names in stream.sessions}) == 1
    assert len(stream.sessions[0][1]) == 30
    assert [name for name, _ in stream.sessions] == list(DOMAINS)


def test_mixed_sessions_bring_new_classes_and_new_pictures_of_known_ones() -> None:
    stream = glyphs("mixed", **SMALL)
    seen: set[bytes] = set()
    known: set[object] = set()
    for session in stream:
        new = set(session.classes) - known
        assert len(new) == 2
        assert set(session.classes) == new | known
        assert Counter(session.train.labels) == {**dict.fromkeys(new, 4), **dict.fromkeys(known, 1)}
        drawn = {session.train.decode(i).tobytes() for i in range(len(session.train))}
        assert len(drawn) == len(session.train)
        assert not drawn & seen
        seen |= drawn
        known |= new


@pytest.mark.parametrize("protocol", ["class", "domain", "mixed"])
def test_no_test_picture_is_trained_on(protocol: str) -> None:
    stream = glyphs(protocol, **SMALL)  # type: ignore[arg-type]
    trained = set()
    asked = set()
    for session in stream:
        trained |= {session.train.decode(i).tobytes() for i in range(len(session.train))}
        test = stream.test(session.number)
        asked |= {test.decode(i).tobytes() for i in range(len(test))}
    assert trained
    assert asked
    assert not trained & asked


def test_characters_are_never_mirrored() -> None:
    assert glyphs(**SMALL).transform.flip == 0


@pytest.mark.parametrize("broken", ["missing", "unreadable"])
def test_without_fonts_one_sentence_says_so(broken: str, tmp_path: Path) -> None:
    faces = tuple(str(tmp_path / face) for face in FACES)
    if broken == "unreadable":
        for face in faces:
            Path(face).write_bytes(b"no font")
    with raises("stream.font.missing", path=re.compile(r"DejaVu.*\.ttf")) as caught:
        draw("A", random(0), faces=faces)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (
            {"classes": 100_000},
            partial(raises, "stream.glyphs.classes", classes=re.compile("^100000")),
        ),
        ({"sessions": 51}, partial(raises, "stream.glyphs.sessions", sessions=51, most=50)),
        ({"sessions": 0}, partial(raises, "setting.value.wrong", key="stream.sessions", given=0)),
        (
            {"classes": 5, "sessions": 4},
            partial(raises, "stream.glyphs.sessions", sessions=4, most=3),
        ),
        (
            {"styles": ["plate", "neno"]},
            partial(raises, "name.unknown.near", what="style", given="neno", near="neon"),
        ),
        ({"styles": ["plate"], "sessions": 2}, partial(raises, "stream.glyphs.styles")),
        ({"styles": ["plate"], "protocol": "domain"}, partial(raises, "stream.glyphs.styles")),
        ({"styles": []}, partial(raises, "setting.value.wrong", key="stream.styles")),
        ({"difficulty": "mid"}, partial(raises, "name.unknown.near", near="mild")),
        ({"train": 0}, partial(raises, "setting.value.wrong", key="stream.train", given="0")),
        ({"protocol": "clas"}, partial(raises, "name.unknown.near", near="class")),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict, refused: Callable[[], Any]) -> None:
    with refused():
        open_stream("glyphs", **options)

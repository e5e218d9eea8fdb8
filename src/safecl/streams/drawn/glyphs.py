"""The embedded stream: pictures of characters, drawn when they are first read. Nothing is
downloaded.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from safecl.errors import SafeclError, unknown
from safecl.streams.drawn.drawing import DIFFICULTIES, SIDE, STYLES, Difficulty, draw
from safecl.streams.pictures.images import ALL, ArrayPictures, Label, Transform, join
from safecl.streams.settings import Level, Protocol
from safecl.streams.stream import Part, Stream, class_incremental, class_order

# The classes, chosen once by comparing drawings: the twelve DejaVu text faces have each, and none
# is a near copy of one before it, ignoring size and place (so 0 stands for O and o, and no Cyrillic
# letter repeats a Latin one).
POOL: tuple[str, ...] = tuple(
    "012345679ABCEHJKLMPQRTUVWXYZabdefkmnqrstΞΣΦΨΩαβζλμνρςσχωДЖЛЦЧШЩЪЫЮЯикыьԳ"
    "ԶԸԹԺԻԾԿՀՁՂՃՇՊՌՎՔՖթիխծկղճչպջվֆადზკოჟრტუფჭჯჰ?&@#$%§¶£€©®±÷×*=<>~()«»‡‰ЂЉЊђ"
    "ћ₦₹←↗↘↻↵⇄⇑∃∏√∞∠∫≡≤≥⊂⊃⊕⊞⌂⌘♠♡♢♥♧♩♪♫♭☀☺♀♂□▲▷◊○◎◐◢◤ƁƑƢƷɸʬϞƕϠ¤₴⇶♮♬☼♆♃☿⌥⌨⏏⊘⊠♁ɮ"
    "ƣȸʥӃ⇗↯↠↰◔▥▰"
)
# of the domain-incremental form
DOMAINS = (
    "print",
    "outline",
    "chalk",
    "neon",
    "halftone",
    "emboss",
    "sketch",
)
_FIRST_TEST = 1_000_000  # the number of the first test picture, above that of any training picture


class GlyphPictures(ArrayPictures):
    """Pictures ``indices`` of each of ``characters``, drawn when first read."""

    sides = (SIDE, SIDE)
    cacheable = False

    def __init__(
        self,
        characters: Sequence[Label],
        indices: Sequence[int],
        seed: int = 0,
        style: str = "scene",
        difficulty: Level = "hard",
    ) -> None:
        self.labels = [character for character in characters for _ in indices]
        self._indices = [index for _ in characters for index in indices]
        self._seed = seed
        self._style = style
        self._difficulty = DIFFICULTIES[difficulty]

    def array(self, position: int) -> np.ndarray:
        """The picture at ``position``: uint8 (SIDE, SIDE, 3)."""
        return _drawn(
            str(self.labels[position]),
            self._indices[position],
            self._seed,
            self._style,
            self._difficulty,
        )

    def traces(self, indices: Sequence[int]) -> Iterator[bytes]:
        return (
            f"{self._seed} {self._indices[i]} {self._style} {self._difficulty}".encode()
            for i in indices
        )

    def at(self, indices: Sequence[int], rows: slice = ALL, columns: slice = ALL) -> np.ndarray:
        found = np.stack([self.array(i)[rows, columns].transpose(2, 0, 1) for i in indices])
        return found.transpose(0, 2, 3, 1)  # each colour lies in one piece


@lru_cache(maxsize=8192)  # 100 MB; methods that are compared on a stream read the same pictures
def _drawn(character: str, index: int, seed: int, style: str, difficulty: Difficulty) -> np.ndarray:
    return draw(character, np.random.default_rng([seed, ord(character), index]), style, difficulty)


def glyphs(
    protocol: Protocol = "class",
    classes: int | None = None,
    sessions: int | None = None,
    train: int = 20,
    test: int = 10,
    seed: int = 0,
    size: int | None = None,
    held_out: float = 0.0,
    styles: Sequence[str] | None = None,
    difficulty: Level = "hard",
) -> Stream:
    """The glyphs stream; ``seed`` chooses the characters, their order and every picture.

    ``class``: each session brings new characters (default 50 in 5 sessions), with ``styles`` in one
    style each. ``domain``: the same characters (default 30) in another style each session (default
    all of ``DOMAINS``). ``mixed``: like ``class``, and each session brings a few pictures of every
    known character. ``train``, ``test``: per class.
    """
    classes = classes if classes is not None else (30 if protocol == "domain" else 50)
    if styles is not None:
        if protocol != "class" or sessions not in (None, len(styles)):
            raise SafeclError("stream.glyphs.styles")
        for style in set(styles) - STYLES.keys():
            raise unknown("style", style, STYLES)
        sessions = len(styles)
    sessions = sessions if sessions is not None else (len(DOMAINS) if protocol == "domain" else 5)
    if classes > len(POOL):
        raise SafeclError("stream.glyphs.classes", most=len(POOL), classes=classes)
    step = -(-classes // sessions)
    if sessions > (most := len(DOMAINS) if protocol == "domain" else -(-classes // step)):
        raise SafeclError("stream.glyphs.sessions", sessions=sessions, most=most)
    order = class_order(POOL, seed)[:classes]

    def drawn(
        mine: Sequence[Label], number: int = 0, style: str = "scene"
    ) -> tuple[GlyphPictures, GlyphPictures]:
        """Training and test pictures of a session, whose indices no other one has: no pose is seen
        in two styles.
        """
        first = _FIRST_TEST + number * test
        spans = range(number * train, (number + 1) * train), range(first, first + test)
        one, other = (GlyphPictures(mine, span, seed, style, difficulty) for span in spans)
        return one, other

    if protocol == "domain":
        parts = [
            Part(style, tuple(order), *drawn(order, i, style))
            for i, style in enumerate(DOMAINS[:sessions])
        ]
    else:
        parts = class_incremental(*drawn(order), order, step, step)
        if styles is not None:
            named = zip(styles, parts, strict=True)
            parts = [
                Part(f"{s}, {part.name}", part.classes, *drawn(part.classes, style=s))
                for s, part in named
            ]
        if protocol == "mixed":
            parts = _mixed_parts(parts, train, seed, difficulty)
    # Characters are never mirrored, and a small crop would leave a bare stroke.
    return Stream("glyphs", parts, protocol, glyph_transform(size), held_out, seed)


def glyph_transform(size: int | None = None) -> Transform:
    """How drawn characters become inputs: hardly cropped, and never mirrored."""
    return Transform(size=size or SIDE, margin=1.0, scale=(0.5, 1.0), flip=0.0)


def _mixed_parts(parts: Sequence[Part], train: int, seed: int, difficulty: Level) -> list[Part]:
    """The class-incremental sessions, each with a quarter as many new pictures of every class
    before it.
    """
    more = max(1, train // 4)
    mixed: list[Part] = []
    known: list[Label] = []
    for number, part in enumerate(parts):
        first = train + number * more
        review = GlyphPictures(known, range(first, first + more), seed, difficulty=difficulty)
        mixed.append(
            Part(part.name, (*part.classes, *known), join([part.train, review]), part.test)
        )
        known.extend(part.classes)
    return mixed

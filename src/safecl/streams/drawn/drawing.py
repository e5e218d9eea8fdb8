"""Draw one picture of a character: pose, ink and background, in one of several styles; all random
by one generator.
"""

import importlib.util
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from safecl.errors import SafeclError

SIDE = 64
Array: TypeAlias = Any  # uint8 or float pictures; numpy's own arithmetic loses the type
Random: TypeAlias = np.random.Generator

SANS = tuple(f"DejaVuSans{cut}.ttf" for cut in ("", "-Bold", "-Oblique", "-BoldOblique"))
_MONO = tuple(f"DejaVuSansMono{cut}.ttf" for cut in ("", "-Bold", "-Oblique", "-BoldOblique"))
_SERIF = tuple(f"DejaVuSerif{cut}.ttf" for cut in ("", "-Bold", "-Italic", "-BoldItalic"))
FACES = SANS + _MONO + _SERIF

_MASK = 96  # side of the upright drawing that is warped into every picture of a character
_INK = 60  # the longer side of its ink, so that a comma is drawn as large as a W


@dataclass(frozen=True)
class Difficulty:
    """How far pictures of one class differ; larger values (a smaller contrast) make classification
    harder.

    rotation, shear: degrees either way. size: longer side of the ink as a fraction of the picture,
    least and most. shift: of the centre, as a fraction of the picture. perspective: of the corners,
    likewise. contrast: the least difference of brightness between ink and background, of 1. noise:
    the largest standard deviation, of 1. blur: the largest radius in pixels. clutter: the most
    foreign strokes drawn over a picture.
    """

    rotation: float = 30.0
    shear: float = 15.0
    size: tuple[float, float] = (0.4, 0.8)
    shift: float = 0.12
    perspective: float = 0.12
    contrast: float = 0.2
    noise: float = 0.12
    blur: float = 1.2
    clutter: int = 3


# Set so that nearest class means on the embedded backbone end between 40 % and 80 % on 50 classes
# (62 and 68 % for two seeds). The backbone itself was pre-trained on other characters at the milder
# values above.
DIFFICULTY = Difficulty(
    rotation=60,
    shear=25,
    size=(0.25, 0.7),
    shift=0.2,
    perspective=0.2,
    contrast=0.12,
    noise=0.2,
    blur=1.8,
    clutter=5,
)
DIFFICULTIES = {"mild": Difficulty(), "hard": DIFFICULTY}


def draw(
    character: str,
    random: Random,
    style: str = "scene",
    difficulty: Difficulty = DIFFICULTY,
    faces: tuple[str, ...] = FACES,
) -> np.ndarray:
    """A picture of ``character``: uint8 (SIDE, SIDE, 3)."""
    mask = upright(character, faces[random.integers(len(faces))])
    warped = _pose(mask, random, difficulty)
    picture = STYLES[style](warped, random, difficulty)
    amount = random.random() * difficulty.noise
    picture += random.standard_normal((SIDE, SIDE, 1), dtype=np.float32) * np.float32(amount)
    image = Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8))
    radius = random.random() * difficulty.blur
    if radius > 0.4:
        image = image.filter(ImageFilter.BoxBlur(radius))
    return np.asarray(image)


def font_folder() -> Path:
    """Where matplotlib keeps its fonts; found without importing matplotlib, which takes longer than
    drawing.
    """
    found = importlib.util.find_spec("matplotlib")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"


@lru_cache(maxsize=32)
def _font(path: Path) -> ImageFont.FreeTypeFont:
    try:
        # Given a name, PIL would fall back to a font of the system; given bytes, it cannot. The
        # basic layout draws the same everywhere, while the other one depends on a library that may
        # be missing.
        return ImageFont.truetype(
            io.BytesIO(path.read_bytes()), _INK, layout_engine=ImageFont.Layout.BASIC
        )
    except OSError as error:
        raise SafeclError("stream.font.missing", path=path) from error


@lru_cache(maxsize=4096)
def upright(character: str, face: str) -> Image.Image:
    """The character upright, its ink centred and ``_INK`` long: an L image of _MASK × _MASK."""
    font = _font(font_folder() / face)
    left, top, right, bottom = font.getbbox(character)
    width = max(1, int(right - left))
    height = max(1, int(bottom - top))
    ink = Image.new("L", (width, height))
    ImageDraw.Draw(ink).text((-left, -top), character, 255, font=font)
    ink = ink.crop(ink.getbbox() or (0, 0, width, height))
    scale = _INK / max(ink.size)
    ink = ink.resize(
        (max(1, round(ink.width * scale)), max(1, round(ink.height * scale))),
        Image.Resampling.BICUBIC,
    )
    mask = Image.new("L", (_MASK, _MASK))
    mask.paste(ink, ((_MASK - ink.width) // 2, (_MASK - ink.height) // 2))
    return mask


def _pose(mask: Image.Image, random: Random, difficulty: Difficulty) -> Image.Image:
    """The mask rotated, sheared, scaled, shifted and tilted: an L image of SIDE × SIDE."""
    turn, slant = np.radians(
        random.uniform(-1, 1, 2) * np.array([difficulty.rotation, difficulty.shear])
    )
    size = random.uniform(*difficulty.size) * SIDE / _INK
    stretch = np.exp(random.uniform(-0.2, 0.2))
    shift = random.uniform(-1, 1, 2) * difficulty.shift * SIDE
    tilt = random.uniform(-1, 1, 2) * difficulty.perspective * 2 / SIDE
    cos = np.cos(turn)
    sin = np.sin(turn)
    # Picture → mask, which is what PIL asks for: x' = A (x - centre - shift) / (1 + tilt·(x -
    # centre)) + middle.
    inverse = np.array([[cos, sin], [-sin, cos]]) @ np.array([[1, np.tan(slant)], [0, 1]])
    inverse = inverse * np.array([[1 / stretch], [stretch]]) / size
    centre = SIDE / 2
    middle = _MASK / 2
    bottom = np.array([*tilt, 1 - centre * tilt.sum()])
    rows = np.column_stack([inverse, -inverse @ (centre + shift)]) + middle * bottom
    coefficients = np.concatenate([rows[0], rows[1], bottom])
    coefficients = coefficients[:8] / coefficients[8]
    return mask.transform(
        (SIDE, SIDE), Image.Transform.PERSPECTIVE, coefficients.tolist(), Image.Resampling.BILINEAR
    )


def _scene(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """Any ink on any background, with foreign strokes: the style of the class-incremental
    stream.
    """
    ink, paper = _two_tones(random, difficulty.contrast)
    ground = _coloured(paper, random) + _texture(random, 0.25)
    front = _coloured(ink, random) + _texture(random, 0.15)
    picture = ground + _thickened(mask, random)[..., None] * (front - ground)
    strokes = int(random.integers(difficulty.clutter + 1))
    if strokes:
        lines = _lines(strokes, random)
        colour = _coloured(random.random(), random)
        picture += lines[..., None] * (colour - picture)
    return picture


def _print(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """Black ink on paper."""
    paper = random.uniform(0.85, 1.0)
    ink = random.uniform(0.0, 0.2)
    return (
        np.array([1.0, 0.99, 0.95], np.float32)
        * (paper + _thickened(mask, random) * (ink - paper))[..., None]
    )


def _outline(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """The contour alone, coloured, on a pale ground."""
    contour = np.clip(1.6 - 4.0 * np.abs(_soft(mask, 1.6) - 0.4), 0, 1)
    ground = _coloured(random.uniform(0.75, 0.95), random, 0.15)
    return ground + contour[..., None] * (_coloured(random.uniform(0.1, 0.4), random) - ground)


def _chalk(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """White chalk, full of holes, on a smeared blackboard."""
    board = np.array([0.12, 0.22, 0.17], np.float32) + _texture(random, 0.1, cells=6)
    grain = random.random((SIDE, SIDE), dtype=np.float32)
    chalk = _thickened(mask, random) * np.clip(1.7 * grain, 0.1, 1)
    return board + chalk[..., None] * (np.float32(random.uniform(0.75, 0.95)) - board)


def _neon(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """A white contour inside a wide coloured halo, on a dark ground."""
    halo = np.asarray(mask.filter(ImageFilter.BoxBlur(4)), np.float32) / 255
    tube = np.clip(1.5 - 4.0 * np.abs(_soft(mask, 1.2) - 0.5), 0, 1)
    colour = _hue(random.random())
    return 0.04 + 1.3 * halo[..., None] * colour + tube[..., None] * (0.5 + 0.5 * colour)


def _halftone(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """A raster of dots, large inside the character and small outside."""
    period = random.uniform(4.0, 5.5)
    x, y = _GRID
    turn = random.uniform(0, np.pi / 2)
    u = x * np.cos(turn) + y * np.sin(turn)
    v = y * np.cos(turn) - x * np.sin(turn)
    dots = 0.5 + 0.25 * (np.cos(2 * np.pi * u / period) + np.cos(2 * np.pi * v / period))
    tone = 0.2 + 0.6 * _soft(mask, 1.5)
    ink = np.clip(6 * (tone - 1 + dots) + 0.5, 0, 1)
    ground = np.float32(random.uniform(0.85, 1.0)) + np.zeros(3, np.float32)
    return ground + ink[..., None].astype(np.float32) * (
        _coloured(random.uniform(0.1, 0.5), random, 0.8) - ground
    )


def _emboss(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """Embossed in mottled stone: only light and shadow on the edges show the character."""
    relief = _soft(mask, 1.2)
    turn = random.uniform(0, 2 * np.pi)
    down, across = np.gradient(relief)
    light = np.cos(turn) * across + np.sin(turn) * down
    stone = _coloured(random.uniform(0.35, 0.65), random, 0.3) + _texture(random, 0.12)
    return stone + _texture(random, 0.12, cells=24) + (1.6 * light + 0.08 * relief)[..., None]


def _sketch(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """Pencil: the contour traced twice with a tremor, hatched inside."""
    paper = np.float32(random.uniform(0.85, 1.0))
    shade = np.zeros((SIDE, SIDE), np.float32)
    for _ in range(2):
        bent = np.asarray(mask, np.float32)[_shaken(random)] / 255
        soft = _soft(Image.fromarray((bent * 255).astype(np.uint8)), 0.9)
        shade = np.maximum(shade, np.clip(1.3 - 4.0 * np.abs(soft - 0.5), 0, 1))
    x, y = _GRID
    turn = random.uniform(0, np.pi)
    period = random.uniform(4, 7)
    hatch = np.clip(
        2.0 * np.cos(2 * np.pi * (x * np.cos(turn) + y * np.sin(turn)) / period) - 0.8, 0, 1
    )
    shade = np.maximum(shade, 0.6 * hatch.astype(np.float32) * _soft(mask, 0.8))
    return (paper * (1 - 0.75 * shade))[..., None] + np.zeros(3, np.float32)


def _plate(mask: Image.Image, random: Random, difficulty: Difficulty) -> Array:
    """Dots of any brightness, as on a plate that tests colour vision: hue alone tells the character
    from the ground.
    """
    period = random.uniform(2.6, 3.4)
    turn = np.exp(1j * random.uniform(0, np.pi / 2))
    x, y = _GRID
    place = (x + 1j * y) / turn / period  # on a turned raster with a dot in each unit square
    column = np.floor(place.real)
    row = np.floor(place.imag)
    middle = column + 0.5 + 1j * (row + 0.5)
    disc = np.clip(1.5 * period * (0.62 - np.abs(place - middle)), 0, 1)[..., None]
    at = middle * turn * period
    rows, columns = (
        np.clip(np.rint(part), 0, SIDE - 1).astype(np.intp) for part in (at.imag, at.real)
    )
    inside = _thickened(mask, random)[rows, columns, None]  # a dot is of one colour
    brightness = random.uniform(0.35, 0.75, (SIDE, SIDE, 1))[
        column.astype(np.intp) % SIDE, row.astype(np.intp) % SIDE
    ]
    hue = random.random()
    ground, figure = (0.35 * _tint(turned) for turned in (hue, hue + random.uniform(0.3, 0.7)))
    dots = brightness + ground + inside * (figure - ground)
    return (0.93 + disc * (dots - 0.93)).astype(np.float32)


Style: TypeAlias = Callable[[Image.Image, Random, Difficulty], Array]
STYLES: dict[str, Style] = {
    style.__name__[1:]: style
    for style in (_scene, _print, _outline, _chalk, _neon, _halftone, _emboss, _sketch, _plate)
}

_GRID = tuple(a.astype(np.float32) for a in np.meshgrid(np.arange(SIDE), np.arange(SIDE)))


def _soft(mask: Image.Image, radius: float) -> Array:
    """The mask with soft edges, whose level sets lie parallel to the contour: float32 (SIDE, SIDE)
    in [0, 1].
    """
    return np.asarray(mask.filter(ImageFilter.GaussianBlur(radius)), np.float32) / 255


def _thickened(mask: Image.Image, random: Random) -> Array:
    """Ink of a random thickness: one level set of the soft mask."""
    level = random.uniform(0.2, 0.5)
    return np.clip((_soft(mask, 1.0) - level) * 5 + 0.5, 0, 1)


def _two_tones(random: Random, contrast: float) -> tuple[float, float]:
    """Brightness of ink and of paper, either one the darker, at least ``contrast`` apart."""
    gap = random.uniform(contrast, 0.9)
    dark = random.uniform(0.0, 1.0 - gap)
    return (dark, dark + gap) if random.random() < 0.5 else (dark + gap, dark)


def _hue(turn: float) -> Array:
    """The saturated colour at ``turn`` of the colour circle: (3,)."""
    return np.clip(np.abs((turn + np.array([0, 2 / 3, 1 / 3])) % 1 * 6 - 3) - 1, 0, 1).astype(
        np.float32
    )


def _coloured(brightness: float, random: Random, most: float = 0.6) -> Array:
    """A colour of this brightness and a random hue: (3,)."""
    tint = _tint(random.random())
    saturation = np.float32(random.random() * most * min(brightness, 1 - brightness) * 2)
    return np.float32(brightness) + saturation * tint


def _tint(turn: float) -> Array:
    """The hue at ``turn`` of the colour circle without its brightness: (3,)."""
    colour = _hue(turn)
    return colour - colour @ np.array([0.3, 0.59, 0.11], np.float32)


def _texture(random: Random, amount: float, cells: int | None = None) -> Array:
    """A smooth random field of mean 0: nothing, a gradient, blobs or grain: (SIDE, SIDE, 3) or
    stripes (…, 1).
    """
    kind = random.integers(6) if cells is None else 6
    strength = np.float32(random.random() * amount)
    if kind == 0:
        return np.zeros((1, 1, 1), np.float32)
    if kind == 1:
        x, y = _GRID
        turn = random.uniform(0, np.pi)
        period = random.uniform(5, 24)
        wave = np.sin(
            2 * np.pi / period * (x * np.cos(turn) + y * np.sin(turn)) + random.uniform(0, 6)
        )
        return strength * wave[..., None].astype(np.float32)
    return _blobs(random, cells or (2, 3, 6, 16)[kind - 2]) * strength


def _blobs(random: Random, cells: int) -> Array:
    """Random values in [-1, 1] at ``cells`` × ``cells`` points and between them: (SIDE, SIDE,
    3).
    """
    small = Image.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32) / 127.5 - 1


def _lines(count: int, random: Random) -> Array:
    """Straight foreign strokes: float32 (SIDE, SIDE) in [0, 1]."""
    sheet = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(sheet)
    for ends, width in zip(
        random.integers(0, SIDE, (count, 4)), random.integers(1, 4, count), strict=True
    ):
        pen.line([int(e) for e in ends], fill=255, width=int(width))
    return np.asarray(sheet, np.float32) / 255


def _shaken(random: Random) -> tuple[Array, Array]:
    """Positions to read a picture at, moved smoothly by a few pixels: rows and columns (SIDE,
    SIDE).
    """
    x, y = _GRID
    moved = _blobs(random, 7) * 2.5
    rows = np.clip(np.rint(y + moved[..., 0]), 0, SIDE - 1).astype(np.intp)
    columns = np.clip(np.rint(x + moved[..., 1]), 0, SIDE - 1).astype(np.intp)
    return rows, columns

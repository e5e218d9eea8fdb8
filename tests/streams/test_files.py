"""Whatever a file holds, it becomes an RGB picture or one sentence that names it."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from safecl.errors import SafeclError
from safecl.streams import files
from safecl.streams.files import File, FilePictures, decode


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def gradient(size: tuple[int, int] = (64, 48)) -> Image.Image:
    return Image.linear_gradient("L").resize(size).convert("RGB")


def sentence(data: bytes) -> str:
    with pytest.raises(SafeclError) as caught:
        decode(data, "cat/7.jpg")
    text = str(caught.value)
    assert "cat/7.jpg" in text and text.endswith(".") and "\n" not in text
    return text


def test_a_truncated_picture_is_named() -> None:
    whole = encoded(gradient(), "JPEG")
    assert "truncated" in sentence(whole[: len(whole) // 2]).lower()
    png = encoded(gradient(), "PNG")
    sentence(png[: len(png) // 2])


def test_a_truncated_jpeg_is_filled_up_where_that_is_allowed() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), "JPEG")
    part = np.asarray(decode(whole[: len(whole) * 4 // 5], "x", forgiving=True))
    full = np.asarray(decode(whole, "x", forgiving=True))
    assert part.shape == full.shape
    assert (part[:8] == full[:8]).all() and not (part[-8:] == full[-8:]).all()
    assert (full == np.asarray(decode(whole, "x"))).all()


def test_an_empty_file_is_named() -> None:
    assert "empty" in sentence(b"")


def test_a_text_with_the_name_of_a_picture_is_named() -> None:
    assert "not a picture" in sentence(b"<html>404 not found</html>")


@settings(max_examples=60)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0"]),
)
def test_no_bytes_at_all_lead_to_a_traceback(tail: bytes, head: bytes) -> None:
    try:
        assert decode(head + tail, "x").mode == "RGB"
    except SafeclError as error:
        assert "x" in str(error)


@settings(max_examples=40)
@given(st.integers(0, 900), st.integers(0, 255), st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"]))
def test_a_damaged_byte_is_read_or_named(position: int, value: int, kind: str) -> None:
    data = bytearray(encoded(gradient((24, 18)), kind))
    data[position % len(data)] = value
    try:
        assert decode(bytes(data), "x").mode == "RGB"
    except SafeclError as error:
        assert "x" in str(error)


def test_a_decompression_bomb_is_named_and_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "pixels" in sentence(encoded(gradient((64, 64)), "PNG"))


def test_a_long_strip_is_named() -> None:
    assert "strip" in sentence(encoded(Image.new("L", (2000, 3)), "PNG"))


def test_cmyk_keeps_its_colours() -> None:
    red = Image.new("RGB", (32, 32), (200, 30, 30))
    got = np.asarray(decode(encoded(red.convert("CMYK"), "JPEG", quality=95), "x")).mean((0, 1))
    assert np.abs(got - (200, 30, 30)).max() < 6


def test_palettes_and_their_transparency_are_resolved() -> None:
    image = gradient().quantize(16)
    plain = np.asarray(decode(encoded(image, "PNG"), "x"))
    assert np.abs(plain.astype(int) - np.asarray(gradient()).astype(int)).mean() < 10
    assert (np.asarray(decode(encoded(image, "PNG", transparency=bytes([0] * 8 + [255] * 8)), "x")) == plain).all()


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    got = np.asarray(decode(encoded(Image.fromarray(ramp), "PNG"), "x"))
    assert (got[0, :, 0] == np.arange(256)).all()


def test_floats_from_zero_to_one_are_scaled() -> None:
    ramp = np.linspace(0, 1, 256, dtype=np.float32)[None].repeat(8, 0)
    got = np.asarray(decode(encoded(Image.fromarray(ramp), "TIFF"), "x"))
    assert (got[0, :, 0] == np.arange(256)).all()


def test_one_bit_and_grey_with_alpha_become_rgb() -> None:
    for mode in ("1", "L", "LA", "RGBA"):
        assert decode(encoded(gradient().convert(mode), "PNG"), "x").mode == "RGB"


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data, "x").getpixel((3, 3)) == (255, 0, 0)


def test_exif_rotation_is_applied_to_own_pictures_and_not_to_published_ones() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    data = encoded(gradient((64, 48)), "JPEG", exif=exif)
    assert decode(data, "x").size == (48, 64)
    assert decode(data, "x", upright=False).size == (64, 48)


def test_a_file_that_goes_away_is_named(tmp_path: Path, paint) -> None:
    path = paint(tmp_path / "a.png")
    pictures = FilePictures([File.at(path)], ["a"])
    path.unlink()
    with pytest.raises(SafeclError, match=r"a\.png has gone"):
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


def test_pixel_limit_is_the_one_of_pillow() -> None:
    assert files.MAX_PIXELS == 2 * 89_478_485

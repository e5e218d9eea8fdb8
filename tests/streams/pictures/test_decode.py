"""Whatever the bytes of a file are, they become an RGB picture or one sentence that names the file."""

import io
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from safecl.errors import SafeclError
from safecl.streams.pictures import decode as decoding
from safecl.streams.pictures.decode import UnreadableError, as_image, decode, size_of

JXL_BOX = b"\0\0\0\x0cJXL \r\n\x87\n"
MODULES = {"HEIF": "pillow_heif", "JXL": "pillow_jxl", "AVIF": "PIL.AvifImagePlugin"}


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
    st.sampled_from(
        [
            b"",
            b"\xff\xd8\xff\xe0",
            b"\x89PNG\r\n\x1a\n",
            b"GIF89a",
            b"BM",
            b"II*\0",
            b"\xff\x0a",
            JXL_BOX,
            b"\0\0\0\x18ftypheic",
            b"\0\0\0\x18ftypavif",
            JXL_BOX + b"\0\0\0\0jxlc",
        ]
    ),
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


@pytest.mark.parametrize("other", [None, 10, 10**9])
def test_our_limit_of_pixels_holds_whatever_pillows_is(monkeypatch: pytest.MonkeyPatch, other: int | None) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", other)
    monkeypatch.setattr(decoding, "MAX_PIXELS", 64 * 64 - 1)
    assert "more than 4,095 pixels" in sentence(encoded(gradient((64, 64)), "PNG"))
    assert decode(encoded(gradient((63, 65)), "PNG"), "x").size == (63, 65)


def animation() -> bytes:
    """A GIF whose first frame says how it is to be cleared away, for which Pillow checks its size again."""
    frames = [Image.new("RGB", (64, 48), colour) for colour in ("red", "blue")]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], disposal=2)


@pytest.mark.parametrize("limit", [1000, 2000])  # Pillow would raise; Pillow would warn
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "PPM", "GIF", "TIFF", "WEBP", "animation"])
def test_a_picture_we_allow_is_read_although_other_code_lowered_pillows_limit(
    monkeypatch: pytest.MonkeyPatch, kind: str, limit: int
) -> None:
    data = animation() if kind == "animation" else encoded(gradient(), kind)
    expected = np.asarray(decode(data, "x"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (np.asarray(decode(data, "x")) == expected).all()
    assert limit == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(("kind", "lowered"), [("TIFF", False), ("TIFF", True), ("GIF", False), ("WEBP", False)])
def test_threads_decode_at_the_same_time_unless_pillows_limit_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch, kind: str, lowered: bool
) -> None:
    data, reader = encoded(gradient(), kind), type(Image.open(io.BytesIO(encoded(gradient(), kind))))
    both, load, met, found = threading.Barrier(2), reader.load, [], []

    def meeting(image: Any) -> Any:
        if image.tile or kind == "WEBP":
            try:
                both.wait(0.2 if lowered else 10)
                met.append(True)
            except threading.BrokenBarrierError:
                met.append(False)
        return load(image)

    monkeypatch.setattr(reader, "load", meeting)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000 if lowered else 10**6)
    threads = [threading.Thread(target=lambda: found.append(decode(data, "x").size)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(64, 48)] * 2 and met[0] is (not lowered)
    assert (1000 if lowered else 10**6) == Image.MAX_IMAGE_PIXELS


def test_importing_and_reading_leave_the_warning_filters_alone() -> None:
    script = "import sys, warnings, numpy, PIL.Image; before = warnings.filters[:]\n"
    script += "from safecl.streams.pictures.decode import decode; decode(sys.stdin.buffer.read(), 'x')\n"
    script += "assert warnings.filters == before and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, input=encoded(gradient(), "GIF"))


def test_only_the_documented_formats_are_tried_whatever_a_file_is_called() -> None:
    """EPS, for one: Pillow's reader of it starts another program."""
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(SafeclError, match=r"trick\.jpg cannot be read \(not a picture\)"):
        decode(eps, "trick.jpg")


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


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "PPM", "GIF", "TIFF", "WEBP"])
def test_the_size_is_known_without_decoding(kind: str) -> None:
    data = encoded(gradient((64, 48)), kind)
    assert size_of(data, "x") == (64, 48)
    if kind == "PNG":  # which Pillow decodes to look for Exif behind the pixels
        assert size_of(data[:-60], "x") == (64, 48)


def phone(kind: str, image: Image.Image, **options: Any) -> bytes:
    """A picture in a format that not every installation reads."""
    module = pytest.importorskip(MODULES[kind])
    if kind == "HEIF":
        module.register_heif_opener()  # and what saves
    if kind == "JXL":
        pytest.importorskip("pillow_jxl.JpegXLImagePlugin")
    return encoded(image, kind, quality=95, **options)


@pytest.mark.parametrize("kind", MODULES)
def test_formats_of_phones_are_read_upright_by_their_content(kind: str) -> None:
    image = gradient((64, 48))
    data = phone(kind, image)
    assert size_of(data, "x") == (64, 48)
    assert np.abs(np.asarray(decode(data, "x.jpg"), int) - np.asarray(image, int)).max() < 12
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    data = phone(kind, image, exif=exif.tobytes())
    # Writers of JPEG XL turn the picture itself, so its readers ignore what the Exif says.
    turned = (64, 48) if kind == "JXL" else (48, 64)
    assert decode(data, "x").size == turned and sorted(size_of(data, "x")) == [48, 64]


@pytest.mark.parametrize("kind", MODULES)
def test_without_its_reader_a_format_of_phones_names_what_reads_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = phone(kind, gradient())
    monkeypatch.setattr(decoding, "reader", lambda kind: None)
    name = {"HEIF": "HEIC", "JXL": "JPEG XL"}.get(kind, kind)
    reads = {"HEIF": "pip install 'safecl[heic]'", "JXL": "pip install 'safecl[jxl]'"}.get(kind, "Pillow 11.3 or newer")
    assert sentence(data).endswith(f"({name}, which {reads} reads); install that, or convert the picture to JPEG.")
    assert not decoding.readable(".heic") and decoding.readable(".jpg") and not decoding.readable(".eps")


@pytest.mark.parametrize("size", [(1, 1), (8, 16), (64, 48), (513, 300), (256, 256), (4999, 100)])
@pytest.mark.parametrize("boxes", [False, True])
def test_the_size_of_a_jpeg_xl_picture_is_known_before_it_is_decoded(size: tuple[int, int], boxes: bool) -> None:
    pytest.importorskip("pillow_jxl.JpegXLImagePlugin")
    data = encoded(Image.new("RGB", size), "JXL", use_container=boxes)
    assert decoding.jpeg_xl_size(data) == size and (data[:2] != b"\xff\x0a") is boxes


def test_a_jpeg_xl_picture_that_would_exhaust_the_ram_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "reader", lambda kind: pytest.fail)
    bits = 0b11 << 1 | (99_999 << 3) | (1 << 33)  # 30 bits of height, and as wide
    assert "more than" in sentence(b"\xff\x0a" + bits.to_bytes(8, "little"))


def wide_gamut() -> bytes:
    """A profile whose red is as that of no screen: red and green of sRGB are exchanged in it."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for old, new in ((b"rXYZ", b"tmp "), (b"gXYZ", b"rXYZ"), (b"tmp ", b"gXYZ")):
        at = data.index(old)
        data[at : at + 4] = new
    return bytes(data).replace("sRGB".encode("utf-16-be"), "sXYZ".encode("utf-16-be"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_colours_are_brought_from_their_profile_to_srgb(kind: str, mode: str) -> None:
    if (kind, mode) == ("JPEG", "RGBA"):
        return
    data = encoded(Image.new(mode, (16, 16), (200, 40, 90)), kind, icc_profile=wide_gamut())
    meant, stored = (np.asarray(decode(data, "x", upright=upright), int)[8, 8] for upright in (True, False))
    assert np.abs(meant - (40, 200, 90)).max() < 8  # a change of colours as large as any mistake in it would be
    assert np.abs(stored - (200, 40, 90)).max() < 8


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()  # with the time in it: no name for a test


@pytest.mark.parametrize("profile", [b"broken", SRGB], ids=["broken", "sRGB"])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_profile_that_says_nothing_new_changes_nothing(profile: bytes, mode: str) -> None:
    image = gradient().convert(mode)
    plain, profiled = encoded(image, "JPEG"), encoded(image, "JPEG", icc_profile=profile)
    assert (np.asarray(decode(plain, "x")) == np.asarray(decode(profiled, "x"))).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_not_finite_make_a_picture_unreadable(value: float) -> None:
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    ramp[3, 5] = value
    file = io.BytesIO()
    Image.fromarray(ramp).save(file, "TIFF")
    with pytest.raises(UnreadableError, match=r"The picture x.tif cannot be read \(pixels that are not finite numbers"):
        decode(file.getvalue(), "x.tif")
    colours = np.stack([ramp] * 3)
    for item in (Image.fromarray(ramp), ramp, torch.from_numpy(colours), colours.transpose(1, 2, 0)):
        with pytest.raises(UnreadableError, match=r"The picture 7 cannot be read \(pixels that are not finite numbers"):
            as_image(item, "picture 7")


def test_an_array_of_one_column_is_a_narrow_picture_and_no_grey_one() -> None:
    column = np.arange(15, dtype=np.uint8).reshape(5, 1, 3)
    found = as_image(column, "picture 7")
    assert found.size == (1, 5) and (np.asarray(found.convert("RGB")) == column).all()


def test_a_lack_of_ram_is_not_blamed_on_the_picture_and_an_error_without_words_is_named() -> None:
    with pytest.raises(MemoryError), decoding.explained("a.png"):
        raise MemoryError
    with pytest.raises(UnreadableError, match=r"cannot be read \(EOFError\)"), decoding.explained("a.png"):
        raise EOFError

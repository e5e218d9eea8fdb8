"""Whatever the bytes of a file are, they become an RGB picture or one sentence that names the
file.
"""

import io
import os
import re
import struct
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
from safecl.ram import peak, reset_peak
from safecl.streams.pictures import decode as decoding
from safecl.streams.pictures import kinds
from safecl.streams.pictures.decode import (
    BYTES_PER_PIXEL,
    LARGE,
    MAX_BYTES,
    MAX_SCANS,
    ROOM,
    Room,
    as_arrays,
    as_image,
    decode,
    size_of,
)
from safecl.streams.pictures.images import Transform, plain_view
from tests.conftest import raises

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
@given(
    st.integers(0, 900),
    st.integers(0, 255),
    st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"]),
)
def test_a_damaged_byte_is_read_or_named(position: int, value: int, kind: str) -> None:
    data = bytearray(encoded(gradient((24, 18)), kind))
    data[position % len(data)] = value
    try:
        assert decode(bytes(data), "x").mode == "RGB"
    except SafeclError as error:
        assert "x" in str(error)


@pytest.mark.parametrize("other", [None, 10, 10**9])
def test_our_limit_of_pixels_holds_whatever_pillows_is(
    monkeypatch: pytest.MonkeyPatch, other: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", other)
    monkeypatch.setattr(decoding, "MAX_PIXELS", 64 * 64 - 1)
    assert "more than 4,095 pixels" in sentence(encoded(gradient((64, 64)), "PNG"))
    assert decode(encoded(gradient((63, 65)), "PNG"), "x").size == (63, 65)


def animation() -> bytes:
    """A GIF whose first frame says how it is to be cleared away, for which Pillow checks its size
    again.
    """
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


@pytest.mark.parametrize(
    ("kind", "lowered"), [("TIFF", False), ("TIFF", True), ("GIF", False), ("WEBP", False)]
)
def test_threads_decode_at_the_same_time_unless_pillows_limit_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch, kind: str, lowered: bool
) -> None:
    data = encoded(gradient(), kind)
    reader = type(Image.open(io.BytesIO(encoded(gradient(), kind))))
    both = threading.Barrier(2)
    load = reader.load
    met = []
    found = []

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
    threads = [
        threading.Thread(daemon=True, target=lambda: found.append(decode(data, "x").size))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(64, 48)] * 2 and met[0] is (not lowered)
    assert (1000 if lowered else 10**6) == Image.MAX_IMAGE_PIXELS


def test_importing_and_reading_leave_the_warning_filters_alone() -> None:
    script = "import sys, warnings, numpy, PIL.Image; before = warnings.filters[:]\n"
    script += (
        "from safecl.streams.pictures.decode import decode; decode(sys.stdin.buffer.read(), 'x')\n"
    )
    script += "assert warnings.filters == before and 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=120, input=encoded(gradient(), "GIF")
    )


def test_only_the_documented_formats_are_tried_whatever_a_file_is_called() -> None:
    """EPS, for one: Pillow's reader of it starts another program."""
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    with raises("picture.unreadable", where="trick.jpg", reason="not a picture"):
        decode(eps, "trick.jpg")


def test_a_long_strip_is_named() -> None:
    assert "strip" in sentence(encoded(Image.new("L", (2000, 3)), "PNG"))


def in_scans(count: int, before: bytes = b"") -> bytes:
    """A progressive JPEG whose first scan is there so often that it has ``count``; ``before``: more
    of its header.
    """
    data = encoded(gradient(), "JPEG", progressive=True)
    first = data.index(b"\xff\xda")
    after = next(i for i in range(first + 2, len(data)) if data[i] == 0xFF and data[i + 1] != 0)
    more = data[first:after] * (count - data.count(b"\xff\xda"))
    return data[:2] + before + data[2:first] + more + data[first:]


@pytest.mark.parametrize("count", [MAX_SCANS + 1, 4000])
def test_a_jpeg_of_thousands_of_scans_is_refused_and_not_decoded_for_minutes(count: int) -> None:
    assert "(a JPEG of more than 100 scans); save it again" in sentence(in_scans(count))
    whole = encoded(gradient(), "JPEG")
    scan = whole.index(b"\xff\xda")
    one_colour = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + b"\x12\xff\0\x34"
    assert "more than 100 scans" in sentence(whole[:scan] + one_colour * count + b"\xff\xd9")


def test_scans_are_those_that_would_be_decoded() -> None:
    """Neither those of a thumbnail in the header, nor what a phone appends, nor a marker in a
    comment.
    """
    plain = np.asarray(decode(in_scans(10), "x"))
    other = b"\xff\xda\0\x02" * 5000
    segment = b"\xff\xfe" + (len(other) + 2).to_bytes(2, "big") + other
    for data in (in_scans(MAX_SCANS), in_scans(10) + other, in_scans(10, segment)):
        assert (np.asarray(decode(data, "x")) == plain).all()
    whole = encoded(gradient(), "JPEG")  # in one scan
    assert (np.asarray(decode(whole + other, "x")) == np.asarray(decode(whole, "x"))).all()


def test_threads_wait_for_the_memory_that_others_have_taken() -> None:
    room = Room(100)
    inside = threading.Event()

    def enter() -> None:
        with room.taken(1000):  # no more than there is
            inside.set()

    with room.taken(30), room.taken(70):
        thread = threading.Thread(daemon=True, target=enter)
        thread.start()
        assert not inside.wait(0.05)
    assert inside.wait(10)
    thread.join()


def test_who_needs_much_memory_is_not_overtaken_by_those_who_need_little() -> None:
    room = Room(100)
    came = list[int]()
    waits = threading.Event()

    def enter(count: int) -> None:
        with room.taken(count):
            came.append(count)

    threads = [
        threading.Thread(daemon=True, target=enter, args=(count,)) for count in (100, 10, 20)
    ]
    with room.taken(30):
        for thread in threads:
            thread.start()
            assert not waits.wait(0.05) and came == []
    for thread in threads:
        thread.join(10)
    assert came[0] == 100 and sorted(came) == [10, 20, 100]


def test_a_picture_is_decoded_when_there_is_room_for_it() -> None:
    data = encoded(gradient(), "PNG")
    found = []
    with ROOM.taken(MAX_BYTES):
        thread = threading.Thread(daemon=True, target=lambda: found.append(decode(data, "x").size))
        thread.start()
        thread.join(0.05)
        assert not found
        if (child := os.fork()) == 0:  # where the thread that has taken all does not go on
            os._exit(decode(data, "x").size != (64, 48))
        assert os.waitpid(child, 0)[1] == 0
    thread.join(10)
    assert found == [(64, 48)]


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "I;16", "P", "JPEG", "progressive", "WEBP"])
def test_a_large_picture_takes_no_more_memory_than_is_counted(kind: str) -> None:
    side = 4200
    grey = Image.new("L", (side, side), 77)
    image = grey if kind in ("I;16", "P") else grey.convert("RGBA" if kind == "RGBA" else "RGB")
    if kind == "I;16":
        image = Image.fromarray(np.full((side, side), 19789, np.uint16))
    if kind == "P":
        data = encoded(image.convert("P"), "PNG", transparency=0)
    elif kind in ("JPEG", "progressive"):
        data = encoded(image, "JPEG", progressive=kind == "progressive", subsampling=0)
    else:
        data = encoded(image, "WEBP" if kind == "WEBP" else "PNG")
    del image, grey
    reset_peak(torch.device("cpu"))
    before = peak(torch.device("cpu"))
    found = decode(data, "x", least=500)
    taken = peak(torch.device("cpu")) - before
    assert taken <= 1.05 * BYTES_PER_PIXEL * side**2
    assert min(found.size) < 1100 and found.getpixel((5, 5)) == (77, 77, 77)


def test_a_large_picture_is_reduced_at_once_and_its_view_stays_the_same() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3501, 4901), dtype=np.uint8)
    ramp = (np.arange(4901) // 40).astype(np.uint8)
    image = Image.fromarray(noise // 2 + ramp).convert("RGB")
    transform = Transform(64)
    data = encoded(image, "BMP")
    small = decode(data, "x", least=transform.enough)
    assert LARGE < 4901 * 3501 and transform.enough <= min(small.size) < 2 * transform.enough
    apart = (plain_view(small, transform).int() - plain_view(image, transform).int()).abs()
    assert apart.max() <= 1
    assert decode(data, "x").size == (4901, 3501)


def test_an_image_that_is_handed_over_stays_as_it_is() -> None:
    image = Image.new("RGB", (6, 4), (1, 2, 3))
    as_image(image, "x").putpixel((0, 0), (9, 9, 9))
    assert image.getpixel((0, 0)) == (1, 2, 3)


def test_cmyk_keeps_its_colours() -> None:
    red = Image.new("RGB", (32, 32), (200, 30, 30))
    got = np.asarray(decode(encoded(red.convert("CMYK"), "JPEG", quality=95), "x")).mean((0, 1))
    assert np.abs(got - (200, 30, 30)).max() < 6


def test_palettes_and_their_transparency_are_resolved() -> None:
    image = gradient().quantize(16)
    plain = np.asarray(decode(encoded(image, "PNG"), "x"))
    assert np.abs(plain.astype(int) - np.asarray(gradient()).astype(int)).mean() < 10
    assert (
        np.asarray(decode(encoded(image, "PNG", transparency=bytes([0] * 8 + [255] * 8)), "x"))
        == plain
    ).all()


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    got = np.asarray(decode(encoded(Image.fromarray(ramp), "PNG"), "x"))
    assert (got[0, :, 0] == np.arange(256)).all()


def twelve_bits(values: list[int]) -> bytes:
    """A TIFF of one row of 12 bits a value, which Pillow reads and does not write."""
    packed = int("".join(f"{value:012b}" for value in values), 2).to_bytes(
        len(values) * 12 // 8, "big"
    )
    tags = {
        256: len(values),
        257: 1,
        258: 12,
        259: 1,
        262: 1,
        273: 8,
        277: 1,
        278: 1,
        279: len(packed),
    }
    fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    start = 8 + len(packed)
    return (
        struct.pack("<2sHI", b"II", 42, start)
        + packed
        + struct.pack("<H", len(tags))
        + fields
        + bytes(4)
    )


@pytest.mark.parametrize("most", [255, 256, 3000, 65535])
def test_a_dark_16_bit_scan_keeps_its_scale(most: int) -> None:
    """Its own maximum says nothing: of whatever form, each value is its share of 65535."""
    ramp = np.linspace(0, most, 64).astype(np.uint16)[None].repeat(8, 0)
    bright = (ramp / 257).round().astype(np.uint8)
    big = Image.frombytes("I;16B", ramp.shape[::-1], ramp.astype(">u2").tobytes())
    files = [encoded(Image.fromarray(ramp), kind) for kind in ("PNG", "TIFF", "PPM")] + [
        encoded(big, "TIFF")
    ]
    for data in files:
        assert (np.asarray(decode(data, "x")) == bright[..., None]).all()
    for item in (ramp, Image.fromarray(ramp), big, ramp[..., None], torch.from_numpy(ramp)):
        assert (np.asarray(as_image(item, "x")) == bright[..., None]).all()
    colours = np.stack([ramp, ramp.T.reshape(ramp.shape), ramp], axis=-1)
    assert (as_arrays(colours[None]) == (colours / 257).round()).all()
    assert (np.asarray(as_image(colours, "x")) == (colours / 257).round()).all()


def test_twelve_bits_are_a_share_of_4095() -> None:
    got = np.asarray(decode(twelve_bits([0, 100, 2048, 4095]), "x"))
    assert got[0, :, 0].tolist() == [0, 6, 128, 255]


@pytest.mark.parametrize("most", [1, 0.5, 0.01])
def test_floats_are_0_to_1_however_dark_they_are(most: float) -> None:
    ramp = np.linspace(0, most, 256, dtype=np.float32)[None].repeat(8, 0)
    for item in (
        encoded(Image.fromarray(ramp), "TIFF"),
        ramp,
        Image.fromarray(ramp),
        torch.from_numpy(ramp),
    ):
        # whose floats are 0 to 1 by their documents
        if isinstance(item, np.ndarray | torch.Tensor):
            got = as_image(item, "x")
        else:
            with pytest.warns(UserWarning, match="their format does not say what is white"):
                got = decode(item, "x") if isinstance(item, bytes) else as_image(item, "x")
        assert (np.asarray(got)[0, :, 1] == (ramp[0] * 255).round()).all()


@pytest.mark.filterwarnings("ignore:Grey pictures of floats")
def test_what_has_no_scale_is_refused_beyond_the_one_rule() -> None:
    ramp = np.linspace(0, 255, 256, dtype=np.float32)[None].repeat(8, 0)
    for values, white in ((ramp, 1), (-ramp / 255, 1), (ramp.astype(np.int32) - 1, 65535)):
        for kind in ("TIFF", "image"):
            with raises(
                "picture.unreadable",
                reason=re.compile(f"values that are not between 0 and {white}$"),
                remedy=re.compile("^make 0 black"),
            ):
                image = Image.fromarray(values)
                decode(encoded(image, kind), "x") if kind == "TIFF" else as_image(image, "x")
    found = decode(encoded(Image.fromarray(257 * ramp.astype(np.int32)), "TIFF"), "x")
    assert (np.asarray(found)[0, :, 0] == np.arange(256)).all()


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
def test_without_its_reader_a_format_of_phones_names_what_reads_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = phone(kind, gradient())
    monkeypatch.setattr(kinds, "reader", lambda kind: None)
    name = {"HEIF": "HEIC", "JXL": "JPEG XL"}.get(kind, kind)
    reads = {"HEIF": "pip install 'safecl[heic]'", "JXL": "pip install 'safecl[jxl]'"}.get(
        kind, "Pillow 11.3 or newer"
    )
    assert sentence(data).endswith(
        f"({name}, which {reads} reads); install that, or convert the picture to JPEG."
    )
    assert not kinds.readable(".heic") and kinds.readable(".jpg") and not kinds.readable(".eps")


@pytest.mark.parametrize("size", [(1, 1), (8, 16), (64, 48), (513, 300), (256, 256), (4999, 100)])
@pytest.mark.parametrize("boxes", [False, True])
def test_the_size_of_a_jpeg_xl_picture_is_known_before_it_is_decoded(
    size: tuple[int, int], boxes: bool
) -> None:
    pytest.importorskip("pillow_jxl.JpegXLImagePlugin")
    data = encoded(Image.new("RGB", size), "JXL", use_container=boxes)
    assert kinds.jpeg_xl_size(data) == size and (data[:2] != b"\xff\x0a") is boxes


def test_a_jpeg_xl_picture_that_would_exhaust_the_ram_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "reader", lambda kind: pytest.fail)
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
    meant, stored = (
        np.asarray(decode(data, "x", upright=upright), int)[8, 8] for upright in (True, False)
    )
    # a change of colours as large as any mistake in it would be
    assert np.abs(meant - (40, 200, 90)).max() < 8
    assert np.abs(stored - (200, 40, 90)).max() < 8


SRGB = ImageCms.ImageCmsProfile(
    ImageCms.createProfile("sRGB")
).tobytes()  # with the time in it: no name for a test


@pytest.mark.parametrize("profile", [b"broken", SRGB], ids=["broken", "sRGB"])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_profile_that_says_nothing_new_changes_nothing(profile: bytes, mode: str) -> None:
    image = gradient().convert(mode)
    plain = encoded(image, "JPEG")
    profiled = encoded(image, "JPEG", icc_profile=profile)
    assert (np.asarray(decode(plain, "x")) == np.asarray(decode(profiled, "x"))).all()


@pytest.mark.filterwarnings("ignore:Grey pictures of floats")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_not_finite_make_a_picture_unreadable(value: float) -> None:
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    ramp[3, 5] = value
    file = io.BytesIO()
    Image.fromarray(ramp).save(file, "TIFF")
    with raises(
        "picture.unreadable", where="x.tif", reason=re.compile("^pixels that are not finite")
    ):
        decode(file.getvalue(), "x.tif")
    colours = np.stack([ramp] * 3)
    for item in (
        Image.fromarray(ramp),
        ramp,
        torch.from_numpy(colours),
        colours.transpose(1, 2, 0),
    ):
        with raises(
            "picture.unreadable", where=7, reason=re.compile("^pixels that are not finite numbers")
        ):
            as_image(item, "picture 7")


def test_an_array_of_one_column_is_a_narrow_picture_and_no_grey_one() -> None:
    column = np.arange(15, dtype=np.uint8).reshape(5, 1, 3)
    found = as_image(column, "picture 7")
    assert found.size == (1, 5) and (np.asarray(found.convert("RGB")) == column).all()


def test_a_lack_of_ram_is_not_blamed_on_the_picture_and_an_error_without_words_is_named() -> None:
    with pytest.raises(MemoryError), decoding.explained("a.png"):
        raise MemoryError
    with (
        raises("picture.unreadable", reason="EOFError"),
        decoding.explained("a.png"),
    ):
        raise EOFError

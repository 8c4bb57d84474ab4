"""Pixels equal Transformers', and no bytes whatever raise anything but a MediaError."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps, WebPImagePlugin
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from serve_app.media.decode import decode, silence_pillow
from serve_app.media.errors import MediaError
from serve_app.media.header import measure
from serve_app.media.structure import MAX_SCANS
from serve_app.messages import ByteArray, PixelSpec
from serve_app.vocabulary import MediaErrorCode, Resample
from tests.unit.media.conftest import SPEC, encoded, picture

LIMIT = 50_000_000
PLAIN = PixelSpec(shortest_edge=None, size=None, resample=Resample.BICUBIC, crop=(12, 20))
"""Takes `picture()` as it is."""


def _clip(edge: int = 224, crop: tuple[int, int] = (224, 224), scaled: bool = False) -> PixelSpec:
    return PixelSpec(edge, None, Resample.BICUBIC, crop, scaled)


def _siglip(side: int = 224, scaled: bool = False) -> PixelSpec:
    return PixelSpec(None, (side, side), Resample.BICUBIC, None, scaled)


def _reference(image: Image.Image, spec: PixelSpec) -> ByteArray:
    """Transformers' own pixels, before rescaling and normalisation."""
    if spec.shortest_edge is None:
        assert spec.size is not None
        processor = SiglipImageProcessorPil(size=dict(zip(("height", "width"), spec.size, strict=True)))
    else:
        assert spec.crop is not None
        processor = CLIPImageProcessorPil(
            size={"shortest_edge": spec.shortest_edge},
            crop_size=dict(zip(("height", "width"), spec.crop, strict=True)),
        )
    pixels = processor(image, do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"][0]
    assert pixels.dtype == np.uint8
    return pixels.transpose(1, 2, 0)


SPECS = {
    "clip": _clip(),
    "clip, odd": _clip(37, (30, 33)),
    "clip, crop larger": _clip(31, (64, 45)),
    "siglip": _siglip(),
    "siglip, odd": _siglip(51),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (224, 224), (640, 480), (333, 501), (37, 37), (1000, 40)], ids=str)
def test_sizes_equal_transformers(size: tuple[int, int], spec: PixelSpec) -> None:
    data = encoded(picture(1, size))
    np.testing.assert_array_equal(decode(data, spec, LIMIT), _reference(picture(1, size), spec))


@pytest.mark.parametrize(
    ("size", "spec"), [((4032, 3024), _clip()), ((1512, 2016), _clip()), ((1512, 2016), _siglip(384))], ids=str
)
def test_photographs_equal_transformers(size: tuple[int, int], spec: PixelSpec) -> None:
    data = encoded(picture(2, size), "JPEG", quality=90)
    np.testing.assert_array_equal(decode(data, spec, LIMIT), _reference(Image.open(io.BytesIO(data)), spec))


FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "JPEG": ("RGB", "JPEG", {}),
    "progressive JPEG": ("RGB", "JPEG", {"progressive": True}),
    "grey JPEG": ("L", "JPEG", {}),
    "CMYK JPEG": ("CMYK", "JPEG", {}),
    "PNG": ("RGB", "PNG", {}),
    "grey PNG": ("L", "PNG", {}),
    "palette PNG": ("P", "PNG", {}),
    "palette PNG of 4 bits": ("P", "PNG", {"bits": 4}),
    "PNG of 1 bit": ("1", "PNG", {}),
    "WebP": ("RGB", "WEBP", {"quality": 80}),
    "lossless WebP": ("RGB", "WEBP", {"lossless": True}),
    "GIF": ("P", "GIF", {}),
    "grey GIF": ("L", "GIF", {}),
    "BMP": ("RGB", "BMP", {}),
    "palette BMP": ("P", "BMP", {}),
    "BMP of 1 bit": ("1", "BMP", {}),
}


def _file(name: str, size: tuple[int, int] = (120, 90)) -> bytes:
    mode, kind, options = FILES[name]
    return encoded(picture(3, size, mode), kind, **options)


@pytest.mark.parametrize("spec", [_clip(40, (36, 38)), _siglip(50)], ids=["clip", "siglip"])
@pytest.mark.parametrize("name", FILES)
def test_formats_and_modes_equal_transformers(name: str, spec: PixelSpec) -> None:
    data = _file(name)
    np.testing.assert_array_equal(decode(data, spec, LIMIT), _reference(Image.open(io.BytesIO(data)), spec))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(width: int, height: int, bits: int, colour: int, rows: bytes, *extra: bytes) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    chunks = b"".join((header, *extra, _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b"")))
    return b"\x89PNG\r\n\x1a\n" + chunks


def _take(data: bytes, height: int, width: int) -> ByteArray:
    return decode(data, PixelSpec(None, None, Resample.BICUBIC, (height, width)), LIMIT)


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)], ids=["grey", "RGB", "LA", "RGBA"])
def test_16_bits_become_8(colour: int, channels: int) -> None:
    values = np.linspace(0, 65_535, 16 * channels).astype(np.uint16).reshape(16, channels)
    if channels in (2, 4):
        values[:, -1] = 65_535
    rows = b"\0" + values.astype(">u2").tobytes()
    expected = (values >> 8)[:, : channels - (channels in (2, 4))]
    pixels = _take(_png(16, 1, 16, colour, rows), 1, 16)[0]
    np.testing.assert_array_equal(pixels, np.broadcast_to(expected, (16, 3)))


def test_16_bits_with_a_transparent_grey() -> None:
    values = np.array([0x1234, 0x1235, 0xFF00], ">u2")
    pixels = _take(_png(3, 1, 16, 0, b"\0" + values.tobytes(), _chunk(b"tRNS", b"\x12\x34")), 1, 3)
    assert pixels[0, :, 0].tolist() == [255, 0x12, 255]


def test_16_bit_colours_with_a_transparent_one() -> None:
    values = np.array([[0x1212, 0x3434, 0x5656], [0x9999, 0, 0]], ">u2")
    trns = _chunk(b"tRNS", values[0].tobytes())
    pixels = _take(_png(2, 1, 16, 2, b"\0" + values.tobytes(), trns), 1, 2)
    assert pixels[0, 1].tolist() == [0x99, 0, 0]


def _transparent(kind: str, mode: str) -> bytes:
    """Left half transparent, right half red or dark."""
    image = Image.new("RGBA", (20, 12), (0, 0, 0, 0))
    image.paste((200, 0, 0, 255), (10, 0, 20, 12))
    if mode == "P":
        palette = Image.new("P", (20, 12), 0)
        palette.putpalette([0, 0, 0, 200, 0, 0])
        palette.paste(1, (10, 0, 20, 12))
        return encoded(palette, kind, transparency=0)
    if mode in ("RGB", "L"):
        key: Any = (0, 0, 0) if mode == "RGB" else 0
        return encoded(image.convert("RGB").convert(mode), kind, transparency=key)
    return encoded(image.convert(mode), kind, **({"lossless": True} if kind == "WEBP" else {}))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "RGBA"), ("PNG", "LA"), ("PNG", "P"), ("PNG", "RGB"), ("PNG", "L"), ("GIF", "P"), ("WEBP", "RGBA")],
)
def test_transparency_is_laid_on_white(kind: str, mode: str) -> None:
    pixels = decode(_transparent(kind, mode), PLAIN, LIMIT)
    assert (pixels[:, :10] == 255).all()
    assert (pixels[:, 10:, 0] < 210).all()


def test_half_transparency_and_a_palette_with_its_own() -> None:
    assert decode(encoded(Image.new("RGBA", (20, 12), (0, 0, 0, 128))), PLAIN, LIMIT)[0, 0].tolist() == [127] * 3
    palette = Image.new("P", (20, 12), 1)
    palette.putpalette([0, 0, 0, 100, 100, 100])
    data = encoded(palette, transparency=bytes([255, 51]))
    assert decode(data, PLAIN, LIMIT)[0, 0].tolist() == [224] * 3


def test_transparency_of_a_picture_of_many_strips() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (700, 30, 4)).astype(np.uint8))
    expected = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    difference = _take(encoded(image), 700, 30).astype(int) - np.asarray(expected)
    assert abs(difference).max() <= 1  # Pillow's two ways of blending round apart


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (20, 12), colour) for colour in ("red", "green", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(data)).n_frames == 3  # type: ignore[attr-defined]
    assert (decode(data, PLAIN, LIMIT) == (255, 0, 0)).all()


def _exif(orientation: Any) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(kind: str, orientation: int) -> None:
    data = encoded(picture(4, (60, 40)), kind, exif=_exif(orientation))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert upright.size == ((40, 60) if orientation > 4 else (60, 40))
    spec = _clip(30, (30, 40))
    np.testing.assert_array_equal(decode(data, spec, LIMIT), _reference(upright, spec))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_of_a_scaled_picture(orientation: int) -> None:
    data = encoded(picture(4, (803, 601)).resize((803, 601)), "JPEG", quality=95, exif=_exif(orientation))
    spec, scaled = _clip(50, (40, 60)), _clip(50, (40, 60), scaled=True)
    difference = decode(data, scaled, LIMIT).astype(int) - decode(data, spec, LIMIT)
    assert difference.any()  # it was scaled
    assert abs(difference).mean() < 1.5


def test_the_pre_rotated_picture_is_the_same() -> None:
    image = picture(5, (90, 60))
    rotated = encoded(image.transpose(Image.Transpose.ROTATE_270))
    np.testing.assert_array_equal(
        decode(encoded(image, exif=_exif(6)), _clip(), LIMIT), decode(rotated, _clip(), LIMIT)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff" * 9]
)
def test_broken_metadata_do_not_matter(exif: bytes) -> None:
    data = encoded(picture(6), "JPEG", exif=exif)
    np.testing.assert_array_equal(decode(data, PLAIN, LIMIT), decode(encoded(picture(6), "JPEG"), PLAIN, LIMIT))


@pytest.mark.parametrize("orientation", [0, 9, 99])
def test_an_orientation_that_is_none(orientation: int) -> None:
    data = encoded(picture(6), exif=_exif(orientation))
    np.testing.assert_array_equal(decode(data, PLAIN, LIMIT), np.asarray(picture(6)))


class TestScaledDecoding:
    """libjpeg decodes at a fraction, never below twice what the resize needs."""

    @pytest.mark.parametrize(
        ("size", "scale"), [((447, 447), 1), ((896, 448), 1), ((900, 896), 2), ((1792, 1800), 4), ((3600, 3584), 8)]
    )
    def test_it_is_never_below_twice_what_is_needed(self, size: tuple[int, int], scale: int) -> None:
        data = encoded(Image.new("RGB", size), "JPEG")
        needed = -(-size[0] * size[1] // scale**2) + 224 * 224
        assert measure(data, _siglip(scaled=True), LIMIT) == needed

    @pytest.mark.parametrize("size", [(1001, 1503), (2016, 1512)], ids=str)
    @pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
    def test_it_is_close_to_decoding_whole(self, size: tuple[int, int], mode: str) -> None:
        smooth = picture(7, (size[0] // 8, size[1] // 8)).resize(size, Image.Resampling.BICUBIC).convert(mode)
        data = encoded(smooth, "JPEG", quality=90)
        difference = decode(data, _clip(scaled=True), LIMIT).astype(int) - decode(data, _clip(), LIMIT)
        assert difference.any()
        assert abs(difference).mean() < 0.5
        assert abs(difference).max() <= 12

    def test_other_formats_are_decoded_whole(self) -> None:
        data = encoded(picture(7, (1000, 1000)))
        np.testing.assert_array_equal(decode(data, _clip(scaled=True), LIMIT), decode(data, _clip(), LIMIT))


def _bomb(side: int = 20_000) -> bytes:
    return _png(side, side, 1, 0, bytes((side // 8 + 1) * side))


def _webp_header(width: int, height: int, kind: bytes = b"VP8X") -> bytes:
    if kind == b"VP8X":
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    else:
        body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        _bomb(),
        _png(100_000, 1, 1, 0, bytes(12_501)),
        _webp_header(16_383, 16_383),
        _webp_header(16_383, 16_383, b"VP8L"),
        _webp_header(16_383, 16_383, b"VP8 "),
        b"GIF89a" + struct.pack("<HHBBB", 60_000, 60_000, 0, 0, 0) + b",\0\0\0\0" + bytes(64),
        b"BM" + bytes(8) + struct.pack("<IIiiHHIIiiII", 54, 40, 30_000, 30_000, 1, 1, 0, 0, 1, 1, 2, 2) + bytes(64),
    ],
    ids=["PNG", "one long side", "WebP", "lossless WebP", "lossy WebP", "GIF", "BMP"],
)
def test_too_many_pixels_are_refused_before_decoding(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(data) < 100_000
    monkeypatch.setattr(ImageFile.ImageFile, "load", _decoded_all_the_same)
    monkeypatch.setattr(WebPImagePlugin.WebPImageFile, "_open", _decoded_all_the_same)
    for function in (measure, decode):
        with pytest.raises(MediaError, match="pixels") as raised:
            function(data, SPEC, LIMIT)
        assert raised.value.code is MediaErrorCode.TOO_LARGE


def test_the_limit_is_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(picture(8, (100, 100)))
    assert decode(data, SPEC, 10_000).shape == (8, 8, 3)
    with pytest.raises(MediaError, match="has 100 × 100 pixels; at most 9999 pixels") as raised:
        decode(data, SPEC, 9_999)
    assert raised.value.code is MediaErrorCode.TOO_LARGE
    # Pillow's own, module-wide limit has no say: an operator may allow more.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert decode(data, SPEC, 10_000).shape == (8, 8, 3)


def _decoded_all_the_same(*_: object) -> None:
    raise AssertionError


def test_a_long_and_narrow_picture_whose_resize_would_be_the_bomb() -> None:
    data = _png(60_000, 1, 1, 0, bytes(7_501))
    assert decode(data, SPEC, LIMIT).shape == (8, 8, 3)
    with pytest.raises(MediaError, match="too long and narrow") as raised:
        decode(data, _clip(), LIMIT)
    assert raised.value.code is MediaErrorCode.TOO_LARGE


def test_the_limit_is_not_for_what_a_small_picture_is_enlarged_to() -> None:
    for size in ((1, 1), (10, 10), (1, 60)):
        np.testing.assert_array_equal(
            decode(encoded(picture(1, size)), _clip(), size[0] * size[1]), _reference(picture(1, size), _clip())
        )


FITS = b"SIMPLE  =                    T".ljust(80) + b"BITPIX  =                    8".ljust(80) + b"END".ljust(80)
NOT_IMAGES = {
    "nothing": b"",
    "HTML": b"<!doctype html><html></html>",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>",
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100),
    "FITS": FITS.ljust(2_880),
    "PDF": b"%PDF-1.7\n",
    "text": b"BMW sells cars",
    **{kind: encoded(picture(9), kind) for kind in ("TIFF", "PPM", "ICO", "TGA", "PCX", "SGI", "PDF", "EPS")},
}


@pytest.mark.parametrize("name", NOT_IMAGES)
def test_other_formats_are_not_accepted(name: str) -> None:
    for function in (measure, decode):
        with pytest.raises(MediaError, match=r"^is (not a JPEG, PNG, WebP, GIF or BMP|a broken) image$") as raised:
            function(NOT_IMAGES[name], SPEC, LIMIT)
        assert raised.value.code is MediaErrorCode.UNDECODABLE


@pytest.mark.parametrize("name", FILES)
def test_truncated_files_are_errors(name: str) -> None:
    data = _file(name)
    for length in (3, 12, 30, len(data) // 2, len(data) - max(20, len(data) // 10)):
        with pytest.raises(MediaError) as raised:
            decode(data[:length], SPEC, LIMIT)
        assert raised.value.code is MediaErrorCode.UNDECODABLE


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_bombs_in_metadata_take_no_memory(kind: bytes) -> None:
    bomb = _chunk(kind, b"a\0\0" + zlib.compress(bytes(50 * 1024 * 1024)))
    data = _png(20, 12, 8, 0, (b"\0" + bytes(20)) * 12, bomb)
    tracemalloc.start()
    try:
        with suppress(MediaError):
            decode(data, PLAIN, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 5 * 1024 * 1024
    finally:
        tracemalloc.stop()


def _with_many_pieces(kind: str) -> bytes:
    """A small, valid image with 100,000 empty pieces in its header, or behind its pixels."""
    count = 100_000
    data = encoded(picture(3), kind.split()[0])
    match kind:
        case "JPEG":
            return data[:2] + b"\xff\xe5\0\2" * count + data[2:]
        case "GIF":
            start = data.index(b",", 13)
            return data[:start] + b"!\xfe\1a\0" * count + data[start:]
        case "PNG behind":
            return data[:-12] + _chunk(b"abCd", b"") * count + data[-12:]
        case _:
            return data[:33] + _chunk(b"abCd", b"") * count + data[33:]


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "PNG", "PNG behind"])
def test_a_header_in_very_many_pieces(kind: str) -> None:
    with pytest.raises(MediaError, match="too many pieces") as raised:
        decode(_with_many_pieces(kind), SPEC, LIMIT)
    assert raised.value.code is MediaErrorCode.UNDECODABLE


def test_many_pieces_as_real_files_have_them() -> None:
    values = np.asarray(picture(3, (300, 300)))
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in values))
    chunks = b"".join(_chunk(b"IDAT", pixels[n : n + 256]) for n in range(0, len(pixels), 256))
    data = _png(300, 300, 8, 2, b"").split(_chunk(b"IDAT", zlib.compress(b"")))
    np.testing.assert_array_equal(_take(chunks.join(data), 300, 300), values)
    profile = encoded(picture(3), "JPEG", icc_profile=bytes(200 * 65_000))
    assert profile.count(b"ICC_PROFILE") > 100
    assert decode(profile, PLAIN, LIMIT).shape == (12, 20, 3)


def test_a_jpeg_of_very_many_scans() -> None:
    data = encoded(picture(3, (64, 64)), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    scans = data.count(b"\xff\xda")
    allowed = data[:-2] + last * (MAX_SCANS - scans) + data[-2:]
    assert decode(allowed, SPEC, LIMIT).shape == (8, 8, 3)
    for function in (measure, decode):
        with pytest.raises(MediaError, match="more than 40 scans"):
            function(allowed[:-2] + last + data[-2:], SPEC, LIMIT)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FILES, "PNG with everything"])
def test_no_bytes_raise_anything_else(name: str) -> None:
    silence_pillow()
    rng = random.Random(name)
    if name == "PNG with everything":
        data = encoded(picture(3, (40, 30), "RGBA"), exif=_exif(6), dpi=(72, 72), icc_profile=bytes(200))
    else:
        data = _file(name, (40, 30))
    spec = _clip(10, (8, 8), scaled=True)
    outcomes = {"decoded": 0, "refused": 0}
    for attempt in range(250):
        broken = bytearray(data if attempt % 3 else data[: rng.randrange(len(data))])
        for _ in range(rng.choice((0, 1, 1, 3, 20))):
            if broken:
                place = rng.randrange(min(len(broken), rng.choice((32, 128, 1 << 20))))
                broken[place] = rng.randrange(256)
        try:
            pixels = decode(bytes(broken), spec, 1_000_000)
        except MediaError:
            outcomes["refused"] += 1
        else:
            assert (pixels.shape, pixels.dtype) == ((8, 8, 3), np.uint8)
            outcomes["decoded"] += 1
    assert min(outcomes.values()) > 0

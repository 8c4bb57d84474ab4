"""Pieces that cost more than their bytes are refused before Pillow and libjpeg see them; real files have theirs."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from serve_app.media.decode import decode
from serve_app.media.errors import MediaError
from serve_app.media.header import measure
from serve_app.media.structure import (
    MAX_COMPRESSED_BYTES,
    MAX_COMPRESSED_TEXTS,
    MAX_EXIF_SEGMENTS,
    MAX_SCANS,
    MAX_SEGMENTS,
    check_structure,
)
from serve_app.messages import ByteArray, PixelSpec
from serve_app.vocabulary import MediaErrorCode, Resample
from tests.unit.media.conftest import SPEC, encoded, picture

LIMIT = 50_000_000
SCAN, END = b"\xff\xda", b"\xff\xd9"


def _whole(width: int, height: int) -> PixelSpec:
    return PixelSpec(None, None, Resample.BICUBIC, (height, width))


def _decoded(data: bytes, size: tuple[int, int] = (64, 48)) -> ByteArray:
    return decode(data, _whole(*size), LIMIT)


def _segment(marker: int, body: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def _start(data: bytes, *segments: bytes) -> bytes:
    """A JPEG with segments put behind its start."""
    return data[:2] + b"".join(segments) + data[2:]


def _component_scans(image: Image.Image) -> tuple[bytes, list[bytes]]:
    """A sequential JPEG whose components have a scan each: what is before the scans, and the scans.

    A component that is not subsampled is coded as a grey picture is.
    """
    planes = [encoded(plane, "JPEG", quality=100) for plane in image.convert("YCbCr").split()]
    start = planes[0].index(SCAN)
    size = struct.pack(">BHHB", 8, image.height, image.width, 3)
    frame = _segment(0xC0, size + b"".join(bytes((number, 0x11, 0)) for number in (1, 2, 3)))
    grey = _segment(0xC0, struct.pack(">BHHB", 8, image.height, image.width, 1) + bytes((1, 0x11, 0)))
    assert planes[0].count(grey) == 1
    scans = []
    for number, plane in enumerate(planes, 1):
        pixels = plane[plane.index(SCAN) + 10 : -2]
        scans.append(_segment(0xDA, bytes((1, number, 0, 0, 63, 0))) + pixels)
    return planes[0][:start].replace(grey, frame), scans


def _refused(data: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By both functions, before anything of it was opened."""
    opened: list[object] = []
    for plugin in (JpegImagePlugin.JpegImageFile, PngImagePlugin.PngImageFile):
        monkeypatch.setattr(plugin, "_open", lambda self: opened.append(self))
    for function in (measure, decode):
        with pytest.raises(MediaError, match=message) as raised:
            function(data, SPEC, LIMIT)
        assert raised.value.code is MediaErrorCode.UNDECODABLE
    assert not opened


class TestScans:
    def test_a_scan_per_component(self) -> None:
        image = picture(1, (64, 48))
        head, scans = _component_scans(image)
        assert np.abs(_decoded(head + b"".join(scans) + END).astype(int) - np.asarray(image)).mean() < 2

    @pytest.mark.parametrize("first", [0, 2])
    def test_a_sequential_jpeg_of_more_scans_than_components(self, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
        head, scans = _component_scans(picture(1, (64, 48)))
        _refused(head + b"".join([*scans, scans[first]]) + END, "more scans than components", monkeypatch)

    def test_scans_without_pixels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        head, scans = _component_scans(picture(1, (64, 48)))
        empty = scans[0][:10] + b"\0"
        _refused(head + empty * 10_000 + scans[1] + scans[2] + END, "more scans than components", monkeypatch)

    @pytest.mark.parametrize(
        "before",
        [
            _segment(0xE5, b"a" + END + b"a"),
            _segment(0xFE, END),
            _segment(0xC4, b""),
            b"\xff\xff\xff",
            b"\xff\0",
            b"\xff\x01",
            b"\xff\xd3",
            b"junk",
        ],
    )
    def test_scans_are_found_behind_anything_that_libjpeg_skips(
        self, before: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head, scans = _component_scans(picture(1, (64, 48)))
        many = b"".join(before + scan for scan in (*scans, scans[0]))
        _refused(head + many + END, "more scans than components", monkeypatch)
        progressive = encoded(picture(1, (64, 48)), "JPEG", progressive=True)
        last = before + progressive[progressive.rindex(SCAN) : -2]
        _refused(progressive[:-2] + last * MAX_SCANS + END, f"more than {MAX_SCANS} scans", monkeypatch)

    @pytest.mark.parametrize("progressive", [False, True])
    def test_scans_of_thumbnails_and_of_further_pictures_do_not_count(self, progressive: bool) -> None:
        plain = encoded(picture(2, (64, 48)), "JPEG", progressive=progressive)
        other = encoded(picture(3, (64, 48)), "JPEG", progressive=True)
        thumbnail = _segment(0xE1, b"Exif\0\0" + bytes(20) + other)
        profile = _segment(0xE2, b"ICC_PROFILE\0\1\1" + SCAN * 1_000 + END)
        index = _segment(0xE2, b"MPF\0" + SCAN * 30)
        for data in (_start(plain, thumbnail, profile, index, _segment(0xFE, SCAN * 50)), plain + other * 9):
            np.testing.assert_array_equal(_decoded(data), _decoded(plain))
            assert check_structure(data) == check_structure(plain)

    @pytest.mark.parametrize("options", [{"restart_marker_blocks": 1}, {"restart_marker_rows": 1}, {"optimize": True}])
    def test_restarts_are_not_the_end(self, options: dict[str, Any]) -> None:
        head_and_pixels = encoded(picture(2, (64, 48)), "JPEG", quality=95, **options)
        assert check_structure(head_and_pixels) == 0
        more = head_and_pixels[:-2] + head_and_pixels[head_and_pixels.index(SCAN) :]
        assert check_structure(more) == 64 * (8 * 6 + 2 * 4 * 3)  # the second scan was found behind all of them

    def test_an_end_before_the_first_scan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = encoded(picture(1), "JPEG")
        _refused(_start(data, END), "broken image", monkeypatch)

    def test_two_frames(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = encoded(picture(1), "JPEG")
        frame = data.index(b"\xff\xc0")
        _refused(_start(data, data[frame : frame + 19]), "broken image", monkeypatch)


class TestCoefficients:
    """What libjpeg keeps while it decodes, 2 bytes each; a cost is in pixels of 4."""

    @pytest.mark.parametrize(
        ("mode", "options", "per_pixel"),
        [
            ("RGB", {}, 0),
            ("L", {}, 0),
            ("RGB", {"progressive": True, "subsampling": 0}, 3),
            ("RGB", {"progressive": True, "subsampling": 1}, 2),
            ("RGB", {"progressive": True, "subsampling": 2}, 1.5),
            ("CMYK", {"progressive": True, "subsampling": 0}, 4),
            ("L", {"progressive": True}, 1),
        ],
    )
    def test_of_all_components(self, mode: str, options: dict[str, Any], per_pixel: float) -> None:
        size = (320, 160)
        data = encoded(Image.new(mode, size), "JPEG", **options)
        assert check_structure(data) == per_pixel * 320 * 160
        plain = encoded(Image.new(mode, size), "JPEG")
        assert measure(data, SPEC, LIMIT) - measure(plain, SPEC, LIMIT) == per_pixel * 320 * 160 / 2

    def test_of_whole_units(self) -> None:
        data = encoded(Image.new("RGB", (33, 17)), "JPEG", progressive=True, subsampling=2)
        assert check_structure(data) == 64 * (6 * 4 + 2 * 3 * 2)

    @pytest.mark.parametrize("scans", [1, 2, 3])
    def test_of_a_sequential_jpeg_whose_first_scan_has_one_component(self, scans: int) -> None:
        head, parts = _component_scans(picture(1, (64, 48)))
        data = head + b"".join(parts[:scans]) + END
        assert check_structure(data) == 3 * 64 * 48
        assert measure(data, SPEC, LIMIT) == 64 * 48 // 4 + 3 * 64 * 48 // 2 + 64  # decoded at a half

    def test_a_scaled_picture_keeps_them_all(self) -> None:
        spec = PixelSpec(None, (8, 8), Resample.BILINEAR, None, scaled_decoding=True)
        data = encoded(Image.new("RGB", (320, 160)), "JPEG", progressive=True, subsampling=0)
        assert measure(data, spec, LIMIT) == 320 * 160 // 64 + 3 * 320 * 160 // 2 + 64


class TestSegments:
    def test_exif_in_as_many_segments_as_real_files_have(self) -> None:
        exif = Image.Exif()
        exif[0x0112], exif[0x010E] = 6, "x" * 500
        plain = encoded(picture(4, (64, 48)), "JPEG")
        body = exif.tobytes().removeprefix(b"Exif\0\0")
        step = -(-len(body) // MAX_EXIF_SEGMENTS)
        parts = [body[start : start + step] for start in range(0, len(body), step)]
        data = _start(plain, *(_segment(0xE1, b"Exif\0\0" + part) for part in parts))
        np.testing.assert_array_equal(_decoded(data, (48, 64)), np.rot90(_decoded(plain), -1))

    def test_more_segments_of_exif(self, monkeypatch: pytest.MonkeyPatch) -> None:
        segment = _segment(0xE1, b"Exif\0\0" + b"x" * 1_200)
        data = _start(encoded(picture(4), "JPEG"), *[segment] * (MAX_EXIF_SEGMENTS + 1))
        _refused(data, "too many pieces", monkeypatch)

    @pytest.mark.parametrize("hidden", [b"\xff\xd0", b"\xff\xf0", b"\xff\xc8", b"\xff\xff", b"\0\xff\0"])
    def test_more_segments_of_exif_behind_what_pillow_skips(
        self, hidden: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        segment = hidden + _segment(0xE1, b"Exif\0\0" + b"x" * 1_200)
        data = _start(encoded(picture(4), "JPEG"), _segment(0xFE, b""), *[segment] * (MAX_EXIF_SEGMENTS + 1))
        _refused(data, "too many pieces", monkeypatch)

    def test_an_extended_xmp_of_ten_megabytes(self) -> None:
        plain = encoded(picture(4, (64, 48)), "JPEG")
        body = b"http://ns.adobe.com/xmp/extension/\0" + bytes(65_000)
        np.testing.assert_array_equal(_decoded(_start(plain, *[_segment(0xE1, body)] * 160)), _decoded(plain))

    @pytest.mark.parametrize("place", ["before the pixels", "behind the pixels"])
    def test_more_segments_of_any_kind(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = encoded(picture(4), "JPEG")
        many = _segment(0xE1, b"a") * MAX_SEGMENTS
        data = _start(plain, many) if place == "before the pixels" else plain[:-2] + many + plain[-2:]
        _refused(data, "too many pieces", monkeypatch)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(*chunks: bytes, behind: bool = False) -> bytes:
    data = encoded(picture(5, (64, 48)))
    place = len(data) - 12 if behind else 33
    return data[:place] + b"".join(chunks) + data[place:]


PROFILE = _chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 20)))
PACKED = {
    "zTXt": _chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"a" * 1_000)),
    "iTXt": _chunk(b"iTXt", b"Comment\0\1\0en\0Comment\0" + zlib.compress(b"a" * 1_000)),
}
LOOSE = [
    _chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + b"<x/>" * 500_000),
    *(_chunk(b"iTXt", b"Title\0\0\0l%d\0Title\0text" % number) for number in range(200)),
    *(_chunk(b"tEXt", b"date:%d\0text" % number) for number in range(200)),
]


class TestPng:
    @pytest.mark.parametrize("behind", [False, True])
    def test_a_second_colour_profile(self, behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        np.testing.assert_array_equal(_decoded(_png(PROFILE, behind=behind)), np.asarray(picture(5, (64, 48))))
        _refused(_png(PROFILE, PROFILE, behind=behind), "more than one colour profile", monkeypatch)

    @pytest.mark.parametrize("behind", [False, True])
    @pytest.mark.parametrize("kind", PACKED)
    def test_compressed_texts(self, kind: str, behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        allowed = [PACKED[kind]] * MAX_COMPRESSED_TEXTS
        pixels = _decoded(_png(PROFILE, *LOOSE, *allowed, behind=behind))
        np.testing.assert_array_equal(pixels, np.asarray(picture(5, (64, 48))))
        _refused(_png(*allowed, PACKED[kind], behind=behind), "more than 32 compressed texts", monkeypatch)

    def test_their_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        part = _chunk(b"zTXt", b"a\0\0" + bytes(MAX_COMPRESSED_BYTES // 4))
        _refused(_png(*[part] * 4), "more than 4 MiB of compressed metadata", monkeypatch)

    def test_chunks_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _refused(_png(_chunk(b"abCd", b"") * 20_000), "too many pieces", monkeypatch)


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_of_many_frames_one_is_decoded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [picture(seed, (64, 48)) for seed in range(30)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert Image.open(io.BytesIO(data)).n_frames == 30  # type: ignore[attr-defined]
    loads: list[object] = []
    load, following = ImageFile.ImageFile.load, WebPImagePlugin.WebPImageFile._get_next
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: (loads.append(self.tell()), load(self))[1])
    monkeypatch.setattr(
        WebPImagePlugin.WebPImageFile, "_get_next", lambda self: (loads.append("next"), following(self))[1]
    )
    _decoded(data)
    assert loads.count("next") == (kind == "WEBP")
    assert set(loads) <= {0, "next"}

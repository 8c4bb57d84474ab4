"""What an image's header says: whether it is one, how large it is, and what decoding it will cost."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from PIL import (
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    WebPImagePlugin,
)
from PIL.Image import Transpose

from serve_app.media.errors import MediaError
from serve_app.media.structure import JPEG, PNG, check_structure, piece_limit, too_many_pieces
from serve_app.messages import PixelSpec
from serve_app.vocabulary import MediaErrorCode

MAX_SIDE = 65_535
"""Pixels of a side; no JPEG has more."""
MAX_ASPECT = 64
"""Proportions that are always resized; beyond, the resized picture may have `max_image_pixels` as well."""
OVERSAMPLING = 2
"""A JPEG is decoded at no less than this many times the size it is resized to; docs/images.md has the measurements."""
# The plugins themselves and not `Image.open`: the sender does not choose among forty parsers, a JPEG is not searched
# for further pictures, and Pillow's own limit, a module-wide setting that warns before it raises, stays out of it.
_PLUGINS: tuple[tuple[bytes, type[ImageFile.ImageFile]], ...] = (
    (JPEG, JpegImagePlugin.JpegImageFile),
    (PNG, PngImagePlugin.PngImageFile),
    (b"GIF87a", GifImagePlugin.GifImageFile),
    (b"GIF89a", GifImagePlugin.GifImageFile),
    (b"BM", BmpImagePlugin.BmpImageFile),
)
TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
_QUARTER_TURNS = frozenset({5, 6, 7, 8})

Size = tuple[int, int]
"""(width, height), as Pillow has it; `PixelSpec` has (height, width)."""


class _Reader(io.BytesIO):
    """A file that may be read in about as many pieces as real ones are.

    Pillow reads headers piece by piece in Python: 10 MB of empty chunks keep it busy for ten seconds.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads_left = piece_limit(data)

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise too_many_pieces()
        return super().read(size)


@dataclass(frozen=True, slots=True)
class Plan:
    """An opened image and what decoding it takes.

    Attributes:
        image: its header is read, its pixels are not.
        scale: libjpeg decodes one pixel of this many in each direction.
        cost: pixels of 4 bytes that are in memory at the same time at most.
    """

    image: ImageFile.ImageFile
    scale: int
    cost: int


def measure(data: bytes, spec: PixelSpec, max_pixels: int) -> int:
    """What decoding will cost, read from the header: pixels of 4 bytes that are in memory at the same time at most.

    Raises:
        MediaError: `media_too_large` or `media_undecodable`.
    """
    with media_errors():
        return make_plan(data, spec, max_pixels).cost


@contextmanager
def media_errors() -> Iterator[None]:
    """Turns whatever Pillow raises into a `MediaError`."""
    try:
        yield
    except MediaError:
        raise
    except (MemoryError, Image.DecompressionBombError):
        raise MediaError(MediaErrorCode.TOO_LARGE, "takes too much memory to decode") from None
    except Exception:  # Pillow's parsers answer broken bytes with almost any exception: struct.error, IndexError, …
        raise MediaError(MediaErrorCode.UNDECODABLE, "is a broken image") from None


def make_plan(data: bytes, spec: PixelSpec, max_pixels: int) -> Plan:
    """Opens an image, checks its size and plans its decoding.

    Raises:
        MediaError: it is none of a supported format, or over a limit. Pillow's own errors pass; see `media_errors`.
    """
    coefficients = check_structure(data)
    image = _open(data, max_pixels)
    _check_size(image.size, max_pixels)
    # Asking a PNG for its orientation decodes it.
    is_png = isinstance(image, PngImagePlugin.PngImageFile)
    orientation = 1 if is_png else orientation_of(image)
    turned = "exif" in image.info if is_png else orientation != 1
    width, height = turned_size(image.size, orientation)
    target = target_size((width, height), spec)
    height_out, width_out = spec.output_size
    # Small pictures are enlarged whatever the limit is; only long and narrow ones grow far beyond what is kept.
    if target[0] * target[1] > max(max_pixels, MAX_ASPECT * height_out * width_out):
        raise MediaError(MediaErrorCode.TOO_LARGE, f"is too long and narrow: {width} × {height} pixels")
    scale = 1
    if isinstance(image, JpegImagePlugin.JpegImageFile) and spec.scaled_decoding:
        fits = min(width // (OVERSAMPLING * target[0]), height // (OVERSAMPLING * target[1]))
        scale = next(factor for factor in (8, 4, 2, 1) if fits >= factor or factor == 1)
    pixels = width * height
    copies = 1 + (image.mode != "RGB" or "transparency" in image.info) + (scale == 1 and turned)
    if isinstance(image, WebPImagePlugin.WebPImageFile):
        copies += 3  # libwebp's two canvases and the bytes between it and Pillow
    kept = math.ceil(coefficients / 2)  # 2 bytes each, whatever the scale
    cost = copies * math.ceil(pixels / scale**2) + kept + target[0] * target[1]
    return Plan(image, scale, cost)


def _open(data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    """Reads the header of an image whose first bytes are those of a supported format."""
    file = _Reader(data)
    for magic, plugin in _PLUGINS:
        if data.startswith(magic):
            return plugin(file)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        _check_size(_webp_size(data), max_pixels)  # its plugin allocates the canvas when it opens one
        return WebPImagePlugin.WebPImageFile(file)
    raise MediaError(MediaErrorCode.UNDECODABLE, "is not a JPEG, PNG, WebP, GIF or BMP image")


def _webp_size(data: bytes) -> Size:
    """Width and height in a WebP's header (RFC 9649, sections 2.5 to 2.7)."""
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _check_size(size: Size, max_pixels: int) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise MediaError(MediaErrorCode.UNDECODABLE, "is an image without pixels")
    if width * height > max_pixels or max(size) > MAX_SIDE:
        message = f"has {width} × {height} pixels; at most {max_pixels} pixels and {MAX_SIDE} a side are allowed"
        raise MediaError(MediaErrorCode.TOO_LARGE, message)


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 is upright."""
    with suppress(Exception):  # broken metadata do not make the picture useless
        value = image.getexif().get(ExifTags.Base.Orientation)
        if value in TURNS:
            return int(value)
    return 1


def turned_size(size: Size, orientation: int) -> Size:
    """The size of a picture once its orientation is applied; also the other way round."""
    return (size[1], size[0]) if orientation in _QUARTER_TURNS else size


def target_size(size: Size, spec: PixelSpec) -> Size:
    """What a picture of a size is resized to. The longer side is cut off, not rounded, as Transformers does."""
    if spec.size is not None:
        return spec.size[1], spec.size[0]
    if spec.shortest_edge is None:
        return size
    width, height = size
    edge = spec.shortest_edge
    return (edge, int(edge * height / width)) if width <= height else (int(edge * width / height), edge)

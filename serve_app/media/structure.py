"""What an image file is made of, counted before Pillow and libjpeg read it.

Both take as many pieces as a file has, and some cost far more than their bytes: a scan of 11 bytes is a pass over the
whole picture, a colour profile of a kilobyte inflates to one of a megabyte, each Exif segment copies those before it.
"""

from __future__ import annotations

import math
import re

from serve_app.media.errors import MediaError
from serve_app.vocabulary import MediaErrorCode

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
MAX_SCANS = 40
"""Scans of a progressive JPEG; encoders write about ten. A sequential one has at most one per component."""
MAX_SEGMENTS = 1_000
"""Segments of a JPEG. A full one has 64 KiB, so a colour profile or an extended XMP of 10 MiB is 160 of them."""
MAX_EXIF_SEGMENTS = 32
"""Segments of Exif; cameras write one, and none can be larger than 64 KiB."""
MAX_COMPRESSED_TEXTS = 32
"""Compressed texts of a PNG: each may inflate to a megabyte. Plain ones, as most are, do not count."""
MAX_COMPRESSED_BYTES = 4 * 2**20
"""Bytes of a PNG's compressed texts and colour profile; the largest profiles of printers have about two MiB."""

# The markers with a length, and the end of the image. The others have no body (restarts among them, and 0xFF00, which
# is a byte of pixels) or end the reading. Pillow's reader and libjpeg's agree on which are which, as far as both go on.
_MARKER = re.compile(rb"\xff[\xc0-\xc7\xc9-\xcf\xd9-\xef\xfe]")
_END, _SCAN, _EXIF = 0xD9, 0xDA, 0xE1
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})


def check_structure(data: bytes) -> int:
    """Refuses a file whose pieces would cost more than its pixels.

    Returns:
        Coefficients, of 2 bytes each, that libjpeg will keep in memory; 0 for other formats.

    Raises:
        MediaError: `media_undecodable`.
    """
    if data.startswith(JPEG):
        return _check_jpeg(data)
    if data.startswith(PNG):
        _check_png(data)
    return 0


def piece_limit(data: bytes) -> int:
    """Pieces that a file of this length may have; real ones have far fewer."""
    return 10_000 + len(data) // 256


def too_many_pieces() -> MediaError:
    return _refusal("is an image in too many pieces")


def _refusal(message: str) -> MediaError:
    return MediaError(MediaErrorCode.UNDECODABLE, message)


def _check_jpeg(data: bytes) -> int:
    """Walks from marker to marker as libjpeg does, up to the end of the first picture; thumbnails are in segments."""
    frame, frame_marker = b"", 0
    position = 2
    segments = exif = scans = in_first_scan = 0
    while (found := _MARKER.search(data, position)) is not None:
        marker, body = data[found.start() + 1], found.end() + 2
        if marker == _END:
            if not scans:  # libjpeg stops here; Pillow would read on
                raise _refusal("is a broken image")
            break
        position = found.end() + max(2, int.from_bytes(data[found.end() : body], "big"))
        segments += 1
        exif += marker == _EXIF and data.startswith(b"Exif\0\0", body)
        if segments > MAX_SEGMENTS or exif > MAX_EXIF_SEGMENTS:
            raise too_many_pieces()
        if marker in _FRAMES:
            if frame_marker:
                raise _refusal("is a broken image")
            frame, frame_marker = data[body:position], marker
        elif marker == _SCAN:
            scans += 1
            in_first_scan = in_first_scan or int.from_bytes(data[body : body + 1], "big")
            _check_scans(scans, frame, frame_marker)
    # In one scan of all components, pixels come out as the scan goes on. Else all of it is kept up to the last one.
    whole = scans == 1 and in_first_scan == frame[5] and frame_marker not in _PROGRESSIVE
    return 0 if whole or not scans else _coefficients(frame)


def _check_scans(scans: int, frame: bytes, frame_marker: int) -> None:
    if len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        raise _refusal("is a broken image")
    if frame_marker in _PROGRESSIVE:
        if scans > MAX_SCANS:
            raise _refusal(f"is a JPEG of more than {MAX_SCANS} scans")
    elif scans > frame[5]:
        raise _refusal("is a sequential JPEG of more scans than components")


def _coefficients(frame: bytes) -> int:
    """Coefficients of all components: blocks of 8 × 8, as many as whole units of the sampling need."""
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    factors = [divmod(frame[place], 16) for place in range(7, 6 + 3 * frame[5], 3)]
    if not all(1 <= across <= 4 and 1 <= down <= 4 for across, down in factors):
        raise _refusal("is a broken image")
    most_across, most_down = (max(values) for values in zip(*factors, strict=True))
    return 64 * sum(_blocks(width, across, most_across) * _blocks(height, down, most_down) for across, down in factors)


def _blocks(side: int, factor: int, most: int) -> int:
    return factor * math.ceil(math.ceil(side * factor / (8 * most)) / factor)


def _check_png(data: bytes) -> None:
    position = len(PNG)
    profiles = texts = compressed = 0
    for _ in range(piece_limit(data)):
        kind, body = data[position + 4 : position + 8], position + 8
        if len(kind) < 4 or kind == b"IEND":
            return
        length = int.from_bytes(data[position : position + 4], "big")
        position = body + length + 4
        if kind == b"iCCP":
            profiles += 1
        elif kind == b"zTXt" or (kind == b"iTXt" and _is_compressed(data, body, body + length)):
            texts += 1
        else:
            continue
        compressed += length
        if profiles > 1:
            raise _refusal("is a PNG of more than one colour profile")
        if texts > MAX_COMPRESSED_TEXTS:
            raise _refusal(f"is a PNG of more than {MAX_COMPRESSED_TEXTS} compressed texts")
        if compressed > MAX_COMPRESSED_BYTES:
            raise _refusal(f"is a PNG with more than {MAX_COMPRESSED_BYTES // 2**20} MiB of compressed metadata")
    raise too_many_pieces()


def _is_compressed(data: bytes, start: int, end: int) -> bool:
    """The flag of an iTXt, behind its keyword."""
    keyword_end = data.find(b"\0", start, end)
    return keyword_end >= 0 and data[keyword_end + 1 : keyword_end + 2] != b"\0"

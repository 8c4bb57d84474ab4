"""JPEGs made from a seed, of the size and the weight of photographs: about 500 x 400 and about 12 megapixels."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from PIL import Image

PictureSize = Literal["small", "large"]
SIZES: dict[PictureSize, tuple[int, int]] = {"small": (500, 400), "large": (4000, 3000)}
"""(width, height). A shop's picture, and what a phone takes."""
_QUALITY = 88
_GRAIN = 7.0
"""Noise of a sensor, in steps of 256: without it a JPEG of this size would have a tenth of a photograph's bytes."""


def picture(size: PictureSize, seed: int) -> bytes:
    """A JPEG of coloured shapes under grain, different for every seed."""
    random = np.random.default_rng([seed, len(size)])
    width, height = SIZES[size]
    blocks = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(blocks.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    # A tile of grain is repeated: drawing 36 million numbers takes longer than all the rest.
    tile = random.normal(0.0, _GRAIN, (400, 500, 3)).astype(np.int16)
    grain = np.tile(tile, (-(-height // 400), -(-width // 500), 1))[:height, :width]
    file = io.BytesIO()
    Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


def with_comment(jpeg: bytes, text: str) -> bytes:
    """The same picture as other bytes: a comment behind the first marker. Nobody's cache by content knows it."""
    comment = text.encode()[:65_000]
    return jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]

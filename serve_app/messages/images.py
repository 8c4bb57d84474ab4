"""IOProcessor ↔ ImageLoader: images to load, and their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.messages.common import ByteArray, ImageRef, IntArray, ItemError
from serve_app.vocabulary import Resample


@dataclass(frozen=True, slots=True)
class PixelSpec:
    """How a model wants its pixels: what its image processor does before it rescales and normalises.

    Attributes:
        shortest_edge: resize so that the shorter side has this length, keeping the proportions; None: see `size`.
        size: (height, width) to resize to, proportions given up; None: see `shortest_edge`. One of both is set, or
            neither, when the model takes pictures as they are.
        resample: interpolation of the resize.
        crop: (height, width) cut from the middle after the resize, padded with black where the picture is smaller.
        scaled_decoding: let libjpeg decode large JPEGs at a half, a quarter or an eighth of their size, never below
            what the resize needs. Faster; not bit-equal to decoding whole.
    """

    shortest_edge: int | None
    size: tuple[int, int] | None
    resample: Resample
    crop: tuple[int, int] | None
    scaled_decoding: bool = True

    @property
    def output_size(self) -> tuple[int, int]:
        """(height, width) of every picture that comes out."""
        size = self.crop or self.size
        assert size is not None  # checkpoint.py refuses specifications without a fixed size
        return size

    @property
    def fingerprint(self) -> str:
        """Part of every cache key: pixels made in another way are other pixels."""
        size = "x".join(map(str, self.size)) if self.size else f"s{self.shortest_edge}"
        crop = "x".join(map(str, self.crop)) if self.crop else "none"
        return f"{size}-{self.resample}-{crop}-{'scaled' if self.scaled_decoding else 'whole'}"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Images to fetch, decode and resize.

    Attributes:
        images: what the caller named, repetitions included.
        fields: the caller's name of each, for error messages (`documents[3].image`).
        spec: how the model wants its pixels.
        deadline: wall-clock seconds after which the work is dropped.
        trace: see `Context`.
    """

    images: Sequence[ImageRef]
    fields: Sequence[str]
    spec: PixelSpec
    deadline: float
    trace: str = ""


@dataclass(frozen=True, slots=True)
class LoadedImages:
    """The loader's answer, images in the request's order.

    Attributes:
        hashes: content hash of each image's bytes (BLAKE3, 32 hex digits); "" for a failed one.
        rows: int32 [images], each image's row in `pixels`; -1 for a failed one. Images of equal content share a row.
        pixels: uint8 [distinct images, height, width, 3], RGB.
        errors: the failed ones; `index` is the place in `LoadRequest.images`.
        fetch_ms, decode_ms: until the last image was fetched; from there until the last was decoded.
        reference: what stands for the whole answer in a call to another process, where pixels lie in a store that both
            reach; None: they travel by value.
    """

    hashes: Sequence[str]
    rows: IntArray
    pixels: ByteArray
    errors: Sequence[ItemError]
    fetch_ms: float
    decode_ms: float
    reference: Any = None

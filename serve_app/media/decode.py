"""Bytes to pixels: the picture as the model's own image processor would prepare it, whatever the bytes are.

Equal to Transformers' Pillow backend bit for bit, up to the rescaling and normalisation, which are the engine's. What
Transformers leaves open is decided here: transparency is laid on white, EXIF orientation is applied, 16 bits become 8.
Everything here blocks and belongs into a thread.
"""

from __future__ import annotations

import warnings

import numpy as np
from PIL import Image
from PIL.Image import Resampling

from serve_app.media.header import TURNS, Size, make_plan, media_errors, orientation_of, target_size, turned_size
from serve_app.messages import ByteArray, PixelSpec

_STRIP = 256


def silence_pillow() -> None:
    """Keeps Pillow from writing a warning to the log for each odd image that somebody sends."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


def decode(data: bytes, spec: PixelSpec, max_pixels: int) -> ByteArray:
    """The picture as the model wants it: uint8 [height, width, 3], RGB.

    Raises:
        MediaError: `media_too_large` or `media_undecodable`; nothing else, whatever the bytes are.
    """
    with media_errors():
        plan = make_plan(data, spec, max_pixels)
        image = plan.image
        full_size = image.size
        drafted = (
            image.draft(None, (full_size[0] // plan.scale, full_size[1] // plan.scale)) if plan.scale > 1 else None
        )
        image.load()
        orientation = orientation_of(image)  # after `load`: a PNG may have it behind its pixels
        turn = TURNS.get(orientation)
        picture = _rgb(image)
        if drafted is None:
            if turn is not None:
                picture = picture.transpose(turn)
            picture = _resized(picture, target_size(picture.size, spec), spec)
        else:
            # The box is what the whole picture covers of the scaled one, whose last pixels may stand for fewer. It
            # holds for the picture as it is stored, so this one is turned when it is small.
            target = target_size(turned_size(full_size, orientation), spec)
            picture = _resized(picture, turned_size(target, orientation), spec, box=drafted[1])
            if turn is not None:
                picture = picture.transpose(turn)
        return _cropped(np.asarray(picture), spec.crop)


def _resized(
    picture: Image.Image, target: Size, spec: PixelSpec, box: tuple[float, float, float, float] | None = None
) -> Image.Image:
    if spec.size is None and spec.shortest_edge is None:
        return picture
    return picture.resize(target, Resampling[spec.resample.name], box=box)


def _rgb(image: Image.Image) -> Image.Image:
    """A picture of any mode as RGB, transparency laid on white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    picture = Image.new("RGB", image.size, "white")
    for top in range(0, image.height, _STRIP):  # in strips, for one more whole copy of a large picture is much memory
        strip = image.crop((0, top, image.width, min(top + _STRIP, image.height))).convert("RGBA")
        picture.paste(strip, (0, top), strip)
    return picture


def _eight_bits(image: Image.Image) -> Image.Image:
    """A 16-bit grey picture by its high bytes, as Pillow reads 16-bit colours. Its own conversion clips at 255."""
    values = np.asarray(image)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    transparent = image.info.get("transparency")
    if transparent is None:
        return grey
    alpha = Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8))
    return Image.merge("LA", (grey, alpha))


def _cropped(pixels: ByteArray, crop: tuple[int, int] | None) -> ByteArray:
    """The middle of a picture, padded with zeros where it is smaller; offsets round as Transformers' do."""
    if crop is None:
        return np.ascontiguousarray(pixels)
    cut: list[slice] = []
    paste: list[slice] = []
    for size, wanted in zip(pixels.shape, crop, strict=False):
        start = max(0, size - wanted) // 2
        offset = max(0, wanted - size + 1) // 2
        kept = min(size, wanted)
        cut.append(slice(start, start + kept))
        paste.append(slice(offset, offset + kept))
    middle = np.zeros((*crop, 3), np.uint8)
    middle[tuple(paste)] = pixels[tuple(cut)]
    return middle

"""How a model wants its pixels, read from the files that its checkpoint's image processor is made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.messages import PixelSpec
from serve_app.vocabulary import Resample

Three = tuple[float, float, float]

_RESAMPLE = (  # by Pillow's number
    Resample.NEAREST,
    Resample.LANCZOS,
    Resample.BILINEAR,
    Resample.BICUBIC,
    Resample.BOX,
    Resample.HAMMING,
)
_COMMON = {"do_resize": True, "do_rescale": True, "do_normalize": True, "resample": 3, "rescale_factor": 1 / 255}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "CLIP": {
        **_COMMON,
        "size": {"shortest_edge": 224},
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "image_mean": (0.48145466, 0.4578275, 0.40821073),
        "image_std": (0.26862954, 0.26130258, 0.27577711),
    },
    "Siglip": {
        **_COMMON,
        "size": {"height": 224, "width": 224},
        "image_mean": (0.5, 0.5, 0.5),
        "image_std": (0.5, 0.5, 0.5),
    },
}
"""Transformers' defaults by image processor, for what a file leaves out. What a file sets to null is null there too."""


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What becomes of a pixel's 0 to 255 in the engine: `(value * rescale_factor - mean) / std`, by channel."""

    mean: Three
    std: Three
    rescale_factor: float


def read_pixel_spec(folder: Path, *, scaled_decoding: bool) -> PixelSpec:
    """Resize and crop of a checkpoint's image processor: CLIP, SigLIP or SigLIP 2 with a fixed resolution.

    Raises:
        ValueError: it does what is not supported; the message names the key.
    """
    options = _read(folder)
    shortest_edge, size = _resize(options["size"]) if options["do_resize"] else (None, None)
    crop = _crop(options.get("crop_size")) if options.get("do_center_crop") else None
    if crop is None and size is None:
        key = "size" if options["do_resize"] else "do_resize"
        raise ValueError(f"source: {key}: the image processor does not give pictures of one fixed size")
    number = options["resample"]
    if not isinstance(number, int) or not 0 <= number < len(_RESAMPLE):
        raise ValueError(f"source: resample: {number!r} is not one of Pillow's numbers, 0 to {len(_RESAMPLE) - 1}")
    return PixelSpec(shortest_edge, size, _RESAMPLE[number], crop, scaled_decoding)


def read_normalisation(folder: Path) -> Normalisation:
    """Rescaling and normalisation of a checkpoint's image processor.

    Raises:
        ValueError: it does what is not supported; the message names the key.
    """
    options = _read(folder)
    normalised = bool(options["do_normalize"])
    factor = options["rescale_factor"] if options["do_rescale"] else 1
    if not isinstance(factor, int | float):
        raise ValueError(f"source: rescale_factor: {factor!r} is not a number")
    return Normalisation(
        mean=_three(options, "image_mean") if normalised else (0.0, 0.0, 0.0),
        std=_three(options, "image_std") if normalised else (1.0, 1.0, 1.0),
        rescale_factor=float(factor),
    )


def _read(folder: Path) -> dict[str, Any]:
    """The image processor's options, defaults filled in."""
    options = _json(folder / "processor_config.json").get("image_processor")
    if options is None:  # the order in which Transformers looks
        options = _json(folder / "preprocessor_config.json")
    if not isinstance(options, Mapping) or not options:
        raise ValueError("source: no image processor; preprocessor_config.json is missing or empty")
    kind = str(options.get("image_processor_type") or options.get("feature_extractor_type"))
    family = kind.removesuffix("Fast").removesuffix("Pil")
    family = family.removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    if family not in _DEFAULTS:
        raise ValueError(f"source: image_processor_type: {kind} is not supported; CLIP and Siglip are")
    for key in ("do_pad", "use_square_size"):
        if options.get(key):
            raise ValueError(f"source: {key}: not supported")
    return {**_DEFAULTS[family], **options}


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    value = json.loads(path.read_text())
    if not isinstance(value, dict):
        raise ValueError(f"source: {path.name} is not a JSON object")
    return value


def _resize(value: Any) -> tuple[int | None, tuple[int, int] | None]:
    """(shortest edge, None) or (None, (height, width))."""
    if isinstance(value, int):
        value = {"shortest_edge": value}
    if isinstance(value, Mapping):
        given = {key for key, length in value.items() if length is not None}
        if given == {"shortest_edge"}:
            return _length(value["shortest_edge"], "size"), None
        if given == {"height", "width"}:
            return None, (_length(value["height"], "size"), _length(value["width"], "size"))
    raise ValueError(f"source: size: {value!r} is neither a shortest_edge nor a height and a width")


def _crop(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        value = {"height": value, "width": value}
    if not isinstance(value, Mapping) or set(value) < {"height", "width"}:
        raise ValueError(f"source: crop_size: {value!r} is not a height and a width")
    return _length(value["height"], "crop_size"), _length(value["width"], "crop_size")


def _length(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"source: {key}: {value!r} is not a length in pixels")
    return value


def _three(options: Mapping[str, Any], key: str) -> Three:
    value = options[key]
    if isinstance(value, int | float):
        value = (value, value, value)
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"source: {key}: {value!r} is not a number for each of red, green and blue")
    red, green, blue = map(float, value)
    return red, green, blue

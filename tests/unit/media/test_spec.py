"""The checkpoint's files are read as Transformers reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from serve_app.media.spec import Normalisation, read_normalisation, read_pixel_spec
from serve_app.messages import PixelSpec
from serve_app.vocabulary import Resample

PROCESSORS = {"CLIPImageProcessor": CLIPImageProcessorPil, "SiglipImageProcessor": SiglipImageProcessorPil}
# openai/clip-vit-base-patch32 as it was published, before Transformers had image processors.
OLD_CLIP = {
    "crop_size": 224,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": 224,
}


def _folder(tmp_path: Path, options: Any, nested: bool = False) -> Path:
    name = "processor_config.json" if nested else "preprocessor_config.json"
    (tmp_path / name).write_text(json.dumps({"image_processor": options} if nested else options))
    return tmp_path


def test_an_old_clip(tmp_path: Path) -> None:
    folder = _folder(tmp_path, OLD_CLIP)
    assert read_pixel_spec(folder, scaled_decoding=False) == PixelSpec(224, None, Resample.BICUBIC, (224, 224), False)
    assert read_normalisation(folder) == Normalisation(
        (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711), 1 / 255
    )


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("CLIPImageProcessor", {}),
        ("CLIPImageProcessor", {"do_rescale": None, "do_normalize": None}),
        ("CLIPImageProcessor", {"size": {"height": 9, "width": 9}, "do_center_crop": None, "crop_size": None}),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 336}, "crop_size": {"height": 300, "width": 320}}),
        ("CLIPImageProcessor", {"size": {"height": 100, "width": 50}, "do_center_crop": False, "resample": 2}),
        ("CLIPImageProcessor", {"do_rescale": False, "do_normalize": False}),
        ("SiglipImageProcessor", {}),
        ("SiglipImageProcessor", {"size": {"height": 384, "width": 384}, "resample": 0, "do_convert_rgb": None}),
        ("SiglipImageProcessor", {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3], "rescale_factor": 0.5}),
    ],
)
def test_what_is_left_out_has_transformers_defaults(
    tmp_path: Path, kind: str, options: dict[str, Any], nested: bool
) -> None:
    theirs = PROCESSORS[kind](**options)
    folder = _folder(tmp_path, {"image_processor_type": kind, **options}, nested)
    spec, normalisation = read_pixel_spec(folder, scaled_decoding=True), read_normalisation(folder)
    assert (spec.shortest_edge, spec.resample.name) == (theirs.size.shortest_edge, _name(theirs.resample))
    assert spec.size == ((theirs.size.height, theirs.size.width) if theirs.size.height else None)
    crop = (theirs.crop_size.height, theirs.crop_size.width) if theirs.do_center_crop else None
    assert spec.crop == crop
    assert normalisation.mean == (tuple(theirs.image_mean) if theirs.do_normalize else (0, 0, 0))
    assert normalisation.std == (tuple(theirs.image_std) if theirs.do_normalize else (1, 1, 1))
    assert normalisation.rescale_factor == (theirs.rescale_factor if theirs.do_rescale else 1)
    assert spec.scaled_decoding


def test_what_transformers_saves_itself(tmp_path: Path) -> None:
    CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size={"height": 20, "width": 24}).save_pretrained(tmp_path)
    assert read_pixel_spec(tmp_path, scaled_decoding=True) == PixelSpec(30, None, Resample.BICUBIC, (20, 24))


def test_the_nested_form_goes_first(tmp_path: Path) -> None:
    _folder(tmp_path, {"image_processor_type": "CLIPImageProcessor"})
    _folder(tmp_path, {"image_processor_type": "SiglipImageProcessorFast"}, nested=True)
    assert read_pixel_spec(tmp_path, scaled_decoding=True).size == (224, 224)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no image processor"),
        ([], "is not a JSON object"),
        ({"size": 224}, "image_processor_type"),
        ({"image_processor_type": "Siglip2ImageProcessor"}, "image_processor_type: Siglip2ImageProcessor"),
        ({"image_processor_type": "Qwen2VLImageProcessorFast"}, "image_processor_type: Qwen2VL"),
        ({"image_processor_type": "CLIPImageProcessor", "do_pad": True}, "do_pad"),
        ({"image_processor_type": "CLIPImageProcessor", "use_square_size": True}, "use_square_size"),
        ({"image_processor_type": "CLIPImageProcessor", "do_center_crop": False}, "size: "),
        ({"image_processor_type": "SiglipImageProcessor", "size": 224}, "size: "),
        ({"image_processor_type": "SiglipImageProcessor", "do_resize": False}, "do_resize: "),
        ({"image_processor_type": "SiglipImageProcessor", "do_center_crop": True}, "crop_size: None"),
        ({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 2, "longest_edge": 9}}, "size: "),
        ({"image_processor_type": "CLIPImageProcessor", "crop_size": {"height": 0, "width": 9}}, "crop_size: 0"),
        ({"image_processor_type": "CLIPImageProcessor", "resample": 9}, "resample: 9"),
        ({"image_processor_type": "CLIPImageProcessor", "resample": None}, "resample: None"),
        ({"image_processor_type": "CLIPImageProcessor", "size": None}, "size: None"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^source: .*{message}"):
        read_pixel_spec(_folder(tmp_path, options), scaled_decoding=True)


@pytest.mark.parametrize("key", ["image_mean", "image_std", "rescale_factor"])
def test_a_normalisation_without_its_numbers_is_named(tmp_path: Path, key: str) -> None:
    folder = _folder(tmp_path, {"image_processor_type": "CLIPImageProcessor", key: None})
    with pytest.raises(ValueError, match=f"^source: {key}: None"):
        read_normalisation(folder)


def test_no_files_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^source: no image processor"):
        read_normalisation(tmp_path)


def _name(resample: int) -> str:
    return ("NEAREST", "LANCZOS", "BILINEAR", "BICUBIC", "BOX", "HAMMING")[resample]

"""Pictures in the reference: what the checkpoint's own image processor makes of what Pillow reads."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serve_app.media.decode import decode
from serve_app.media.spec import read_pixel_spec
from serve_app.tasks.embed.postprocess import unit
from serve_app.tasks.image_rank.reference import reference_logits
from serve_app.verify.inputs import (
    ImageLine,
    ImageRankLine,
    InputError,
    Inputs,
    Line,
    ReferenceSettings,
    TextLine,
)
from serve_app.verify.reading import read_reading
from serve_app.verify.reference import reference_answers
from serve_app.vocabulary import DType
from tests.cluster import ROOT
from tests.parity import images
from tests.unit.models import settings_for

FUSION = ROOT / "model_zoo" / "fusion-mini"


def _write(folder: Path) -> list[str]:
    """A PNG, a JPEG that lies on its side, a picture with transparency."""
    (folder / "plain.png").write_bytes(images.picture(1))
    picture = Image.open(io.BytesIO(images.picture(2)))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(folder / "turned.jpg", exif=exif)
    picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    picture.save(folder / "clear.png")
    return ["plain.png", "turned.jpg", "clear.png"]


def _inputs(folder: Path, *contents: ImageRankLine | ImageLine | TextLine) -> Inputs:
    return Inputs(ReferenceSettings(), tuple(Line(i + 1, c) for i, c in enumerate(contents)), folder)


def test_a_fusion_ranker_sees_what_the_loader_makes(tmp_path: Path) -> None:
    names = _write(tmp_path)
    settings = settings_for(FUSION, "image_rank", max_model_len=32)
    lines = [ImageRankLine(query="red circle", images=names), ImageRankLine(query="x", images=names[:1])]
    reading = read_reading(settings, ReferenceSettings())
    done: list[int] = []
    answers = reference_answers(settings, _inputs(tmp_path, *lines), reading, DType.FLOAT32, done.append)
    spec = read_pixel_spec(FUSION, scaled_decoding=False)
    pairs = [("red circle", decode((tmp_path / name).read_bytes(), spec, 10**8)) for name in names]
    want = reference_logits(FUSION, pairs, dtype=DType.FLOAT32, max_length=32)
    assert answers[0].values == pytest.approx(want, abs=1e-5)
    assert len(answers[1].values) == 1  # type: ignore[arg-type]
    assert sum(done) == 4


def test_a_dual_encoders_texts_and_pictures_have_unit_length(tmp_path: Path) -> None:
    from serve_app.tasks.embed.image_reference import reference_image_vectors, reference_text_vectors

    folder = images.clip(tmp_path / "clip")
    names = _write(tmp_path)
    settings = settings_for(folder, "embed", max_model_len=24)
    contents = [ImageLine(image=names[0]), TextLine(text="red circle"), ImageLine(image=names[2])]
    reading = read_reading(settings, ReferenceSettings())
    answers = reference_answers(settings, _inputs(tmp_path, *contents), reading, DType.FLOAT32, lambda n: None)
    texts = unit(reference_text_vectors(folder, ["red circle"], dtype=DType.FLOAT32, max_length=24))
    plain = unit(reference_image_vectors(folder, [images.as_array(images.picture(1))], dtype=DType.FLOAT32))
    assert answers[0].values == pytest.approx(plain[0], abs=1e-5)
    assert answers[1].values == pytest.approx(texts[0], abs=1e-5)
    assert np.linalg.norm(answers[2].values) == pytest.approx(1, abs=1e-5)  # type: ignore[arg-type]


def test_what_is_no_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    settings = settings_for(FUSION, "image_rank", max_model_len=32)
    reading = read_reading(settings, ReferenceSettings())
    inputs = _inputs(tmp_path, ImageRankLine(query="x", images=["broken.png"]))
    with pytest.raises(InputError, match=r"^broken\.png: not a picture"):
        reference_answers(settings, inputs, reading, DType.FLOAT32, lambda n: None)

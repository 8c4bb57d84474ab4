"""CLIP and SigLIP in fp32 against Transformers with its own processors: texts, images, and both mixed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serve_app.errors import NoUsableImage
from serve_app.messages import EmbedRequest, ImageRef, ScoreRequest
from serve_app.tasks.activation import activate
from serve_app.tasks.embed.image_reference import reference_image_vectors, reference_text_vectors
from serve_app.tasks.embed.postprocess import unit
from serve_app.vocabulary import DType
from tests.parity import images
from tests.parity.conftest import Served, assert_same_order, serving

TEXTS = ["red", "a small blue circle on the left of two large squares", "picture", "빨간 원", "two dark three red red"]
SIZES = [(48, 48), (120, 90), (90, 121), (1, 1), (400, 30), (333, 500)]
LENGTHS = {"clip": 24, "siglip": 16}


@pytest.fixture(scope="module", params=["clip", "siglip"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = getattr(images, request.param)(tmp_path_factory.mktemp(request.param))
    with serving(folder, "embed", max_model_len=LENGTHS[request.param], images={"scaled_decoding": False}) as started:
        yield started


def _pictures() -> list[bytes]:
    return [images.picture(seed, size) for seed, size in enumerate(SIZES)]


def _texts(served: Served, texts: list[str]) -> np.ndarray:
    folder = served.model.checkpoint.folder
    length = served.model.settings.max_model_len
    return reference_text_vectors(folder, texts, dtype=DType.FLOAT32, max_length=length)


def _images(served: Served, pictures: list[bytes]) -> np.ndarray:
    arrays = [images.as_array(data) for data in pictures]
    return reference_image_vectors(served.model.checkpoint.folder, arrays, dtype=DType.FLOAT32)


def test_vectors_of_texts_and_images_mixed(served: Served) -> None:
    pictures = _pictures()
    as_images = [ImageRef(data=data) for data in pictures[: len(TEXTS)]]
    inputs = [item for pair in zip(TEXTS, as_images, strict=True) for item in pair]
    got = served.run(EmbedRequest(inputs, normalize=False)).vectors
    want = np.empty_like(got)
    want[0::2], want[1::2] = _texts(served, TEXTS), _images(served, pictures[: len(TEXTS)])
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_one_alone_equals_one_of_many(served: Served) -> None:
    want = unit(_images(served, _pictures()))
    for i, data in enumerate(_pictures()):
        np.testing.assert_allclose(served.run(EmbedRequest([ImageRef(data=data)])).vectors[0], want[i], atol=1e-4)
    texts = unit(_texts(served, TEXTS))
    for i, text in enumerate(TEXTS):
        np.testing.assert_allclose(served.run(EmbedRequest([text])).vectors[0], texts[i], atol=1e-4)


@pytest.mark.parametrize("direction", ["text→image", "image→text", "image→image"])
def test_ranking_both_ways(served: Served, direction: str) -> None:
    pictures = [images.picture(seed) for seed in range(100, 124)]
    as_images, texts = [ImageRef(data=data) for data in pictures], TEXTS * 5
    vectors = {"image": unit(_images(served, pictures)), "text": unit(_texts(served, texts))}
    query_kind, document_kind = direction.split("→")
    query = as_images[3] if query_kind == "image" else texts[1]
    documents = as_images if document_kind == "image" else texts
    facts = served.model.checkpoint.images
    assert facts is not None
    query_vector = vectors[query_kind][3 if query_kind == "image" else 1]
    cosines = vectors[document_kind] @ query_vector
    raw = served.run(ScoreRequest([query], documents, raw_scores=True)).scores
    np.testing.assert_allclose((raw - facts.logit_bias) / facts.logit_scale, cosines, atol=1e-4)
    assert_same_order(raw, facts.logit_scale * cosines)
    scores = served.run(ScoreRequest([query], documents)).scores
    np.testing.assert_allclose(scores, activate(raw, served.model.checkpoint.activation), atol=1e-4)


def test_logits_are_those_of_the_model(served: Served) -> None:
    """Scale and bias are the checkpoint's: compared with the whole model's own logits, not with ours."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder, length = served.model.checkpoint.folder, served.model.settings.max_model_len
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    picture = images.picture(7, (48, 48))
    pixels = torch.from_numpy(images.as_array(picture).copy()).permute(2, 0, 1).float() / 255
    mean, std = torch.tensor([0.48, 0.46, 0.41]).view(3, 1, 1), torch.tensor([0.27, 0.26, 0.28]).view(3, 1, 1)
    want = []
    for text in TEXTS:
        padding = "max_length" if model.config.model_type == "siglip" else False
        ids = tokenizer(text, padding=padding, max_length=length, return_tensors="pt").input_ids
        with torch.inference_mode():
            want.append(float(model(input_ids=ids, pixel_values=((pixels - mean) / std)[None]).logits_per_image))
    got = served.run(ScoreRequest([ImageRef(data=picture)], TEXTS, raw_scores=True)).scores
    np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, np.abs(want).max()))


def test_a_seen_image_costs_no_vision_tower(served: Served) -> None:
    fresh = images.refs(range(200, 212))
    before = served.call(served.engine.image_counts())["encoded"]
    cold = served.run(ScoreRequest(["red"], [*fresh, *fresh[:4]]))
    encoded = served.call(served.engine.image_counts())["encoded"]
    assert encoded - before == len(fresh)  # repetitions are encoded once
    warm = served.run(ScoreRequest(["blue"], fresh))
    assert served.call(served.engine.image_counts())["encoded"] == encoded
    assert not np.allclose(warm.scores, cold.scores[: len(fresh)])
    again = served.run(ScoreRequest(["red"], fresh))
    np.testing.assert_allclose(again.scores, cold.scores[: len(fresh)], atol=1e-5)


def test_a_failed_image_costs_only_itself(served: Served) -> None:
    good = images.refs(range(300, 303))
    dead = ImageRef(url="http://nowhere.invalid/x.png")
    result = served.run(ScoreRequest(["red"], [good[0], dead, good[1], "blue", good[2]]))
    assert [(error.index, error.code) for error in result.served.errors] == [(1, "media_unreachable")]
    assert np.isnan(result.scores).tolist() == [False, True, False, False, False]
    alone = served.run(ScoreRequest(["red"], good)).scores
    np.testing.assert_allclose(result.scores[[0, 2, 4]], alone, atol=1e-4)
    vectors = served.run(EmbedRequest([good[0], dead])).vectors
    assert np.isnan(vectors).all(1).tolist() == [False, True]
    with pytest.raises(NoUsableImage, match=r"documents\[0\]"):
        served.run(ScoreRequest(["red"], [dead, dead]))
    with pytest.raises(NoUsableImage, match="query"):
        served.run(ScoreRequest([dead], good))

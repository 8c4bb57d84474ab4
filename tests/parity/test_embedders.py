"""Embedding models in fp32 against Transformers: CLS and LAST pooling, with and without normalisation, Matryoshka.

MEAN is all-MiniLM-L6-v2's, in the running server's tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from serve_app.messages import EmbedRequest, ScoreRequest
from serve_app.tasks.embed.reference import reference_vectors
from serve_app.vocabulary import DType, PoolingType
from tests.checkpoints import CORPUS, Checkpoints
from tests.parity.conftest import Served, serving

TEXTS = [*CORPUS, "Hi", "좋아요", "😀", "the quick fox " * 80, *(f"fox number {i}" for i in range(40))]
CASES: dict[str, tuple[str, PoolingType, bool, str]] = {
    "xlm_roberta-cls-normalized": ("xlm_roberta", PoolingType.CLS, True, "vllm"),
    "qwen3-last-plain": ("qwen3", PoolingType.LAST, False, "vllm"),
    "bert-mean-dense-normalized": ("bert", PoolingType.MEAN, True, "vllm"),
    "torch-bert-mean-dense-normalized": ("bert", PoolingType.MEAN, True, "torch"),
    "torch-xlm_roberta-mean-normalized": ("xlm_roberta", PoolingType.MEAN, True, "torch"),
    "torch-xlm_roberta-cls-plain": ("xlm_roberta", PoolingType.CLS, False, "torch"),
    "torch-qwen3-last-plain": ("qwen3", PoolingType.LAST, False, "torch"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, checkpoints: Checkpoints) -> Iterator[tuple[Served, PoolingType, bool]]:
    kind, pooling, normalize, engine = CASES[request.param]
    dense = 32 if "dense" in request.param else 0
    base = getattr(checkpoints, kind)(0)
    folder = checkpoints.sentence_transformers(base, pooling.value, normalize=normalize, dense=dense)
    options = {"kind": engine, "enforce_eager": True}
    with serving(folder, "embed", max_model_len=128, engine=options) as served:
        yield served, pooling, normalize


def _reference(served: Served, texts: list[str], **options: Any) -> np.ndarray:
    checkpoint = served.model.checkpoint
    return reference_vectors(
        checkpoint.folder, texts, dtype=DType.FLOAT32, max_length=128, dense=checkpoint.dense, **options
    )


def test_vectors_as_the_checkpoint_says(case: tuple[Served, PoolingType, bool]) -> None:
    served, pooling, normalize = case
    result = served.run(EmbedRequest(TEXTS))
    np.testing.assert_allclose(
        result.vectors, _reference(served, TEXTS, pooling=pooling, normalize=normalize), atol=1e-4
    )
    assert result.served.truncated == (11,)


def test_normalisation_and_dimensions_of_the_request(case: tuple[Served, PoolingType, bool]) -> None:
    served, pooling, _ = case
    raw = _reference(served, TEXTS, pooling=pooling, normalize=False)
    np.testing.assert_allclose(served.run(EmbedRequest(TEXTS, normalize=False)).vectors, raw, atol=1e-4)
    short = raw[:, :16] / np.linalg.norm(raw[:, :16], axis=1, keepdims=True)
    got = served.run(EmbedRequest(TEXTS, normalize=True, dimensions=16)).vectors
    np.testing.assert_allclose(got, short, atol=1e-4)
    assert np.linalg.norm(got, axis=1) == pytest.approx(1, abs=1e-4)


def test_scores_are_cosines(case: tuple[Served, PoolingType, bool]) -> None:
    served, pooling, _ = case
    unit = _reference(served, TEXTS, pooling=pooling, normalize=True)
    got = served.run(ScoreRequest([TEXTS[0]], TEXTS)).scores
    np.testing.assert_allclose(got, unit @ unit[0], atol=1e-4)
    pairs = served.run(ScoreRequest(TEXTS[:8], TEXTS[8:16])).scores
    np.testing.assert_allclose(pairs, (unit[:8] * unit[8:16]).sum(1), atol=1e-4)

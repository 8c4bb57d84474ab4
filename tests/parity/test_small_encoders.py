"""Small encoders: models without sdpa against Transformers, and the benchmark to its end, whose sides all give
sentence-transformers' vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cli import main
from serve_app.messages import ClassifyRequest, EmbedRequest, ScoreRequest, Truncation
from serve_app.tasks.classify.reference import reference_logits as reference_labels
from serve_app.tasks.embed.reference import reference_vectors
from serve_app.tasks.rerank.reference import reference_logits
from serve_app.vocabulary import DType, PoolingType
from tests.checkpoints import CORPUS, Checkpoints
from tests.parity.conftest import serving

UNEVEN = [*CORPUS, "x", " ".join(CORPUS), "fox " * 3, " ".join(CORPUS * 2)]
"""From one word to more than fits."""
TORCH = {"engine": {"kind": "torch"}, "max_model_len": 128, "max_num_batched_tokens": 4096}
LIMIT = {"dtype": DType.FLOAT32, "max_length": 128}
KINDS = ("deberta_v2", "mpnet")


@pytest.mark.parametrize("kind", KINDS)
def test_rerankers_without_sdpa(kind: str, checkpoints: Checkpoints) -> None:
    folder = getattr(checkpoints, kind)(1, initializer_range=0.2)
    with serving(folder, "rerank", **TORCH) as served:
        got = served.run(ScoreRequest(["a fox"], UNEVEN, raw_scores=True)).scores
    want = reference_logits(folder, [("a fox", text) for text in UNEVEN], **LIMIT)  # type: ignore[arg-type]
    np.testing.assert_allclose(got, want, atol=1e-4)
    assert np.ptp(want) > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_classifiers_without_sdpa(kind: str, checkpoints: Checkpoints) -> None:
    folder = getattr(checkpoints, kind)(3, initializer_range=0.2)
    inputs = [(text, "a second text") for text in UNEVEN[:9]]
    with serving(folder, "classify", activation="none", **TORCH) as served:
        got = served.run(ClassifyRequest(inputs)).scores
    want = reference_labels(folder, inputs, **LIMIT)  # type: ignore[arg-type]
    np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("pooling", list(PoolingType))
@pytest.mark.parametrize("kind", KINDS)
def test_embedders_without_sdpa(kind: str, pooling: PoolingType, checkpoints: Checkpoints) -> None:
    folder = getattr(checkpoints, kind)(0, initializer_range=0.2)
    with serving(folder, "embed", pooling=pooling, normalize=True, **TORCH) as served:
        got = served.run(EmbedRequest(UNEVEN)).vectors
    want = reference_vectors(folder, UNEVEN, pooling=pooling, normalize=True, **LIMIT)  # type: ignore[arg-type]
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_mpnet_to_its_last_position(checkpoints: Checkpoints) -> None:
    folder = checkpoints.mpnet(1)
    texts = ["fox " * 600, "fox"]
    with serving(folder, "rerank", **TORCH | {"max_model_len": 512}) as served:
        request = ScoreRequest(["a fox"], texts, raw_scores=True, truncation=Truncation())
        got = served.run(request).scores
    pairs = [("a fox", text) for text in texts]
    np.testing.assert_allclose(got, reference_logits(folder, pairs, dtype=DType.FLOAT32, max_length=512), atol=1e-4)


def test_a_short_run_agrees_and_writes_a_result(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.sentence_transformers(checkpoints.xlm_roberta(0), "MEAN", normalize=True)
    arguments = ["--texts", "40", "--inputs", "8", "--concurrency", "2", "--batches", "8", "16", "--rounds", "2"]
    command = ["small-encoders", "--model-dir", str(folder), "--dtype", "float32", "--results-dir", str(tmp_path)]
    assert main([*command, *arguments]) == 0
    (path,) = tmp_path.glob("*.json")
    result = json.loads(path.read_text())
    sides = {"sentence-transformers, batch 8", "sentence-transformers, batch 16", "vllm engine", "torch engine"}
    assert result["texts_per_s"].keys() == sides
    assert all(len(rates) == 2 for rates in result["texts_per_s"].values())
    assert min(result["least_cosine"].values()) > 0.99999
    assert "| torch engine |" in path.with_suffix(".md").read_text()

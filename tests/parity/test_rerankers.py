"""Rerankers in fp32 against Transformers, one pair at a time: within 1e-4, same order, whatever the batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from serve_app.messages import ScoreRequest, Truncation
from serve_app.tasks.rerank.reference import reference_logits
from serve_app.vocabulary import DType
from tests.checkpoints import CORPUS, Checkpoints
from tests.parity.conftest import Served, assert_same_order, serving

WORDS = " ".join(CORPUS).split(" ")
QUERY = "waterproof boots for the lazy dog"


def _documents(count: int, seed: int = 0) -> list[str]:
    """Texts of 0 to about 120 words, so that some are cut."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=int(rng.integers(0, 120)))) for _ in range(count)]


KINDS = {
    "xlm_roberta": ({}, {"max_model_len": 256}),
    "modernbert": ({}, {"max_model_len": 256}),
    "torch-xlm_roberta": ({}, {"max_model_len": 256, "engine": {"kind": "torch"}}),
    "torch-modernbert": ({}, {"max_model_len": 256, "engine": {"kind": "torch"}}),
    "torch-bert": ({}, {"max_model_len": 96, "engine": {"kind": "torch"}}),
    "qwen3": ({}, {"max_model_len": 1024, "template": "qwen3-reranker", "max_num_batched_tokens": 4096}),
}


@pytest.fixture(scope="module", params=KINDS)
def served(request: pytest.FixtureRequest, checkpoints: Checkpoints) -> Iterator[Served]:
    config, changes = KINDS[request.param]
    with serving(getattr(checkpoints, request.param.removeprefix("torch-"))(**config), "rerank", **changes) as started:
        yield started


def _reference(served: Served, query: str, documents: list[str]) -> np.ndarray:
    settings = served.model.settings
    return reference_logits(
        served.model.checkpoint.folder,
        [(query, document) for document in documents],
        dtype=DType.FLOAT32,
        max_length=settings.max_model_len,
        template=settings.resolved_template,
    )


def test_200_pairs_of_all_lengths(served: Served) -> None:
    documents = _documents(200)
    result = served.run(ScoreRequest([QUERY], documents, raw_scores=True))
    want = _reference(served, QUERY, documents)
    np.testing.assert_allclose(result.scores, want, atol=1e-4)
    assert_same_order(result.scores, want)
    assert result.served.truncated or served.model.settings.template
    activated = served.run(ScoreRequest([QUERY], documents)).scores
    np.testing.assert_allclose(activated, 1 / (1 + np.exp(-want)), atol=1e-4)


def test_a_pair_scores_the_same_alone_in_a_batch_and_beside_other_requests(served: Served) -> None:
    documents = _documents(20, seed=1)
    alone = np.array([served.run(ScoreRequest([QUERY], [d], raw_scores=True)).scores[0] for d in documents[:5]])
    batch = served.run(ScoreRequest([QUERY], documents, raw_scores=True)).scores
    requests = [ScoreRequest([QUERY], documents, raw_scores=True), *(ScoreRequest([w], documents) for w in WORDS[:5])]
    beside = served.together(requests)[0].scores
    np.testing.assert_allclose(batch[:5], alone, atol=1e-5)
    np.testing.assert_allclose(beside, batch, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 100])
def test_lengths_from_one_word_to_the_limit(served: Served, length: int) -> None:
    documents = ["fox " * length, "한" * length, "😀" * length]
    got = served.run(ScoreRequest(["fox"], documents, raw_scores=True)).scores
    np.testing.assert_allclose(got, _reference(served, "fox", documents), atol=1e-4)


def test_pairs_one_to_one(served: Served) -> None:
    queries, documents = WORDS[:10], _documents(10, seed=2)
    got = served.run(ScoreRequest(queries, documents, raw_scores=True)).scores
    want = [_reference(served, q, [d])[0] for q, d in zip(queries, documents, strict=True)]
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_chunks_score_as_their_best_piece(served: Served) -> None:
    text = "the quick brown fox " * 200
    settings = served.model.settings
    chunked = served.run(
        ScoreRequest(["fox"], [text, "dog"], raw_scores=True, truncation=Truncation(max_chunks=64))
    ).scores
    cut = served.run(ScoreRequest(["fox"], [text, "dog"], raw_scores=True)).scores
    assert chunked[0] >= cut[0] - 1e-5
    assert chunked[1] == pytest.approx(cut[1], abs=1e-5)
    assert settings.max_model_len < 2_000


def test_the_instruction_changes_the_score_of_a_template_model_only(served: Served) -> None:
    plain = served.run(ScoreRequest(["fox"], ["the lazy dog"], raw_scores=True)).scores[0]
    told = served.run(ScoreRequest(["fox"], ["the lazy dog"], raw_scores=True, instruction="Find animals"))
    has_template = served.model.settings.template is not None
    assert (plain != pytest.approx(told.scores[0], abs=1e-6)) == has_template
    assert told.served.ignored == (() if has_template else ("instruction",))

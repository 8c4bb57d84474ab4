"""Embedding inputs and vectors: prompts, token ids, Matryoshka, cosine."""

from __future__ import annotations

import numpy as np
import pytest

from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import EmbedRequest, EngineOutput, ScoreRequest, Truncation
from serve_app.tasks.embed.build_input import build_input, build_pair_input
from serve_app.tasks.embed.postprocess import pair_scores, postprocess
from tests.checkpoints import Checkpoints
from tests.unit.models import text_model

PROMPTS = {"query": "query: ", "document": "passage: "}
LONG = "the quick fox " * 60


def test_prompts_stand_before_their_texts(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", prompts=PROMPTS)
    plain = build_input(model, EmbedRequest(["query: fox"]))
    assert build_input(model, EmbedRequest(["fox"], prompt="query")).token_ids.tolist() == plain.token_ids.tolist()
    pair = build_pair_input(model, ScoreRequest(["fox"], ["dog"]))
    by_hand = build_input(model, EmbedRequest(["query: fox", "passage: dog"]))
    assert pair.token_ids.tolist() == by_hand.token_ids.tolist()
    with pytest.raises(InvalidRequest, match="no prompt 'nope'; it has: query, document"):
        build_input(model, EmbedRequest(["fox"], prompt="nope"))


def test_a_model_without_prompts_takes_the_common_names(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed")
    assert len(build_input(model, EmbedRequest(["fox"], prompt="query")).token_ids) > 0
    with pytest.raises(InvalidRequest):
        build_input(model, EmbedRequest(["fox"], prompt="nope"))


def test_ready_token_ids(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed")
    built = build_input(model, EmbedRequest([[2, 7, 3], [5] * 100]))
    assert built.offsets.tolist() == [0, 3, 67]
    assert built.truncated == (1,)
    for bad in ([[1, 2], [10**9]], [[-1]]):
        with pytest.raises(InvalidRequest, match="outside the model's"):
            build_input(model, EmbedRequest(bad))
    with pytest.raises(InvalidRequest, match=r"input\[0\]: has no tokens"):
        build_input(model, EmbedRequest([[]]))
    with pytest.raises(ContextLengthExceeded, match=r"input\[0\]: 100 tokens; there is room for 64"):
        build_input(model, EmbedRequest([[5] * 100], truncation=Truncation(enabled=False)))


def test_empty_text_is_embedded_where_special_tokens_stand_and_refused_where_none_do(checkpoints: Checkpoints) -> None:
    assert build_input(text_model(checkpoints.bert(0), "embed"), EmbedRequest([""])).prompt_tokens == 2
    with pytest.raises(InvalidRequest, match=r"input\[1\]: has no tokens"):
        build_input(text_model(checkpoints.qwen3(0), "embed"), EmbedRequest(["fox", ""]))


def test_matryoshka_cuts_first_and_then_brings_to_unit_length(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", normalize=True)
    request = EmbedRequest(["a", "b"], dimensions=2)
    built = build_input(model, request)
    vectors = np.array([[3, 4, 12], [0, 0, 5]], dtype=np.float32)
    got = postprocess(model, request, built, EngineOutput(vectors, 0, 0))
    np.testing.assert_allclose(got, [[0.6, 0.8], [0, 0]], atol=1e-7)
    with pytest.raises(InvalidRequest, match="dimensions: 4 is more than the model's 3"):
        postprocess(model, EmbedRequest(["a"], dimensions=4), built, EngineOutput(vectors, 0, 0))


def test_the_request_decides_over_the_checkpoint_on_normalisation(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", normalize=True)
    vectors = np.array([[3, 4]], dtype=np.float32)
    built = build_input(model, EmbedRequest(["a"]))
    raw = postprocess(model, EmbedRequest(["a"], normalize=False), built, EngineOutput(vectors, 0, 0))
    assert raw.tolist() == [[3, 4]]


@pytest.mark.parametrize("queries", [1, 3])
def test_cosine_with_chunks(checkpoints: Checkpoints, queries: int) -> None:
    model = text_model(checkpoints.bert(0), "embed")
    request = ScoreRequest(["fox"] * queries, ["a", LONG, "b"], truncation=Truncation(max_chunks=2))
    built = build_pair_input(model, request)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(queries + 4, 8)).astype(np.float32)
    got = pair_scores(model, request, built, EngineOutput(vectors, 0, 0))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    query = [unit[i if queries > 1 else 0] for i in range(3)]
    documents = unit[queries:]
    want = [query[0] @ documents[0], max(query[1] @ documents[1], query[1] @ documents[2]), query[2] @ documents[3]]
    np.testing.assert_allclose(got, want, atol=1e-6)

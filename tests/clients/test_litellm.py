"""LiteLLM: rerank through each provider whose servers can be hosted, and embeddings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.plain import DOCUMENTS, EMBEDDER, QUERY, assert_same_ranking, assert_same_vectors, ranking, vectors
from tests.cluster import Server


@pytest.fixture(scope="module")
def litellm() -> Any:
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def _texts(answer: Any) -> list[str]:
    return [result["document"]["text"] for result in answer.results]


def _pairs(answer: Any) -> list[tuple[int, float]]:
    return [(result["index"], result["relevance_score"]) for result in answer.results]


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("cohere", ""),  # POST /v2/rerank
        ("cohere", "/v1/rerank"),
        ("jina_ai", ""),  # POST /v1/rerank
        ("hosted_vllm", ""),  # POST /rerank
    ],
)
def test_rerank(server: Server, litellm: Any, rerank_model: str, provider: str, path: str) -> None:
    options = {"query": QUERY, "documents": DOCUMENTS, "api_key": "test", "api_base": server.url + path}
    answer = litellm.rerank(model=f"{provider}/{rerank_model}", **options)
    assert_same_ranking(_pairs(answer), ranking(server, rerank_model))
    assert _texts(answer) == [DOCUMENTS[index] for index, _ in _pairs(answer)]

    top = litellm.rerank(model=f"{provider}/{rerank_model}", top_n=2, return_documents=False, **options)
    assert_same_ranking(_pairs(top), ranking(server, rerank_model)[:2])
    assert not any("document" in result for result in top.results)


def test_rerank_vllm_options(server: Server, litellm: Any, rerank_model: str) -> None:
    options = {"max_tokens_per_doc": 4, "truncation_side": "right"}
    answer = litellm.rerank(
        model=f"hosted_vllm/{rerank_model}", query=QUERY, documents=DOCUMENTS, api_base=server.url, **options
    )
    assert_same_ranking(_pairs(answer), ranking(server, rerank_model, max_tokens_per_doc=4))


def test_rerank_tei(server: Server, litellm: Any, elsewhere: list[str]) -> None:
    """TEI's shape, which names no model. Its price list asks the hub about the model, and does without an answer."""
    answer = litellm.rerank(
        model="huggingface/any", query=QUERY, documents=DOCUMENTS, top_n=3, api_key="test", api_base=server.url
    )
    assert_same_ranking(_pairs(answer), ranking(server, None, top_n=3))
    assert _texts(answer) == [DOCUMENTS[index] for index, _ in _pairs(answer)]
    elsewhere[:] = [name for name in elsewhere if name != "huggingface.co"]


async def test_rerank_async(server: Server, litellm: Any, rerank_model: str) -> None:
    answer = await litellm.arerank(
        model=f"cohere/{rerank_model}", query=QUERY, documents=DOCUMENTS, api_key="test", api_base=server.url
    )
    assert_same_ranking(_pairs(answer), ranking(server, rerank_model))


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_embedding(server: Server, litellm: Any, provider: str) -> None:
    options = {"model": f"{provider}/{EMBEDDER}", "input": DOCUMENTS, "api_key": "test", "api_base": f"{server.url}/v1"}
    answer = litellm.embedding(**options)
    assert_same_vectors([item["embedding"] for item in answer.data], vectors(server, DOCUMENTS))
    assert answer.usage.total_tokens > len(DOCUMENTS)


def test_unknown_model(server: Server, litellm: Any) -> None:
    with pytest.raises(litellm.NotFoundError, match=r"'nope' does not exist; there are: .*minilm"):
        litellm.embedding(model="openai/nope", input=DOCUMENTS, api_key="test", api_base=f"{server.url}/v1")

"""Haystack's components for Jina: the ranker and both embedders."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.plain import DOCUMENTS, EMBEDDER, QUERY, assert_same_ranking, assert_same_vectors, ranking, vectors
from tests.cluster import Server


def _key() -> Any:
    from haystack.utils import Secret

    return Secret.from_token("test")


def _documents() -> list[Any]:
    from haystack import Document

    return [Document(id=str(index), content=text) for index, text in enumerate(DOCUMENTS)]


def _ranker(server: Server, model: str, **options: Any) -> Any:
    from haystack_integrations.components.rankers.jina import JinaRanker

    return JinaRanker(model=model, api_key=_key(), base_url=f"{server.url}/v1/rerank", **options)


def _pairs(documents: list[Any]) -> list[tuple[int, float]]:
    return [(int(document.id), document.score) for document in documents]


def test_ranker(server: Server, rerank_model: str) -> None:
    """It sends `top_n: null`."""
    answer = _ranker(server, rerank_model).run(query=QUERY, documents=_documents())
    assert_same_ranking(_pairs(answer["documents"]), ranking(server, rerank_model))
    assert answer["meta"]["model"] == rerank_model
    assert answer["meta"]["usage"]["total_tokens"] > len(DOCUMENTS)


def test_ranker_top_k_and_threshold(server: Server, rerank_model: str) -> None:
    expected = ranking(server, rerank_model)
    ranker = _ranker(server, rerank_model, top_k=3)
    assert_same_ranking(_pairs(ranker.run(query=QUERY, documents=_documents())["documents"]), expected[:3])
    threshold = (expected[1][1] + expected[2][1]) / 2
    above = ranker.run(query=QUERY, documents=_documents(), score_threshold=threshold)
    assert_same_ranking(_pairs(above["documents"]), expected[:2])


async def test_ranker_async(server: Server, rerank_model: str) -> None:
    answer = await _ranker(server, rerank_model).run_async(query=QUERY, documents=_documents())
    assert_same_ranking(_pairs(answer["documents"]), ranking(server, rerank_model))


def test_ranker_tells_what_was_wrong(server: Server) -> None:
    with pytest.raises(RuntimeError, match=r"'nope' does not exist; there are: .*minilm"):
        _ranker(server, "nope").run(query=QUERY, documents=_documents())


def test_embedders(server: Server) -> None:
    from haystack_integrations.components.embedders.jina import JinaDocumentEmbedder, JinaTextEmbedder

    options = {"model": EMBEDDER, "api_key": _key(), "base_url": f"{server.url}/v1/embeddings"}
    documents = JinaDocumentEmbedder(progress_bar=False, **options).run(documents=_documents())["documents"]
    assert_same_vectors([document.embedding for document in documents], vectors(server, DOCUMENTS))
    query = JinaTextEmbedder(**options).run(text=QUERY)["embedding"]
    assert_same_vectors([query], vectors(server, [QUERY]))

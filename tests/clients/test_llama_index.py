"""LlamaIndex's rerankers for Cohere, Jina and text-embeddings-inference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.clients.plain import DOCUMENTS, QUERY, assert_same_ranking, post, ranking
from tests.cluster import Server


def _nodes(indexes: Iterable[int] = range(len(DOCUMENTS))) -> list[Any]:
    from llama_index.core.schema import NodeWithScore, TextNode

    return [NodeWithScore(node=TextNode(id_=str(index), text=DOCUMENTS[index]), score=0.0) for index in indexes]


def _pairs(nodes: Sequence[Any]) -> list[tuple[int, float]]:
    return [(int(node.node.node_id), node.score) for node in nodes]


def test_cohere(server: Server, rerank_model: str) -> None:
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    reranker = CohereRerank(model=rerank_model, top_n=2, api_key="test", base_url=server.url)
    ranked = reranker.postprocess_nodes(_nodes(), query_str=QUERY)
    assert_same_ranking(_pairs(ranked), ranking(server, rerank_model)[:2])


def test_jina(server: Server, rerank_model: str) -> None:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    reranker = JinaRerank(model=rerank_model, top_n=4, api_key="test", base_url=f"{server.url}/v1")
    ranked = reranker.postprocess_nodes(_nodes(), query_str=QUERY)
    assert_same_ranking(_pairs(ranked), ranking(server, rerank_model)[:4])


def test_jina_tells_what_was_wrong(server: Server) -> None:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    reranker = JinaRerank(model="nope", api_key="test", base_url=f"{server.url}/v1")
    with pytest.raises(RuntimeError, match=r"'nope' does not exist; there are: .*minilm"):
        reranker.postprocess_nodes(_nodes(), query_str=QUERY)


def test_tei(server: Server) -> None:
    """It names no model, and up to 0.3.0 it pairs the sorted answer with the nodes by position, not by index
    (run-llama/llama_index#20597); so the nodes are already in order here.
    """
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    expected = ranking(server, None)
    reranker = TextEmbeddingInference(base_url=server.url, top_n=3)
    ranked = reranker.postprocess_nodes(_nodes(index for index, _ in expected), query_str=QUERY)
    assert_same_ranking(_pairs(ranked), expected[:3])


def test_the_answer_that_tei_clients_read(server: Server, rerank_model: str) -> None:
    """Sorted, each with the index of its text."""
    answer = post(server, "/rerank", {"model": rerank_model, "query": QUERY, "texts": DOCUMENTS})
    assert_same_ranking([(rank["index"], rank["score"]) for rank in answer], ranking(server, rerank_model))

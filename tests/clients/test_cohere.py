"""Cohere's SDK, both of its APIs, and LangChain on top of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.clients.plain import DOCUMENTS, QUERY, assert_same_ranking, ranking
from tests.cluster import Server

RECORDS = [{"text": text, "shelf": str(index)} for index, text in enumerate(DOCUMENTS)]


@pytest.fixture(scope="module")
def v1(server: Server) -> Any:
    import cohere

    return cohere.Client(api_key="test", base_url=server.url)


@pytest.fixture(scope="module")
def v2(server: Server) -> Any:
    import cohere

    return cohere.ClientV2(api_key="test", base_url=server.url)


def _pairs(results: Iterable[Any]) -> list[tuple[int, float]]:
    return [(result.index, result.relevance_score) for result in results]


def test_v2(server: Server, v2: Any, rerank_model: str) -> None:
    answer = v2.rerank(model=rerank_model, query=QUERY, documents=DOCUMENTS)
    assert_same_ranking(_pairs(answer.results), ranking(server, rerank_model))
    assert answer.meta.api_version.version == "2"


def test_v2_options(server: Server, v2: Any, rerank_model: str) -> None:
    options = {"top_n": 2, "max_tokens_per_doc": 4, "priority": 0}
    answer = v2.rerank(model=rerank_model, query=QUERY, documents=DOCUMENTS, **options)
    expected = ranking(server, rerank_model, top_n=2, max_tokens_per_doc=4)
    assert_same_ranking(_pairs(answer.results), expected)
    assert expected != ranking(server, rerank_model)[:2]


def test_v2_named_version(server: Server, v2: Any, rerank_model: str) -> None:
    answer = v2.rerank(model=f"{rerank_model}@1", query=QUERY, documents=DOCUMENTS)
    assert_same_ranking(_pairs(answer.results), ranking(server, rerank_model))


async def test_v2_async(server: Server, rerank_model: str) -> None:
    import cohere

    async with cohere.AsyncClientV2(api_key="test", base_url=server.url) as client:
        answer = await client.rerank(model=rerank_model, query=QUERY, documents=DOCUMENTS)
    assert_same_ranking(_pairs(answer.results), ranking(server, rerank_model))


def test_v1(server: Server, v1: Any, rerank_model: str) -> None:
    answer = v1.rerank(model=rerank_model, query=QUERY, documents=DOCUMENTS, top_n=3)
    assert_same_ranking(_pairs(answer.results), ranking(server, rerank_model)[:3])
    assert [result.document for result in answer.results] == [None] * 3


def test_v1_dict_documents_come_back_as_they_were(server: Server, v1: Any, rerank_model: str) -> None:
    answer = v1.rerank(model=rerank_model, query=QUERY, documents=RECORDS, rank_fields=["text"], return_documents=True)
    assert_same_ranking(_pairs(answer.results), ranking(server, rerank_model))
    for result in answer.results:
        assert result.document.text == DOCUMENTS[result.index]
        assert result.document.shelf == str(result.index)


def test_v1_strings_come_back_as_documents(v1: Any, rerank_model: str) -> None:
    answer = v1.rerank(model=rerank_model, query=QUERY, documents=DOCUMENTS, return_documents=True)
    assert [result.document.text for result in answer.results] == [DOCUMENTS[r.index] for r in answer.results]


def test_unknown_model(v1: Any, v2: Any) -> None:
    from cohere.errors import NotFoundError

    for client in (v1, v2):
        with pytest.raises(NotFoundError) as caught:
            client.rerank(model="nope", query=QUERY, documents=DOCUMENTS)
        assert "minilm" in caught.value.body["error"]["message"]


def test_wrong_value(v2: Any, rerank_model: str) -> None:
    from cohere.errors import BadRequestError

    with pytest.raises(BadRequestError) as caught:
        v2.rerank(model=rerank_model, query=QUERY, documents=DOCUMENTS, top_n=0)
    assert caught.value.body["error"]["param"] == "top_n"


def test_langchain(server: Server, rerank_model: str) -> None:
    """It sends `max_tokens_per_doc: null`."""
    from langchain_cohere import CohereRerank
    from langchain_core.documents import Document

    compressor = CohereRerank(base_url=server.url, cohere_api_key="test", model=rerank_model)
    documents = [Document(text, metadata={"index": index}) for index, text in enumerate(DOCUMENTS)]
    ranked = compressor.compress_documents(documents, QUERY)
    found = [(document.metadata["index"], document.metadata["relevance_score"]) for document in ranked]
    assert_same_ranking(found, ranking(server, rerank_model, top_n=3))
    assert [document.page_content for document in ranked] == [DOCUMENTS[index] for index, _ in found]


def test_langchain_dicts_are_sent_as_yaml(server: Server, rerank_model: str) -> None:
    import yaml
    from langchain_cohere import CohereRerank

    compressor = CohereRerank(base_url=server.url, cohere_api_key="test", model=rerank_model)
    ranked = compressor.rerank(RECORDS, QUERY, top_n=None, max_tokens_per_doc=100)
    found = [(result["index"], result["relevance_score"]) for result in ranked]
    assert_same_ranking(found, ranking(server, rerank_model, [yaml.dump(r, sort_keys=False) for r in RECORDS]))

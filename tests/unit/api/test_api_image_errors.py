"""Answers about images of which a part failed."""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest

from serve_app.api.embeddings import embed_tei, embeddings
from serve_app.api.rerank import rerank, rerank_any, rerank_v2
from serve_app.api.score import score
from serve_app.errors import InternalError
from serve_app.messages import EmbedRequest, EmbedResult, ItemError, ScoreResult
from serve_app.vocabulary import MediaErrorCode

URL = "https://example.org/a.png"
BASE64 = base64.b64encode(bytes(range(256))).decode()


def failed(*indexes):
    return [ItemError(index, MediaErrorCode.UNREACHABLE, f"documents[{index}].image: gone") for index in indexes]


def with_errors(result, *indexes):
    return replace(result, served=replace(result.served, errors=failed(*indexes)))


def listed(*indexes):
    return [
        {"index": index, "code": "media_unreachable", "message": f"documents[{index}].image: gone"} for index in indexes
    ]


@pytest.mark.parametrize("adapter", [rerank, rerank_v2, rerank_any])
def test_failed_documents_are_not_ranked(wire, adapter):
    documents = [{"image": URL}] * 5
    call = wire.call(adapter, {"query": "q", "documents": documents, "return_documents": True})
    answer = wire.answer(call, with_errors(wire.scores(np.nan, 0.25, np.nan, 0.75, 0.5, truncated=[2, 3]), 2, 0))
    document = {"image": URL}
    assert answer["results"] == [
        {"index": 3, "relevance_score": 0.75, "document": document, "truncated": True},
        {"index": 4, "relevance_score": 0.5, "document": document},
        {"index": 1, "relevance_score": 0.25, "document": document},
    ]
    assert answer["errors"] == listed(0, 2)
    assert answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12}


@pytest.mark.parametrize(("top_n", "expected"), [(1, [3]), (3, [3, 4, 1]), (4, [3, 4, 1]), (None, [3, 4, 1])])
def test_failed_documents_do_not_count_for_top_n(wire, top_n, expected):
    call = wire.call(rerank, {"query": "q", "documents": [{"image": URL}] * 5, "top_n": top_n})
    answer = wire.answer(call, with_errors(wire.scores(np.nan, 0.25, np.nan, 0.75, 0.5), 0, 2))
    assert [item["index"] for item in answer["results"]] == expected
    assert answer["errors"] == listed(0, 2)


def test_a_failed_document_is_left_out_whatever_its_row_holds(wire):
    call = wire.call(rerank, {"query": "q", "documents": ["a", "b", "c"], "top_n": 1})
    answer = wire.answer(call, with_errors(wire.scores(9, 1, 2), 0))
    assert [item["index"] for item in answer["results"]] == [2]


@pytest.mark.parametrize("sides", [("q", [{"image": URL}] * 3), ([{"image": URL}] * 3, ["a", "b", "c"])])
def test_failed_pairs_are_left_out_and_the_others_keep_their_index(wire, sides):
    call = wire.call(score, {"text_1": sides[0], "text_2": sides[1]})
    answer = wire.answer(call, with_errors(wire.scores(0.25, np.nan, 0.5, truncated=[1, 2]), 1))
    assert answer["data"] == [
        {"index": 0, "object": "score", "score": 0.25},
        {"index": 2, "object": "score", "score": 0.5, "truncated": True},
    ]
    assert answer["errors"] == listed(1)


@pytest.mark.parametrize("options", [{}, {"encoding_format": "base64"}])
def test_failed_inputs_keep_their_place_without_a_vector(wire, options):
    call = wire.call(embeddings, {"input": ["a", {"image": URL}, {"image": BASE64}], **options})
    nan = float("nan")
    answer = wire.answer(call, with_errors(wire.vectors([[1, 0], [nan, nan], [0, 1]]), 1))
    first, failure, last = answer["data"]
    assert failure == {"object": "embedding", "index": 1, "embedding": None}
    vectors = [first["embedding"], last["embedding"]]
    if options:
        vectors = [np.frombuffer(base64.b64decode(vector), "<f4").tolist() for vector in vectors]
    assert vectors == [[1, 0], [0, 1]]
    assert answer["errors"] == listed(1)
    assert answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12}


@pytest.mark.parametrize("code", MediaErrorCode)
def test_errors_carry_their_code(wire, code):
    result = wire.scores(1, np.nan)
    result = replace(result, served=replace(result.served, errors=[ItemError(1, code, "m")]))
    answer = wire.answer(wire.call(rerank, {"query": "q", "documents": ["a", "b"]}), result)
    assert answer["errors"] == [{"index": 1, "code": code.value, "message": "m"}]


ONE_OF_EACH = [
    (rerank, {"query": "q", "documents": ["a", "b"]}),
    (rerank_any, {"query": "q", "texts": ["a", "b"]}),
    (score, {"text_1": "q", "text_2": ["a", "b"]}),
    (embeddings, {"input": ["a", "b"]}),
    (embeddings, {"input": ["a", "b"], "encoding_format": "base64"}),
    (embed_tei, {"inputs": ["a", "b"]}),
]


@pytest.mark.parametrize(("adapter", "body"), ONE_OF_EACH)
def test_errors_are_there_only_when_something_failed(wire, adapter, body):
    call = wire.call(adapter, body)
    fine = wire.vectors([[1, 0], [0, 1]]) if isinstance(call.request, EmbedRequest) else wire.scores(1, 2)
    assert "errors" not in wire.answer(call, fine)


@pytest.mark.parametrize(("adapter", "body"), ONE_OF_EACH)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("indexes", [(), (0,)])
def test_what_is_no_number_never_gets_out(wire, adapter, body, value, indexes):
    call = wire.call(adapter, body)
    if isinstance(call.request, EmbedRequest):
        result = EmbedResult(np.array([[value, 0], [0, value]], np.float32), wire.served())
    else:
        result = ScoreResult(np.array([value, value], np.float32), wire.served())
    with pytest.raises(InternalError, match="no number"):
        wire.answer(call, with_errors(result, *indexes))


def test_the_tei_shapes_show_no_failed_rows_either(wire):
    call = wire.call(rerank_any, {"query": "q", "texts": ["a", "b"]})
    assert wire.answer(call, with_errors(wire.scores(np.nan, 1), 0)) == [{"index": 1, "score": 1.0}]
    call = wire.call(embed_tei, {"inputs": ["a", "b"]})
    with pytest.raises(InternalError):
        wire.answer(call, with_errors(wire.vectors([[np.nan], [1]]), 0))

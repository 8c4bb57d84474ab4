from __future__ import annotations

import pytest

from benchmarks import wire
from benchmarks.wire import MalformedAnswer, RerankCase, body, scores, server_timing


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", {}),
        ("tokenize;dur=1.5, engine;dur=20.25, total;dur=25", {"tokenize": 1.5, "engine": 20.25, "total": 25.0}),
        ('engine;desc="a, b; dur=9";dur=3', {"engine": 3.0}),
        ('engine;dur="3.5"', {"engine": 3.5}),
        ("engine ; DUR = 3", {"engine": 3.0}),
        ("miss, engine;dur=1,engine;dur=2", {"engine": 3.0}),
        ("cache;desc=hit,total;dur=nonsense,post;dur=.5", {"post": 0.5}),
    ],
)
def test_server_timing(header: str, expected: dict[str, float]) -> None:
    assert server_timing(header) == expected


def test_scores_come_back_in_the_order_of_the_documents() -> None:
    answer = wire.dumps({"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]})
    assert scores(answer, 2) == [0.1, 0.9]


@pytest.mark.parametrize(
    "answer",
    [
        b"not json",
        b"[]",
        b'{"results": [{"index": 0}]}',
        b'{"results": [{"index": 0, "relevance_score": null}]}',
        b'{"results": []}',
        b'{"results": [{"index": 1, "relevance_score": 0.5}]}',
        b'{"results": [{"index": 0, "relevance_score": 1e999}]}',
    ],
)
def test_an_answer_without_one_finite_score_a_document_is_malformed(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        scores(answer, 1)


def test_absent_fields_stay_absent() -> None:
    case = RerankCase("q", ("a", "b"))
    assert wire.loads(body(case, None)) == {"query": "q", "documents": ["a", "b"]}
    assert wire.loads(body(case, "m", True)) == {
        "model": "m",
        "query": "q",
        "documents": ["a", "b"],
        "return_documents": True,
    }

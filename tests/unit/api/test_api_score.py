from __future__ import annotations

import pytest

from serve_app.api.base import Limits
from serve_app.api.score import PAIRS, score
from serve_app.errors import InvalidRequest, TooLarge, UnknownField
from serve_app.messages import ScoreRequest, Truncation
from serve_app.vocabulary import Operation


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_pair_of_names(wire, first, second):
    call = wire.call(score, {"model": "m@3", first: "q", second: ["a", "b"]})
    assert (call.operation, call.model, call.documents) == (Operation.SCORE, "m@3", 2)
    assert call.request == ScoreRequest(queries=["q"], documents=["a", "b"], query_field=first, document_field=second)


@pytest.mark.parametrize(
    ("first", "second", "queries", "documents"),
    [
        ("q", "a", ["q"], ["a"]),
        (["q"], ["a", "b"], ["q"], ["a", "b"]),
        (["q", "r"], ["a", "b"], ["q", "r"], ["a", "b"]),
        ({"text": "q"}, [{"content": [{"type": "text", "text": "a"}]}], ["q"], ["a"]),
    ],
)
def test_one_to_one_one_to_many_many_to_many(wire, first, second, queries, documents):
    request = wire.call(score, {"text_1": first, "text_2": second}).request
    assert (request.queries, request.documents) == (queries, documents)


@pytest.mark.parametrize(("first", "second"), [(["q", "r"], ["a"]), (["q", "r"], ["a", "b", "c"])])
def test_sides_that_do_not_fit(wire, first, second):
    error = wire.refusal(score, {"queries": first, "items": second})
    assert error.message == (
        f"queries has 2 entries and items has {len(second)}; queries must hold one, or as many as items"
    )
    assert error.param == "queries"


@pytest.mark.parametrize(
    ("body", "beginning"),
    [
        ({}, "text_1 and text_2 are required: send one pair of"),
        ({"text_1": "q"}, "text_1: no pair; send one pair of"),
        ({"text_1": "q", "documents": ["a"]}, "text_1 and documents: no pair; send one pair of"),
        ({"queries": "q", "documents": ["a"], "items": ["b"]}, "queries and documents and items: no pair;"),
        ({"text_1": "q", "text_2": "a", "data_1": "q"}, "text_1 and text_2 and data_1: no pair;"),
    ],
)
def test_not_exactly_one_pair(wire, body, beginning):
    error = wire.refusal(score, body)
    assert type(error) is InvalidRequest
    assert error.message.startswith(beginning)


def test_an_empty_query_is_named_in_the_callers_words(wire):
    assert wire.refusal(score, {"text_1": " ", "text_2": "a"}).message == "text_1: must not be empty"
    error = wire.refusal(score, {"data_1": ["q", "\u200b"], "data_2": ["a", ""]})
    assert (error.message, error.param) == ("data_1[1]: must not be empty", "data_1[1]")
    assert wire.call(score, {"data_1": ["q", "r"], "data_2": ["a", ""]}).request.documents == ["a", ""]


def test_bad_items_are_named_with_their_index(wire):
    error = wire.refusal(score, {"queries": "q", "items": ["a", 3]})
    assert error.message == 'items[1]: must be a string, {"text": …} or {"image": …}; got a number'
    error = wire.refusal(score, {"queries": "q", "items": [{"text": "a", "title": "t"}]})
    assert error.message == "items[0]: unknown field 'title' beside 'text'"
    assert wire.refusal(score, {"queries": [], "items": ["a"]}).message == "queries: must not be empty"


def test_limits_count_both_sides():
    for body in ({"text_1": "q", "text_2": ["a"] * 3}, {"text_1": ["q"] * 3, "text_2": ["a"] * 2}):
        with pytest.raises(TooLarge, match="3 items; a request may hold 2 at most"):
            score(body, Limits(max_documents=2))


def test_the_whole_answer_in_the_order_sent(wire):
    call = wire.call(score, {"text_1": "q", "text_2": ["a", "b"], "user": "u"})
    assert call.ignored == ("user",)
    assert wire.answer(call, wire.scores(0.25, 0.5, truncated=[0])) == {
        "id": "req-1",
        "object": "list",
        "created": 1764000000,
        "model": "m",
        "model_version": "7",
        "data": [
            {"index": 0, "object": "score", "score": 0.25, "truncated": True},
            {"index": 1, "object": "score", "score": 0.5},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    }


def test_options(wire):
    options = {"instruction": "i", "use_activation": False, "max_tokens_per_doc": 5, "truncate": False}
    request = wire.call(score, {"text_1": "q", "text_2": "a", **options}).request
    assert (request.instruction, request.raw_scores) == ("i", True)
    assert request.truncation == Truncation(enabled=False, max_document_tokens=5)


@pytest.mark.parametrize("name", ["top_n", "return_documents", "query", "foo"])
def test_fields_of_other_routes_are_unknown(wire, name):
    error = wire.refusal(score, {"text_1": "q", "text_2": "a", name: 1})
    assert type(error) is UnknownField
    assert error.message.startswith(f"unknown field '{name}' of POST /v1/score; known: ")

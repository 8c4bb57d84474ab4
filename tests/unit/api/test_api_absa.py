from __future__ import annotations

import pytest

from serve_app.api.absa import MAX_ASPECTS, absa
from serve_app.api.base import Limits
from serve_app.errors import InternalError, InvalidRequest, TooLarge, UnknownField
from serve_app.messages import AbsaItem, AbsaRequest, AbsaResult, Span, Truncation
from serve_app.vocabulary import Operation

SPANS = [Span(4, 9, "pasta", "food", "positive", 0.9831234), Span(12, 14, "음식", None, "NEG", 0.5)]


@pytest.mark.parametrize(
    ("value", "inputs"),
    [("a", ["a"]), (["a", "", "좋아요"], ["a", "", "좋아요"]), ([{"text": "a"}], ["a"]), (["a"] * 3, ["a"] * 3)],
)
def test_inputs(wire, value, inputs):
    call = wire.call(absa, {"model": "m", "inputs": value})
    assert (call.operation, call.model, call.documents) == (Operation.ABSA, "m", len(inputs))
    assert call.request == AbsaRequest(inputs=inputs)


def test_options(wire):
    body = {"inputs": ["a"], "aspects": ["food", "음식"], "threshold": 0.5, "truncate": "NONE", "user": "u"}
    call = wire.call(absa, body)
    assert call.request == AbsaRequest(["a"], ["food", "음식"], 0.5, "inputs", Truncation(enabled=False))
    assert call.ignored == ("user",)
    for bound in (0, 1, 0.0, 1.0):
        assert wire.call(absa, {"inputs": "a", "threshold": bound}).request.threshold == bound
    unset = {"inputs": "a", "aspects": None, "threshold": None, "model": None, "truncate": None}
    assert wire.call(absa, unset).request == AbsaRequest(["a"])


def test_the_whole_answer(wire):
    call = wire.call(absa, {"inputs": ["the pasta…", ""]})
    result = AbsaResult([AbsaItem(("neutral", 0.1 + 0.2), SPANS), AbsaItem(None, ())], wire.served(truncated=[1]))
    assert wire.answer(call, result) == {
        "model": "m",
        "model_version": "7",
        "data": [
            {
                "index": 0,
                "sentiment": {"label": "neutral", "score": 0.3},
                "spans": [
                    {
                        "start": 4,
                        "end": 9,
                        "text": "pasta",
                        "aspect": "food",
                        "polarity": "positive",
                        "score": 0.9831234,
                    },
                    {"start": 12, "end": 14, "text": "음식", "aspect": None, "polarity": "NEG", "score": 0.5},
                ],
            },
            {"index": 1, "sentiment": None, "spans": [], "truncated": True},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
        "errors": [],
    }


def test_an_answer_of_another_kind_or_length_is_ours(wire):
    call = wire.call(absa, {"inputs": ["a", "b"]})
    for result in (wire.scores(0.1), AbsaResult([AbsaItem(None, ())], wire.served())):
        with pytest.raises(InternalError):
            wire.answer(call, result)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"inputs": []}, InvalidRequest, "inputs: must not be empty"),
        ({"inputs": None}, InvalidRequest, "inputs: is required"),
        ({"inputs": ["a", 3]}, InvalidRequest, 'inputs[1]: must be a string or {"text": …}; got a number'),
        ({"inputs": [[1, 2]]}, InvalidRequest, "inputs[0]: must be a string"),
        ({"aspects": []}, InvalidRequest, "aspects: must not be empty"),
        ({"aspects": "food"}, InvalidRequest, "aspects: must be a list of strings; got a string"),
        ({"aspects": ["food", 1]}, InvalidRequest, "aspects[1]: must be a string; got a number"),
        ({"aspects": ["food", " \u200b"]}, InvalidRequest, "aspects[1]: must not be empty"),
        ({"aspects": ["a", "b", "a"]}, InvalidRequest, "aspects[2]: is the same as aspects[0]"),
        ({"aspects": ["a"] * (MAX_ASPECTS + 1)}, TooLarge, f"aspects: {MAX_ASPECTS + 1} items"),
        ({"threshold": 1.01}, InvalidRequest, "threshold: must be at most 1"),
        ({"threshold": -0.1}, InvalidRequest, "threshold: must be at least 0"),
        ({"threshold": "0.5"}, InvalidRequest, "threshold: must be a number; got a string"),
        ({"threshold": True}, InvalidRequest, "threshold: must be a number; got true"),
        ({"threshold": float("nan")}, InvalidRequest, "threshold: "),
        ({"truncate": 1}, InvalidRequest, "truncate: must be true, false"),
        ({"input": "a"}, UnknownField, "unknown field 'input' of POST /v1/absa; known: model, inputs, aspects"),
        ({"raw_scores": True}, UnknownField, "unknown field 'raw_scores' of POST /v1/absa"),
    ],
)
def test_refusals(wire, fields, kind, message):
    error = wire.refusal(absa, {"inputs": ["a"], **fields})
    assert type(error) is kind
    assert error.message.startswith(message)


def test_limits():
    with pytest.raises(TooLarge, match="inputs: 3 items; a request may hold 2 at most"):
        absa({"inputs": ["a"] * 3}, Limits(max_documents=2))

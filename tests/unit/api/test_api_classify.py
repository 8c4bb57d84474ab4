from __future__ import annotations

import pytest

from serve_app.api.base import Limits
from serve_app.api.classify import classify, predict_tei
from serve_app.errors import InvalidRequest, TooLarge, UnknownField
from serve_app.messages import ClassifyRequest, Truncation
from serve_app.vocabulary import Operation


@pytest.mark.parametrize(
    ("value", "inputs"),
    [("a", ["a"]), (["a", ""], ["a", ""]), ([5, 6], [[5, 6]]), ([[5], [6]], [[5], [6]])],
)
def test_inputs(wire, value, inputs):
    call = wire.call(classify, {"model": "m", "input": value})
    assert (call.operation, call.model, call.documents) == (Operation.CLASSIFY, "m", len(inputs))
    assert call.request == ClassifyRequest(inputs=inputs)


def test_the_whole_answer(wire):
    call = wire.call(classify, {"input": ["a", "b"]})
    assert wire.answer(call, wire.classes([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]], truncated=[0])) == {
        "id": "req-1",
        "object": "list",
        "created": 1764000000,
        "model": "m",
        "model_version": "7",
        "data": [
            {"index": 0, "label": "positive", "probs": [0.1, 0.2, 0.7], "num_classes": 3, "truncated": True},
            {"index": 1, "label": "negative", "probs": [0.6, 0.3, 0.1], "num_classes": 3},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
        "labels": ["negative", "neutral", "positive"],
    }


@pytest.mark.parametrize("fields", [{"raw_scores": True}, {"use_activation": False}, {"activation": False}])
def test_raw_scores(wire, fields):
    assert wire.call(classify, {"input": "a", **fields}).request.raw_scores is True
    assert wire.call(classify, {"input": "a"}).request.raw_scores is False


def test_vllm_defaults_written_out_are_taken(wire):
    body = {"input": "a", "add_special_tokens": True, "priority": 0, "truncate_prompt_tokens": -1, "user": "u"}
    call = wire.call(classify, body)
    assert call.request == ClassifyRequest(inputs=["a"])
    assert call.ignored == ("add_special_tokens", "priority", "user")


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"input": []}, InvalidRequest, "input: must not be empty"),
        ({"input": ["a", 3]}, InvalidRequest, 'input[1]: must be a string or {"text": …}; got a number'),
        ({"messages": [{"role": "user"}]}, UnknownField, "field 'messages' of POST /v1/classify is not honoured"),
        ({"add_special_tokens": False}, UnknownField, "field 'add_special_tokens' of POST /v1/classify"),
        ({"dimensions": 3}, UnknownField, "unknown field 'dimensions' of POST /v1/classify; known: model,"),
    ],
)
def test_refusals(wire, fields, kind, message):
    error = wire.refusal(classify, {"input": "a", **fields})
    assert type(error) is kind
    assert error.message.startswith(message)


def test_limits():
    with pytest.raises(TooLarge, match="input: 3 items; a request may hold 2 at most"):
        classify({"input": ["a"] * 3}, Limits(max_documents=2))
    with pytest.raises(TooLarge, match="inputs: 3 items"):
        predict_tei({"inputs": [["a"]] * 3}, Limits(max_documents=2))


@pytest.mark.parametrize(
    ("value", "inputs", "flat"),
    [
        ("a", ["a"], True),
        (["a"], ["a"], True),
        (["a", "b"], [("a", "b")], True),
        ([["a"]], ["a"], False),
        ([["a", "b"]], [("a", "b")], False),
        ([["a"], ["b", "c"]], ["a", ("b", "c")], False),
    ],
)
def test_predict_reads_and_answers_like_tei(wire, value, inputs, flat):
    call = wire.call(predict_tei, {"inputs": value})
    assert call.request == ClassifyRequest(inputs=inputs, input_field="inputs", truncation=Truncation(enabled=False))
    assert call.documents == len(inputs)
    answer = wire.answer(call, wire.classes([[0.25, 0.75]] * len(inputs)))
    one = [{"label": "neutral", "score": 0.75}, {"label": "negative", "score": 0.25}]
    assert answer == (one if flat else [one] * len(inputs))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "inputs: must not be empty"),
        (5, "inputs: must be a string, a pair of strings, or a batch [[text], [text, text], …]; got a number"),
        (
            ["a", "b", "c"],
            'inputs: a list of strings is one text or one pair here; got 3. Send a batch as [["first"], ["second"], …]',
        ),
        ([["a"], "b"], "inputs[1]: must be [text] or [text, text]; got a string"),
        ([["a"], []], "inputs[1]: must be [text] or [text, text]; got a list of 0"),
        ([["a"], ["b", "c", "d"]], "inputs[1]: must be [text] or [text, text]; got a list of 3"),
        ([["a", 1]], "inputs[0][1]: must be a string; got a number"),
        (["a", 1], "inputs[1]: must be a string; got a number"),
        ([5], "inputs[0]: must be a string; got a number"),
    ],
)
def test_predict_refuses_by_index(wire, value, message):
    error = wire.refusal(predict_tei, {"inputs": value})
    assert (type(error), error.message) == (InvalidRequest, message)


def test_predict_options(wire):
    request = wire.call(predict_tei, {"inputs": "a", "raw_scores": True, "truncate": True}).request
    assert request == ClassifyRequest(inputs=["a"], input_field="inputs", raw_scores=True)
    error = wire.refusal(predict_tei, {"inputs": "a", "truncation_direction": "Left"})
    assert type(error) is UnknownField
    assert "truncation_direction" in error.message

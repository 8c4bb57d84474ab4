from __future__ import annotations

import base64

import numpy as np
import pytest

from serve_app.api.base import Limits
from serve_app.api.pooling import pooling, size
from serve_app.errors import InvalidRequest, TooLarge, UnknownField
from serve_app.messages import DataRequest, DataResult, PoolRequest, PoolResult, Truncation
from serve_app.vocabulary import Operation, PoolingTask

DATA = {"query": "a", "documents": ["b", "c", "d"]}


@pytest.mark.parametrize(
    ("value", "inputs"), [("a", ["a"]), (["a", ""], ["a", ""]), ([5, 6], [[5, 6]]), ([[5], [6]], [[5], [6]])]
)
def test_inputs(wire, value, inputs):
    call = wire.call(pooling, {"model": "m", "input": value})
    assert (call.operation, call.model, call.documents) == (Operation.POOLING, "m", len(inputs))
    assert call.request == PoolRequest(inputs=inputs)


def test_what_the_pooler_is_asked_for(wire):
    body = {"input": "a", "task": "token_classify", "use_activation": False, "truncate_prompt_tokens": 9}
    request = wire.call(pooling, body).request
    assert request == PoolRequest(["a"], PoolingTask.TOKEN_CLASSIFY, False, truncation=Truncation(True, None, 9))
    assert wire.call(pooling, {"input": "a", "use_activation": True}).request.use_activation is True


def test_data_is_passed_on_as_it_is(wire):
    call = wire.call(pooling, {"model": "m", "data": DATA, "task": "plugin", "user": "u", "encoding_format": "float"})
    assert (call.operation, call.model, call.documents) == (Operation.POOLING, "m", 3)
    assert call.request == DataRequest(DATA, 1000, 200, Truncation(enabled=False))
    assert call.ignored == ("encoding_format", "user")


@pytest.mark.parametrize(
    ("sent", "truncation", "beside"),
    [
        ({"truncate": None}, Truncation(False), {}),
        ({"truncate": True}, Truncation(True), {"truncate": True}),
        ({"truncate": False}, Truncation(False), {"truncate": False}),
        ({"truncate": "END"}, Truncation(True), {"truncate": True}),
        ({"truncate_prompt_tokens": 9}, Truncation(True, None, 9), {"truncate_prompt_tokens": 9}),
        ({"truncate_prompt_tokens": -1}, Truncation(True), {"truncate_prompt_tokens": -1}),
    ],
)
def test_a_plugins_texts_are_cut_only_if_asked_and_what_was_asked_is_known(wire, sent, truncation, beside):
    request = wire.call(pooling, {"data": 1, **sent}).request
    assert (request.truncation, request.beside) == (truncation, beside)


@pytest.mark.parametrize(
    ("body", "error", "param"),
    [
        ({}, InvalidRequest, "input"),
        ({"data": None}, InvalidRequest, "input"),
        ({"input": "a", "data": DATA}, InvalidRequest, "input"),
        ({"input": "a", "task": "plugin"}, InvalidRequest, "task"),
        ({"input": "a", "task": "score"}, InvalidRequest, "task"),
        ({"data": DATA, "task": "embed"}, InvalidRequest, "task"),
        ({"data": DATA, "use_activation": False}, UnknownField, "use_activation"),
        ({"input": "a", "dimensions": 8}, UnknownField, "dimensions"),
        ({"input": "a", "normalize": True}, UnknownField, "normalize"),
        ({"input": "a", "encoding_format": "bytes"}, InvalidRequest, "encoding_format"),
        ({"input": "a", "endianness": "big"}, UnknownField, "endianness"),
        ({"messages": [{"role": "user", "content": "a"}]}, UnknownField, "messages"),
        ({"input": "a", "nope": 1}, UnknownField, "nope"),
        ({"input": [[]]}, InvalidRequest, "input[0]"),
    ],
)
def test_what_is_refused(wire, body, error, param):
    refusal = wire.refusal(pooling, body)
    assert type(refusal) is error
    assert refusal.param == param


def test_limits(wire):
    with pytest.raises(TooLarge, match="data: 3 items"):
        pooling({"data": DATA}, Limits(max_documents=2))
    with pytest.raises(TooLarge, match="input: 3 items"):
        pooling({"input": ["a"] * 3}, Limits(max_documents=2))


@pytest.mark.parametrize(
    ("data", "cost"), [(1, 1), ("abc", 1), ([], 1), ([1, 2], 2), ({}, 1), (DATA, 3), ({"a": [1] * 5, "b": [1]}, 5)]
)
def test_cost_of_data(data, cost):
    assert size(data) == cost


def test_answers_to_input_are_vllms(wire):
    rows = (np.array([0.25, 0.75], np.float32), np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    answer = wire.answer(wire.call(pooling, {"input": ["a", "b"]}), PoolResult(rows, wire.served([1])))
    assert answer == {
        "id": "req-1",
        "object": "list",
        "created": 1764000000,
        "model": "m",
        "model_version": "7",
        "data": [
            {"index": 0, "object": "pooling", "data": [0.25, 0.75]},
            {"index": 1, "object": "pooling", "data": [[1, 2], [3, 4], [5, 6]], "truncated": True},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    }


@pytest.mark.parametrize(("dtype", "numpy_type"), [(None, "<f4"), ("float32", "<f4"), ("float16", "<f2")])
def test_base64(wire, dtype, numpy_type):
    row = np.array([[1, 2], [3, 4]], np.float32)
    body = {"input": "a", "encoding_format": "base64", "embed_dtype": dtype}
    answer = wire.answer(wire.call(pooling, body), PoolResult((row,), wire.served()))
    packed = np.frombuffer(base64.b64decode(answer["data"][0]["data"]), numpy_type)
    assert packed.tolist() == [1, 2, 3, 4]
    assert wire.call(pooling, {**body, "encoding_format": "float"}).ignored == (
        ("embed_dtype",) if dtype == "float16" else ()
    )


@pytest.mark.filterwarnings("error")
def test_what_does_not_fit_float16_is_refused(wire):
    row = np.array([[1, 2], [3, 1e5]], np.float32)
    call = wire.call(pooling, {"input": "a", "encoding_format": "base64", "embed_dtype": "float16"})
    with pytest.raises(InvalidRequest, match="embed_dtype: 100000 does not fit float16") as caught:
        wire.answer(call, PoolResult((row,), wire.served()))
    assert caught.value.param == "embed_dtype"


def test_answers_to_data_are_the_processors(wire):
    result = DataResult(b'{"results":[1,"\xc3\xa9"]}', wire.served())
    assert wire.answer(wire.call(pooling, {"data": DATA}), result) == {
        "request_id": "req-1",
        "created_at": 1764000000,
        "model": "m",
        "model_version": "7",
        "data": {"results": [1, "é"]},
    }

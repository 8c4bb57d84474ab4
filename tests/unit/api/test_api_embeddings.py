from __future__ import annotations

import base64
import time
from dataclasses import replace

import numpy as np
import orjson
import pytest

from serve_app.api.base import Limits, Meta
from serve_app.api.embeddings import embed_tei, embeddings
from serve_app.errors import InternalError, InvalidRequest, TooLarge, UnknownField
from serve_app.messages import EmbedRequest, EmbedResult, ItemError, Truncation
from serve_app.vocabulary import MediaErrorCode, Operation

CLIENT_BODIES = {
    "openai.embeddings.create": {"model": "m", "input": "a", "encoding_format": "base64"},
    "openai with options": {
        "model": "m",
        "input": [[1, 2]],
        "user": "u",
        "dimensions": 2,
        "encoding_format": "float",
    },
    "litellm openai": {"model": "m", "input": ["a"], "user": "u"},
    "litellm hosted_vllm": {"model": "m", "input": ["a"], "dimensions": 64, "encoding_format": "float"},
    "litellm jina_ai": {"model": "m", "input": [{"text": "a"}], "dimensions": 64},
    "haystack JinaTextEmbedder": {
        "model": "m",
        "input": ["a"],
        "task": "retrieval.query",
        "dimensions": 64,
        "late_chunking": False,
    },
    "vLLM with every default written out": {
        "model": "m",
        "input": ["a"],
        "encoding_format": "float",
        "embed_dtype": "float32",
        "endianness": "native",
        "add_special_tokens": True,
        "truncate_prompt_tokens": -1,
        "priority": 0,
        "dimensions": None,
        "use_activation": None,
    },
}


@pytest.mark.parametrize("client", CLIENT_BODIES)
def test_bodies_of_real_clients_are_taken(wire, client):
    call = wire.call(embeddings, CLIENT_BODIES[client])
    assert (call.operation, call.model, call.documents) == (Operation.EMBED, "m", 1)
    wire.answer(call, wire.vectors([[1, 0]]))


@pytest.mark.parametrize(
    ("value", "inputs"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([{"text": "a"}, "b"], ["a", "b"]),
        ({"text": "a"}, ["a"]),
        ([5, 6], [[5, 6]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
def test_inputs(wire, value, inputs):
    call = wire.call(embeddings, {"input": value})
    assert call.request == EmbedRequest(inputs=inputs)
    assert call.documents == len(inputs)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "input: must not be empty"),
        (3, "input: must be a string, a list of strings or images, or token ids; got a number"),
        (["a", 3], 'input[1]: must be a string, {"text": …} or {"image": …}; got a number'),
        ([3, "a"], "input[1]: must be a token id, 0 or more; got 'a'"),
        ([1, True], "input[1]: must be a token id, 0 or more; got true"),
        ([[1], [2, -1]], "input[1][1]: must be a token id, 0 or more; got -1"),
        ([[1, 2**31]], "input[0][1]: must be a token id, 0 or more; got 2147483648"),
        ([[]], "input[0]: must not be empty"),
        ([{"text": "a", "foo": 1}], "input[0]: unknown field 'foo' beside 'text'"),
        ([1.5], 'input[0]: must be a string, {"text": …} or {"image": …}; got a number'),
    ],
)
def test_bad_inputs_name_field_and_index(wire, value, message):
    error = wire.refusal(embeddings, {"input": value})
    assert (type(error), error.message) == (InvalidRequest, message)


def test_the_whole_answer(wire):
    call = wire.call(embeddings, {"input": ["a", "b"]})
    assert wire.answer(call, wire.vectors([[0.1, 0.2], [1, 0]], truncated=[1])) == {
        "object": "list",
        "id": "req-1",
        "created": 1764000000,
        "model": "m",
        "model_version": "7",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.1, 0.2]},
            {"object": "embedding", "index": 1, "embedding": [1.0, 0.0], "truncated": True},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    }


@pytest.mark.parametrize("name", ["encoding_format", "embedding_type"])
def test_base64_is_little_endian_float32(wire, name):
    call = wire.call(embeddings, {"input": "a", name: "base64"})
    answer = wire.answer(call, wire.vectors([[1.0, -2.5]]))
    assert answer["data"][0]["embedding"] == "AACAPwAAIMA="
    # What the OpenAI SDK does with it.
    decoded = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), dtype="float32")
    assert decoded.tolist() == [1.0, -2.5]


def test_float16_halves_the_bytes(wire):
    rows = np.linspace(-1, 1, 768, dtype=np.float32)[None]
    body = {"input": "a", "encoding_format": "base64"}
    long = wire.answer(wire.call(embeddings, body), wire.vectors(rows))["data"][0]["embedding"]
    short = wire.answer(wire.call(embeddings, {**body, "embed_dtype": "float16"}), wire.vectors(rows))
    packed = base64.b64decode(short["data"][0]["embedding"])
    assert len(packed) * 2 == len(base64.b64decode(long))
    np.testing.assert_allclose(np.frombuffer(packed, dtype="<f2").astype(np.float32), rows[0], atol=1e-3)


@pytest.mark.filterwarnings("error")
def test_what_does_not_fit_float16_is_refused_and_never_infinite(wire):
    body = {"input": ["a", "b"], "encoding_format": "base64", "embed_dtype": "float16"}
    call = wire.call(embeddings, body)
    for value in (65_505.0, -1e5, 3e38):
        with pytest.raises(InvalidRequest) as caught:
            wire.answer(call, wire.vectors([[1.0, 2.0], [0.5, value]]))
        assert caught.value.param == "embed_dtype"
        assert caught.value.message == (
            f"embed_dtype: {np.float32(abs(value)):.6g} does not fit float16; ask for float32, or normalize"
        )
        whole = wire.answer(wire.call(embeddings, {**body, "embed_dtype": None}), wire.vectors([[1, 2], [0.5, value]]))
        assert base64.b64decode(whole["data"][1]["embedding"]) == np.array([0.5, value], "<f4").tobytes()
    fits = wire.answer(call, wire.vectors([[65_504.0, -65_504.0], [1e-9, 0.0]]))
    packed = np.frombuffer(base64.b64decode(fits["data"][0]["embedding"]), "<f2")
    assert packed.tolist() == [65_504, -65_504]


@pytest.mark.filterwarnings("error")
def test_a_failed_inputs_row_is_not_what_does_not_fit(wire):
    call = wire.call(embeddings, {"input": ["a", "b"], "encoding_format": "base64", "embed_dtype": "float16"})
    result = wire.vectors([[1.0, 2.0], [np.nan, np.nan]])
    error = ItemError(1, MediaErrorCode.UNREACHABLE, "input[1].image: gone")
    answer = wire.answer(call, replace(result, served=replace(result.served, errors=[error])))
    assert [item["embedding"] for item in answer["data"]] == ["ADwAQA==", None]
    with pytest.raises(InternalError):  # our fault, whatever was asked for
        wire.answer(call, wire.vectors([[1.0, 2.0], [np.inf, 0.0]]))


def test_embed_dtype_without_base64_is_listed_as_ignored(wire):
    assert wire.call(embeddings, {"input": "a", "embed_dtype": "float16", "user": "u"}).ignored == (
        "embed_dtype",
        "user",
    )
    assert wire.call(embeddings, {"input": "a", "embed_dtype": "float32"}).ignored == ()
    both = {"input": "a", "embed_dtype": "float16", "encoding_format": "base64"}
    assert wire.call(embeddings, both).ignored == ()


def test_vectors_that_are_a_slice_of_something_larger(wire):
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
    for adapter, body in ((embeddings, {"input": ["a", "b"]}), (embed_tei, {"inputs": ["a", "b"]})):
        answer = wire.answer(wire.call(adapter, body), EmbedResult(wide, wire.served()))
        rows = answer if adapter is embed_tei else [item["embedding"] for item in answer["data"]]
        assert rows == [[0, 2, 4], [6, 8, 10]]


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, None),
        ({"task": "retrieval.query"}, "query"),
        ({"task": "retrieval.passage"}, "document"),
        ({"task": "text-matching"}, "text-matching"),
        ({"input_type": "query"}, "query"),
        ({"input_type": "document"}, "document"),
        ({"input_type": "search_query"}, "query"),
        ({"input_type": "search_document"}, "document"),
        ({"prompt_name": "search_query"}, "search_query"),
        ({"prompt_name": "passage"}, "document"),
        ({"task": "retrieval.query", "prompt_name": "query"}, "query"),
        ({"input_type": "document", "prompt_name": "passage"}, "document"),
        ({"input_type": "passage", "prompt_name": "document"}, "document"),
    ],
)
def test_prompts(wire, fields, prompt):
    request = wire.call(embeddings, {"input": "a", **fields}).request
    assert request.prompt == prompt
    if fields:  # the caller's own field and word, of several the last one
        assert (request.prompt_field, request.prompt_sent) == list(fields.items())[-1]


@pytest.mark.parametrize(
    ("fields", "normalize"),
    [({}, None), ({"normalize": True}, True), ({"normalized": False}, False), ({"use_activation": False}, False)],
)
def test_normalize_under_each_of_its_names(wire, fields, normalize):
    assert wire.call(embeddings, {"input": "a", **fields}).request.normalize is normalize


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "retrieval.query", "input_type": "document"}, "task and input_type contradict each other"),
        ({"input_type": "query", "prompt_name": "search_query"}, "input_type and prompt_name contradict each other"),
        ({"normalize": True, "normalized": False}, "normalize and normalized contradict each other"),
        (
            {"encoding_format": "float", "embedding_type": "base64"},
            "encoding_format and embedding_type contradict each other",
        ),
        ({"encoding_format": "bytes"}, "encoding_format: must be 'float' or 'base64'; got 'bytes'"),
        ({"embedding_type": ["float", "binary"]}, "embedding_type: must be 'float' or 'base64'; got a list"),
        ({"embedding_type": "ubinary"}, "embedding_type: must be 'float' or 'base64'; got 'ubinary'"),
        ({"embed_dtype": "fp8_e4m3"}, "embed_dtype: must be 'float32' or 'float16'; got 'fp8_e4m3'"),
        ({"dimensions": 0}, "dimensions: must be at least 1; got 0"),
        ({"dimensions": True}, "dimensions: must be an integer; got true"),
        ({"normalize": 1}, "normalize: must be true or false; got a number"),
    ],
)
def test_bad_values(wire, fields, message):
    error = wire.refusal(embeddings, {"input": "a", **fields})
    assert (type(error), error.message) == (InvalidRequest, message)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endianness", "big"),
        ("add_special_tokens", False),
        ("late_chunking", True),
        ("return_multivector", True),
        ("messages", []),
        ("truncation_side", "left"),
        ("mm_processor_kwargs", {"max_pixels": 1}),
        ("max_tokens_per_doc", 5),
        ("foo", 0),
    ],
)
def test_fields_that_are_refused_by_name(wire, name, value):
    error = wire.refusal(embeddings, {"input": "a", name: value})
    assert (type(error), error.param) == (UnknownField, name)
    assert name in error.message


def test_options(wire):
    request = wire.call(embeddings, {"input": "a", "dimensions": 64, "truncate": False}).request
    assert request == EmbedRequest(inputs=["a"], dimensions=64, truncation=Truncation(enabled=False))
    request = wire.call(embeddings, {"input": "a", "truncate_prompt_tokens": 9}).request
    assert request.truncation == Truncation(max_input_tokens=9)


def test_limits():
    with pytest.raises(TooLarge, match="input: 3 items; a request may hold 2 at most"):
        embeddings({"input": ["a"] * 3}, Limits(max_documents=2))
    with pytest.raises(TooLarge, match="inputs: 3 items"):
        embed_tei({"inputs": ["a"] * 3}, Limits(max_documents=2))
    # One list of many token ids is one input.
    assert embeddings({"input": [1] * 3}, Limits(max_documents=2)).documents == 1


def test_tei_answers_bare_vectors_with_its_own_defaults(wire):
    call = wire.call(embed_tei, {"inputs": "a"})
    assert call.request == EmbedRequest(
        inputs=["a"], input_field="inputs", normalize=True, truncation=Truncation(enabled=False)
    )
    assert wire.answer(call, wire.vectors([[0.1, 0.2]])) == [[0.1, 0.2]]


def test_tei_options(wire):
    body = {"inputs": ["a", "b"], "truncate": True, "normalize": False, "prompt_name": "query", "dimensions": 8}
    call = wire.call(embed_tei, {**body, "truncation_direction": "right"})
    assert call.ignored == ("truncation_direction",)
    assert call.request == EmbedRequest(
        inputs=["a", "b"],
        input_field="inputs",
        prompt="query",
        dimensions=8,
        normalize=False,
        truncation=Truncation(enabled=True),
    )
    error = wire.refusal(embed_tei, {"inputs": ["a"], "truncation_direction": "Left"})
    assert "truncation_direction" in error.message
    assert type(error) is UnknownField
    assert wire.refusal(embed_tei, {"inputs": ["a", 1]}).param == "inputs[1]"
    assert wire.refusal(embed_tei, {"inputs": []}).message == "inputs: must not be empty"


def test_float_vectors_are_never_copied_into_python_lists(wire):
    result = EmbedResult(np.ones((2, 768), dtype=np.float32), wire.served())
    listed = wire.call(embeddings, {"input": ["a", "b"]}).render(result, Meta("r", 1))["data"]
    assert all(np.shares_memory(item["embedding"], result.vectors) for item in listed)
    assert np.shares_memory(wire.call(embed_tei, {"inputs": ["a", "b"]}).render(result, Meta("r", 1)), result.vectors)


@pytest.mark.parametrize(
    ("adapter", "body"),
    [
        (embeddings, {"input": ["a"] * 128}),
        (embeddings, {"input": ["a"] * 128, "encoding_format": "base64"}),
        (embed_tei, {"inputs": ["a"] * 128}),
    ],
)
def test_an_answer_of_128_vectors_is_built_in_a_few_milliseconds(wire, adapter, body):
    call = wire.call(adapter, body)
    result = EmbedResult(np.random.default_rng(0).random((128, 768), dtype=np.float32), wire.served())

    def once() -> float:
        start = time.thread_time()
        orjson.dumps(call.render(result, Meta("r", 1)), option=orjson.OPT_SERIALIZE_NUMPY)
        return time.thread_time() - start

    # 3 ms on an idle core; CPU time, and room above it, because a busy neighbour still costs cache.
    assert min(once() for _ in range(30)) < 0.008

from __future__ import annotations

import pytest

from serve_app.api.base import Limits
from serve_app.api.rerank import is_tei, rerank, rerank_any, rerank_v2
from serve_app.errors import InvalidRequest, TooLarge, UnknownField
from serve_app.messages import ScoreRequest, Truncation
from serve_app.vocabulary import Operation

BODY = {"query": "q", "documents": ["a", "b", "c"]}

CLIENT_BODIES = {
    "cohere.ClientV2.rerank": (rerank_v2, {"model": "m", "query": "q", "documents": ["a"], "top_n": 3}),
    "cohere.ClientV2.rerank with options": (
        rerank_v2,
        {"model": "m", "query": "q", "documents": ["a"], "top_n": 3, "max_tokens_per_doc": 100, "priority": 1},
    ),
    "cohere.Client.rerank": (
        rerank,
        {
            "model": "m",
            "query": "q",
            "documents": [{"text": "a", "title": "t"}],
            "rank_fields": ["text"],
            "return_documents": True,
            "max_chunks_per_doc": 10,
        },
    ),
    "langchain_cohere.CohereRerank": (
        rerank_v2,
        {"model": "m", "query": "q", "documents": ["a", "text: b\n"], "top_n": 3, "max_tokens_per_doc": None},
    ),
    "llama_index CohereRerank": (rerank, {"model": "m", "query": "q", "documents": ["a"], "top_n": 2}),
    "llama_index JinaRerank": (rerank, {"query": "q", "documents": ["a"], "model": "m", "top_n": 2}),
    "llama_index TextEmbeddingInference": (rerank_any, {"query": "q", "texts": ["a"]}),
    "haystack JinaRanker": (rerank, {"query": "q", "documents": ["a"], "model": "m", "top_n": None}),
    "litellm cohere": (
        rerank_v2,
        {"model": "m", "query": "q", "top_n": 2, "documents": ["a"], "return_documents": True},
    ),
    "litellm jina_ai": (
        rerank,
        {"model": "m", "query": "q", "top_n": 2, "documents": ["a"], "return_documents": True},
    ),
    "litellm hosted_vllm": (
        rerank_any,
        {"model": "m", "query": "q", "documents": ["a"], "return_documents": True, "truncation_side": "right"},
    ),
    "litellm huggingface": (
        rerank_any,
        {
            "raw_scores": False,
            "truncation_direction": "Right",
            "query": "q",
            "top_n": 2,
            "texts": ["a"],
            "return_text": True,
        },
    ),
    "curl, Jina's documentation": (
        rerank,
        {"model": "m", "query": "q", "top_n": 3, "documents": ["a"], "return_documents": False},
    ),
    "vLLM with every default written out": (
        rerank_any,
        {
            "model": "m",
            "query": "q",
            "documents": ["a"],
            "top_n": None,
            "max_tokens_per_doc": 0,
            "max_tokens_per_query": 0,
            "priority": 0,
            "request_id": "r",
            "truncate_prompt_tokens": -1,
            "use_activation": True,
            "padding": "do_not_pad",
            "mm_processor_kwargs": {},
            "chat_template_kwargs": {},
        },
    ),
}


@pytest.mark.parametrize("client", CLIENT_BODIES)
def test_bodies_of_real_clients_are_taken(wire, client):
    adapter, body = CLIENT_BODIES[client]
    call = wire.call(adapter, body)
    assert call.operation is Operation.RERANK
    assert call.documents == len(call.request.documents) == len(body.get("documents", body.get("texts")))
    assert call.model == body.get("model")
    wire.answer(call, wire.scores(*[0.5] * call.documents))


def test_a_plain_body_becomes_a_request_with_our_defaults(wire):
    call = wire.call(rerank, BODY)
    assert call.request == ScoreRequest(queries=["q"], documents=["a", "b", "c"])
    assert call.request.truncation == Truncation(enabled=True)
    assert call.ignored == ()


def test_the_whole_answer(wire):
    answer = wire.answer(wire.call(rerank, BODY), wire.scores(0.25, 0.75, 0.5))
    assert answer == {
        "id": "req-1",
        "model": "m",
        "model_version": "7",
        "results": [
            {"index": 1, "relevance_score": 0.75},
            {"index": 2, "relevance_score": 0.5},
            {"index": 0, "relevance_score": 0.25},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
    }


def test_cohere_v2_is_told_its_version(wire):
    answer = wire.answer(wire.call(rerank_v2, BODY), wire.scores(1, 2, 3))
    assert answer["meta"]["api_version"] == {"version": "2"}


def test_ties_keep_the_order_of_the_documents(wire):
    body = {"query": "q", "documents": ["x"] * 300}
    answer = wire.answer(wire.call(rerank, body), wire.scores(*[0.5] * 299, 0.75))
    assert [item["index"] for item in answer["results"]] == [299, *range(299)]


def test_scores_are_written_as_short_float32(wire):
    assert wire.answer(wire.call(rerank, BODY), wire.scores(0.1, 0, 0))["results"][0]["relevance_score"] == 0.1


@pytest.mark.parametrize(("top_n", "expected"), [(None, 3), (1, 1), (3, 3), (4, 3), (10_000, 3)])
def test_top_n(wire, top_n, expected):
    answer = wire.answer(wire.call(rerank, {**BODY, "top_n": top_n}), wire.scores(1, 3, 2))
    assert [item["index"] for item in answer["results"]] == [1, 2, 0][:expected]


@pytest.mark.parametrize(
    ("top_n", "message"),
    [
        (0, "top_n: must be at least 1; got 0"),
        (-3, "top_n: must be at least 1; got -3"),
        (True, "top_n: must be an integer; got true"),
        ("3", "top_n: must be an integer; got a string"),
        (1.5, "top_n: must be an integer; got a number"),
        ([1], "top_n: must be an integer; got a list"),
        (10**30, "top_n: must be at most 2147483647; got a number"),
    ],
)
def test_bad_top_n(wire, top_n, message):
    error = wire.refusal(rerank, {**BODY, "top_n": top_n})
    assert (type(error), error.message, error.param) == (InvalidRequest, message, "top_n")


def test_documents_are_echoed_only_on_request(wire):
    quiet = wire.answer(wire.call(rerank, {**BODY, "return_documents": False}), wire.scores(1, 2, 3))
    assert all("document" not in item for item in quiet["results"])
    loud = wire.answer(wire.call(rerank, {**BODY, "return_documents": True, "top_n": 1}), wire.scores(1, 2, 3))
    assert loud["results"] == [{"index": 2, "relevance_score": 3.0, "document": {"text": "c"}}]


def test_a_cohere_v1_document_comes_back_with_its_other_fields(wire):
    documents = [{"text": "a", "title": "t", "id": 4, "note": None}, "b", {"content": [{"type": "text", "text": "c"}]}]
    call = wire.call(rerank, {"query": "q", "documents": documents, "return_documents": True})
    assert call.request.documents == ["a", "b", "c"]
    answer = wire.answer(call, wire.scores(3, 2, 1))
    echoed = [item["document"] for item in answer["results"]]
    assert echoed == [{"text": "a", "title": "t", "id": 4}, {"text": "b"}, {"text": "c"}]


def test_only_cut_documents_say_so(wire):
    answer = wire.answer(wire.call(rerank, BODY), wire.scores(1, 2, 3, truncated=[1]))
    assert answer["results"][1] == {"index": 1, "relevance_score": 2.0, "truncated": True}
    assert all("truncated" not in item for item in answer["results"] if item["index"] != 1)


def test_a_single_document_without_a_list_is_one_document(wire):
    call = wire.call(rerank, {"query": "q", "documents": {"text": "a"}, "return_documents": True})
    assert call.request.documents == ["a"]
    assert wire.answer(call, wire.scores(1))["results"][0]["document"] == {"text": "a"}


def test_vllm_content_parts_are_joined_by_line_breaks(wire):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = wire.call(rerank, {"query": {"content": parts}, "documents": [{"content": parts}]})
    assert call.request.queries == ["a\nb"]
    assert call.request.documents == ["a\nb"]


def test_empty_documents_are_ranked(wire):
    documents = ["", " ", "\u0000", "\ufeff"]
    assert wire.call(rerank, {"query": "q", "documents": documents}).request.documents == documents


@pytest.mark.parametrize("query", ["", "  \n", "\u200b\u200d", "\ufeff", "\u0000", {"text": " "}])
def test_an_empty_query_is_refused(wire, query):
    for body in ({"query": query, "documents": ["a"]}, {"query": query, "texts": ["a"]}):
        error = wire.refusal(rerank_any, body)
        assert (type(error), error.message, error.param) == (InvalidRequest, "query: must not be empty", "query")


@pytest.mark.parametrize(
    ("documents", "message", "param"),
    [
        ([], "documents: must not be empty", "documents"),
        (7, 'documents: must be a list of strings, {"text": …} or {"image": …} objects; got a number', "documents"),
        (
            ["a", "b", "c", 4],
            'documents[3]: must be a string, {"text": …} or {"image": …}; got a number',
            "documents[3]",
        ),
        (["a", True], 'documents[1]: must be a string, {"text": …} or {"image": …}; got true', "documents[1]"),
        (["a", None], 'documents[1]: must be a string, {"text": …} or {"image": …}; got null', "documents[1]"),
        ([["a"]], 'documents[0]: must be a string, {"text": …} or {"image": …}; got a list', "documents[0]"),
        (
            ["a", {"txt": "b"}],
            'documents[1]: must be a string, {"text": …} or {"image": …}; got an object without "text" or "image"',
            "documents[1]",
        ),
        (
            [{"text": None}],
            'documents[0]: must be a string, {"text": …} or {"image": …}; got an object without "text" or "image"',
            "documents[0]",
        ),
        ([{"text": 5}], "documents[0].text: must be a string; got a number", "documents[0].text"),
        (
            [{"content": "a"}],
            'documents[0].content: must be a list of {"type": "text", "text": …} parts; got a string',
            "documents[0].content",
        ),
        (
            [{"content": [{"type": "text"}]}],
            "documents[0].content[0].text: must be a string; got null",
            "documents[0].content[0].text",
        ),
        (
            [{"content": [{"type": "text", "text": "a", "lang": "en"}]}],
            "documents[0].content[0]: unknown field 'lang' beside 'text'",
            "documents[0].content[0]",
        ),
        (
            [{"content": [{"type": "text", "text": "a"}], "title": "t"}],
            "documents[0]: unknown field 'title' beside 'content'",
            "documents[0]",
        ),
    ],
)
def test_bad_documents_name_field_and_index(wire, documents, message, param):
    error = wire.refusal(rerank, {"query": "q", "documents": documents})
    assert (type(error), error.message, error.param) == (InvalidRequest, message, param)


@pytest.mark.parametrize("name", ["query", "documents"])
def test_missing_fields(wire, without, name):
    error = wire.refusal(rerank, without(BODY, name))
    assert (error.message, error.param) == (f"{name}: is required", name)
    assert wire.refusal(rerank, {**BODY, name: None}).message == f"{name}: is required"


def test_too_many_documents_name_the_cap_and_the_count():
    for name in ("documents", "texts"):
        with pytest.raises(TooLarge) as caught:
            rerank_any({"query": "q", name: ["a"] * 6}, Limits(max_documents=5))
        assert caught.value.message == f"{name}: 6 items; a request may hold 5 at most"
    rerank_any({"query": "q", "documents": ["a"] * 5}, Limits(max_documents=5))


def test_an_unknown_field_is_refused_by_name(wire):
    error = wire.refusal(rerank, {**BODY, "foo": 1})
    assert (type(error), error.param, error.code) == (UnknownField, "foo", "unknown_field")
    assert error.message.startswith("unknown field 'foo' of POST /v1/rerank; known: model, ")
    assert "documents" in error.message
    assert "priority" not in error.message


def test_null_means_unset_everywhere(wire):
    names = "model top_n max_tokens_per_doc truncate raw_scores return_documents rank_fields user truncation_side "
    names += "max_chunks_per_doc chat_template_kwargs use_activation instruction texts"
    nulls = dict.fromkeys(names.split())
    call = wire.call(rerank_any, {**BODY, **nulls})
    assert call.request == wire.call(rerank_any, BODY).request
    assert call.ignored == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("truncation_side", "left"),
        ("max_tokens_per_query", 64),
        ("max_tokens_per_query", False),
        ("padding", "max_length"),
        ("mm_processor_kwargs", {"max_pixels": 1}),
        ("return_embeddings", True),
        ("rank_fields", ["title", "text"]),
        ("chat_template_kwargs", {"enable_thinking": True}),
        ("truncate", "START"),
    ],
)
def test_fields_that_would_change_the_result_are_refused_by_name(wire, name, value):
    error = wire.refusal(rerank, {**BODY, name: value})
    assert (type(error), error.param) == (UnknownField, name)
    assert name in error.message


def test_fields_without_effect_are_listed(wire):
    extras = {
        "user": "u",
        "priority": 3,
        "request_id": "r",
        "cache_salt": "s",
        "metadata": {"a": [1]},
        "client_name": "c",
        "truncation_side": "right",
        "max_tokens_per_query": 0,
        "mm_processor_kwargs": {},
    }
    call = wire.call(rerank, {**BODY, **extras})
    assert call.ignored == tuple(sorted(extras))
    assert call.request == wire.call(rerank, BODY).request


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Truncation()),
        ({"truncate": True}, Truncation()),
        ({"truncate": "END"}, Truncation()),
        ({"truncate": False}, Truncation(enabled=False)),
        ({"truncate": "NONE"}, Truncation(enabled=False)),
        ({"max_tokens_per_doc": 0}, Truncation()),
        ({"max_chunks_per_doc": 10}, Truncation(max_chunks=10)),
        ({"max_tokens_per_doc": 100}, Truncation(max_document_tokens=100)),
        ({"truncate_prompt_tokens": -1}, Truncation()),
        ({"truncate_prompt_tokens": 64}, Truncation(max_input_tokens=64)),
    ],
)
def test_truncation(wire, fields, expected):
    assert wire.call(rerank, {**BODY, **fields}).request.truncation == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"truncate": "START"}, "truncate: 'START' is not honoured: texts are cut at their end"),
        ({"truncate": "end"}, "truncate: must be true, false, 'NONE' or 'END'; got 'end'"),
        ({"truncate": 1}, "truncate: must be true, false, 'NONE' or 'END'; got 1"),
        ({"max_tokens_per_doc": -1}, "max_tokens_per_doc: must be at least 0; got -1"),
        (
            {"truncate_prompt_tokens": 0},
            "truncate_prompt_tokens: must be -1 (the model's window) or at least 1; got 0",
        ),
        (
            {"truncate_prompt_tokens": True},
            "truncate_prompt_tokens: must be -1 (the model's window) or at least 1; got true",
        ),
    ],
)
def test_bad_truncation(wire, fields, message):
    assert wire.refusal(rerank, {**BODY, **fields}).message == message


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ({}, False),
        ({"raw_scores": True}, True),
        ({"raw_scores": False}, False),
        ({"use_activation": False}, True),
        ({"use_activation": True}, False),
        ({"activation": False}, True),
        ({"raw_scores": True, "use_activation": False}, True),
    ],
)
def test_raw_scores_under_each_of_its_names(wire, fields, raw):
    assert wire.call(rerank, {**BODY, **fields}).request.raw_scores is raw


def test_fields_that_mean_the_same_may_not_disagree(wire):
    error = wire.refusal(rerank, {**BODY, "raw_scores": True, "use_activation": True})
    assert error.message == "use_activation and raw_scores contradict each other"
    error = wire.refusal(rerank, {**BODY, "instruction": "a", "chat_template_kwargs": {"instruction": "b"}})
    assert error.message == "instruction and chat_template_kwargs contradict each other"


INSTRUCTIONS = {"instruction": "find", "chat_template_kwargs": {"instruction": "find"}}


@pytest.mark.parametrize("names", [["instruction"], ["chat_template_kwargs"], ["chat_template_kwargs", "instruction"]])
def test_instruction(wire, names):
    request = wire.call(rerank, {**BODY, **{name: INSTRUCTIONS[name] for name in names}}).request
    assert (request.instruction, request.instruction_fields) == ("find", tuple(names))


def test_the_tei_shape_gets_a_bare_list(wire):
    call = wire.call(rerank_any, {"query": "q", "texts": ["a", "b"]})
    assert call.request == ScoreRequest(
        queries=["q"], documents=["a", "b"], document_field="texts", truncation=Truncation(enabled=False)
    )
    assert wire.answer(call, wire.scores(0.25, 0.5)) == [{"index": 1, "score": 0.5}, {"index": 0, "score": 0.25}]


def test_the_tei_shape_honours_its_fields(wire):
    body = {"query": "q", "texts": ["a", "b"], "raw_scores": True, "return_text": True, "truncate": True, "top_n": 1}
    call = wire.call(rerank_any, {**body, "truncation_direction": "Right", "model": "m@2"})
    assert call.model == "m@2"
    assert call.ignored == ("truncation_direction",)
    assert call.request.raw_scores
    assert call.request.truncation.enabled
    answer = wire.answer(call, wire.scores(1, 2, truncated=[1]))
    assert answer == [{"index": 1, "score": 2.0, "text": "b", "truncated": True}]


def test_the_tei_shape_is_told_by_texts_and_only_on_its_route(wire):
    assert is_tei({"texts": []})
    assert not is_tei({"texts": None})
    assert not is_tei({"documents": []})
    assert type(wire.refusal(rerank_any, {"query": "q", "texts": ["a"], "documents": ["a"]})) is UnknownField
    assert type(wire.refusal(rerank, {"query": "q", "texts": ["a"]})) is UnknownField
    assert (
        type(wire.refusal(rerank_any, {"query": "q", "texts": ["a"], "truncation_direction": "Left"})) is UnknownField
    )

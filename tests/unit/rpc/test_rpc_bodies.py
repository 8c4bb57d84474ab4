"""Request messages in, the HTTP adapters' requests out; the same complaints as over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.api.base import Limits
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.errors import InvalidRequest, PoolserveError, TooLarge, UnknownField
from serve_app.messages import AbsaRequest, ClassifyRequest, EmbedRequest, ImageRef, ScoreRequest, Truncation
from serve_app.rpc.operations import RPCS

LIMITS = Limits(max_documents=5, max_images=2)


def read(name: str, message: Any, limits: Limits = LIMITS) -> Any:
    """What an RPC asks for."""
    return RPCS[name].read(message.SerializeToString(), limits)[1]


def text(value: str) -> pb.Item:
    return pb.Item(text=value)


def test_a_rerank_request_with_everything_set() -> None:
    message = pb.RerankRequest(
        model="m@2",
        query=text("q"),
        documents=[text("a"), pb.Item(image=pb.Image(data=b"\x89PNG")), pb.Item(image=pb.Image(url="https://e.org/x"))],
        top_n=2,
        raw_scores=True,
        truncate=False,
        truncate_prompt_tokens=30,
        max_tokens_per_doc=20,
        max_chunks_per_doc=3,
        instruction="find",
    )
    call = read("Rerank", message)
    assert (call.operation, call.model, call.documents, call.ignored) == ("rerank", "m@2", 3, ())
    assert call.request == ScoreRequest(
        queries=["q"],
        documents=["a", ImageRef(data=b"\x89PNG"), ImageRef(url="https://e.org/x")],
        instruction="find",
        raw_scores=True,
        truncation=Truncation(enabled=False, max_document_tokens=20, max_input_tokens=30, max_chunks=3),
    )


def test_what_is_unset_has_the_defaults_of_http() -> None:
    call = read("Rerank", pb.RerankRequest(query=text("q"), documents=[text("")]))
    assert (call.model, call.request) == (None, ScoreRequest(queries=["q"], documents=[""]))


def test_a_score_request() -> None:
    message = pb.ScoreRequest(queries=[text("q"), text("r")], documents=[text("a"), text("b")], max_tokens_per_doc=0)
    request = read("Score", message).request
    assert (request.queries, request.documents, request.query_field) == (["q", "r"], ["a", "b"], "queries")


def test_an_embed_request_takes_texts_tokens_and_images() -> None:
    message = pb.EmbedRequest(
        input=[
            pb.EmbedInput(text="t"),
            pb.EmbedInput(tokens=pb.TokenIds(ids=[101, 102])),
            pb.EmbedInput(image=pb.Image(data=b"x")),
        ],
        dimensions=8,
        normalize=False,
        input_type="search_query",
    )
    assert read("Embed", message).request == EmbedRequest(
        inputs=["t", [101, 102], ImageRef(data=b"x")], prompt="query", dimensions=8, normalize=False
    )


def test_a_classify_request() -> None:
    message = pb.ClassifyRequest(input=[pb.TextInput(text="t"), pb.TextInput(tokens=pb.TokenIds(ids=[7]))])
    assert read("Classify", message).request == ClassifyRequest(inputs=["t", [7]])


def test_an_absa_request() -> None:
    message = pb.AbsaRequest(inputs=["t", ""], aspects=["food"], threshold=0.25)
    assert read("Absa", message).request == AbsaRequest(inputs=["t", ""], aspects=["food"], threshold=0.25)
    assert read("Absa", pb.AbsaRequest(inputs=["t"])).request.aspects is None


TWO = {"query": text("q"), "documents": [text("a"), text("b")]}
IMAGES = [pb.Item(image=pb.Image(data=b"x"))] * 3

BAD: list[tuple[str, Any, type[PoolserveError], str | None]] = [
    ("Rerank", pb.RerankRequest(documents=[text("a")]), InvalidRequest, "query"),
    ("Rerank", pb.RerankRequest(query=text(""), documents=[text("a")]), InvalidRequest, "query"),
    ("Rerank", pb.RerankRequest(query=text(" \u200b"), documents=[text("a")]), InvalidRequest, "query"),
    ("Rerank", pb.RerankRequest(query=pb.Item(), documents=[text("a")]), InvalidRequest, "query"),
    ("Rerank", pb.RerankRequest(query=text("q")), InvalidRequest, "documents"),
    ("Rerank", pb.RerankRequest(query=text("q"), documents=[text("a"), pb.Item()]), InvalidRequest, "documents[1]"),
    ("Rerank", pb.RerankRequest(query=text("q"), documents=[text("a")] * 6), TooLarge, "documents"),
    ("Rerank", pb.RerankRequest(query=text("q"), documents=IMAGES), TooLarge, "documents"),
    ("Rerank", pb.RerankRequest(**TWO, top_n=0), InvalidRequest, "top_n"),
    ("Rerank", pb.RerankRequest(**TWO, top_n=-1), InvalidRequest, "top_n"),
    ("Rerank", pb.RerankRequest(**TWO, max_chunks_per_doc=65), InvalidRequest, "max_chunks_per_doc"),
    ("Rerank", pb.RerankRequest(**TWO, truncate_prompt_tokens=0), InvalidRequest, "truncate_prompt_tokens"),
    (
        "Rerank",
        pb.RerankRequest(query=text("q"), documents=[pb.Item(image=pb.Image(data=b""))]),
        InvalidRequest,
        "documents[0].image",
    ),
    (
        "Rerank",
        pb.RerankRequest(query=text("q"), documents=[pb.Item(image=pb.Image())]),
        InvalidRequest,
        "documents[0].image",
    ),
    (
        "Rerank",
        pb.RerankRequest(query=text("q"), documents=[pb.Item(image=pb.Image(url="no url"))]),
        InvalidRequest,
        "documents[0].image",
    ),
    ("Score", pb.ScoreRequest(queries=[text("q")] * 2, documents=[text("a")] * 3), InvalidRequest, "queries"),
    ("Score", pb.ScoreRequest(documents=[text("a")]), InvalidRequest, "queries"),
    ("Embed", pb.EmbedRequest(), InvalidRequest, "input"),
    ("Embed", pb.EmbedRequest(input=[pb.EmbedInput()]), InvalidRequest, "input[0]"),
    ("Embed", pb.EmbedRequest(input=[pb.EmbedInput(tokens=pb.TokenIds())]), InvalidRequest, "input[0]"),
    ("Embed", pb.EmbedRequest(input=[pb.EmbedInput(tokens=pb.TokenIds(ids=[-1]))]), InvalidRequest, "input[0][0]"),
    ("Embed", pb.EmbedRequest(input=[pb.EmbedInput(text="t")], dimensions=0), InvalidRequest, "dimensions"),
    ("Embed", pb.EmbedRequest(input=[pb.EmbedInput(text="t")], format=9), InvalidRequest, "format"),  # type: ignore[arg-type]
    ("Classify", pb.ClassifyRequest(input=[pb.TextInput(text="t")] * 6), TooLarge, "input"),
    ("Absa", pb.AbsaRequest(inputs=["t"], aspects=["a", "a"]), InvalidRequest, "aspects[1]"),
    ("Absa", pb.AbsaRequest(inputs=["t"], threshold=2.0), InvalidRequest, "threshold"),
]


@pytest.mark.parametrize(("name", "message", "error", "param"), BAD)
def test_what_is_wrong_is_refused_by_name(name: str, message: Any, error: type[PoolserveError], param: str) -> None:
    with pytest.raises(error) as caught:
        read(name, message)
    assert caught.value.param == param


@pytest.mark.parametrize("name", list(RPCS))
def test_what_is_no_message_is_the_callers_error(name: str) -> None:
    for content in (b"\xff\xff\xff", b"\x0a\xff", b"\x0a\x02\xff\xfe"):  # the last one: a text that is not UTF-8
        with pytest.raises(InvalidRequest, match="Request"):
            RPCS[name].read(content, LIMITS)


def test_a_field_of_a_newer_proto_is_refused_not_dropped() -> None:
    content = pb.RerankRequest(**TWO).SerializeToString() + b"\xf8\x07\x01"  # field 127, varint 1
    with pytest.raises(UnknownField, match="RerankRequest has a field number 127"):
        RPCS["Rerank"].read(content, LIMITS)


def test_every_rpc_of_the_proto_is_served() -> None:
    from serve_app.rpc.operations import SERVICE

    assert {method.name for method in SERVICE.methods} == {*RPCS, "Models"}
    for name, rpc in RPCS.items():
        assert SERVICE.methods_by_name[name].input_type is rpc.request.DESCRIPTOR

"""Request messages in, the HTTP adapters' requests out; the same complaints as over HTTP."""

from __future__ import annotations

import math
from typing import Any

import pytest

from serve_app.api.base import Limits
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.errors import InvalidRequest, PoolserveError, TooLarge, UnknownField
from serve_app.messages import AbsaRequest, ClassifyRequest, EmbedRequest, ImageRef, ScoreRequest, Truncation
from serve_app.rpc import bodies
from serve_app.rpc.bodies import refuse_unknown
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
        inputs=["t", [101, 102], ImageRef(data=b"x")],
        prompt="query",
        dimensions=8,
        normalize=False,
        prompt_field="input_type",
        prompt_sent="search_query",
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
        pb.RerankRequest(query=pb.Item(image=pb.Image(data=b"")), documents=[text("a")]),
        InvalidRequest,
        "query.image",
    ),
    (
        "Score",
        pb.ScoreRequest(queries=[pb.Item(image=pb.Image(url="no url"))], documents=[text("a")]),
        InvalidRequest,
        "queries[0].image",
    ),
    (
        "Rerank",
        pb.RerankRequest(query=text("q"), documents=[pb.Item(image=pb.Image())]),
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


NEWER = b"\x4a\x03new"
"""Field 9 with three bytes, which no message below a request has."""


def nested(number: int, content: bytes) -> bytes:
    """A field that holds a message."""
    return bytes([number << 3 | 2, len(content)]) + content


def with_newer(name: str) -> list[tuple[bytes, str]]:
    """What comes behind a request that works, and the place of the unknown field in both together."""
    image = nested(2, pb.Image(data=b"x").SerializeToString() + NEWER)
    tokens = pb.TokenIds(ids=[7]).SerializeToString() + NEWER
    return {
        "Rerank": [
            (nested(3, text("c").SerializeToString() + NEWER), "documents[2].9"),
            (nested(3, image), "documents[2].image.9"),
            (nested(2, NEWER), "query.9"),
        ],
        "Score": [(nested(2, NEWER), "queries[1].9"), (nested(3, image), "documents[2].image.9")],
        "Embed": [(nested(2, nested(3, tokens)), "input[1].tokens.9"), (nested(2, image), "input[1].image.9")],
        "Classify": [(nested(2, nested(2, tokens)), "input[1].tokens.9")],
    }[name]


WORKING: dict[str, Any] = {
    "Rerank": pb.RerankRequest(**TWO),
    "Score": pb.ScoreRequest(queries=[text("q")], documents=[text("a"), text("b")]),
    "Embed": pb.EmbedRequest(input=[pb.EmbedInput(text="a")]),
    "Classify": pb.ClassifyRequest(input=[pb.TextInput(text="a")]),
}


@pytest.mark.parametrize("name", list(WORKING))
def test_so_is_one_inside_of_a_nested_message_by_its_path(name: str) -> None:
    content = WORKING[name].SerializeToString()
    RPCS[name].read(content, LIMITS)
    for added, path in with_newer(name):
        with pytest.raises(UnknownField) as caught:
            RPCS[name].read(content + added, LIMITS)
        assert caught.value.param == path
        assert caught.value.message.startswith(f"{path}: ")
        assert caught.value.message.endswith(" has a field number 9 that is not known here")


def test_a_threshold_that_is_no_number_is_no_unknown_field() -> None:
    """It equals nothing, itself included."""
    refuse_unknown(pb.AbsaRequest(inputs=["t"], threshold=math.nan))


def test_messages_are_not_looked_into_one_by_one_where_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would be Python for each of 500 documents."""
    looked: list[str] = []
    inside = bodies._unknown
    monkeypatch.setattr(bodies, "_unknown", lambda message, path: looked.append(path) or inside(message, path))
    refuse_unknown(pb.RerankRequest(query=text("q"), documents=[text("word " * 60)] * 500))
    assert looked == []
    with pytest.raises(UnknownField):
        refuse_unknown(pb.RerankRequest.FromString(b"\xf8\x07\x01"))
    assert looked == [""]


def test_an_image_without_bytes_or_with_a_bad_url_keeps_its_place() -> None:
    images = [pb.Item(image=pb.Image(data=b"")), pb.Item(image=pb.Image(url="no url"))]
    request = read("Rerank", pb.RerankRequest(query=text("q"), documents=images)).request
    assert [(image.data, image.complaint) for image in request.documents] == [
        (b"", "documents[0].image: must not be empty"),
        (b"", "documents[1].image: must be a URL with its scheme, a data: URL or base64; got neither"),
    ]


def test_every_rpc_of_the_proto_is_served() -> None:
    from serve_app.rpc.operations import SERVICE

    assert {method.name for method in SERVICE.methods} == {*RPCS, "Models"}
    for name, rpc in RPCS.items():
        assert SERVICE.methods_by_name[name].input_type is rpc.request.DESCRIPTOR

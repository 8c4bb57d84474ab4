"""Results as messages: the numbers of the HTTP answers, vectors as packed floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serve_app.api.base import Limits, Meta
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.errors import InvalidRequest
from serve_app.messages import (
    AbsaItem,
    AbsaResult,
    ClassifyResult,
    EmbedResult,
    ItemError,
    PipelineResult,
    ScoreResult,
    Served,
    Span,
)
from serve_app.rpc import answers
from serve_app.rpc.operations import RPCS
from serve_app.vocabulary import MediaErrorCode

LIMITS = Limits(max_documents=50)
SERVED = Served("m", "2", prompt_tokens=9, truncated=(1,))
GONE = ItemError(1, MediaErrorCode.UNREACHABLE, "documents[1].image: gone")
FAILED = Served("m", "2", prompt_tokens=9, errors=(GONE,))


def answer(name: str, message: Any, result: PipelineResult) -> Any:
    """An RPC's answer to a result."""
    rpc = RPCS[name]
    request, call = rpc.read(message.SerializeToString(), LIMITS)
    return rpc.answer(request, call.render(result, Meta("id", 1)))


def items(*texts: str) -> list[pb.Item]:
    return [pb.Item(text=text) for text in texts]


def test_rerank_is_sorted_cut_and_echoes_only_if_asked() -> None:
    result = ScoreResult(np.array([0.1, 0.9, 0.5], np.float32), SERVED)
    request = pb.RerankRequest(query=pb.Item(text="q"), documents=items("a", "b", "c"), top_n=2)
    got = answer("Rerank", request, result)
    assert [(r.index, r.truncated, r.HasField("document")) for r in got.results] == [
        (1, True, False),
        (2, False, False),
    ]
    assert [r.relevance_score for r in got.results] == pytest.approx([0.9, 0.5])
    assert (got.model, got.model_version, got.prompt_tokens) == ("m", "2", 9)
    request.return_documents = True
    assert [r.document.text for r in answer("Rerank", request, result).results] == ["b", "c"]


def test_a_failed_document_is_named_and_the_others_are_ranked() -> None:
    result = ScoreResult(np.array([0.1, np.nan], np.float32), FAILED)
    got = answer("Rerank", pb.RerankRequest(query=pb.Item(text="q"), documents=items("a", "b")), result)
    assert [r.index for r in got.results] == [0]
    assert [(e.index, e.code, e.message) for e in got.errors] == [(1, "media_unreachable", GONE.message)]


def test_score_keeps_the_order() -> None:
    result = ScoreResult(np.array([0.1, 0.9], np.float32), SERVED)
    got = answer("Score", pb.ScoreRequest(queries=items("q"), documents=items("a", "b")), result)
    assert [(row.index, row.truncated) for row in got.data] == [(0, False), (1, True)]
    assert [row.score for row in got.data] == pytest.approx([0.1, 0.9])


VECTORS = np.array([[1.5, -2.0, 1 / 3], [0.25, 7e-3, 60_000.0]], np.float32)


@pytest.mark.parametrize(
    ("asked", "said", "dtype"),
    [
        (pb.FLOAT_FORMAT_UNSPECIFIED, pb.FLOAT_FORMAT_FLOAT32, "<f4"),
        (pb.FLOAT_FORMAT_FLOAT32, pb.FLOAT_FORMAT_FLOAT32, "<f4"),
        (pb.FLOAT_FORMAT_FLOAT16, pb.FLOAT_FORMAT_FLOAT16, "<f2"),
    ],
)
@pytest.mark.parametrize("strided", [False, True])
def test_vectors_are_packed_little_endian(asked: Any, said: Any, dtype: str, strided: bool) -> None:
    vectors = np.repeat(VECTORS, 2, axis=1)[:, ::2] if strided else VECTORS
    request = pb.EmbedRequest(input=[pb.EmbedInput(text="a"), pb.EmbedInput(text="b")], format=asked)
    got = answer("Embed", request, EmbedResult(vectors, SERVED))
    assert (got.format, got.dimensions, list(got.truncated)) == (said, 3, [1])
    unpacked = np.frombuffer(b"".join(got.vectors), dtype).reshape(-1, got.dimensions)
    np.testing.assert_array_equal(unpacked, VECTORS.astype(dtype))


def test_packed_floats_have_the_bytes_that_a_java_client_expects() -> None:
    one = np.array([1.0, -2.0], np.float32)
    assert answers.packed([one], pb.FLOAT_FORMAT_FLOAT32) == [bytes.fromhex("0000803f000000c0")]
    assert answers.packed([one], pb.FLOAT_FORMAT_FLOAT16) == [bytes.fromhex("003c00c0")]


def test_vectors_that_do_not_fit_float16_are_refused_by_the_field_that_asked() -> None:
    vectors = np.array([[1.0, 2.0], [65_504.0, -65_536.0]], np.float32)
    request = pb.EmbedRequest(input=[pb.EmbedInput(text="a"), pb.EmbedInput(text="b")], format=pb.FLOAT_FORMAT_FLOAT16)
    with pytest.raises(InvalidRequest, match="format: 65536 does not fit float16") as caught:
        answer("Embed", request, EmbedResult(vectors, SERVED))
    assert caught.value.param == "format"
    request.format = pb.FLOAT_FORMAT_FLOAT32
    assert answer("Embed", request, EmbedResult(vectors, SERVED)).vectors[1] == vectors[1].tobytes()


def test_an_input_without_a_vector_keeps_its_place_and_is_never_a_number() -> None:
    vectors = np.stack([VECTORS[0], np.full(3, np.nan, np.float32)])
    request = pb.EmbedRequest(input=[pb.EmbedInput(text="a"), pb.EmbedInput(text="b")])
    got = answer("Embed", request, EmbedResult(vectors, FAILED))
    assert [len(vector) for vector in got.vectors] == [12, 0]
    assert got.errors[0].index == 1


def test_classify_names_the_best_label() -> None:
    result = ClassifyResult(np.array([[0.2, 0.8], [0.6, 0.4]], np.float32), ["no", "yes"], SERVED)
    got = answer("Classify", pb.ClassifyRequest(input=[pb.TextInput(text="a"), pb.TextInput(text="b")]), result)
    assert [(row.index, row.label, row.truncated) for row in got.data] == [(0, "yes", False), (1, "no", True)]
    assert list(got.labels) == ["no", "yes"]
    assert list(got.data[0].probs) == pytest.approx([0.2, 0.8])


def test_absa_keeps_what_is_missing_missing() -> None:
    spans = [Span(0, 5, "pasta", "food", "positive", 0.5), Span(6, 9, "bad", None, "negative", 0.25)]
    result = AbsaResult([AbsaItem(("neutral", 0.75), spans), AbsaItem(None, [])], SERVED)
    got = answer("Absa", pb.AbsaRequest(inputs=["pasta bad", ""]), result)
    first, second = got.data
    assert (first.sentiment.label, first.sentiment.score) == ("neutral", 0.75)
    assert [(s.start, s.end, s.text, s.polarity, s.score) for s in first.spans] == [
        (0, 5, "pasta", "positive", 0.5),
        (6, 9, "bad", "negative", 0.25),
    ]
    assert [s.HasField("aspect") for s in first.spans] == [True, False]
    assert (second.HasField("sentiment"), len(second.spans), second.truncated) == (False, 0, True)

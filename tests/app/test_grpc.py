"""gRPC through the whole application with fake engines: what HTTP answers, and what is gRPC's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from serve_app import readiness
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.api.proto import poolserve_pb2_grpc
from serve_app.errors import EngineDead, ReplicaDied
from serve_app.rpc import health
from serve_app.rpc.server import GrpcServer
from serve_app.settings import GrpcSettings
from tests.app.conftest import App, large_vectors
from tests.cluster import free_port
from tests.parity.images import picture

DOCUMENTS = ["a", "quick fox", "the lazy dog"]
RERANK = {"model": "ce", "query": "fox", "documents": DOCUMENTS}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass
class Rpc:
    """What a test needs to see."""

    app: App
    server: GrpcServer
    channel: grpc.aio.Channel
    stub: Any

    async def fails(self, request: Any, code: grpc.StatusCode, name: str = "Rerank", **options: Any) -> Any:
        """Calls and returns the error's ErrorInfo, whose `code` and message are checked to be told twice."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(self.stub, name)(request, **options)
        error = caught.value
        assert error.code() is code, error.details()
        assert "Traceback" not in error.details()
        status = rpc_status.from_call(error)
        assert status is not None
        assert status.message == error.details()
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        return info


def items(texts: list[str]) -> list[pb.Item]:
    return [pb.Item(text=text) for text in texts]


def rerank(**changes: Any) -> pb.RerankRequest:
    """A request that works."""
    return pb.RerankRequest(**{"model": "ce", "query": pb.Item(text="fox"), "documents": items(DOCUMENTS)} | changes)


@pytest.fixture
async def rpc(app: App) -> AsyncIterator[Rpc]:
    """The app's gRPC server on a port of its own."""
    server = GrpcServer(app.frontend, GrpcSettings(port=free_port(), drain_s=0.5))
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Rpc(app, server, channel, poolserve_pb2_grpc.PoolserveStub(channel))
    await server.stop()


# --- the same as HTTP -------------------------------------------------------------------------------------------------


async def test_rerank_equals_http(rpc: Rpc) -> None:
    http = (await rpc.app.post("/v1/rerank", RERANK)).json()
    got = await rpc.stub.Rerank(rerank(), metadata=(("x-request-id", "my-id"),))
    assert [(r.index, r.relevance_score) for r in got.results] == [
        (r["index"], pytest.approx(r["relevance_score"], abs=1e-7)) for r in http["results"]
    ]
    assert (got.model, got.model_version, got.request_id) == ("ce", "1", "my-id")
    assert got.prompt_tokens == http["usage"]["prompt_tokens"]
    assert set(got.timings) == {"tokenize", "queue", "engine", "post", "total"}
    (_, over_http), (_, over_grpc) = rpc.app.backend.calls
    assert over_http == over_grpc


async def test_every_other_operation_equals_http(rpc: Rpc) -> None:
    post, stub = rpc.app.post, rpc.stub
    score = (await post("/v1/score", {"model": "ce", "queries": ["fox"], "documents": DOCUMENTS})).json()["data"]
    got = await stub.Score(pb.ScoreRequest(model="ce", queries=items(["fox"]), documents=items(DOCUMENTS)))
    assert [row.score for row in got.data] == pytest.approx([row["score"] for row in score])

    labels = (await post("/v1/classify", {"input": ["a fox", "dog"]})).json()
    got = await stub.Classify(pb.ClassifyRequest(input=[pb.TextInput(text="a fox"), pb.TextInput(text="dog")]))
    assert [(row.label, list(row.probs)) for row in got.data] == [
        (row["label"], pytest.approx(row["probs"])) for row in labels["data"]
    ]
    assert list(got.labels) == labels["labels"]

    text = "the quick brown fox"
    absa = (await post("/v1/absa", {"inputs": [text]})).json()["data"][0]
    (item,) = (await stub.Absa(pb.AbsaRequest(inputs=[text]))).data
    assert [(s.start, s.end, s.text) for s in item.spans] == [(s["start"], s["end"], s["text"]) for s in absa["spans"]]
    assert item.sentiment.label == absa["sentiment"]["label"]

    listed = (await rpc.app.client.get("/v1/models")).json()["data"]
    models = (await stub.Models(pb.ModelsRequest())).models
    assert [(m.id, m.version, m.task, m.state) for m in models] == [
        (m["id"], m["version"], m["task"], m["state"]) for m in listed
    ]


@pytest.mark.parametrize(
    ("number_format", "dtype"), [(pb.FLOAT_FORMAT_FLOAT32, "<f4"), (pb.FLOAT_FORMAT_FLOAT16, "<f2")]
)
async def test_embeddings_are_the_packed_floats_of_http(rpc: Rpc, number_format: Any, dtype: str) -> None:
    texts = ["a fox", "the lazy dog", ""]
    http = (await rpc.app.post("/v1/embeddings", {"model": "emb", "input": texts})).json()["data"]
    inputs = [pb.EmbedInput(text=text) for text in texts]
    got = await rpc.stub.Embed(pb.EmbedRequest(model="emb", input=inputs, format=number_format))
    vectors = np.frombuffer(b"".join(got.vectors), dtype).reshape(len(texts), got.dimensions)
    want = np.array([row["embedding"] for row in http], np.float32)
    np.testing.assert_array_equal(vectors, want.astype(dtype))


async def test_images_as_bytes_rank_as_base64_does(rpc: Rpc) -> None:
    import base64

    pictures = [picture(seed) for seed in range(3)]
    body = {"model": "clip", "query": "fox", "documents": [{"image": base64.b64encode(p).decode()} for p in pictures]}
    http = (await rpc.app.post("/v1/rerank", body)).json()["results"]
    documents = [pb.Item(image=pb.Image(data=p)) for p in pictures]
    documents.insert(1, pb.Item(image=pb.Image(url="https://example.org/gone.png")))
    got = await rpc.stub.Rerank(rerank(model="clip", documents=documents))
    assert [r.relevance_score for r in got.results] == pytest.approx([r["relevance_score"] for r in http])
    assert [(e.index, e.code) for e in got.errors] == [(1, "media_unreachable")]
    info = await rpc.fails(rerank(model="clip", documents=documents[1:2]), grpc.StatusCode.INVALID_ARGUMENT)
    assert info.metadata["code"] == "media_unreachable"


async def test_what_has_no_effect_is_named_in_the_metadata(rpc: Rpc) -> None:
    async def metadata(name: str, request: Any) -> dict[str, Any]:
        call = getattr(rpc.stub, name)(request)
        await call
        return dict(await call.trailing_metadata())

    assert "x-ignored-fields" not in await metadata("Rerank", rerank())
    assert (await metadata("Rerank", rerank(instruction="find")))["x-ignored-fields"] == "instruction"
    pairs = pb.ScoreRequest(model="emb", queries=items(["a"]), documents=items(["b"]), instruction="find")
    assert (await metadata("Score", pairs))["x-ignored-fields"] == "instruction"


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_an_empty_query_and_an_unknown_model(rpc: Rpc) -> None:
    info = await rpc.fails(rerank(query=pb.Item(text="")), grpc.StatusCode.INVALID_ARGUMENT)
    assert (info.metadata["code"], info.metadata["param"]) == ("invalid_request", "query")
    for name in ("nope", "ce@77"):
        info = await rpc.fails(rerank(model=name), grpc.StatusCode.NOT_FOUND)
        assert info.reason == "MODEL_NOT_FOUND"
    assert len((await rpc.stub.Rerank(rerank())).results) == 3


async def test_a_document_that_may_not_be_cut(rpc: Rpc) -> None:
    documents = items(["fox", "word " * 2_000])
    got = await rpc.stub.Rerank(rerank(documents=documents))
    assert {r.index: r.truncated for r in got.results} == {0: False, 1: True}
    info = await rpc.fails(rerank(documents=documents, truncate=False), grpc.StatusCode.INVALID_ARGUMENT)
    assert (info.metadata["code"], info.metadata["param"]) == ("context_length_exceeded", "documents[1]")


async def test_limits(rpc: Rpc) -> None:
    info = await rpc.fails(rerank(documents=items(["a"] * 51)), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert info.metadata["code"] == "payload_too_large"
    assert len((await rpc.stub.Rerank(rerank(documents=items(["a"] * 50)))).results) == 50


async def test_a_message_over_the_limit_is_refused_as_over_http(rpc: Rpc) -> None:
    large = rerank(documents=items(["x" * 2_000_000]))
    body = {"model": "ce", "query": "fox", "documents": ["x" * 2_000_000]}
    over_http = (await rpc.app.post("/v1/rerank", body)).json()["error"]
    metadata = (("x-request-id", "my-id"),)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.stub.Rerank(large, metadata=metadata)
    assert caught.value.details() == over_http["message"]
    assert dict(caught.value.trailing_metadata() or ())["x-request-id"] == "my-id"
    info = await rpc.fails(large, grpc.StatusCode.RESOURCE_EXHAUSTED, metadata=metadata)
    assert (info.metadata["code"], info.metadata["request_id"]) == (over_http["code"], "my-id")
    page = (await rpc.app.client.get("/metrics")).text
    (counted,) = [line for line in page.splitlines() if "_requests_total{" in line and "Poolserve/Rerank" in line]
    assert 'status="413"' in counted
    assert float(counted.split()[-1]) == 2
    raw = rpc.channel.unary_unary("/poolserve.v1.Poolserve/Models")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw(b"\x0a" + b"\0" * 2**20)
    assert caught.value.details() == over_http["message"]


@pytest.mark.parametrize("app", [{"api_keys": ["k"]}], indirect=True)
async def test_the_key_is_asked_for_before_the_size(rpc: Rpc) -> None:
    await rpc.fails(rerank(documents=items(["x" * 2_000_000])), grpc.StatusCode.UNAUTHENTICATED)


async def test_our_own_fault_says_nothing_of_our_insides(rpc: Rpc) -> None:
    rpc.app.backend.failures.append(RuntimeError("secret /etc/path"))
    info = await rpc.fails(rerank(), grpc.StatusCode.INTERNAL, metadata=(("x-request-id", "my-id"),))
    assert (info.metadata["code"], info.metadata["request_id"]) == ("internal_error", "my-id")
    assert "secret" not in str(info)


@pytest.mark.parametrize("error", [ReplicaDied("died"), EngineDead("died")])
async def test_a_dead_replica_is_tried_once_more_and_once_only(rpc: Rpc, error: Exception) -> None:
    rpc.app.backend.failures += [error]
    assert len((await rpc.stub.Rerank(rerank())).results) == 3
    rpc.app.backend.failures += [error, error]
    await rpc.fails(rerank(), grpc.StatusCode.UNAVAILABLE)


async def test_overload_is_resource_exhausted_with_a_wait(rpc: Rpc) -> None:
    rpc.app.engines["ce"].delay_s = 0.3
    calls = [rpc.stub.Rerank(rerank(documents=items(["a"] * 25))) for _ in range(10)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [error for error in outcomes if isinstance(error, grpc.aio.AioRpcError)]
    assert len(refused) == 8  # 60 documents fit twice 25
    for error in refused:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        status = rpc_status.from_call(error)
        retry = error_details_pb2.RetryInfo()
        assert any(detail.Unpack(retry) for detail in status.details)
        assert retry.retry_delay.ToMilliseconds() > 0


@pytest.mark.parametrize("app", [{"api_keys": ["k1", "k2"]}], indirect=True)
async def test_keys_are_asked_for_except_by_health(rpc: Rpc) -> None:
    for metadata in ((), (("authorization", "Bearer nope"),), (("authorization-bin", b"Bearer k1"),)):
        info = await rpc.fails(rerank(), grpc.StatusCode.UNAUTHENTICATED, metadata=metadata)
        assert info.metadata["code"] == "unauthenticated"
        info = await rpc.fails(pb.ModelsRequest(), grpc.StatusCode.UNAUTHENTICATED, "Models", metadata=metadata)
        assert info.metadata["code"] == "unauthenticated"
    assert len((await rpc.stub.Rerank(rerank(), metadata=(("authorization", "Bearer k2"),))).results) == 3
    assert (await rpc.stub.Models(pb.ModelsRequest(), metadata=(("authorization", "Bearer k2"),))).models
    answer = await health_pb2_grpc.HealthStub(rpc.channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == SERVING


async def test_what_is_no_message_is_invalid_and_the_next_call_passes(rpc: Rpc) -> None:
    raw = rpc.channel.unary_unary("/poolserve.v1.Poolserve/Rerank")
    for content in (b"\xff\xff", b"\xf8\x07\x01"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(content)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.channel.unary_unary("/poolserve.v1.Poolserve/Nope")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert len((await rpc.stub.Rerank(rerank())).results) == 3


async def test_a_field_of_a_newer_proto_is_refused_at_any_depth(rpc: Rpc) -> None:
    newer = pb.Item(text="fox").SerializeToString() + b"\x4a\x03new"  # field 9
    content = rerank().SerializeToString() + b"\x1a" + bytes([len(newer)]) + newer  # a document more
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.channel.unary_unary("/poolserve.v1.Poolserve/Rerank")(content)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "documents[3].9: Item has a field number 9 that is not known here"


async def test_a_picture_without_bytes_costs_only_itself(rpc: Rpc) -> None:
    documents = [pb.Item(image=pb.Image(data=data)) for data in (picture(1), b"", picture(2))]
    documents.append(pb.Item(image=pb.Image(url="data:image/png;base64,@@@@")))
    got = await rpc.stub.Rerank(rerank(model="fusion", documents=documents))
    assert sorted(result.index for result in got.results) == [0, 2]
    assert [(error.index, error.code) for error in got.errors] == [(1, "media_undecodable"), (3, "media_undecodable")]
    assert got.errors[0].message == "documents[1].image: must not be empty"
    info = await rpc.fails(rerank(model="fusion", documents=documents[1:2]), grpc.StatusCode.INVALID_ARGUMENT)
    assert (info.metadata["code"], info.metadata["param"]) == ("media_undecodable", "documents[0].image")
    info = await rpc.fails(
        rerank(model="clip", query=pb.Item(image=pb.Image(data=b""))), grpc.StatusCode.INVALID_ARGUMENT
    )
    assert (info.metadata["code"], info.metadata["param"]) == ("invalid_request", "query.image")


async def test_vectors_that_do_not_fit_float16(rpc: Rpc) -> None:
    large_vectors(rpc.app)
    request = pb.EmbedRequest(
        model="emb", input=[pb.EmbedInput(text="a")], normalize=False, format=pb.FLOAT_FORMAT_FLOAT16
    )
    info = await rpc.fails(request, grpc.StatusCode.INVALID_ARGUMENT, "Embed")
    assert (info.metadata["code"], info.metadata["param"]) == ("invalid_request", "format")
    request.format = pb.FLOAT_FORMAT_FLOAT32
    (vector,) = (await rpc.stub.Embed(request)).vectors
    assert np.frombuffer(vector, "<f4")[0] == 1e5


async def test_a_long_message_in_any_script_reaches_the_client(rpc: Rpc) -> None:
    info = await rpc.fails(rerank(model="卫😀" * 5_000), grpc.StatusCode.NOT_FOUND)
    assert info.metadata["param"] == "model"


# --- deadlines, cancellation ------------------------------------------------------------------------------------------


async def ended(rpc: Rpc, cancelled: int) -> None:
    """Waits until the engine has nothing left of that many abandoned batches."""
    for _ in range(100):
        load = rpc.app.engines["ce"].load()
        if (load.sequences, load.unfinished, load.cancelled) == (0, 0, cancelled):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(load)


async def test_past_the_calls_deadline_its_work_has_ended(rpc: Rpc) -> None:
    rpc.app.engines["ce"].delay_s = 30
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.stub.Rerank(rerank(), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await ended(rpc, cancelled=1)


async def test_the_deadline_in_metadata_is_answered_with_details(rpc: Rpc) -> None:
    rpc.app.engines["ce"].delay_s = 30
    metadata = (("x-request-timeout-ms", "100"),)
    info = await rpc.fails(rerank(), grpc.StatusCode.DEADLINE_EXCEEDED, metadata=metadata)
    assert info.metadata["code"] == "deadline_exceeded"
    await ended(rpc, cancelled=1)
    await rpc.fails(rerank(), grpc.StatusCode.INVALID_ARGUMENT, metadata=(("x-request-timeout-ms", "-1"),))


async def test_the_calls_deadline_is_the_requests(rpc: Rpc) -> None:
    import time

    for timeout, metadata, seconds in ((8, (), 8), (8, (("x-request-timeout-ms", "3000"),), 3), (None, (), 5)):
        rpc.app.backend.calls.clear()
        await rpc.stub.Rerank(rerank(), timeout=timeout, metadata=metadata)
        ((context, _),) = rpc.app.backend.calls
        assert context.deadline - time.time() == pytest.approx(seconds, abs=1)


async def test_a_cancelled_call_ends_its_work(rpc: Rpc) -> None:
    rpc.app.engines["ce"].delay_s = 30
    call = rpc.stub.Rerank(rerank())
    while rpc.app.engines["ce"].load().sequences != 3:
        await asyncio.sleep(0.02)
    call.cancel()
    await ended(rpc, cancelled=1)


# --- metadata, health, reflection -------------------------------------------------------------------------------------


async def test_the_trailing_metadata_says_what_http_says_in_headers(rpc: Rpc) -> None:
    call = rpc.stub.Rerank(rerank(documents=items(["fox", "word " * 2_000])))
    await call
    told = dict(await call.trailing_metadata())
    assert (told["x-model-version"], told["x-truncated"]) == ("1", "1")
    assert len(told["x-request-id"]) == 32
    assert [part.split(";")[0] for part in told["server-timing"].split(", ")][-1] == "total"


async def test_health_of_all_and_of_each_model(rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    stub = health_pb2_grpc.HealthStub(rpc.channel)

    async def check(service: str) -> int:
        return int((await stub.Check(health_pb2.HealthCheckRequest(service=service))).status)

    names = ("", "poolserve.v1.Poolserve", "ce", "ce@1", "clf")
    assert [await check(name) for name in names] == [SERVING] * 5
    rpc.app.engines["clf"].dead = True
    assert [await check(name) for name in names] == [NOT_SERVING, NOT_SERVING, SERVING, SERVING, NOT_SERVING]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check("nope")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    listed = (await stub.List(health_pb2.HealthListRequest())).statuses
    assert (listed["ce"].status, listed["clf@1"].status) == (SERVING, NOT_SERVING)


async def test_a_watch_tells_changes_and_the_end(rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    monkeypatch.setattr(health, "WATCH_EVERY_S", 0.02)
    stub = health_pb2_grpc.HealthStub(rpc.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="clf"))
    assert (await watch.read()).status == SERVING
    rpc.app.engines["clf"].dead = True
    assert (await watch.read()).status == NOT_SERVING
    rpc.app.engines["clf"].dead = False
    assert (await watch.read()).status == SERVING
    unknown = stub.Watch(health_pb2.HealthCheckRequest(service="nope"))
    assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    await rpc.server.stop()
    assert (await watch.read()).status == NOT_SERVING
    assert await watch.read() is grpc.aio.EOF


async def test_reflection_lists_the_services_and_gives_the_proto(rpc: Rpc) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
    Request = reflection_pb2.ServerReflectionRequest
    requests = [Request(list_services=""), Request(file_containing_symbol="poolserve.v1.Poolserve")]
    services, file = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
    names = {service.name for service in services.list_services_response.service}
    assert names == {"poolserve.v1.Poolserve", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert pb.DESCRIPTOR.serialized_pb in file.file_descriptor_response.file_descriptor_proto


# --- the server's own life --------------------------------------------------------------------------------------------


async def test_calls_under_way_are_finished_when_the_server_ends(rpc: Rpc) -> None:
    rpc.app.engines["ce"].delay_s = 0.2
    call = asyncio.ensure_future(rpc.stub.Rerank(rerank()))
    while rpc.app.engines["ce"].load().sequences != 3:
        await asyncio.sleep(0.01)
    await rpc.server.stop()
    assert len((await call).results) == 3
    assert rpc.app.engines["ce"].load().cancelled == 0


async def test_two_replicas_share_a_port_and_one_goes_on_alone(app: App) -> None:
    settings = GrpcSettings(port=free_port(), drain_s=0.5)
    servers = [GrpcServer(app.frontend, settings) for _ in range(2)]
    assert [await server.start() for server in servers] == [settings.port] * 2
    await servers[0].stop()
    for _ in range(20):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{settings.port}") as channel:
            assert len((await poolserve_pb2_grpc.PoolserveStub(channel).Rerank(rerank())).results) == 3
    await servers[1].stop()


async def test_a_port_that_is_taken_is_said(app: App) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings = GrpcSettings(port=other.getsockname()[1])
        with pytest.raises(RuntimeError, match=f"grpc: cannot listen on 127.0.0.1:{settings.port}"):
            await GrpcServer(app.frontend, settings).start()


async def test_an_unknown_prompt_is_refused_in_the_callers_words(rpc: Rpc) -> None:
    request = pb.EmbedRequest(model="emb", input=[pb.EmbedInput(text="a")], input_type="classification")
    info = await rpc.fails(request, grpc.StatusCode.INVALID_ARGUMENT, "Embed")
    assert info.metadata["param"] == "input_type"

"""gRPC on a real cluster: through the gateway's own port, to the same answers as HTTP."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.api.proto import poolserve_pb2_grpc
from tests.cluster import ROOT, Server
from tests.ray.test_robustness import LARGE, _idle_within

QUERY = "waterproof hiking boots for winter"
DOCUMENTS = ["Light mesh running shoes.", "Insulated waterproof boots for winter hiking.", "How to return an order."]
SERVING = health_pb2.HealthCheckResponse.SERVING


def items(texts: list[str]) -> list[pb.Item]:
    return [pb.Item(text=text) for text in texts]


def rerank(**changes: Any) -> pb.RerankRequest:
    """A request that works."""
    values = {"model": "ce-mini", "query": pb.Item(text=QUERY), "documents": items(DOCUMENTS)}
    return pb.RerankRequest(**values | changes)


def large() -> pb.RerankRequest:
    """Minutes of work."""
    return rerank(model="minilm", query=pb.Item(text="boots"), documents=items(LARGE["documents"]))


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as opened:
        yield opened


@pytest.fixture
def stub(channel: grpc.Channel) -> Any:
    return poolserve_pb2_grpc.PoolserveStub(channel)


def code_of(error: grpc.RpcError) -> str:
    """The API's code from the error's details, which hold nothing of our insides."""
    assert "Traceback" not in error.details()
    status = rpc_status.from_call(error)
    assert status.message == error.details()
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return str(info.metadata["code"])


def assert_grpc_equals_http(server: Server) -> None:
    """The set of checks that holds in both proxy modes; needs ce-mini only."""
    body = {"model": "ce-mini", "query": QUERY, "documents": DOCUMENTS}
    over_http = server.post("/v1/rerank", body).json()
    with grpc.insecure_channel(server.grpc) as channel:
        stub = poolserve_pb2_grpc.PoolserveStub(channel)
        answer = stub.Rerank(rerank(), timeout=30)
        assert [result.index for result in answer.results] == [result["index"] for result in over_http["results"]]
        assert [result.relevance_score for result in answer.results] == pytest.approx(
            [result["relevance_score"] for result in over_http["results"]], abs=1e-5
        )
        assert (answer.model, answer.model_version) == ("ce-mini", "1")
        assert {"tokenize", "queue", "engine", "post", "total"} <= set(answer.timings)
        for request, status, code in (
            (rerank(query=pb.Item(text="")), grpc.StatusCode.INVALID_ARGUMENT, "invalid_request"),
            (rerank(model="nope"), grpc.StatusCode.NOT_FOUND, "model_not_found"),
            (rerank(documents=items(["a"] * 1_001)), grpc.StatusCode.RESOURCE_EXHAUSTED, "payload_too_large"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                stub.Rerank(request, timeout=30)
            assert (caught.value.code(), code_of(caught.value)) == (status, code)
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "ce-mini", "ce-mini@1"):
            assert health.Check(health_pb2.HealthCheckRequest(service=service), timeout=30).status == SERVING


def test_grpc_equals_http(server: Server) -> None:
    assert_grpc_equals_http(server)


def test_past_its_deadline_or_left_alone_a_calls_work_ends(server: Server, stub: Any) -> None:
    for _ in range(5):
        with pytest.raises(grpc.RpcError) as caught:
            stub.Rerank(large(), timeout=0.06)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(grpc.RpcError) as caught:
        stub.Rerank(large(), metadata=(("x-request-timeout-ms", "60"),))
    assert (caught.value.code(), code_of(caught.value)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "deadline_exceeded")
    calls = [stub.Rerank.future(large()) for _ in range(20)]
    time.sleep(0.3)
    for call in calls:
        call.cancel()
    assert _idle_within(server, 10.0) < 10.0


def test_overload_is_refused_at_once(stub: Any) -> None:
    documents = items([f"boots {i}" for i in range(1_000)])
    calls = [stub.Rerank.future(rerank(documents=documents), timeout=10) for _ in range(10)]
    outcomes = Counter(str(call.code().name) for call in calls)
    assert set(outcomes) <= {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
    assert outcomes["RESOURCE_EXHAUSTED"] >= 4  # 4,000 documents in flight are taken
    refused = next(call for call in calls if call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert code_of(refused) == "overloaded"
    assert len(stub.Rerank(rerank(), timeout=60).results) == 3


def test_the_example_of_the_guide_runs(server: Server) -> None:
    page = (ROOT / "docs" / "grpc.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 1
    exec(blocks[0].replace("127.0.0.1:9000", server.grpc), {})

"""What the wire costs: HTTP and gRPC of one front end beside each other, in the same run.

    python -m benchmarks.rpc_path                                the front end alone; what is behind it answers at once
    python -m benchmarks.rpc_path --http URL --grpc HOST:PORT    a running server (models `ce-mini` and `minilm`)

Every side is one client, one request at a time, from the request's texts to a numpy array of the answer. Sides take
turns of 20 requests in alternating order; the first turn of each is warm-up and is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx
import numpy as np
import orjson
import uvicorn

from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.api.proto import poolserve_pb2_grpc
from serve_app.frontend import Frontend
from serve_app.messages import Context, EmbedRequest, EmbedResult, PipelineRequest, PipelineResult, ScoreResult, Served
from serve_app.routing import Target
from serve_app.rpc.server import GrpcServer
from serve_app.settings import GatewaySettings, GrpcSettings, RoutingSettings

DIMENSIONS = 768
TURN = 20
Vectors = np.ndarray[Any, Any]


class Instant:
    """A backend that has every answer ready, so that only the front end and the wire are left."""

    def __init__(self) -> None:
        self._vectors = np.random.default_rng(0).standard_normal((1_000, DIMENSIONS)).astype(np.float32)

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        """Random numbers of the right shape."""
        served = Served(target.model, target.version, prompt_tokens=1)
        if isinstance(request, EmbedRequest):
            return EmbedResult(self._vectors[: len(request.inputs)], served)
        return ScoreResult(self._vectors[: len(request.documents), 0], served)  # type: ignore[union-attr]

    async def canary(self, target: Target, deadline: float) -> None:
        """Always ready."""


async def _serve(http_port: int, grpc_port: int) -> None:
    frontend = Frontend(GatewaySettings(), Instant())
    versions = {"1": {"application": "a", "task": "rerank"}}, {"1": {"application": "b", "task": "embed"}}
    models = {"ce-mini": {"versions": versions[0]}, "minilm": {"versions": versions[1]}}
    frontend.reconfigure(RoutingSettings.model_validate({"models": models}))
    await GrpcServer(frontend, GrpcSettings(port=grpc_port)).start()
    await uvicorn.Server(uvicorn.Config(frontend.app(), port=http_port, log_level="error")).serve()


def _serve_forever(http_port: int, grpc_port: int) -> None:
    asyncio.run(_serve(http_port, grpc_port))


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def instant_server() -> Iterator[tuple[str, str]]:
    """The front end over `Instant` in a process of its own; gives its HTTP URL and gRPC address."""
    ports = (free_port(), free_port())
    process = multiprocessing.get_context("spawn").Process(target=_serve_forever, args=ports, daemon=True)
    process.start()
    url = f"http://127.0.0.1:{ports[0]}"
    try:
        for _ in range(300):
            try:
                httpx.get(url + "/health")
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield url, f"127.0.0.1:{ports[1]}"
    finally:
        process.terminate()
        process.join()


def rerank_sides(client: httpx.Client, stub: Any, count: int) -> dict[str, Callable[[], Vectors]]:
    """One query and `count` documents, to an array of scores."""
    documents = [f"insulated waterproof boots number {i} for winter hiking, warm lining" for i in range(count)]

    def over_http() -> Vectors:
        body = {"model": "ce-mini", "query": "winter boots", "documents": documents}
        answer = orjson.loads(client.post("/v1/rerank", content=orjson.dumps(body)).raise_for_status().content)
        return np.array([result["relevance_score"] for result in answer["results"]], np.float32)

    def over_grpc() -> Vectors:
        items = [pb.Item(text=text) for text in documents]
        answer = stub.Rerank(pb.RerankRequest(model="ce-mini", query=pb.Item(text="winter boots"), documents=items))
        return np.array([result.relevance_score for result in answer.results], np.float32)

    return {"HTTP, JSON": over_http, "gRPC": over_grpc}


def embed_sides(client: httpx.Client, stub: Any, count: int) -> dict[str, Callable[[], Vectors]]:
    """`count` texts, to an array of vectors."""
    texts = [f"red boots {i}" for i in range(count)]

    def over_http(**fields: str) -> list[Any]:
        body = {"model": "minilm", "input": texts, **fields}
        content = client.post("/v1/embeddings", content=orjson.dumps(body)).raise_for_status().content
        return [row["embedding"] for row in orjson.loads(content)["data"]]

    def as_base64() -> Vectors:
        rows = over_http(encoding_format="base64")
        return np.stack([np.frombuffer(base64.b64decode(row), "<f4") for row in rows])

    def over_grpc(number_format: pb.FloatFormat, dtype: str) -> Vectors:
        inputs = [pb.EmbedInput(text=text) for text in texts]
        answer = stub.Embed(pb.EmbedRequest(model="minilm", input=inputs, format=number_format))
        return np.frombuffer(b"".join(answer.vectors), dtype).reshape(-1, answer.dimensions)

    return {
        "HTTP, JSON numbers": lambda: np.array(over_http(), np.float32),
        "HTTP, base64": as_base64,
        "gRPC, float32": lambda: over_grpc(pb.FLOAT_FORMAT_FLOAT32, "<f4"),
        "gRPC, float16": lambda: over_grpc(pb.FLOAT_FORMAT_FLOAT16, "<f2"),
    }


def measure(sides: dict[str, Callable[[], Vectors]], turns: int) -> dict[str, list[float]]:
    """Milliseconds of each request, by side; checks that all sides give the same numbers."""
    want = next(iter(sides.values()))()
    for ask in sides.values():
        np.testing.assert_allclose(ask().astype(np.float32), want, rtol=2e-3, atol=2e-3)  # float16 is the coarsest
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(turns + 1):
        for side in list(sides) if turn % 2 else list(reversed(sides)):
            for _ in range(TURN):
                started = time.perf_counter()
                sides[side]()
                if turn:
                    taken[side].append((time.perf_counter() - started) * 1e3)
    return taken


def table(title: str, taken: dict[str, list[float]]) -> str:
    """Markdown."""
    rows = [
        f"| {side} | {np.median(t):.2f} | {np.quantile(t, 0.95):.2f} | {len(t)} |" for side, t in taken.items() if t
    ]
    return "\n".join([f"\n{title}\n", "| side | p50 ms | p95 ms | requests |", "| --- | --- | --- | --- |", *rows])


def compare(url: str, address: str, turns: int) -> None:
    """Measures all and prints."""
    options = [("grpc.max_receive_message_length", 64 * 2**20)]
    with httpx.Client(base_url=url, timeout=60) as client, grpc.insecure_channel(address, options) as channel:
        stub = poolserve_pb2_grpc.PoolserveStub(channel)
        for count in (20, 500):
            print(table(f"rerank, 1 query, {count} documents", measure(rerank_sides(client, stub, count), turns)))
        for count in (1, 128):
            sides = embed_sides(client, stub, count)
            width = sides["HTTP, base64"]().shape[1]
            print(table(f"embed, {count} x {width}", measure(sides, turns)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.rpc_path", description="HTTP and gRPC beside each other.")
    parser.add_argument("--http", help="base URL of a running server; left out: the front end alone")
    parser.add_argument("--grpc", default="127.0.0.1:9000", help="its gRPC address")
    parser.add_argument("--turns", type=int, default=10, help=f"turns of {TURN} requests per side")
    options = parser.parse_args()
    if options.http:
        compare(options.http, options.grpc, options.turns)
        return
    with instant_server() as (url, address):
        compare(url, address, options.turns)


if __name__ == "__main__":
    main()

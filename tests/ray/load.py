"""Constant load on a server, over HTTP and gRPC, from connections that are kept and ones that are new, with every
answer looked at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import pytest

from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.api.proto import poolserve_pb2_grpc

BODIES: list[dict[str, Any]] = [
    {"query": query, "documents": documents}
    for query, documents in (
        ("winter boots", ["warm boots for winter", "a phone case"]),
        ("phone", ["a phone case", "warm boots", "a phone"]),
        ("how to return an order", ["print the label", "boots", "socks", "a parcel within 30 days"]),
    )
]
RETRY = {
    "maxAttempts": 3,
    "initialBackoff": "0.05s",
    "maxBackoff": "0.5s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
"""As docs/grpc.md recommends."""
OPTIONS = [
    ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "waitForReady": True, "retryPolicy": RETRY}]})),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
]


@dataclass
class Load:
    """What the clients have seen.

    Attributes:
        url: of HTTP.
        grpc: address; empty: no such clients.
        models: whom they ask in turns.
        phase: what is being done to the server now.
        answered: answers by phase.
        over_grpc: those of all phases that came over gRPC.
        failed: what went wrong: phase, and status or error.
        repeated: HTTP requests whose connection the proxy closed before any answer; once each.
        scores: the answer to each request by version. Another one would be a mix of versions.
        versions: by phase, answers by version.
    """

    url: str
    grpc: str = ""
    models: Sequence[str] = ("ce",)
    phase: str = "start"
    answered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    over_grpc: int = 0
    failed: list[str] = field(default_factory=list)
    repeated: int = 0
    scores: dict[tuple[str, int], tuple[float, ...]] = field(default_factory=dict)
    versions: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    stopping: bool = False

    @property
    def total(self) -> int:
        return sum(self.answered.values()) + len(self.failed)

    def wait_for(self, requests: int, timeout: float = 300.0) -> None:
        """Waits until so many requests have been answered in this phase."""
        end = time.monotonic() + timeout
        while self.answered[self.phase] < requests:
            assert time.monotonic() < end, f"{self.phase}: {self.answered[self.phase]} answers; {self.failed[-3:]}"
            time.sleep(0.1)

    def _look(self, phase: str, number: int, version: str, scores: tuple[float, ...]) -> None:
        if self.scores.setdefault((version, number), scores) != pytest.approx(scores, abs=1e-4):
            self.failed.append(f"{phase}: {scores} and {self.scores[version, number]} as {version}'s")
        self.versions[phase][version] += 1
        self.answered[phase] += 1

    def _look_at_http(self, phase: str, number: int, response: httpx.Response) -> None:
        if response.status_code != 200:
            self.failed.append(f"{phase}: {response.status_code} {response.text[:200]}")
            return
        body, version = response.json(), response.headers["x-model-version"]
        if body["model_version"] != version:
            self.failed.append(f"{phase}: the header says {version}, the body {body['model_version']}")
        ordered = sorted(body["results"], key=lambda row: row["index"])
        self._look(phase, number, version, tuple(row["relevance_score"] for row in ordered))

    def _next(self, turn: int) -> tuple[str, str, int]:
        """(phase, model, number of the request)."""
        models = self.models
        return self.phase, models[turn // len(BODIES) % len(models)], turn % len(BODIES)

    async def _client(self, turn: int, *, keep: bool) -> None:
        limits = httpx.Limits(max_keepalive_connections=1 if keep else 0)
        async with httpx.AsyncClient(base_url=self.url, timeout=60, limits=limits) as client:
            while not self.stopping:
                turn += 1
                phase, model, number = self._next(turn)
                body = {"model": model, **BODIES[number]}
                try:
                    try:
                        response = await client.post("/v1/rerank", json=body)
                    except httpx.RemoteProtocolError:
                        # HAProxy reloads when replicas change and closes connections, before any answer. Scoring has no
                        # side effect, so HTTP clients repeat it (RFC 9110, 9.2.2); httpx leaves that to the caller.
                        self.repeated += 1
                        response = await client.post("/v1/rerank", json=body)
                    self._look_at_http(phase, number, response)
                except (httpx.HTTPError, KeyError, ValueError) as error:
                    self.failed.append(f"{phase}: {type(error).__name__}: {error}")
                await asyncio.sleep(0.01)

    async def _grpc_client(self, turn: int, *, keep: bool) -> None:
        """One channel for all calls, or one for each."""
        async with contextlib.AsyncExitStack() as stack:
            kept = await stack.enter_async_context(self._channel()) if keep else None
            while not self.stopping:
                turn += 1
                phase, model, number = self._next(turn)
                query, documents = BODIES[number]["query"], BODIES[number]["documents"]
                request = pb.RerankRequest(
                    model=model, query=pb.Item(text=query), documents=[pb.Item(text=text) for text in documents]
                )
                try:
                    async with contextlib.AsyncExitStack() as once:
                        channel = kept or await once.enter_async_context(self._channel())
                        answer = await poolserve_pb2_grpc.PoolserveStub(channel).Rerank(request, timeout=60)
                    ordered = sorted(answer.results, key=lambda row: row.index)
                    self._look(phase, number, answer.model_version, tuple(row.relevance_score for row in ordered))
                    self.over_grpc += 1
                except grpc.aio.AioRpcError as error:
                    self.failed.append(f"{phase}: gRPC {error.code().name}: {error.details()}")
                await asyncio.sleep(0.02)

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.grpc, OPTIONS)

    async def _run(self, kept: int, new: int) -> None:
        clients = [self._client(i, keep=i < kept) for i in range(kept + new)]
        if self.grpc:
            clients += [self._grpc_client(i, keep=i > 0) for i in range(2)]
        await asyncio.gather(*clients)


@contextlib.contextmanager
def constant_load(url: str, grpc: str = "", kept: int = 3, new: int = 2) -> Iterator[Load]:
    """Load from `kept` clients that keep their connection and `new` that open one for each request.

    Args:
        url: of HTTP.
        grpc: address, for one client of each kind there as well; empty: none.
        kept: clients.
        new: clients.
    """
    load = Load(url, grpc)
    thread = threading.Thread(target=lambda: asyncio.run(load._run(kept, new)))
    thread.start()
    try:
        yield load
    finally:
        load.stopping = True
        thread.join(90)

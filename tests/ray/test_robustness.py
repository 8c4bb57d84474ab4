"""The running server under clients that leave, flood, or send nonsense. Bounded in count and time, loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from typing import Any
from urllib.parse import urlparse

import httpx
import orjson
import psutil
import pytest

from tests.cluster import Server

SMALL = {"model": "ce-mini", "query": "boots", "documents": ["red boots", "blue shoes"]}
LARGE = {"model": "minilm", "query": "boots", "documents": [f"{i} boots for winter walks " * 20 for i in range(100)]}


def _raw_request(server: Server, body: dict[str, Any]) -> bytes:
    payload = orjson.dumps(body)
    host = urlparse(server.url).netloc
    head = f"POST /v1/rerank HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


def _idle_within(server: Server, seconds: float) -> float:
    """Seconds after which a small request on the large model is fast again: its engine holds no leftovers."""
    started = time.monotonic()
    body = {**LARGE, "documents": ["boots"]}
    while time.monotonic() - started < seconds:
        begin = time.monotonic()
        assert server.post("/v1/rerank", body).status_code == 200
        if time.monotonic() - begin < 1.0:
            return time.monotonic() - started
    return float("inf")


def test_clients_that_leave_leave_nothing_running(server: Server) -> None:
    """200 requests of 100 long documents would keep the engine busy for many minutes."""
    address = (urlparse(server.url).hostname, urlparse(server.url).port)
    request = _raw_request(server, LARGE)
    for _ in range(10):
        connections = [socket.create_connection(address, timeout=5) for _ in range(20)]
        for connection in connections:
            connection.sendall(request)
        time.sleep(0.02)
        for connection in connections:
            connection.close()
    time.sleep(2.0)
    assert _idle_within(server, 10.0) < 10.0
    assert server.post("/v1/rerank", SMALL).status_code == 200


def test_the_proxy_notices_all_who_leave(server: Server) -> None:
    """See tests/unit/test_haproxy.py; here: the running proxy is started that way."""
    if server.process is None:
        pytest.skip("the server was started by hand")
    proxies = server.processes("bin/haproxy")  # an old one drains after a reload
    assert proxies
    assert all("-dS" in proxy.cmdline() for proxy in proxies)


def test_a_deadline_ends_the_work(server: Server) -> None:
    for _ in range(5):
        response = server.post("/v1/rerank", LARGE, X_Request_Timeout_Ms="60")
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "deadline_exceeded"
    assert _idle_within(server, 10.0) < 10.0


def test_a_small_request_does_not_wait_for_a_large_one(server: Server) -> None:
    async def race() -> tuple[float, float]:
        async with httpx.AsyncClient(base_url=server.url, timeout=200) as client:
            # Many steps of the engine, for the small request waits for one and is in the next.
            patient, body = {"X-Request-Timeout-Ms": "180000"}, {**LARGE, "documents": LARGE["documents"] * 3}
            large = asyncio.ensure_future(client.post("/v1/rerank", json=body, headers=patient))
            await asyncio.sleep(0.5)
            begin = time.monotonic()
            small = await client.post("/v1/rerank", json={**LARGE, "documents": ["boots"]})
            small_s = time.monotonic() - begin
            assert small.status_code == 200
            assert not large.done()
            assert (await large).status_code == 200
            return small_s, time.monotonic() - begin

    small_s, large_s = asyncio.run(race())
    assert small_s < large_s / 2


async def _flood(server: Server, count: int, body: dict[str, Any]) -> Counter[int | str]:
    outcomes: Counter[int | str] = Counter()
    content = orjson.dumps(body)
    limits = httpx.Limits(max_connections=500)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:

        async def one() -> None:
            try:
                response = await client.post("/v1/rerank", content=content)
                outcomes[response.status_code] += 1
                if response.status_code == 429:
                    assert int(response.headers["retry-after"]) >= 1
                elif response.status_code == 200:
                    assert len(response.json()["results"]) == len(body["documents"])
            except httpx.HTTPError as error:
                outcomes[type(error).__name__] += 1

        await asyncio.gather(*(one() for _ in range(count)))
    return outcomes


def test_a_flood_is_answered_or_refused_and_nobody_dies(server: Server) -> None:
    before = {process.pid for name in ("EngineCore", "ServeReplica") for process in _processes(server, name)}
    body = {**SMALL, "documents": [f"boots {i}" for i in range(100)]}
    outcomes = asyncio.run(_flood(server, 1_000, body))
    assert set(outcomes) <= {200, 429}, outcomes
    assert outcomes[200] >= 20
    after = {process.pid for name in ("EngineCore", "ServeReplica") for process in _processes(server, name)}
    assert before == after
    assert server.post("/v1/rerank", SMALL).status_code == 200


def _processes(server: Server, name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if name in (process.info["name"] or "") or name in " ".join(process.info["cmdline"] or []):
                found.append(process)
    return found


def test_health_answers_during_load(server: Server) -> None:
    async def both() -> list[int]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            load = asyncio.ensure_future(_flood(server, 60, {**SMALL, "documents": ["boots"] * 50}))
            statuses = []
            while not load.done():
                statuses.append((await client.get("/health")).status_code)
                statuses.append((await client.get("/ready")).status_code)
                await asyncio.sleep(0.05)
            await load
            return statuses

    statuses = asyncio.run(both())
    assert len(statuses) > 4
    assert set(statuses) == {200}


def test_memory_is_flat_over_a_thousand_requests(server: Server) -> None:
    names = ("EngineCore", "VLLM::Worker", "ServeReplica")

    def memory() -> dict[int, float]:
        processes = [p for name in names for p in _processes(server, name)]
        return {process.pid: process.memory_info().rss / 2**20 for process in processes}

    def load(count: int) -> None:
        bodies = [{**SMALL, "documents": ["boots " * (1 + i % 40) for _ in range(1 + i % 7)]} for i in range(count)]

        async def run() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                for start in range(0, count, 10):
                    answers = (client.post("/v1/rerank", json=body) for body in bodies[start : start + 10])
                    assert {response.status_code for response in await asyncio.gather(*answers)} == {200}

        asyncio.run(run())

    load(300)  # allocators and caches reach their size
    before = memory()
    load(1_000)
    after = memory()
    grown = {pid: after[pid] - size for pid, size in before.items() if after[pid] > size * 1.1 + 10}
    assert grown == {}


@pytest.mark.parametrize("header", ["x-request-timeout-seconds", "x-request-disconnect-disabled"])
def test_rays_own_headers_give_a_client_no_power(server: Server, header: str) -> None:
    """Ray's headers would answer 408 in plain text, or keep abandoned work running."""
    response = server.post("/v1/rerank", SMALL, **{header: "0.0001" if "timeout" in header else "?1"})
    assert response.status_code == 200, response.text

"""A rerank server in a thread, on a free loopback port, whose scores encode its input."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from benchmarks import wire


def score_of(query: str, document: str) -> float:
    """What the fake server answers for a pair."""
    return (zlib.crc32(f"{query}|{document}".encode()) % 10_000) / 10_000


@dataclass
class FakeServer:
    """What it saw, and how it is told to behave.

    Attributes:
        respond: makes the answer from the request's number, from 0; None: the right one.
        offset: added to every score.
    """

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    connections: set[Any] = field(default_factory=set)
    respond: Callable[[int], web.Response | None] = lambda number: None
    delay_s: float = 0.002
    offset: float = 0.0

    async def rerank(self, request: web.Request) -> web.Response:
        body = wire.loads(await request.read())
        number = len(self.bodies)
        self.bodies.append(body)
        self.connections.add(request.transport)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(self.delay_s)
        self.in_flight -= 1
        if (answer := self.respond(number)) is not None:
            return answer
        results = [
            {"index": i, "relevance_score": score_of(body["query"], d) + self.offset}
            for i, d in enumerate(body["documents"])
        ]
        results.sort(key=lambda r: -r["relevance_score"])
        timing = "tokenize;dur=0.25, engine;dur=1.5, total;dur=2"
        return web.Response(body=wire.dumps({"results": results}), headers={"Server-Timing": timing})


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"version": "fake"})


class _Thread(threading.Thread):
    def __init__(self, server: FakeServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()

    def run(self) -> None:
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/rerank", self.server.rerank)
        app.router.add_get("/version", _version)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.stopped = asyncio.Event()
        self.ready.set()
        await self.stopped.wait()
        await runner.cleanup()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.stopped.set)
        self.join(10)


@pytest.fixture
def start_fake() -> Iterator[Callable[[], FakeServer]]:
    """Starts as many fake servers as a test asks for; all end with the test."""
    threads: list[_Thread] = []

    def start() -> FakeServer:
        thread = _Thread(FakeServer())
        threads.append(thread)
        thread.start()
        assert thread.ready.wait(10)
        return thread.server

    yield start
    for thread in threads:
        thread.end()


@pytest.fixture
def fake(start_fake: Callable[[], FakeServer]) -> FakeServer:
    return start_fake()

"""Requests of `images-path`: cold ones with new images, warm ones with the same again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from benchmarks.corpus import Corpus
from benchmarks.image_urls import ImageUrls
from benchmarks.load import Outcome, post
from benchmarks.processes import ServerFailed
from benchmarks.timed import timed_loop
from benchmarks.wire import dumps, scores


@dataclass(frozen=True, slots=True)
class Requests:
    """What a client sends.

    Attributes:
        url: Poolserve's; model: named in each request.
        origin: the image server's.
        words: queries are made of them.
        seed: of queries and names of images.
        images: of a request; large_share, delay_ms: see `ImageUrls`.
        warm: different requests of the warm turns.
        seconds, minimum: a turn's length, and answers that it has at least.
    """

    url: str
    model: str
    origin: str
    words: Sequence[str]
    seed: str
    images: int
    large_share: float
    delay_ms: int
    warm: int
    seconds: float
    minimum: int


class Client:
    """Sends requests. URLs of cold turns are new; those of warm turns are the same ones for the whole run."""

    def __init__(self, session: aiohttp.ClientSession, requests: Requests) -> None:
        self._session = session
        self._requests = requests
        self._corpus = Corpus(requests.words, requests.seed)
        known = self._urls("warm")
        self._warm = [known.take(requests.images) for _ in range(requests.warm)]

    async def turn(self, seed: str, state: str, concurrency: int) -> tuple[list[Outcome], list[Outcome], float]:
        """(outcomes, outcomes of the warm-up, CPU share of this process)."""
        r = self._requests
        fresh = self._urls(f"{seed}-{concurrency}")

        async def send(number: int) -> Outcome:
            urls = fresh.take(r.images) if state == "cold" else self._warm[number % len(self._warm)]
            return await post(self._session, r.url, self._body(urls), r.images)

        first = concurrency if state == "cold" else len(self._warm)
        warmup = await timed_loop(send, concurrency, 0.0, first)
        cpu, began = time.process_time(), time.perf_counter()
        outcomes = await timed_loop(send, concurrency, r.seconds, r.minimum)
        return outcomes, warmup, (time.process_time() - cpu) / max(time.perf_counter() - began, 1e-9)

    async def settle(self) -> None:
        """Requests until five in a row succeed: handles learn of new replicas, and of those that are gone."""
        fresh = self._urls(f"settle-{time.time_ns()}")
        good = 0
        for _ in range(60):
            outcome = await post(self._session, self._requests.url, self._body(fresh.take(2)), 2)
            good = good + 1 if outcome.error is None else 0
            if good == 5:
                return
            if outcome.error is not None:
                await asyncio.sleep(0.5)

    async def scores(self, query: str, names: Sequence[str]) -> list[float]:
        """Scores of a query with small images of the server, by name."""
        urls = [f"{self._requests.origin}/small/0/{name}.jpg" for name in names]
        async with self._session.post(self._requests.url, data=self._body(urls, query)) as response:
            answer = await response.read()
            if response.status != 200:
                raise ServerFailed(f"parity request: {response.status} {answer[:500].decode(errors='replace')}")
        return scores(answer, len(urls))

    def _urls(self, purpose: str) -> ImageUrls:
        r = self._requests
        return ImageUrls(r.origin, f"{r.seed}-{purpose}".replace(" ", "-"), r.large_share, r.delay_ms)

    def _body(self, urls: Sequence[str], query: str | None = None) -> bytes:
        documents = [{"image": url} for url in urls]
        return dumps({"model": self._requests.model, "query": query or self._corpus.query(), "documents": documents})

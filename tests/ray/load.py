"""Constant load on a server, from connections that are kept and from ones that are new, with every answer looked at."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

BODIES = [
    {"model": "ce", "query": query, "documents": documents}
    for query, documents in (
        ("winter boots", ["warm boots for winter", "a phone case"]),
        ("phone", ["a phone case", "warm boots", "a phone"]),
        ("how to return an order", ["print the label", "boots", "socks", "a parcel within 30 days"]),
    )
]


@dataclass
class Load:
    """What the clients have seen.

    Attributes:
        phase: what is being done to the server now.
        answered: answers by phase.
        failed: what went wrong: phase, and status or error.
        repeated: requests whose connection the proxy closed before any answer; once each.
        scores: by version and request, the distinct answers. More than one would be a mix of versions.
        versions: by phase, answers by version.
    """

    url: str
    phase: str = "start"
    answered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: list[str] = field(default_factory=list)
    repeated: int = 0
    scores: dict[tuple[str, int], set[tuple[float, ...]]] = field(default_factory=lambda: defaultdict(set))
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

    def _look(self, phase: str, number: int, response: httpx.Response) -> None:
        if response.status_code != 200:
            self.failed.append(f"{phase}: {response.status_code} {response.text[:200]}")
            return
        body, version = response.json(), response.headers["x-model-version"]
        if body["model_version"] != version:
            self.failed.append(f"{phase}: the header says {version}, the body {body['model_version']}")
        ordered = sorted(body["results"], key=lambda row: row["index"])
        self.scores[version, number].add(tuple(round(row["relevance_score"], 5) for row in ordered))
        self.versions[phase][version] += 1
        self.answered[phase] += 1

    async def _client(self, number: int, *, keep: bool) -> None:
        limits = httpx.Limits(max_keepalive_connections=1 if keep else 0)
        async with httpx.AsyncClient(base_url=self.url, timeout=60, limits=limits) as client:
            while not self.stopping:
                phase, number = self.phase, (number + 1) % len(BODIES)
                try:
                    try:
                        response = await client.post("/v1/rerank", json=BODIES[number])
                    except httpx.RemoteProtocolError:
                        # HAProxy reloads when replicas change and closes connections, before any answer. Scoring has no
                        # side effect, so HTTP clients repeat it (RFC 9110, 9.2.2); httpx leaves that to the caller.
                        self.repeated += 1
                        response = await client.post("/v1/rerank", json=BODIES[number])
                    self._look(phase, number, response)
                except (httpx.HTTPError, KeyError, ValueError) as error:
                    self.failed.append(f"{phase}: {type(error).__name__}: {error}")
                await asyncio.sleep(0.01)

    async def _run(self, kept: int, new: int) -> None:
        clients = [self._client(i, keep=i < kept) for i in range(kept + new)]
        await asyncio.gather(*clients)


@contextlib.contextmanager
def constant_load(url: str, kept: int = 3, new: int = 2) -> Iterator[Load]:
    """Load from `kept` clients that keep their connection and `new` that open one for each request."""
    load = Load(url)
    thread = threading.Thread(target=lambda: asyncio.run(load._run(kept, new)))
    thread.start()
    try:
        yield load
    finally:
        load.stopping = True
        thread.join(90)

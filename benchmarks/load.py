"""A closed loop: a fixed number of requests in flight, the next one sent when one is answered. One process, asyncio."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from benchmarks.wire import MalformedAnswer, scores, server_timing

ERROR_LIMIT = 50
"""Failed requests after which a process gives up its turn: the run is invalid by then, and timeouts cost minutes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request.

    Attributes:
        started, ended: `time.perf_counter()`, which all processes of a Linux host share.
        error: None, or its kind: `http 503`, `timeout`, `malformed`, or the exception's name.
        stages: milliseconds from the answer's `Server-Timing` header.
        answer_bytes: size of the answer's body.
    """

    started: float
    ended: float
    error: str | None = None
    stages: dict[str, float] = field(default_factory=dict)
    answer_bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.ended - self.started


def connect(timeout_s: float) -> aiohttp.ClientSession:
    """A session whose connections are kept alive and not limited in number: the loop itself is the limit."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=300),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers={"Content-Type": "application/json"},
    )


async def post(session: aiohttp.ClientSession, url: str, payload: bytes, documents: int) -> Outcome:
    """Send one request and check its answer. Latency ends with the body's last byte, before it is parsed."""
    started = time.perf_counter()
    try:
        async with session.post(url, data=payload) as response:
            answer = await response.read()
            ended = time.perf_counter()
            if response.status != 200:
                return Outcome(started, ended, f"http {response.status}")
            header = ",".join(response.headers.getall("Server-Timing", []))
        scores(answer, documents)
    except MalformedAnswer:
        return Outcome(started, ended, "malformed")
    except TimeoutError:
        return Outcome(started, time.perf_counter(), "timeout")
    except (aiohttp.ClientError, OSError) as error:
        return Outcome(started, time.perf_counter(), type(error).__name__)
    return Outcome(started, ended, None, server_timing(header), len(answer))


async def closed_loop(
    session: aiohttp.ClientSession,
    url: str,
    payloads: Sequence[bytes],
    concurrency: int,
    documents: int,
    take: Callable[[], int] | None = None,
) -> list[Outcome]:
    """Send every payload once, `concurrency` at a time.

    Args:
        documents: documents of each payload, to check the answers.
        take: gives the index of the next payload to send, shared with other processes; default: this loop's own.
    """
    following = take or itertools.count().__next__
    outcomes: list[Outcome] = []
    failed = 0

    async def worker() -> None:
        nonlocal failed
        while failed < ERROR_LIMIT and (index := following()) < len(payloads):
            outcome = await post(session, url, payloads[index], documents)
            failed += outcome.error is not None
            outcomes.append(outcome)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return outcomes

"""Sending requests, in one process with asyncio.

A closed loop keeps a fixed number in flight and sends the next one when one is answered. An open loop sends at random
times of a given rate, whatever the answers do, as independent users would.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from benchmarks.wire import MalformedAnswer, scores, server_timing

ERROR_LIMIT = 50
"""Failed requests after which a process gives up its turn: the run is invalid by then, and timeouts cost minutes."""

Check = Callable[[bytes, int], object]
"""Reads the answer to a request of so many items.

Raises:
    MalformedAnswer: it is none.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request.

    Attributes:
        started, ended: `time.perf_counter()`, which all processes of a Linux host share. In an open loop `started` is
            when the request was due.
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


async def post(
    session: aiohttp.ClientSession,
    url: str,
    payload: bytes,
    documents: int,
    check: Check = scores,
    due: float | None = None,
) -> Outcome:
    """Send one request and check its answer. Latency ends with the body's last byte, before it is parsed.

    Args:
        documents: items that the answer must have.
        due: when it should have been sent; latency counts from there.
    """
    started = time.perf_counter() if due is None else due
    try:
        async with session.post(url, data=payload) as response:
            answer = await response.read()
            ended = time.perf_counter()
            if response.status != 200:
                return Outcome(started, ended, f"http {response.status}")
            header = ",".join(response.headers.getall("Server-Timing", []))
        check(answer, documents)
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
    check: Check = scores,
    seconds: float | None = None,
) -> list[Outcome]:
    """Send every payload once, `concurrency` at a time.

    Args:
        documents: documents of each payload, to check the answers.
        take: gives the index of the next payload to send, shared with other processes; default: this loop's own.
        check: reads the answers.
        seconds: none is sent later than this after the start; None: all are sent.
    """
    following = take or itertools.count().__next__
    outcomes: list[Outcome] = []
    failed = 0
    ends = None if seconds is None else time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal failed
        while failed < ERROR_LIMIT and (ends is None or time.perf_counter() < ends):
            if (index := following()) >= len(payloads):
                return
            outcome = await post(session, url, payloads[index], documents, check)
            failed += outcome.error is not None
            outcomes.append(outcome)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return outcomes


async def open_loop(
    session: aiohttp.ClientSession,
    url: str,
    payloads: Sequence[bytes],
    rate: float,
    documents: int,
    take: Callable[[], int] | None = None,
    check: Check = scores,
    seconds: float | None = None,
) -> list[Outcome]:
    """Send payloads at the times of a Poisson process, and await all that were sent.

    Args:
        rate: requests a second, on average.
        documents, take, check, seconds: see `closed_loop`.
    """
    following = take or itertools.count().__next__
    outcomes: list[Outcome] = []
    under_way: set[asyncio.Task[None]] = set()
    arrivals = random.Random()
    due = began = time.perf_counter()

    async def send(index: int, when: float) -> None:
        outcomes.append(await post(session, url, payloads[index], documents, check, when))

    while sum(o.error is not None for o in outcomes[-ERROR_LIMIT:]) < ERROR_LIMIT:
        due += arrivals.expovariate(rate)
        if (seconds is not None and due - began > seconds) or (index := following()) >= len(payloads):
            break
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(send(index, due))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    return outcomes

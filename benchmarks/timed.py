"""A closed loop bound by time: requests are sent for some seconds, and all that were sent are awaited.

For work whose speed is not known beforehand by a factor of a hundred, a number of requests is no plan.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

from benchmarks.load import ERROR_LIMIT, Outcome

Send = Callable[[int], Awaitable[Outcome]]
"""Sends the request of a number, counted from 0, and says what became of it."""


async def timed_loop(send: Send, concurrency: int, seconds: float, minimum: int = 1) -> list[Outcome]:
    """Keeps `concurrency` requests in flight.

    Args:
        seconds: no request is begun later than this after the start.
        minimum: answers to wait for whatever the time.
    """
    numbers = itertools.count()
    outcomes: list[Outcome] = []
    ends = time.perf_counter() + seconds
    failed = 0

    async def worker() -> None:
        nonlocal failed
        while failed < ERROR_LIMIT:
            if time.perf_counter() >= ends and len(outcomes) >= minimum:
                return
            outcome = await send(next(numbers))
            failed += outcome.error is not None
            outcomes.append(outcome)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return outcomes


def wall_s(outcomes: list[Outcome]) -> float:
    """From the first request sent to the last answer."""
    if not outcomes:
        return 0.0
    return max(o.ended for o in outcomes) - min(o.started for o in outcomes)

"""Work belongs to all who wait for it: it goes on while one is left, and stops with the last."""

from __future__ import annotations

import asyncio

import pytest

from serve_app.media.errors import MediaError
from serve_app.media.flights import Flights
from serve_app.vocabulary import MediaErrorCode


class Work:
    """Work of 50 ms that counts how it ends."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started = self.finished = self.cancelled = 0

    async def __call__(self) -> str:
        self.started += 1
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        self.finished += 1
        return "done"


async def _hold(flights: Flights[str, str], work: Work, seconds: float = 0.0) -> str:
    async with flights.join("key", work) as result:
        await asyncio.sleep(seconds)
        return result


async def test_once_for_all_and_disposed_of_once() -> None:
    disposed: list[str] = []
    flights: Flights[str, str] = Flights(disposed.append)
    work = Work()
    holders = [asyncio.create_task(_hold(flights, work, 0.02 * n)) for n in range(4)]
    await asyncio.sleep(0.09)
    assert disposed == []  # one still holds it
    assert await asyncio.gather(*holders) == ["done"] * 4
    assert (work.started, disposed, len(flights)) == (1, ["done"], 0)


async def test_one_cancelled_holder_does_not_cancel_the_others_work() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    first, second = (asyncio.create_task(_hold(flights, work)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second == "done"
    assert first.cancelled()
    assert (work.started, work.cancelled) == (1, 0)


async def test_the_last_one_cancels_it() -> None:
    disposed: list[str] = []
    flights: Flights[str, str] = Flights(disposed.append)
    work = Work()
    holders = [asyncio.create_task(_hold(flights, work)) for _ in range(2)]
    await asyncio.sleep(0.01)
    for holder in holders:
        holder.cancel()
    await asyncio.gather(*holders, return_exceptions=True)
    assert await asyncio.wait_for(_hold(flights, work), 1) == "done"  # a new one, not the one that was cancelled
    assert (work.started, work.cancelled, work.finished) == (2, 1, 1)
    assert disposed == ["done"]


async def test_a_failure_is_for_those_who_waited_only() -> None:
    flights: Flights[str, str] = Flights()
    failing = Work(MediaError(MediaErrorCode.UNREACHABLE, "answered 404"))
    results = await asyncio.gather(*(_hold(flights, failing) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["answered 404"] * 3
    assert failing.started == 1
    assert await _hold(flights, Work()) == "done"


async def test_work_that_finishes_in_spite_of_its_cancellation_is_disposed_of() -> None:
    disposed: list[str] = []
    flights: Flights[str, str] = Flights(disposed.append)

    async def stubborn() -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return "done"
        return "late"

    async def hold() -> None:
        async with flights.join("key", stubborn):
            pass

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0.01)
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert disposed == ["done"]


async def test_cancel_all_is_an_error_for_those_who_wait_and_not_a_cancellation() -> None:
    flights: Flights[str, str] = Flights()
    holder = asyncio.create_task(_hold(flights, Work()))
    await asyncio.sleep(0.01)
    flights.cancel_all()
    with pytest.raises(MediaError, match="shutting down"):
        await holder

"""Single flight: equal work that is wanted several times at once is done once.

The work has a task of its own and belongs to nobody. Who wants it holds it; when the last holder leaves, by an
exception, a cancellation or normally, it is cancelled if it still runs and its result is disposed of if it has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from serve_app.media.errors import MediaError
from serve_app.vocabulary import MediaErrorCode

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class _Flight(Generic[Result]):
    __slots__ = ("disposed", "holders", "task")

    def __init__(self, task: asyncio.Task[Result]) -> None:
        self.task = task
        self.holders = 0
        self.disposed = False


class Flights(Generic[Key, Result]):
    """Work in flight, by key.

    Args:
        dispose: called once with each result, when nobody holds it any more.
    """

    def __init__(self, dispose: Callable[[Result], None] = lambda _: None) -> None:
        self._dispose = dispose
        self._flights: dict[Key, _Flight[Result]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @asynccontextmanager
    async def join(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> AsyncIterator[Result]:
        """Starts the work, or joins it where it is already in flight, and holds its result inside the block.

        Raises:
            MediaError: the work's own, or the loader was closed meanwhile.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._landed(key, flight))
        flight.holders += 1
        try:
            # Neither `await task` nor `shield`: the first would cancel the work of others with this holder, the
            # second cannot tell this holder's cancellation from the work's.
            await asyncio.wait((flight.task,))
            if flight.task.cancelled():
                raise MediaError(MediaErrorCode.UNREACHABLE, "was given up, because the service is shutting down")
            yield flight.task.result()
        finally:
            flight.holders -= 1
            if not flight.holders:
                self._forget(key, flight)
                if not flight.task.cancel():  # False: it is done
                    self._dispose_of(flight)

    def cancel_all(self) -> None:
        """Cancels what is in flight."""
        for flight in list(self._flights.values()):
            flight.task.cancel()

    def _landed(self, key: Key, flight: _Flight[Result]) -> None:
        if flight.task.cancelled() or flight.task.exception() is not None:
            self._forget(key, flight)  # a failure is not shared with those who ask later
        elif not flight.holders:  # it was cancelled and finished all the same
            self._dispose_of(flight)

    def _dispose_of(self, flight: _Flight[Result]) -> None:
        if not flight.disposed and not flight.task.cancelled() and flight.task.exception() is None:
            flight.disposed = True
            self._dispose(flight.task.result())

    def _forget(self, key: Key, flight: _Flight[Result]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

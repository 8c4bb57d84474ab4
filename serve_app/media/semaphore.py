"""Bounds what is in flight by its weight: bytes of fetched images, pixels of those being decoded."""

from __future__ import annotations

import asyncio
from collections import deque


class Lease:
    """A share of a `WeightedSemaphore`; releasing it twice does nothing."""

    __slots__ = ("_semaphore", "weight")

    def __init__(self, semaphore: WeightedSemaphore, weight: int) -> None:
        self._semaphore = semaphore
        self.weight = weight

    def shrink(self, weight: int) -> None:
        """Gives back what is above `weight`."""
        surplus = max(0, self.weight - weight)
        self.weight -= surplus
        self._semaphore._give_back(surplus)

    def release(self) -> None:
        """Gives all of it back."""
        self.shrink(0)


class WeightedSemaphore:
    """First come, first served: a heavy one at the head holds up the light ones behind it, so it is never starved."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Weight of those that wait."""
        return sum(weight for weight, granted in self._waiters if not granted.done())

    async def acquire(self, weight: int) -> Lease:
        """Waits until `weight` fits; what weighs more than the capacity has it to itself."""
        weight = min(max(weight, 0), self.capacity)
        if not self._waiters and self.used + weight <= self.capacity:
            self.used += weight
            return Lease(self, weight)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (weight, granted)
        self._waiters.append(waiter)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # granted and cancelled in the same turn of the loop
                self._give_back(weight)
            else:
                self._waiters.remove(waiter)
                self._give_back(0)
            raise
        return Lease(self, weight)

    def _give_back(self, weight: int) -> None:
        self.used -= weight
        while self._waiters and self.used + self._waiters[0][0] <= self.capacity:
            granted_weight, granted = self._waiters.popleft()
            if not granted.cancelled():
                self.used += granted_weight
                granted.set_result(None)

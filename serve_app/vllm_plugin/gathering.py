"""When a step may begin: not with the first sequences of a request whose others are on their way.

A request's sequences reach the engine's core one by one, some 0.2 ms apart. A core that has nothing to do would begin a
step with the first few, and the rest would wait for its end: a request of 20 took three steps instead of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_FORGOTTEN_S = 1.0
"""A request that got no sequence for so long was given up by its caller."""


def sequence_id(request: str, count: int, i: int) -> str:
    """Name of the i-th of a request's `count` sequences, from which the core reads how many there will be."""
    return f"{request}:{count}:{i}"


@dataclass(slots=True)
class _Arriving:
    """A request that is not complete.

    Attributes:
        missing: sequences that are on their way.
        waiting: sequences that came since the last step began.
        since: monotonic time at which the first of them came.
        latest: monotonic time at which the last one came.
    """

    missing: int
    waiting: int
    since: float
    latest: float


class Gathering:
    """Watches sequences arrive.

    Args:
        limit_s: how long fragments wait for the rest of their request; 0: never.
        clock: monotonic seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._arriving: dict[str, _Arriving] = {}

    def arrived(self, name: str) -> None:
        """A sequence has come; `name` is of `sequence_id`, or anything else for one that stands alone."""
        parts = name.rsplit(":", 2)
        if len(parts) < 3 or not parts[1].isascii() or not parts[1].isdigit() or int(parts[1]) < 2:
            return
        now = self._clock()
        found = self._arriving.get(parts[0])
        if found is None:
            found = self._arriving[parts[0]] = _Arriving(int(parts[1]), 0, now, now)
        elif not found.waiting:
            found.since = now
        found.missing -= 1
        found.waiting += 1
        found.latest = now
        if not found.missing:
            del self._arriving[parts[0]]

    def left(self, name: str) -> None:
        """A sequence was aborted: nothing waits for the rest of its request."""
        self._arriving.pop(name.rsplit(":", 2)[0], None)

    def waits(self, waiting: int) -> bool:
        """Whether the next step had better begin a little later.

        Args:
            waiting: sequences that no step has begun.
        """
        fragments = [found for found in self._arriving.values() if found.waiting]
        if not fragments or waiting > sum(found.waiting for found in fragments):
            return False
        return self._clock() - min(found.since for found in fragments) < self._limit_s

    def begun(self) -> None:
        """A step has begun, with what was there."""
        if not self._arriving:
            return
        now = self._clock()
        for name, found in list(self._arriving.items()):
            found.waiting = 0
            if now - found.latest > _FORGOTTEN_S:
                del self._arriving[name]

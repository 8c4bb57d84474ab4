"""The time that one image may take, and what the time of others says about its host."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

_NEVER = float("-inf")


@dataclass(slots=True)
class Host:
    """When a host last answered, and when a fetch last ran out of time without an answer."""

    answered_at: float = _NEVER
    silent_at: float = _NEVER


class Clock:
    """An image's time. It stands still while the image waits for one of our own limits."""

    def __init__(self, timer: asyncio.Timeout) -> None:
        self._timer = timer
        self._now = asyncio.get_running_loop().time
        self._left = 0.0
        self._paused_at = _NEVER
        self.host = Host()
        self.answered = False

    def pause(self) -> None:
        """Stops the time."""
        self._paused_at = self._now()
        self._left = (self._timer.when() or self._paused_at) - self._paused_at
        self._timer.reschedule(None)

    def resume(self) -> None:
        """Lets the time go on, or ends it when the host has turned out to be dead in the meantime."""
        # Those who queued behind fetches to a dead host must not each find out for themselves: 200 images with 32
        # connections would take seven times the limit.
        dead = not self.answered and self.host.silent_at > self._paused_at > self.host.answered_at
        self._timer.reschedule(self._now() + (0.0 if dead else self._left))

    def answer(self) -> None:
        """The host has answered."""
        self.answered = True
        self.host.answered_at = self._now()

    def run_out(self) -> None:
        """The time is over."""
        if not self.answered:
            self.host.silent_at = self._now()

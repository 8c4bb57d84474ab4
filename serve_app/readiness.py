"""Which model versions answer: one canary request each, through their whole path."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum

from serve_app.errors import PoolserveError
from serve_app.routing import Target
from serve_app.startup import StartTimes

logger = logging.getLogger(__name__)

CANARY_TIMEOUT_S = 5.0
"""A version that has not answered its canary by then is not ready."""
RECENT_S = 2.5
"""A client's answer this recent shows that a version answers, when load refuses its canary."""
LOOK_EVERY_S = 0.5
"""So often a canary that waits looks whether clients are answered meanwhile."""
FRESH_S = 1.0
"""Answers of canaries are reused for this long, so that probes cannot load the engines."""


class State(StrEnum):
    """What is known of a version."""

    READY = "ready"
    NOT_READY = "not ready"
    UNKNOWN = "unknown"


class Readiness:
    """Runs and remembers canaries.

    Args:
        canary: sends one through the target's path by a deadline (wall-clock seconds), raises if that fails. Gives how
            long the stages took to start, if they say.
    """

    def __init__(self, canary: Callable[[Target, float], Awaitable[Mapping[str, StartTimes] | None]]) -> None:
        self._canary = canary
        self._targets: Sequence[Target] = ()
        self._states: dict[str, State] = {}
        self._start_times: dict[str, Mapping[str, StartTimes]] = {}
        self._answered: dict[str, float] = {}
        self._generation = 0  # of the targets
        self._checked = (0, float("-inf"))  # the last round's generation, and when it ended
        self._lock = asyncio.Lock()
        self._warming: set[asyncio.Task[None]] = set()

    def watch(self, targets: Sequence[Target]) -> None:
        """Takes the routing table's targets; warms those that are new."""
        self._targets = targets
        self._generation += 1
        task = asyncio.ensure_future(self.refresh())
        self._warming.add(task)
        task.add_done_callback(self._warming.discard)

    def answered(self, target: Target) -> None:
        """Notes that a request of a client was answered just now."""
        self._answered[target.application] = time.monotonic()

    async def refresh(self) -> None:
        """Runs all canaries, unless that was done a moment ago. Concurrent callers share one round.

        Targets that change meanwhile are asked in a further round, which this call waits for as well.
        """
        async with self._lock:
            while self._checked[0] != self._generation or time.monotonic() - self._checked[1] >= FRESH_S:
                generation, targets = self._generation, list(self._targets)
                states = await asyncio.gather(*(self._check(target) for target in targets))
                self._states = {target.application: state for target, state in zip(targets, states, strict=True)}
                self._checked = generation, time.monotonic()
                if generation == self._generation:
                    return

    async def _check(self, target: Target) -> State:
        begun = time.monotonic()
        canary = asyncio.ensure_future(self._canary(target, time.time() + CANARY_TIMEOUT_S))
        try:
            while not (await asyncio.wait({canary}, timeout=LOOK_EVERY_S))[0]:
                if self._last_answer(target) > begun:  # it waits where clients' requests get through: that is load
                    return State.READY
            if canary.cancelled():
                return State.NOT_READY
            times = canary.result()
        except PoolserveError:
            return State.READY if time.monotonic() - self._last_answer(target) < RECENT_S else State.NOT_READY
        except Exception:  # whatever it is, it says nothing of the other versions
            if self.state(target) is not State.NOT_READY:  # once, not with every round
                logger.exception("the canary of %s failed, which is our fault", target.application)
            return State.NOT_READY
        finally:
            canary.cancel()
        if times is not None:
            self._start_times[target.application] = times
        return State.READY

    def _last_answer(self, target: Target) -> float:
        return self._answered.get(target.application, float("-inf"))

    def state(self, target: Target) -> State:
        """What the last canary said."""
        return self._states.get(target.application, State.UNKNOWN)

    def start_times(self, target: Target) -> Mapping[str, StartTimes] | None:
        """Seconds by stage and phase that the replicas which answered last took to start; None: not known."""
        return self._start_times.get(target.application)

    def known_ready(self, target: Target) -> bool:
        """Whether the last canary was answered."""
        return self.state(target) is State.READY

    def all_ready(self) -> bool:
        """Whether there are targets and all answered."""
        return bool(self._targets) and all(self.known_ready(target) for target in self._targets)

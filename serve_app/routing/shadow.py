"""Copies of requests to another version. The caller never waits for one, and never learns what became of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from serve_app.errors import PoolserveError
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.routing.counters import RoutingCounters
from serve_app.routing.differences import difference
from serve_app.routing.table import Decision, RoutingTable, Target

logger = logging.getLogger("ray.serve")

Run = Callable[[Target, Context, PipelineRequest], Awaitable[PipelineResult]]


class Shadows:
    """Copies under way, each a task of its own, and no more of them than the table allows.

    Args:
        run: sends a request to a target.
        counters: counts what becomes of the copies.
    """

    def __init__(self, run: Run, counters: RoutingCounters) -> None:
        self._run = run
        self._counters = counters
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._in_flight: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        """Copies under way."""
        return len(self._tasks)

    def offer(self, decision: Decision, context: Context, request: PipelineRequest, result: PipelineResult) -> bool:
        """Sends a copy if the decision wants one and there is room. Never waits and never fails.

        Called once the caller's answer is there: what failed is not copied, and a copy cannot race its original.

        Args:
            result: the caller's answer, for the comparison.

        Returns:
            Whether the copy is on its way.
        """
        shadow, copies = decision.shadow, decision.copies
        if shadow is None or copies is None:
            return False
        if self._in_flight[shadow.application] >= copies.max_in_flight:
            self._counters.shadow(decision, "dropped")
            return False
        self._in_flight[shadow.application] += 1
        self._counters.shadow(decision, "sent")
        deadline = time.time() + copies.timeout_ms / 1e3
        copy = Context(f"{context.request_id}-shadow"[:128], deadline, context.operation)
        task = asyncio.get_running_loop().create_task(self._copy(decision, shadow, copy, request, result))
        self._tasks[task] = shadow.application
        task.add_done_callback(lambda task: self._done(task, decision))
        return True

    def retain(self, table: RoutingTable) -> None:
        """Cancels copies to versions that a new table no longer sends any to."""
        for task, application in self._tasks.items():
            if application not in table.shadowed:
                task.cancel()

    async def close(self) -> None:
        """Cancels all copies and waits for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy(
        self, decision: Decision, shadow: Target, context: Context, request: PipelineRequest, result: PipelineResult
    ) -> None:
        try:
            async with asyncio.timeout(context.deadline - time.time()):
                other = await self._run(shadow, context, request)
        except (PoolserveError, TimeoutError):
            self._counters.shadow(decision, "failed")
            return
        self._counters.shadow(decision, "answered")
        found = difference(result, other)
        if found is None:
            self._counters.shadow(decision, "not_comparable")
        else:
            self._counters.compared(decision, found)

    def _done(self, task: asyncio.Task[Any], decision: Decision) -> None:
        # Here and not in the task: one that is cancelled before its first step never runs.
        self._in_flight[self._tasks.pop(task)] -= 1
        if task.cancelled():
            self._counters.shadow(decision, "cancelled")
        elif (error := task.exception()) is not None:
            self._counters.shadow(decision, "failed")
            logger.error("a copy for %s failed", decision.target.application, exc_info=error)

"""All-or-nothing admission of requests by their sequences and tokens, and their end at the deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from serve_app.errors import DeadlineExceeded, Overloaded
from serve_app.messages import EngineBatch
from serve_app.settings import AdmissionSettings

_RATE_MEMORY_S = 5.0
"""Seconds over which the rate of finished tokens is averaged for `Retry-After`."""


class Admission:
    """Counts work in flight and refuses what does not fit. A request is taken whole or refused whole.

    A request larger than a limit is still taken when nothing else is in flight; otherwise it could never be served.

    Attributes:
        sequences, tokens: in flight.
        cancelled: batches that ended by cancellation or deadline since the start.
    """

    def __init__(self, limits: AdmissionSettings) -> None:
        self._limits = limits
        self.sequences = 0
        self.tokens = 0
        self.cancelled = 0
        self._rate = 0.0
        self._last = time.monotonic()

    @asynccontextmanager
    async def until_deadline(self, batch: EngineBatch) -> AsyncIterator[None]:
        """Holds room for a batch while it runs, and ends the block at its deadline.

        Raises:
            Overloaded: see `take`.
            DeadlineExceeded: the block was ended.
        """
        with self.take(len(batch), int(batch.offsets[-1])):
            timeout = asyncio.timeout(max(0.0, batch.deadline - time.time()))
            try:
                async with timeout:
                    yield
            except TimeoutError:
                if not timeout.expired():
                    raise
                self.cancelled += 1
                raise DeadlineExceeded("the deadline passed in the engine") from None
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

    @contextmanager
    def take(self, sequences: int, tokens: int) -> Iterator[None]:
        """Holds room for the duration of the block.

        Raises:
            Overloaded: no room now, with the seconds after which there should be.
        """
        self._check("documents", self.sequences, sequences, self._limits.max_documents_in_flight, tokens)
        self._check("tokens", self.tokens, tokens, self._limits.max_tokens_in_flight, tokens)
        self.sequences += sequences
        self.tokens += tokens
        try:
            yield
        finally:
            self.sequences -= sequences
            self.tokens -= tokens
            self._finished(tokens)

    def _check(self, unit: str, held: int, wanted: int, limit: int, tokens: int) -> None:
        if self.sequences and held + wanted > limit:
            raise Overloaded(
                f"no room now: {held} {unit} in flight, {wanted} more would pass the engine's limit of {limit}",
                retry_after_s=self._retry_after(tokens),
            )

    def _finished(self, tokens: int) -> None:
        now = time.monotonic()
        weight = min(1.0, (now - self._last) / _RATE_MEMORY_S)
        self._rate += weight * (tokens / max(now - self._last, 1e-3) - self._rate)
        self._last = now

    def _retry_after(self, tokens: int) -> float:
        """Seconds until as many tokens have been worked off as the request needs; between 1 and 30."""
        return min(30.0, max(1.0, tokens / self._rate if self._rate > 0 else 1.0))

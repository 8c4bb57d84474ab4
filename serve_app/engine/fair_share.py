"""Start-time fair queuing: a request of 500 documents must not make a request of one wait for all of them, nor a
stream of requests of one keep it waiting.

Each sequence gets a start tag, the engine works on the smallest tags first (vLLM's priority scheduling). A request's
first sequence starts at the virtual clock, each further one after the tokens of those before it. The clock goes on by
each request's share of the tokens that were answered, and never stands behind the largest tag that was. So requests
under way share the engine by tokens, whatever their sizes.

Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996. Its clock is the tag in service alone; a request of one
sequence is tagged with the clock itself, so a stream of them that fills the engine would stop it. The share is the
virtual time of weighted fair queuing (Parekh, Gallager, 1993).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from serve_app.messages import IntArray


class FairShare:
    """Hands out start tags and follows the virtual clock."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._requests = 0

    @contextmanager
    def request(self, offsets: IntArray) -> Iterator[list[int]]:
        """A request that arrives now and is under way as long as the block runs.

        Args:
            offsets: as in `EngineBatch`.

        Yields:
            One tag per sequence, ascending.
        """
        self._requests += 1
        try:
            yield (offsets[:-1].astype("int64") + int(self._clock)).tolist()
        finally:
            self._requests -= 1

    def served(self, tag: int, tokens: int) -> None:
        """So many tokens of a request under way have been answered; `tag` is the last of their sequences'."""
        self._clock = max(self._clock + tokens / max(1, self._requests), float(tag))

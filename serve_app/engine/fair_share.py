"""Start-time fair queuing: a request of 500 documents must not make a request of one wait for all of them.

Each sequence gets a start tag, the engine works on the smallest tags first (vLLM's priority scheduling). A request's
first sequence starts at the virtual clock, each further one after the tokens of those before it; the clock is the
largest tag that has been served. So requests under way share the engine by tokens, whatever their sizes.

Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996.
"""

from __future__ import annotations

from serve_app.messages import IntArray


class FairShare:
    """Hands out start tags and follows the virtual clock."""

    def __init__(self) -> None:
        self._clock = 0

    def tags(self, offsets: IntArray) -> list[int]:
        """One tag per sequence of a request that arrives now; `offsets` as in `EngineBatch`."""
        return (offsets[:-1].astype("int64") + self._clock).tolist()  # type: ignore[no-any-return]

    def served(self, tag: int) -> None:
        """A sequence with this tag has been answered."""
        self._clock = max(self._clock, tag)

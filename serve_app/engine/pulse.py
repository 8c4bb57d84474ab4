"""An engine's signs of life: its outputs, and what it left unanswered."""

from __future__ import annotations

import time


class Pulse:
    """When an engine last gave an output, as far as its silence means something.

    Attributes:
        unproven: a batch was given up, by deadline or by its caller, and no output has come since. Work that is given
            up again and again leaves no silence long enough to be noticed.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()
        self.unproven = False

    @property
    def silent_s(self) -> float:
        """Seconds since the last output, or since the engine was last idle."""
        return time.monotonic() - self._since

    def begin(self) -> None:
        """An idle engine gets work: its silence so far means nothing."""
        self._since = time.monotonic()

    def beat(self) -> None:
        """An output has come."""
        self._since = time.monotonic()
        self.unproven = False

    def give_up(self) -> None:
        """Nobody waits for a batch any more."""
        self.unproven = True

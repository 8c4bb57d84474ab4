"""Work of one replica, as `policy.py` reads it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serve_app.vocabulary import Measure


class Meter:
    """Counts work by measure. Belongs to one event loop.

    Args:
        measures: what is counted.
        clock: seconds.
    """

    def __init__(self, *measures: Measure, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.in_flight = dict.fromkeys(measures, 0)
        self.arrived = dict.fromkeys(measures, 0)
        self.done = dict.fromkeys(measures, 0)
        self._last = (clock(), dict(self.arrived), dict(self.done))
        self._open = 0  # blocks of work that run
        self._busy_s = 0.0
        self._busy_since = 0.0

    @contextmanager
    def work(self, amounts: dict[Measure, int]) -> Iterator[None]:
        """Counts work while the block runs. What ends with an error has arrived and was not done."""
        if not self._open:
            self._busy_since = self._clock()
        self._open += 1
        for measure, amount in amounts.items():
            self.in_flight[measure] += amount
            self.arrived[measure] += amount
        try:
            yield
            for measure, amount in amounts.items():
                self.done[measure] += amount
        finally:
            for measure, amount in amounts.items():
                self.in_flight[measure] -= amount
            self._open -= 1
            if not self._open:
                self._busy_s += self._clock() - self._busy_since

    def figures(self) -> dict[str, float]:
        """Work in flight by measure, per second since the last call (`tokens`, `tokens_arrived_per_s`, …), and the
        share of that time in which there was any (`busy`)."""
        now = self._clock()
        if self._open:
            self._busy_s += now - self._busy_since
            self._busy_since = now
        then, arrived, done = self._last
        seconds = max(now - then, 1e-3)
        self._last = (now, dict(self.arrived), dict(self.done))
        figures = {"busy": min(1.0, self._busy_s / seconds)}
        self._busy_s = 0.0
        for measure, amount in self.in_flight.items():
            figures[str(measure)] = float(amount)
            figures[f"{measure}_arrived_per_s"] = (self.arrived[measure] - arrived[measure]) / seconds
            figures[f"{measure}_done_per_s"] = (self.done[measure] - done[measure]) / seconds
        return figures

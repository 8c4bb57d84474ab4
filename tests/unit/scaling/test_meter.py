"""What a replica reports."""

from __future__ import annotations

import pytest

from serve_app.scaling.meter import Meter
from serve_app.vocabulary import Measure

TOKENS, DOCUMENTS = Measure.TOKENS, Measure.DOCUMENTS


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_figures_are_those_since_the_last_call() -> None:
    clock = Clock()
    meter = Meter(TOKENS, DOCUMENTS, clock=clock)
    first = meter.work({TOKENS: 100, DOCUMENTS: 2})
    with meter.work({TOKENS: 300, DOCUMENTS: 6}):
        first.__enter__()
        clock.now = 2.0
        figures = meter.figures()
    assert figures == {
        "busy": 1.0,
        "tokens": 400.0,
        "tokens_arrived_per_s": 200.0,
        "tokens_done_per_s": 0.0,
        "documents": 8.0,
        "documents_arrived_per_s": 4.0,
        "documents_done_per_s": 0.0,
    }
    clock.now = 3.0
    first.__exit__(None, None, None)
    clock.now = 4.0
    figures = meter.figures()
    assert (figures["tokens"], figures["tokens_done_per_s"], figures["busy"]) == (0.0, 200.0, 0.5)
    assert meter.done == {TOKENS: 400, DOCUMENTS: 8}
    clock.now = 5.0
    assert set(meter.figures().values()) == {0.0}


def test_work_that_fails_has_arrived_and_is_not_done() -> None:
    clock = Clock()
    meter = Meter(TOKENS, clock=clock)
    with pytest.raises(ValueError, match="no room"), meter.work({TOKENS: 10}):
        raise ValueError("no room")
    clock.now = 1.0
    figures = meter.figures()
    assert (figures["tokens"], figures["tokens_arrived_per_s"], figures["tokens_done_per_s"]) == (0.0, 10.0, 0.0)

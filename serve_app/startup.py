"""How long each phase of a replica's start took."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

StartTimes = Mapping[str, float]
"""Seconds by phase, in the order in which the phases ran."""


class Phase(StrEnum):
    """Phases of a start. An engine has all but TOKENIZER, an IOProcessor the first three."""

    VERIFY = "verify"
    """Finding a materialized checkpoint and comparing it with its manifest."""
    RESOLVE = "resolve"
    """Config and tokenizer: read, or downloaded for a hub id."""
    TOKENIZER = "tokenizer"
    TURN = "turn"
    """Waiting for another engine that starts on the same GPU."""
    IMPORT = "import"
    """Importing the inference engine."""
    SETUP = "setup"
    """Merging its options, starting its processes, and all that has no phase of its own."""
    WEIGHTS = "weights"
    """Loading the weights, their download included for a hub id that is not materialized."""
    PROFILE = "profile"
    """Measuring memory, allocating caches."""
    COMPILE = "compile"
    """Compiling, capturing CUDA graphs, warming up."""
    CANARY = "canary"
    """The first request."""


class StartClock:
    """Collects the phases' seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Adds the time of the block to a phase."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add({phase: time.monotonic() - started})

    def add(self, seconds: StartTimes) -> None:
        """Adds phases that others measured."""
        for phase, value in seconds.items():
            self._seconds[str(phase)] = self._seconds.get(str(phase), 0.0) + value

    def times(self) -> StartTimes:
        """Seconds by phase so far, and `total` since the clock was made."""
        return {**self._seconds, "total": time.monotonic() - self._started}


def in_words(times: StartTimes) -> str:
    """`verify 0.1, weights 3.2, total 21.0`: for logs."""
    return ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in times.items())


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while large packages are imported: they make millions of objects, and all of them stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def freeze() -> None:
    """Takes what a start leaves behind out of the garbage collector's sight.

    A full collection walks every object of the process, modules and model included, while requests wait; each request
    that leaves something for later (a log line) brings the next one nearer.
    """
    gc.collect()
    gc.freeze()

"""Ctrl-C and SIGTERM for a program that has servers to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible_once() -> Iterator[None]:
    """SIGINT and SIGTERM interrupt once; later ones are ignored, for `timeout` sends two and the second would interrupt
    the stopping of servers.

    SIGINT is set too: where a shell started us with `&` it is ignored, servers inherit that, and Poolserve ends by
    SIGINT.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        print("stopping what was started", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

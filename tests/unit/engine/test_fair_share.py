"""A small request goes before what is left of a large one, and equal ones alternate."""

from __future__ import annotations

import heapq
from collections import Counter
from contextlib import AbstractContextManager

import numpy as np
import pytest

from serve_app.engine.fair_share import FairShare


def _offsets(sequences: int, length: int) -> np.ndarray:
    return np.arange(sequences + 1, dtype=np.int32) * length


class _Under:
    """Requests under way: serves one sequence of 10 tokens per step, the smallest tag first."""

    def __init__(self) -> None:
        self.fair = FairShare()
        self._waiting: list[tuple[int, int, str]] = []
        self._left: Counter[str] = Counter()
        self._open: dict[str, AbstractContextManager[list[int]]] = {}
        self._count = 0

    def arrive(self, name: str, sequences: int) -> None:
        self._open[name] = self.fair.request(_offsets(sequences, 10))
        for tag in self._open[name].__enter__():
            heapq.heappush(self._waiting, (tag, self._count, name))
            self._count += 1
        self._left[name] = sequences

    def step(self) -> str | None:
        if not self._waiting:
            return None
        tag, _, name = heapq.heappop(self._waiting)
        self.fair.served(tag, 10)
        self._left[name] -= 1
        if not self._left[name]:
            self._open.pop(name).__exit__(None, None, None)
        return name


def _simulate(arrivals: dict[int, tuple[str, int]]) -> list[str]:
    """`arrivals` says which request of how many sequences comes at which step."""
    engine = _Under()
    order: list[str] = []
    for step in range(10_000):
        if step in arrivals:
            engine.arrive(*arrivals[step])
        if (name := engine.step()) is None:
            break
        order.append(name)
    return order


def test_a_request_of_one_does_not_wait_for_a_request_of_500() -> None:
    order = _simulate({0: ("large", 500), 100: ("small", 1)})
    assert order.index("small") <= 102
    assert len(order) == 501


def test_two_large_ones_share_equally_from_the_moment_both_are_there() -> None:
    order = _simulate({0: ("a", 300), 100: ("b", 300)})
    both = order[100:300]
    assert abs(both.count("a") - both.count("b")) <= 2


def test_an_old_request_is_not_starved_by_a_stream_of_new_ones() -> None:
    arrivals = {0: ("old", 50)} | {step: (f"n{step}", 1) for step in range(1, 200, 2)}
    order = _simulate(arrivals)
    assert max(i for i, name in enumerate(order) if name == "old") < 110


@pytest.mark.parametrize("clients", [1, 2, 8, 32])
def test_a_stream_that_fills_the_engine_leaves_an_old_request_its_share(clients: int) -> None:
    """Each client sends its next request of one sequence as soon as the last one is answered."""
    engine = _Under()
    for client in range(clients):
        engine.arrive(f"{client}/0", 1)
    engine.arrive("old", 50)
    served = 0
    for step in range(1, 10_000):
        name = engine.step()
        assert name is not None
        if name == "old":
            served += 1
            if served == 50:
                break
        else:
            engine.arrive(f"{name.partition('/')[0]}/{step}", 1)
    assert served == 50
    assert step <= 1.2 * 50 * (clients + 1)


def test_requests_that_left_have_no_share() -> None:
    fair = FairShare()
    for _ in range(5):
        with fair.request(_offsets(3, 10)):
            pass
    with fair.request(_offsets(1, 10)) as (first,):
        fair.served(first, 100)
        with fair.request(_offsets(1, 10)) as (second,):
            assert second == first + 100

"""A small request goes before what is left of a large one, and equal ones alternate."""

from __future__ import annotations

import heapq

import numpy as np

from serve_app.engine.fair_share import FairShare


def _offsets(sequences: int, length: int) -> np.ndarray:
    return np.arange(sequences + 1, dtype=np.int32) * length


def _simulate(fair: FairShare, arrivals: dict[int, tuple[str, int]]) -> list[str]:
    """Serves one sequence of 10 tokens per step; `arrivals` says which request of how many sequences comes when."""
    waiting: list[tuple[int, int, str]] = []
    order: list[str] = []
    count = 0
    for step in range(10_000):
        if step in arrivals:
            name, sequences = arrivals[step]
            for tag in fair.tags(_offsets(sequences, 10)):
                heapq.heappush(waiting, (tag, count, name))
                count += 1
        if not waiting:
            break
        tag, _, name = heapq.heappop(waiting)
        fair.served(tag)
        order.append(name)
    return order


def test_a_request_of_one_does_not_wait_for_a_request_of_500() -> None:
    order = _simulate(FairShare(), {0: ("large", 500), 100: ("small", 1)})
    assert order.index("small") <= 102
    assert len(order) == 501


def test_two_large_ones_share_equally_from_the_moment_both_are_there() -> None:
    order = _simulate(FairShare(), {0: ("a", 300), 100: ("b", 300)})
    both = order[100:300]
    assert abs(both.count("a") - both.count("b")) <= 2


def test_an_old_request_is_not_starved_by_a_stream_of_new_ones() -> None:
    arrivals = {0: ("old", 50)} | {step: (f"n{step}", 1) for step in range(1, 200, 2)}
    order = _simulate(FairShare(), arrivals)
    assert max(i for i, name in enumerate(order) if name == "old") < 110

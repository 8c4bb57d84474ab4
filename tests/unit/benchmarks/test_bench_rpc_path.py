"""HTTP beside gRPC: turns, warm-up, and equal numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.rpc_path import TURN, compare, instant_server, measure, table


def test_warm_up_is_left_out_and_every_side_gets_the_same_turns() -> None:
    asked: Counter[str] = Counter()

    def side(name: str) -> np.ndarray:
        asked[name] += 1
        return np.ones(3, np.float32)

    taken = measure({"a": lambda: side("a"), "b": lambda: side("b")}, turns=2)
    assert {name: len(times) for name, times in taken.items()} == {"a": 2 * TURN, "b": 2 * TURN}
    assert asked["a"] - asked["b"] == 1  # the one that the others are compared with
    assert asked["b"] == 3 * TURN + 1
    assert table("title", taken).count("| 40 |") == 2


def test_sides_that_differ_are_no_measurement() -> None:
    with pytest.raises(AssertionError, match="Mismatched elements"):
        measure({"a": lambda: np.zeros(2), "b": lambda: np.ones(2)}, turns=1)


def test_the_real_sides_agree(capsys: pytest.CaptureFixture[str]) -> None:
    with instant_server() as (url, address):
        compare(url, address, turns=0)
    assert "embed, 128 x 768" in capsys.readouterr().out

"""Steps begin with whole requests, and nothing waits longer than it should."""

from __future__ import annotations

import pytest

from serve_app.vllm_plugin.gathering import Gathering, sequence_id


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gathering(clock: Clock) -> Gathering:
    return Gathering(0.008, clock)


def arrive(gathering: Gathering, request: str, count: int, *places: int) -> None:
    for i in places:
        gathering.arrived(f"{sequence_id(request, count, i)}-0a1b2c3d")  # vLLM puts random characters behind


def test_the_first_sequences_wait_for_the_last(gathering: Gathering, clock: Clock) -> None:
    for i in range(19):
        arrive(gathering, "a", 20, i)
        clock.now += 0.0002
        assert gathering.waits(i + 1)
    arrive(gathering, "a", 20, 19)
    assert not gathering.waits(20)


def test_no_longer_than_the_limit(gathering: Gathering, clock: Clock) -> None:
    arrive(gathering, "a", 500, 0)
    assert gathering.waits(1)
    clock.now += 0.005
    arrive(gathering, "a", 500, 1)
    clock.now += 0.0031
    assert not gathering.waits(2)


def test_what_comes_after_a_step_waits_anew(gathering: Gathering, clock: Clock) -> None:
    arrive(gathering, "a", 20, *range(12))
    clock.now += 0.009
    assert not gathering.waits(12)
    gathering.begun()
    assert not gathering.waits(0)
    clock.now += 0.020
    arrive(gathering, "a", 20, *range(12, 19))
    assert gathering.waits(7)
    arrive(gathering, "a", 20, 19)
    assert not gathering.waits(8)


def test_a_whole_request_does_not_wait_for_anothers_rest(gathering: Gathering) -> None:
    arrive(gathering, "a", 20, *range(5))
    arrive(gathering, "b", 3, *range(3))
    assert not gathering.waits(8)


def test_two_that_arrive_together_wait_for_each_other_within_the_limit_of_the_first(
    gathering: Gathering, clock: Clock
) -> None:
    arrive(gathering, "a", 20, 0)
    clock.now += 0.006
    arrive(gathering, "b", 20, 0)
    assert gathering.waits(2)
    clock.now += 0.003
    assert not gathering.waits(2)


@pytest.mark.parametrize("name", ["canary", "x:1:0", "x:y:0", "x:²:0", "", ":::", "a:-2:0"])
def test_a_sequence_that_stands_alone_never_waits(gathering: Gathering, name: str) -> None:
    gathering.arrived(name)
    assert not gathering.waits(1)


def test_a_callers_id_with_colons(gathering: Gathering) -> None:
    arrive(gathering, "trace:20:7", 2, 0)
    assert gathering.waits(1)
    arrive(gathering, "trace:20:7", 2, 1)
    assert not gathering.waits(2)


def test_nobody_waits_for_what_was_aborted(gathering: Gathering) -> None:
    arrive(gathering, "a", 40, *range(30))
    assert gathering.waits(30)
    for i in range(30):
        gathering.left(f"{sequence_id('a', 40, i)}-0a1b2c3d")
    arrive(gathering, "b", 20, *range(20))
    assert not gathering.waits(20)
    gathering.left("canary")


def test_what_was_given_up_is_forgotten(gathering: Gathering, clock: Clock) -> None:
    for i in range(100):
        arrive(gathering, f"left-{i}", 20, 0)
    assert gathering.waits(0)  # the scheduler has dropped them already
    clock.now += 0.009
    assert not gathering.waits(0)
    clock.now += 1.0
    gathering.begun()
    assert gathering._arriving == {}


def test_zero_never_waits(clock: Clock) -> None:
    gathering = Gathering(0.0, clock)
    arrive(gathering, "a", 20, 0)
    assert not gathering.waits(1)

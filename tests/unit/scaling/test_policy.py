"""Replicas from work in flight, in made-up time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.scaling.policy import Limits, Memory, Reading, WorkPolicy, decide

LIMITS = Limits(targets={"tokens": 1000.0}, min_replicas=1, max_replicas=10, settle_s=5.0)
SPEED = 500.0
"""Tokens per second of a replica."""


@dataclass
class Deployment:
    """Replicas that start after a while and share what there is to do; the policy is asked once a second.

    Attributes:
        start_s: seconds until a new replica serves.
        backlog: tokens in flight.
        asked: the replicas asked for, by second.
    """

    limits: Limits = LIMITS
    start_s: float = 20.0
    backlog: float = 0.0
    memory: Memory = field(default_factory=Memory)
    asked: list[int] = field(default_factory=lambda: [1])
    ready: list[float] = field(default_factory=lambda: [0.0])

    def run(self, seconds: int, arrivals: Callable[[int], float]) -> Deployment:
        """Lets time pass; `arrivals`: tokens of each second."""
        first = len(self.asked)
        for now in range(first, first + seconds):
            running = sum(at <= now for at in self.ready)
            arrived = arrivals(now)
            work = self.backlog + arrived
            done = min(work, running * SPEED)
            self.backlog = work - done
            # what is worked on this second is in flight for a part of it
            in_flight = self.backlog + done / 2
            busy = min(float(running), work / SPEED)
            reading = Reading(
                float(now), running, self.asked[-1], {"tokens": in_flight}, {"tokens": arrived}, {"tokens": done}, busy
            )
            wanted, self.memory = decide(self.limits, self.memory, reading)
            self.ready += [now + self.start_s] * (wanted - len(self.ready))
            self.ready = sorted(self.ready)[:wanted]
            self.asked.append(wanted)
        return self

    @property
    def turns(self) -> int:
        """Steps in the other direction than the one before."""
        steps = [b - a for a, b in itertools.pairwise(self.asked) if a != b]
        return sum(a * b < 0 for a, b in itertools.pairwise(steps))


def test_a_step_of_load_is_followed_up_and_down_once() -> None:
    deployment = Deployment().run(100, lambda _: 100.0)
    assert deployment.asked[-1] == 1
    deployment.run(300, lambda _: 1_750.0)
    assert deployment.turns == 0
    assert deployment.backlog == 0.0
    deployment.run(300, lambda _: 1_750.0)
    assert deployment.asked[-1] == 5  # 1,750 / (0.7 x 500); those that worked the queue off are gone
    deployment.run(100, lambda _: 100.0)
    assert deployment.asked[-1] == 5  # the delay of 300 s has not passed
    deployment.run(500, lambda _: 100.0)
    assert deployment.asked[-1] == 1
    assert deployment.turns == 1


def test_more_is_asked_for_after_the_delay_and_not_before() -> None:
    deployment = Deployment(replace(LIMITS, upscale_delay_s=10.0)).run(50, lambda _: 100.0)
    deployment.run(30, lambda _: 2_000.0)
    first = next(i for i, replicas in enumerate(deployment.asked) if replicas > 1)
    full = 50 + 2  # the second reading of the load has more than 1.1 targets in flight
    assert full + 10 <= first <= full + 14


def test_a_peak_shorter_than_the_delay_changes_nothing() -> None:
    deployment = Deployment(replace(LIMITS, upscale_delay_s=10.0))
    deployment.run(600, lambda now: 2_500.0 if now % 60 == 0 else 100.0)
    assert set(deployment.asked) == {1}


def test_a_trough_shorter_than_the_delay_changes_nothing() -> None:
    deployment = Deployment().run(900, lambda _: 1_500.0)
    before = deployment.asked[-1]
    assert before == 5
    deployment.run(250, lambda _: 0.0).run(100, lambda _: 1_500.0)
    assert set(deployment.asked[-350:]) == {before}


@pytest.mark.parametrize("load", [0.3, 0.6, 0.69, 0.71, 0.8, 0.84, 0.86, 0.95, 1.0, 1.4, 2.1, 3.5])
@pytest.mark.parametrize("seed", [1, 2])
def test_steady_traffic_with_noise_does_not_flap(load: float, seed: int) -> None:
    """`load`: in replicas."""
    noise = random.Random(seed)
    deployment = Deployment().run(900, lambda _: noise.choice((0.5, 1.0, 1.5)) * load * SPEED)
    settled = len(deployment.asked)
    deployment.run(3_600, lambda _: noise.choice((0.5, 1.0, 1.5)) * load * SPEED)
    steps = sum(a != b for a, b in itertools.pairwise(deployment.asked[settled:]))
    assert steps <= 2
    assert deployment.backlog < 10 * load * SPEED


def test_a_queue_that_grows_while_replicas_start_does_not_ask_for_ever_more() -> None:
    deployment = Deployment(start_s=120.0).run(60, lambda _: 300.0)
    deployment.run(115, lambda _: 900.0)
    queue = deployment.backlog / 1000.0
    assert queue > 30  # targets: work in flight alone would ask for as many replicas
    assert max(deployment.asked) <= 8
    deployment.run(600, lambda _: 900.0)
    assert deployment.asked[-1] == 3
    assert deployment.backlog < 1_000.0


def test_bounds_hold_whatever_the_load() -> None:
    deployment = Deployment(replace(LIMITS, min_replicas=2, max_replicas=4)).run(5, lambda _: 0.0)
    assert deployment.asked[-1] == 2
    deployment.run(300, lambda _: 5_000.0)
    assert deployment.asked[-1] == 4
    assert max(deployment.asked) == 4
    deployment.run(1_500, lambda _: 0.0)
    assert deployment.asked[-1] == 2


def test_clients_that_wait_for_their_answers_get_replicas_for_their_work_in_flight() -> None:
    """A closed loop: the work in flight stays the same, whatever serves it."""
    memory, current, asked = Memory(), 1, []
    for now in range(600):
        done = current * SPEED
        reading = Reading(
            float(now), current, current, {"tokens": 5_000.0}, {"tokens": done}, {"tokens": done}, float(current)
        )
        current, memory = decide(LIMITS, memory, reading)
        asked.append(current)
    assert asked[-1] == 5
    assert asked == sorted(asked)


def test_nothing_is_concluded_while_no_replica_runs() -> None:
    assert decide(LIMITS, Memory(), Reading(0.0, 0, 3, {}))[0] == 3


@dataclass
class Controller:
    """Asks the policy as Ray's controller does, once a second; every replica that was asked for runs."""

    policy: WorkPolicy = field(default_factory=lambda: WorkPolicy(targets={"tokens": 1000.0}, settle_s=5.0))
    replicas: int = 4
    now: float = 0.0
    state: dict[str, Any] = field(default_factory=dict)

    def run(self, seconds: int, tokens: float, reporting: int) -> int:
        """`tokens`: in flight at each of the replicas that report; the replicas asked for in the end."""
        for _ in range(seconds):
            self.now += 1.0
            rate = min(tokens, SPEED)
            rates = {"tokens": tokens, "tokens_arrived_per_s": rate, "tokens_done_per_s": rate}
            figures = rates | {"busy": min(1.0, tokens)}
            context = SimpleNamespace(
                aggregated_metrics={
                    name: {f"r{i}": value for i in range(min(reporting, self.replicas))}
                    for name, value in figures.items()
                    if reporting
                },
                capacity_adjusted_min_replicas=1,
                capacity_adjusted_max_replicas=8,
                current_time=self.now,
                current_num_replicas=self.replicas,
                target_num_replicas=self.replicas,
                policy_state=self.state,
            )
            self.replicas, self.state = self.policy(context)
        return self.replicas


def test_without_any_report_the_replicas_stay() -> None:
    controller = Controller()
    assert controller.run(600, 900.0, reporting=4) == 4
    assert controller.run(900, 0.0, reporting=0) == 4
    assert controller.run(299, 0.0, reporting=4) == 4  # the delay begins when all report again
    assert controller.run(300, 0.0, reporting=4) < 4
    assert Controller().run(900, 0.0, reporting=0) == 4  # nor had there ever been one


def test_replicas_that_do_not_report_are_not_idle() -> None:
    controller = Controller()
    assert controller.run(900, 0.0, reporting=3) == 4
    assert controller.run(299, 0.0, reporting=4) == 4
    assert controller.run(600, 0.0, reporting=4) == 1


def test_what_some_report_is_enough_for_more() -> None:
    assert Controller().run(60, 5_000.0, reporting=3) > 4


def test_of_several_measures_the_one_that_needs_more_counts() -> None:
    limits = Limits({"images": 10.0, "pixels": 1_000.0}, max_replicas=8, upscale_delay_s=0.0, settle_s=0.0)
    memory, current = Memory(), 1
    for now in range(10):
        reading = Reading(float(now), current, current, {"images": 5.0, "pixels": 4_000.0}, busy=1.0)
        current, memory = decide(limits, memory, reading)
    assert current == 4


def test_what_a_replica_does_is_learnt_under_load() -> None:
    deployment = Deployment().run(200, lambda _: 100.0)
    assert not deployment.memory.learnt
    deployment.run(200, lambda _: 2_000.0)
    assert deployment.memory.learnt
    assert deployment.memory.capacity("tokens") == pytest.approx(SPEED, rel=0.05)


def test_a_clock_that_is_set_back_is_no_error() -> None:
    busy = Reading(1e9, 1, 1, {"tokens": 5_000.0}, {"tokens": 500.0}, {"tokens": 500.0}, 1.0)
    _, memory = decide(LIMITS, Memory(), busy)
    assert decide(LIMITS, memory, replace(busy, now=5.0))[0] == 1


def test_windows_stay_small() -> None:
    deployment = Deployment().run(2_000, lambda now: 100.0 + 40 * (now % 97))
    assert len(deployment.memory.highs) <= LIMITS.max_replicas
    assert len(deployment.memory.lows) <= LIMITS.max_replicas

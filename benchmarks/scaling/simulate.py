"""Replicas in simulated time: they take a while to start, work requests off one after the other, and drain.

A request goes to the less busy of two replicas picked at random, as Ray Serve does it, and takes its tokens at the
replica's speed. Engines work on several at once; for the queue and the throughput that makes no difference, and a
small request behind a large one waits longer here than it would there.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.scaling.traffic import Arrivals


@dataclass(frozen=True, slots=True)
class Service:
    """What a replica is.

    Attributes:
        tokens_per_s: its speed.
        floor_s: what a request takes besides: the way, tokenizing, one step.
        start_s: seconds from being asked for to serving.
        gpus: of one replica.
    """

    tokens_per_s: float
    floor_s: float = 0.02
    start_s: float = 60.0
    gpus: float = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One second, summed over the replicas that serve: what a policy gets to see. busy: replicas that worked."""

    now: float
    running: int
    current: int
    tokens: float
    requests: float
    arrived_per_s: float
    done_per_s: float
    busy: float


class Policy(Protocol):
    """Decides once a second."""

    def replicas(self, figures: Figures) -> int:
        """The replicas to ask for."""
        ...


@dataclass(slots=True)
class Replica:
    """free_at: when the last of its requests ends; open: (end, tokens) of those that are not finished; work_s: seconds
    of work that it had a second ago and got since."""

    ready_at: float
    free_at: float = 0.0
    work_s: float = 0.0
    open: deque[tuple[float, int]] = field(default_factory=deque)
    tokens: int = 0

    def finish(self, now: float) -> int:
        """Takes out what has ended by now; its tokens."""
        done = 0
        while self.open and self.open[0][0] <= now:
            done += self.open.popleft()[1]
        self.tokens -= done
        return done

    def busy(self, now: float) -> float:
        """Share of the second up to now in which it worked: what it had and got, less what it still has."""
        left_s = max(0.0, self.free_at - now)
        worked, self.work_s = self.work_s - left_s, left_s
        return min(1.0, max(0.0, worked))


@dataclass(frozen=True, slots=True)
class Day:
    """What came out.

    Attributes:
        latencies: float64 [requests], seconds.
        running, paid, queue: [seconds]; replicas that serve; those that start, serve or drain; tokens in flight.
        asked: [seconds], replicas asked for.
        gpu_hours: of all replicas that were paid.
    """

    latencies: np.ndarray
    running: np.ndarray
    paid: np.ndarray
    queue: np.ndarray
    asked: np.ndarray
    gpu_hours: float


def simulate(arrivals: Arrivals, service: Service, policy: Policy, initial: int, seed: int = 0) -> Day:
    """Runs the arrivals through `initial` replicas, which serve from the start, and what the policy makes of them."""
    picks = random.Random(seed)
    times, tokens = arrivals.times.tolist(), arrivals.tokens.tolist()
    seconds = int(arrivals.seconds)
    serving = [Replica(0.0) for _ in range(initial)]
    starting: list[Replica] = []
    draining: list[Replica] = []
    latencies = np.zeros(len(times))
    series = np.zeros((4, seconds))
    at, current = 0, initial
    for second in range(seconds):
        now = second + 1.0
        serving += [replica for replica in starting if replica.ready_at <= second]
        starting = [replica for replica in starting if replica.ready_at > second]
        arrived = 0
        while at < len(times) and times[at] < now:
            replica = _less_busy(serving, picks)
            began = max(times[at], replica.free_at)
            work_s = tokens[at] / service.tokens_per_s
            replica.free_at = began + work_s
            replica.work_s += work_s
            replica.open.append((replica.free_at, tokens[at]))
            replica.tokens += tokens[at]
            latencies[at] = replica.free_at - times[at] + service.floor_s
            arrived += tokens[at]
            at += 1
        done = sum(replica.finish(now) for replica in serving)
        draining = [replica for replica in draining if replica.free_at > now]
        in_flight = sum(replica.tokens for replica in serving)
        open_requests = sum(len(replica.open) for replica in serving)
        busy = sum(replica.busy(now) for replica in serving)
        figures = Figures(now, len(serving), current, in_flight, open_requests, arrived, done, busy)
        wanted = policy.replicas(figures)
        paid = len(serving) + len(starting) + len(draining)
        series[:, second] = len(serving), paid, in_flight, wanted
        while len(serving) + len(starting) < wanted:
            starting.append(Replica(now + service.start_s))
        while len(serving) + len(starting) > wanted and starting:
            starting.pop()
        while len(serving) > max(1, wanted):
            draining.append(serving.pop(min(range(len(serving)), key=lambda i: serving[i].tokens)))
        current = wanted
    running, paid_series, queue, asked = series
    return Day(latencies, running, paid_series, queue, asked, float(paid_series.sum()) / 3600 * service.gpus)


def _less_busy(replicas: list[Replica], picks: random.Random) -> Replica:
    if len(replicas) == 1:
        return replicas[0]
    a = int(picks.random() * len(replicas))
    b = (a + 1 + int(picks.random() * (len(replicas) - 1))) % len(replicas)
    return replicas[a] if replicas[a].free_at <= replicas[b].free_at else replicas[b]

"""Replicas from work in flight. Pure: a reading and what was learnt before in, a number of replicas and memory out.

The work in flight says whether there are too few replicas, the rates say how many are needed. Work in flight alone
cannot size anything: while a replica starts, the queue grows without saying more than that it is missing, and once a
queue is gone a replica that works at half its speed looks like one that has nothing to do. So what a replica does in a
second that it is busy is measured, and no step goes beyond what that needs.

Imports nothing of ours: Ray Serve pickles this module by value into its controller, which need not have our package.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

DRAIN_S = 30.0
"""Seconds in which a backlog is to be worked off; new replicas are sized by it."""
RECENT, USUAL = 2.5, 10.0
"""Settling times over which recent arrivals, and what is usual, are averaged: 15 s and 60 s by default."""

Window = tuple[tuple[float, int], ...]
"""(time, replicas) of the decisions that can still be a window's extreme."""


@dataclass(frozen=True)
class Limits:
    """What the operator wants.

    Attributes:
        targets: work in flight that one replica should have, by measure; of several the one that asks for more counts.
        min_replicas, max_replicas: bounds of the answer.
        upscale_delay_s: seconds for which more must have been needed all the time.
        downscale_delay_s: seconds for which fewer must have been enough all the time.
        tolerance: share of the target by which the work in flight may be off without any change.
        utilization: share of a replica's measured capacity that is planned with.
        settle_s: seconds after a change of the running replicas before the figures say anything about it.
    """

    targets: Mapping[str, float]
    min_replicas: int = 1
    max_replicas: int = 1
    upscale_delay_s: float = 3.0
    downscale_delay_s: float = 300.0
    tolerance: float = 0.1
    utilization: float = 0.7
    settle_s: float = 5.0


@dataclass(frozen=True)
class Reading:
    """A deployment at one time; figures by measure, summed over its running replicas.

    Attributes:
        now: seconds.
        running: replicas that serve.
        current: replicas that were asked for last.
        in_flight: taken and not yet finished.
        arrived_per_s: asked for, refused work included.
        done_per_s: finished.
        busy: replicas that had work, as a mean: 1.5 of 2.
        silent: running replicas whose figures are missing, so that the sums are the least that there can be.
    """

    now: float
    running: int
    current: int
    in_flight: Mapping[str, float]
    arrived_per_s: Mapping[str, float] = field(default_factory=dict)
    done_per_s: Mapping[str, float] = field(default_factory=dict)
    busy: float = 0.0
    silent: int = 0


@dataclass(frozen=True)
class Memory:
    """What is carried from one decision to the next.

    Attributes:
        in_flight, arrived_per_s: what is usual, by measure. Scaling in goes by these: the most of five minutes of
            single readings is that of the largest request, whatever the traffic.
        recent_per_s: arrivals of the last while; new replicas are sized by these.
        done_per_s, busy: work finished and replicas busy with it, under load once there has been any. Before that, as
            it comes: an engine with one request at a time does less than it can, which errs to the safe side.
        learnt: whether that was under load.
        since: time of the first reading; no window reaches further back.
        last: time of the last one.
        running, running_since: replicas at the last reading, and since when that many.
        lows, highs: the windows of both delays.
    """

    in_flight: Mapping[str, float] = field(default_factory=dict)
    arrived_per_s: Mapping[str, float] = field(default_factory=dict)
    recent_per_s: Mapping[str, float] = field(default_factory=dict)
    done_per_s: Mapping[str, float] = field(default_factory=dict)
    busy: float = 0.0
    learnt: bool = False
    since: float | None = None
    last: float = 0.0
    running: int = 0
    running_since: float = 0.0
    lows: Window = ()
    highs: Window = ()

    def capacity(self, measure: str) -> float:
        """Work of one busy replica per second; 0: not known."""
        return self.done_per_s.get(measure, 0.0) / self.busy if self.busy > 0 else 0.0


def decide(limits: Limits, memory: Memory, reading: Reading) -> tuple[int, Memory]:
    """The replicas to ask for now.

    More are asked for once more were needed for the whole upscale delay, and then the fewest of that time; fewer once
    fewer were enough for the whole downscale delay, and then the most of that time. A peak or a trough that is shorter
    than the delay changes nothing, and after a step up no step down comes before the delay has passed.

    Without any figures the number stays, and while those of some replicas are missing it does not fall: what is not
    reported is not idle. Both count in the windows, so that the delay begins again once all report.
    """
    if reading.silent >= reading.running:  # nothing reports: neither load nor its absence is known
        held = _bounded(limits, reading.current)
        return held, replace(_remember(limits, memory, reading.now, held), running=0)
    loads = {measure: reading.in_flight.get(measure, 0.0) / target for measure, target in limits.targets.items()}
    measure = max(loads, key=lambda name: loads[name])
    memory = _learn(limits, memory, reading, loads[measure])
    wanted = _wanted(limits, memory, reading, measure, loads[measure])
    if reading.silent:
        wanted = max(wanted, reading.current)
    since = reading.now if memory.since is None else memory.since
    memory = replace(_remember(limits, memory, reading.now, _bounded(limits, wanted)), since=since)
    fewest, most = memory.lows[0][1], memory.highs[0][1]
    age = reading.now - since
    if age >= limits.upscale_delay_s and fewest > reading.current:
        return fewest, memory
    if age >= limits.downscale_delay_s and most < reading.current:
        return most, memory
    return _bounded(limits, reading.current), memory


def _bounded(limits: Limits, replicas: int) -> int:
    return min(max(replicas, limits.min_replicas), limits.max_replicas)


def _wanted(limits: Limits, memory: Memory, reading: Reading, measure: str, load: float) -> int:
    """What this reading alone asks for; `load`: in replicas that would have exactly their target."""
    current, capacity = reading.current, memory.capacity(measure)
    if load > current * (1 + limits.tolerance):
        wanted = math.ceil(load)
        if capacity:
            excess = max(0.0, reading.in_flight[measure] - current * limits.targets[measure])
            rate = memory.recent_per_s[measure] + excess / DRAIN_S
            # What is worked off in time by those that are there needs no others. Half way between what is planned with
            # and all that they can do, so that traffic that has just allowed a step down does not ask for the step up.
            if rate <= current * capacity * (1 + limits.utilization) / 2:
                return current
            wanted = min(wanted, math.ceil(rate / (limits.utilization * capacity)))
        if not (
            capacity and memory.learnt
        ):  # twice as many at a time, and the next step when these have shown what they do
            settled = reading.running >= current and reading.now - memory.running_since >= limits.settle_s
            wanted = min(wanted, 2 * current) if settled else current
        return max(current, wanted)
    needs = [memory.in_flight[name] / target * (1 + limits.tolerance) for name, target in limits.targets.items()]
    # The recent ones too: after a trough what is usual is too little for a while, as long as the delay counts on.
    needs += [
        max(memory.arrived_per_s[name], memory.recent_per_s[name]) / (limits.utilization * each)
        for name in limits.targets
        if (each := memory.capacity(name))
    ]
    return min(current, math.ceil(max(needs)))


def _learn(limits: Limits, memory: Memory, reading: Reading, load: float) -> Memory:
    """Follows what is usual, and measures what a busy replica does per second."""
    passed, settle_s = max(0.0, reading.now - memory.last), max(limits.settle_s, 1e-3)  # clocks are set back, too
    recent, usual = (-math.expm1(-passed / (times * settle_s)) for times in (RECENT, USUAL))
    changed = reading.running != memory.running
    memory = replace(
        memory,
        in_flight={m: _follow(memory.in_flight, m, reading.in_flight, usual) for m in limits.targets},
        arrived_per_s={m: _follow(memory.arrived_per_s, m, reading.arrived_per_s, usual) for m in limits.targets},
        recent_per_s={m: _follow(memory.recent_per_s, m, reading.arrived_per_s, recent) for m in limits.targets},
        running=reading.running,
        running_since=reading.now if changed else memory.running_since,
    )
    loaded = load >= reading.running
    if not loaded and memory.learnt:
        return memory
    return replace(
        memory,
        done_per_s={m: _follow(memory.done_per_s, m, reading.done_per_s, usual) for m in limits.targets},
        busy=memory.busy + usual * (reading.busy - memory.busy) if memory.done_per_s else reading.busy,
        learnt=memory.learnt or (loaded and reading.now - memory.running_since >= USUAL * settle_s),
    )


def _follow(known: Mapping[str, float], name: str, seen: Mapping[str, float], weight: float) -> float:
    """A value that moves towards what is seen; the first is taken as it is."""
    value = seen.get(name, 0.0)
    before = known.get(name, value)
    return before + weight * (value - before)


def _remember(limits: Limits, memory: Memory, now: float, wanted: int) -> Memory:
    """The memory with what was wanted now in both windows."""
    lows = _push(memory.lows, now, wanted, limits.upscale_delay_s, sign=1)
    highs = _push(memory.highs, now, wanted, limits.downscale_delay_s, sign=-1)
    return replace(memory, last=now, lows=lows, highs=highs)


def _push(window: Window, now: float, replicas: int, length_s: float, sign: int) -> Window:
    """The window with a new value; its first one is the smallest (`sign` 1) or largest (-1) of the last `length_s`."""
    kept = [(when, value) for when, value in window if when >= now - length_s and sign * value < sign * replicas]
    return (*kept, (now, replicas))


class WorkPolicy:
    """`decide` as Ray Serve calls it. Ray's own delays are set to 0: they act on the last value of their time, where a
    single low reading at the end of ten minutes is enough to scale in.

    Args:
        limits: the fields of `Limits` but its bounds.
    """

    def __init__(self, **limits: Any) -> None:
        self._limits = Limits(**limits)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """`context`: Ray's `AutoscalingContext`. Its metrics are means over the look-back window, by running replica;
        one that has not reported, or whose report failed, is left out."""
        metrics = context.aggregated_metrics or {}
        limits = replace(
            self._limits,
            min_replicas=context.capacity_adjusted_min_replicas,
            max_replicas=context.capacity_adjusted_max_replicas,
        )

        def total(suffix: str = "") -> dict[str, float]:
            return {name: float(sum(metrics.get(name + suffix, {}).values())) for name in limits.targets}

        reported = min(len(metrics.get(name, {})) for name in limits.targets)
        reading = Reading(
            now=time.time() if context.current_time is None else context.current_time,
            running=context.current_num_replicas,
            current=context.target_num_replicas,
            in_flight=total(),
            arrived_per_s=total("_arrived_per_s"),
            done_per_s=total("_done_per_s"),
            busy=float(sum(metrics.get("busy", {}).values())),
            silent=max(0, context.current_num_replicas - reported),
        )
        replicas, memory = decide(limits, context.policy_state.get("memory", Memory()), reading)
        return replicas, {"memory": memory}

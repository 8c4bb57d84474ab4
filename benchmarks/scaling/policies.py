"""Who decides: our policy, Ray Serve's default, or nobody."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ray.serve.autoscaling_policy import _apply_delay_logic, _apply_scaling_factors
from ray.serve.config import AutoscalingConfig

from benchmarks.scaling.simulate import Figures
from serve_app.scaling.policy import Limits, Memory, Reading, decide
from serve_app.settings import AutoscalingSettings


@dataclass
class Fixed:
    """Always as many."""

    count: int

    def replicas(self, figures: Figures) -> int:
        """See `Policy`."""
        return self.count


class Work:
    """The function that runs in Ray Serve's controller, with the means over `window_s` that it gets there.

    Args:
        settings: as in a configuration file; `target` is set.
    """

    def __init__(self, settings: AutoscalingSettings) -> None:
        assert settings.target is not None
        self._limits = Limits(
            targets={str(measure): value for measure, value in settings.target.items()},
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            upscale_delay_s=settings.upscale_delay_s,
            downscale_delay_s=settings.downscale_delay_s,
            tolerance=settings.tolerance,
            utilization=settings.utilization,
            settle_s=settings.window_s + settings.interval_s,
        )
        self._memory = Memory()
        self._seen: deque[Figures] = deque(maxlen=max(1, round(settings.window_s)))

    def replicas(self, figures: Figures) -> int:
        """See `Policy`."""
        self._seen.append(figures)
        reading = Reading(
            now=figures.now,
            running=figures.running,
            current=figures.current,
            in_flight={"tokens": _mean(self._seen, lambda seen: seen.tokens)},
            arrived_per_s={"tokens": _mean(self._seen, lambda seen: seen.arrived_per_s)},
            done_per_s={"tokens": _mean(self._seen, lambda seen: seen.done_per_s)},
            busy=_mean(self._seen, lambda seen: seen.busy),
        )
        wanted, self._memory = decide(self._limits, self._memory, reading)
        return wanted


@dataclass
class RayDefault:
    """Ray Serve's default policy, by ongoing requests: its own functions, on simulated time."""

    config: AutoscalingConfig
    _state: dict[str, Any] = field(default_factory=dict)
    _seen: deque[Figures] = field(default_factory=deque)

    def replicas(self, figures: Figures) -> int:
        """See `Policy`."""
        self._seen.append(figures)
        while self._seen[0].now <= figures.now - self.config.look_back_period_s:
            self._seen.popleft()
        desired = _mean(self._seen, lambda seen: seen.requests) / self.config.get_target_ongoing_requests()
        scaled = _apply_scaling_factors(desired, figures.running, self.config)
        wanted, self._state = _apply_delay_logic(scaled, figures.current, self.config, self._state, figures.now)
        return int(min(max(wanted, self.config.min_replicas), self.config.max_replicas))


def _mean(seen: deque[Figures], value: Callable[[Figures], float]) -> float:
    return sum(map(value, seen)) / len(seen)

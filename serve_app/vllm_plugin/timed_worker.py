"""vLLM's workers with a stopwatch. Loading, profiling and compiling happen in them, and vLLM only logs how long.

Named by `worker_cls`, vLLM's own way to replace its worker. One class per platform: the other's cannot be imported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from serve_app.startup import Phase


class Timed:
    """Put before a worker class: measures what it inherits. `start_times` is asked for by `collective_rpc`."""

    _seconds: dict[str, float]

    def start_times(self) -> dict[str, float]:
        """Seconds by phase."""
        return dict(self.__dict__.get("_seconds", {}))

    @contextmanager
    def _measured(self, phase: Phase) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = self.__dict__.setdefault("_seconds", {})
            seconds[str(phase)] = seconds.get(str(phase), 0.0) + time.monotonic() - started

    def load_model(self, *args: Any, **options: Any) -> Any:
        """Loads the weights."""
        with self._measured(Phase.WEIGHTS):
            return super().load_model(*args, **options)  # type: ignore[misc]

    def determine_available_memory(self, *args: Any, **options: Any) -> Any:
        """Runs the largest step once, to see what it takes."""
        with self._measured(Phase.PROFILE):
            return super().determine_available_memory(*args, **options)  # type: ignore[misc]

    def initialize_from_config(self, *args: Any, **options: Any) -> Any:
        """Allocates the caches."""
        with self._measured(Phase.PROFILE):
            return super().initialize_from_config(*args, **options)  # type: ignore[misc]

    def compile_or_warm_up_model(self, *args: Any, **options: Any) -> Any:
        """Compiles, captures CUDA graphs, warms up."""
        with self._measured(Phase.COMPILE):
            return super().compile_or_warm_up_model(*args, **options)  # type: ignore[misc]


def __getattr__(name: str) -> Any:
    """`TimedCPUWorker` and `TimedGPUWorker`, made at their first use."""
    if name == "TimedCPUWorker":
        from vllm.v1.worker.cpu_worker import CPUWorker as base
    elif name == "TimedGPUWorker":
        from vllm.v1.worker.gpu_worker import Worker as base
    else:
        raise AttributeError(name)
    made = type(name, (Timed, base), {"__module__": __name__})
    globals()[name] = made
    return made

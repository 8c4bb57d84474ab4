"""vLLM's workers with a stopwatch, and with CUDA graphs of the whole forward pass. Loading, profiling and compiling
happen in workers, and vLLM only logs how long.

Named by `worker_cls`, vLLM's own way to replace its worker. One class per platform: the other's cannot be imported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from serve_app.startup import Phase
from serve_app.vllm_plugin import FULL_GRAPHS


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


class FullGraphs:
    """Put before a GPU worker class: captures the whole forward pass where `engine.full_cuda_graphs` asks for it.

    When it makes its configuration vLLM changes FULL into PIECEWISE for every pooling model; it is changed back here.
    Whether the attention's kernels can be captured vLLM asks later, and falls back by itself.
    """

    def __init__(self, vllm_config: Any, *args: Any, **options: Any) -> None:
        from vllm.config import CUDAGraphMode

        compilation = vllm_config.compilation_config
        if vllm_config.additional_config.get(FULL_GRAPHS) and compilation.cudagraph_mode == CUDAGraphMode.PIECEWISE:
            compilation.cudagraph_mode = CUDAGraphMode.FULL
        super().__init__(vllm_config, *args, **options)  # type: ignore[call-arg]


def __getattr__(name: str) -> Any:
    """`TimedCPUWorker` and `TimedGPUWorker`, made at their first use."""
    if name == "TimedCPUWorker":
        from vllm.v1.worker.cpu_worker import CPUWorker

        bases: tuple[type, ...] = (Timed, CPUWorker)
    elif name == "TimedGPUWorker":
        from vllm.v1.worker.gpu_worker import Worker

        bases = (Timed, FullGraphs, Worker)
    else:
        raise AttributeError(name)
    made = type(name, bases, {"__module__": __name__})
    globals()[name] = made
    return made

"""How busy the GPU is, sampled beside a load. Without NVML or a GPU there are no samples."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any


class GpuBusy:
    """A context manager that samples in a thread.

    Attributes:
        samples: (`time.perf_counter()`, percent of the time in which a kernel ran, mean over the GPUs).
    """

    def __init__(self, period_s: float = 0.2) -> None:
        self.samples: list[tuple[float, float]] = []
        self._period = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._handles: list[Any] = []

    def __enter__(self) -> GpuBusy:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except Exception:  # no package, no driver, no GPU: each has an error of its own
            self._handles = []
        if self._handles:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        import pynvml

        while not self._ended.wait(self._period):
            busy = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in self._handles]
            self.samples.append((time.perf_counter(), sum(busy) / len(busy)))

    def mean(self, start: float, end: float) -> float:
        """Percent, between two times; NaN without samples."""
        found = [busy for when, busy in self.samples if start <= when < end]
        return sum(found) / len(found) if found else float("nan")

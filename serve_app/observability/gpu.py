"""The node's GPUs, through NVML. Without a GPU or its driver there are none."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from serve_app.observability.registry import Reading

logger = logging.getLogger(__name__)


class Gpus:
    """Reads all GPUs of this node; every engine of a node reads the same ones, and the page shows them once.

    Args:
        node: the node's address, for the label.
        nvml: the module pynvml; None: imported here.
    """

    def __init__(self, node: str, nvml: Any = None) -> None:
        self._node = node
        self._nvml = nvml if nvml is not None else _nvml()
        self._handles: list[tuple[tuple[str, ...], Any]] = []
        if self._nvml is None:
            return
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = self._nvml.nvmlDeviceGetUUID(handle)
            self._handles.append(((node, str(index), uuid if isinstance(uuid, str) else uuid.decode()), handle))

    def read(self) -> Sequence[Reading]:
        """What they say now. What one does not support (power on some, utilization under MIG) is left out."""
        readings: list[Reading] = []
        for labels, handle in self._handles:
            for names in (self._memory, self._utilization, self._power, self._limit, self._temperature):
                with contextlib.suppress(self._nvml.NVMLError):
                    readings += [Reading(f"poolserve_gpu_{name}", value, labels) for name, value in names(handle)]
        return readings

    def _memory(self, handle: Any) -> Sequence[tuple[str, float]]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return [("memory_used_bytes", float(memory.used)), ("memory_total_bytes", float(memory.total))]

    def _utilization(self, handle: Any) -> Sequence[tuple[str, float]]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
        return [("utilization_ratio", rates.gpu / 100), ("memory_utilization_ratio", rates.memory / 100)]

    def _power(self, handle: Any) -> Sequence[tuple[str, float]]:
        return [("power_watts", self._nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)]

    def _limit(self, handle: Any) -> Sequence[tuple[str, float]]:
        return [("power_limit_watts", self._nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3)]

    def _temperature(self, handle: Any) -> Sequence[tuple[str, float]]:
        kind = self._nvml.NVML_TEMPERATURE_GPU
        return [("temperature_celsius", float(self._nvml.nvmlDeviceGetTemperature(handle, kind)))]


def _nvml() -> Any:
    """pynvml, ready; None without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # no driver, none of its libraries, or one that is being replaced
        logger.warning("no GPU metrics: %s", error)
        return None
    return pynvml

"""GPU metrics, with NVML's own constants and a driver that is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from serve_app.observability.catalogue import GPU
from serve_app.observability.gpu import Gpus


class Nvml:
    """Two GPUs; the second does not tell its power."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=10 * 2**30, total=140 * 2**30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=87, memory=12)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle:
            raise self.NVMLError
        return 412_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        assert kind == self.NVML_TEMPERATURE_GPU
        return 61


def test_every_gpu_is_read_in_base_units() -> None:
    readings = Gpus("10.0.0.1", Nvml()).read()
    first = {reading.name: reading.value for reading in readings if reading.labels == ("10.0.0.1", "0", "GPU-0")}
    assert first == {
        "poolserve_gpu_memory_used_bytes": 10 * 2**30,
        "poolserve_gpu_memory_total_bytes": 140 * 2**30,
        "poolserve_gpu_utilization_ratio": 0.87,
        "poolserve_gpu_memory_utilization_ratio": 0.12,
        "poolserve_gpu_power_watts": 412.5,
        "poolserve_gpu_power_limit_watts": 700.0,
        "poolserve_gpu_temperature_celsius": 61.0,
    }
    second = {reading.name for reading in readings if reading.labels == ("10.0.0.1", "1", "GPU-1")}
    assert first.keys() - second == {"poolserve_gpu_power_watts"}


def test_without_a_driver_there_are_none() -> None:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert Gpus("10.0.0.1").read() == []
    else:
        assert {reading.name for reading in Gpus("10.0.0.1").read()} <= {metric.name for metric in GPU}


def test_nvml_has_all_that_is_asked_of_it() -> None:
    import pynvml

    assert [name for name in dir(Nvml) if name.lower().startswith("nvml") and not hasattr(pynvml, name)] == []

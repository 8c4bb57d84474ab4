"""One side in this process: answers requests, and says what reached the GPU.

    python -m benchmarks.kernels.worker PLAN.json OUT.json

Started by `commands`; for the counters under Nsight Compute, which sees only what lies between the profiler's start and
stop.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.sides import Model, Side, side


def main(plan_file: Path, out: Path) -> None:
    """Runs what the plan says: `side`, `model`, `requests` (token ids), `counters`."""
    plan = json.loads(plan_file.read_text())
    model = Model(**{**plan["model"], "folder": Path(plan["model"]["folder"])})
    requests = plan["requests"]
    runner = side(plan["side"], model)
    for request in [*requests, *requests]:  # warm: kernels chosen, graphs there, allocator filled
        runner.run(request)
    found: dict[str, Any] = {"answers": [np.asarray(runner.run(request)).tolist() for request in requests]}
    if plan["counters"]:
        import torch

        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        runner.run(requests[0])
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    else:
        times = []
        for request in requests:
            began = time.perf_counter()
            runner.run(request)
            times.append(1e3 * (time.perf_counter() - began))
        found |= {"ms": times, **_profiled(runner, requests)}
    out.write_text(json.dumps(found))


def _profiled(runner: Side, requests: Sequence[Any]) -> dict[str, Any]:
    """Kernels of all requests by name, copies, and the time in which the GPU had any of them; empty without a GPU."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return {"kernels": {}, "copies": 0, "kernel_ms": 0.0}
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for request in requests:
            runner.run(request)
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    copies = 0
    total = 0.0
    for event in recorded.events() or ():
        if event.device_type != DeviceType.CUDA:
            continue
        if event.name.startswith(("Memcpy", "Memset")):
            copies += 1
            continue
        ms = event.time_range.elapsed_us() / 1e3
        kernels[event.name][0] += 1
        kernels[event.name][1] += ms
        total += ms
    return {"kernels": dict(kernels), "copies": copies, "kernel_ms": total}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

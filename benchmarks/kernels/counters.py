"""Nsight Compute: the counters, its command line, and its table."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

COUNTERS = {
    "gpu__time_duration.sum": "time, ms",
    "smsp__inst_executed.sum": "instructions",
    "smsp__inst_executed_op_global_ld.sum": "global loads",
    "smsp__inst_executed_op_global_st.sum": "global stores",
    "smsp__inst_executed_op_ldgsts.sum": "asynchronous copies to shared memory",
    "smsp__inst_executed_pipe_uniform.sum": "uniform-pipe instructions (bulk tensor copies among them)",
    "dram__bytes_read.sum": "bytes read from memory",
    "dram__bytes_write.sum": "bytes written to memory",
    "sm__inst_executed_pipe_tensor.sum": "tensor-core instructions",
    "sm__inst_executed_pipe_tensor_op_gmma.sum": "tensor-core instructions, warp groups",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": "tensor cores busy, %",
    "sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_elapsed": "tensor cores busy (warp groups), %",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed": "tensor cores busy (warps), %",
}
"""Names of Nsight Compute, and ours (docs.nvidia.com/nsight-compute/ProfilingGuide, metrics reference). Instructions
are counted per warp. A chip is asked which it has."""


def available() -> list[str]:
    """Those of `COUNTERS` that this GPU and this Nsight Compute know; empty without either."""
    if shutil.which("ncu") is None:
        return []
    try:
        listed = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    known = {line.split(maxsplit=1)[0] for line in listed.stdout.splitlines() if line.strip()}
    return [name for name in COUNTERS if name.partition(".")[0] in known]


def command(metrics: Sequence[str], table: Path, inner: Sequence[str]) -> list[str]:
    """Nsight Compute around a command; every kernel between the profiler's start and stop, graphs' nodes one by one."""
    options = ["--profile-from-start", "off", "--target-processes", "all", "--graph-profiling", "node"]
    options += ["--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    return ["ncu", *options, "--metrics", ",".join(metrics), "--log-file", str(table), *inner]


def read(lines: Iterable[str]) -> dict[str, float]:
    """Sums over all kernels by counter; percentages weighted by the kernels' time. `kernels` is their number.

    Args:
        lines: of `--page raw --csv`, whose table is preceded by messages (`==PROF== …`) and whose second row has units.
    """
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines if line.startswith('"'))
    rows = list(csv.DictReader(io.StringIO(text)))
    rows = [row for row in rows if (row.get("ID") or "").strip()]  # the row of units has no number
    sums: dict[str, float] = {"kernels": len(rows)}
    duration = "gpu__time_duration.sum"
    total = sum(_number(row.get(duration)) for row in rows)
    for name in COUNTERS:
        if not rows or name not in rows[0]:
            continue
        if ".pct_" in name:
            weighted = sum(_number(row[name]) * _number(row.get(duration)) for row in rows)
            sums[name] = weighted / total if total else 0.0
        else:
            sums[name] = sum(_number(row[name]) for row in rows)
    if duration in sums:
        sums[duration] /= 1e6  # ns
    return sums


def _number(text: str | None) -> float:
    try:
        return float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0  # "n/a": a kernel that has no such counter

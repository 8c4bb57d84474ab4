"""The run of `autoscaling`: one day under each policy, a table, and a picture."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray.serve.config import AutoscalingConfig

from benchmarks import environment, results_files
from benchmarks.pages import listed, machine, table
from benchmarks.scaling.policies import Fixed, RayDefault, Work
from benchmarks.scaling.simulate import Day, Policy, Service, simulate
from benchmarks.scaling.traffic import Arrivals
from serve_app.settings import AutoscalingSettings

BUCKET_S = 300
"""Seconds of one point of the picture."""
REVERSAL_S = 1800.0
"""A step that takes back the one before it within this time was not worth a replica's start."""


@dataclass(frozen=True, slots=True)
class DayOptions:
    """What the command line says."""

    name: str
    results_dir: Path
    arrivals: Arrivals
    service: Service
    settings: AutoscalingSettings
    slow_s: float
    seed: int
    command: Sequence[str]
    commit: str | None = None


def run(options: DayOptions) -> int:
    """Simulates, writes the files, prints the table."""
    hardware, code = environment.hardware(), environment.commit(options.commit)
    days: dict[str, Day] = {}
    for name, (policy, initial) in sides(options).items():
        print(f"{name} …", flush=True)
        days[name] = simulate(options.arrivals, options.service, policy, initial, options.seed)
    rows = {name: summary(day, options.slow_s) for name, day in days.items()}
    result: dict[str, Any] = {
        "name": options.name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": environment.command_line(options.command),
        "traffic": options.arrivals.shape,
        "requests": len(options.arrivals.times),
        "hours": options.arrivals.seconds / 3600,
        "service": {key: getattr(options.service, key) for key in ("tokens_per_s", "floor_s", "start_s", "gpus")},
        "autoscaling": options.settings.model_dump(mode="json"),
        "slow_s": options.slow_s,
        "policies": rows,
        "series": {name: series(day, options.arrivals) for name, day in days.items()},
        "hardware": hardware,
        "code": code,
        "versions": environment.versions(),
    }
    data = results_files.free_path(options.name, result["date"], options.results_dir)
    picture = data.with_suffix(".svg")
    text = "\n".join(page(result, picture.name)) + "\n"
    results_files.write_at(data, result, text)
    from benchmarks.scaling.plot import draw  # matplotlib is slow to import, and only needed here

    draw(result["series"], picture)
    print(text)
    return 0


def sides(options: DayOptions) -> dict[str, tuple[Policy, int]]:
    """Each policy and the replicas that it begins with."""
    work = options.arrivals.tokens / options.service.tokens_per_s
    by_minute = np.bincount((options.arrivals.times // 60).astype(int), weights=work) / 60
    settings, start = options.settings, max(options.settings.min_replicas, math.ceil(by_minute[0] / 0.7))
    ours = settings.model_dump(include={"upscale_delay_s", "downscale_delay_s"})
    limits = {"min_replicas": settings.min_replicas, "max_replicas": settings.max_replicas}
    peak, mean = math.ceil(np.quantile(by_minute, 0.99) / 0.7), math.ceil(by_minute.mean() / 0.7)
    return {
        "work in flight": (Work(settings), start),
        "Ray's default": (RayDefault(AutoscalingConfig(**limits)), start),
        "Ray's, with our delays": (RayDefault(AutoscalingConfig(**limits, **ours)), start),
        f"fixed, for the peak ({peak})": (Fixed(peak), peak),
        f"fixed, for the mean ({mean})": (Fixed(mean), mean),
    }


def summary(day: Day, slow_s: float) -> dict[str, float]:
    """One row of the table."""
    p50, p95, p99 = np.quantile(day.latencies, (0.5, 0.95, 0.99)) if len(day.latencies) else (math.nan,) * 3
    steps = [(i, step) for i, step in enumerate(np.diff(day.asked)) if step]
    reversals = sum(1 for (i, a), (j, b) in itertools.pairwise(steps) if a * b < 0 and j - i < REVERSAL_S)
    return {
        "gpu_hours": day.gpu_hours,
        "replicas_min": float(day.paid.min()),
        "replicas_mean": float(day.paid.mean()),
        "replicas_max": float(day.paid.max()),
        "p50_ms": 1e3 * float(p50),
        "p95_ms": 1e3 * float(p95),
        "p99_ms": 1e3 * float(p99),
        "slow": float((day.latencies > slow_s).mean()) if len(day.latencies) else math.nan,
        "queue_max_tokens": float(day.queue.max()),
        "steps": float(len(steps)),
        "reversals": float(reversals),
    }


def series(day: Day, arrivals: Arrivals) -> dict[str, list[float]]:
    """Points of the picture, one per `BUCKET_S`."""
    bucket = (arrivals.times // BUCKET_S).astype(int)
    points = math.ceil(len(day.paid) / BUCKET_S)
    ends = np.searchsorted(bucket, np.arange(points + 1))
    p95 = [
        float(np.quantile(day.latencies[a:b], 0.95)) * 1e3 if b > a else math.nan for a, b in itertools.pairwise(ends)
    ]

    def chunks(values: np.ndarray) -> list[np.ndarray]:
        return [values[i : i + BUCKET_S] for i in range(0, len(values), BUCKET_S)]

    return {
        "hours": [i * BUCKET_S / 3600 for i in range(points)],
        "requests_per_s": [(b - a) / BUCKET_S for a, b in itertools.pairwise(ends.tolist())],
        "replicas": [round(float(part.mean()), 3) for part in chunks(day.paid)],
        "queue_tokens": [float(part.max()) for part in chunks(day.queue)],
        "p95_ms": [round(value, 2) for value in p95],
        "gpu_hours": np.round(np.cumsum([part.sum() for part in chunks(day.paid)]) / 3600, 3).tolist(),
    }


def page(result: Mapping[str, Any], picture: str) -> Iterator[str]:
    """The Markdown page."""
    service = result["service"]
    yield f"# {result['name']}, {result['date']}"
    yield ""
    yield (
        "Simulated time, no server: arrivals, replicas and queues are a model (benchmarks/README.md); `work in flight` "
        "is the function that runs in Ray Serve's controller, Ray's default is its own code."
    )
    yield ""
    yield f"Traffic: {result['requests']:,} requests in {result['hours']:g} h; {result['traffic']}."
    yield ""
    yield (
        f"A replica: {service['tokens_per_s']:,.0f} tokens/s, {service['start_s']:g} s to start, {service['gpus']:g} "
        f"GPU, {1e3 * service['floor_s']:g} ms a request besides. Paid from being asked for to the end of draining."
    )
    yield ""
    slow = f"slower than {result['slow_s']:g} s"
    header = ["policy", "GPU-hours", "replicas min / mean / max", "p50 ms", "p95 ms", "p99 ms", slow]
    header += ["longest queue, tokens", "steps", "taken back within 30 min"]
    yield from table(header, [_cells(name, row) for name, row in result["policies"].items()])
    yield ""
    yield f"![replicas, queue, p95 and GPU-hours over the day]({picture})"
    yield ""
    yield "## Conditions"
    yield ""
    yield from machine(result)
    yield f"* autoscaling: {listed(result['autoscaling'])}"
    yield f"* versions: {listed(result['versions'])}"
    yield f"* started by: `{' '.join(result['command'])}`"


def _cells(name: str, row: Mapping[str, float]) -> list[str]:
    return [
        name,
        f"{row['gpu_hours']:.1f}",
        f"{row['replicas_min']:.0f} / {row['replicas_mean']:.1f} / {row['replicas_max']:.0f}",
        *(f"{row[key]:,.0f}" for key in ("p50_ms", "p95_ms", "p99_ms")),
        f"{100 * row['slow']:.2f} %",
        f"{row['queue_max_tokens']:,.0f}",
        f"{row['steps']:.0f}",
        f"{row['reversals']:.0f}",
    ]

"""What reports and a page of many replicas cost, without a network: metrics as many as vLLM has, in this process."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import prometheus_client

from benchmarks.stats import quantile
from serve_app.engine.fake_engine import FakeEngine
from serve_app.observability.catalogue import VLLM, Kind
from serve_app.observability.collector import Collector, Push, Reporter
from serve_app.observability.foreign import ray_blocks
from serve_app.observability.registry import Registry, Snapshot
from serve_app.observability.sources import EngineMetrics
from serve_app.observability.tracing import NO_TRACER
from serve_app.settings import ModelSettings


def scrape_costs(replicas: int) -> dict[str, float]:
    """Milliseconds and bytes of reports and of a page, for so many engine replicas with as many series as vLLM has."""
    engine_metrics()
    settings = ModelSettings.model_validate(
        {"name": "ce", "version": "1", "source": "x", "task": "rerank", "device": "cpu", "dtype": "float32"}
        | {"max_model_len": 512, "max_num_seqs": 128, "max_num_batched_tokens": 4096}
    )
    registries = [Registry() for _ in range(replicas)]
    for registry in registries:
        EngineMetrics(registry, settings, FakeEngine(settings), NO_TRACER)
    timed = _Timed()
    snapshots: list[Snapshot] = [timed("snapshot_ms", registry.snapshot) for registry in registries * 5]
    collector = Collector()
    reporters = [Reporter("PoolingEngine", "ce", "1", f"r{i}", 0.0) for i in range(replicas)]
    first = [Push(s.values, 1, s.schema) for s in snapshots[:replicas]]
    sizes = {"first_report_bytes": float(len(pickle.dumps(first[0]))), "series": float(len(first[0].values))}
    for reporter, push in zip(reporters, first, strict=True):
        timed("first_report_ms", lambda r=reporter, p=push: collector.push(r, pickle.loads(pickle.dumps(p))))
    for reporter, snapshot in zip(reporters, snapshots[-replicas:], strict=True):
        push = Push(snapshot.values, 1)
        sizes["report_bytes"] = float(len(pickle.dumps(push)))
        timed("report_ms", lambda r=reporter, p=push: collector.push(r, pickle.loads(pickle.dumps(p))))
    for _ in range(10):
        sizes["page_bytes"] = float(len(timed("page_ms", collector.page)))
    agent_page = node_agent_page(replicas)
    sizes["node_agent_page_bytes"] = float(len(agent_page))
    names = {f"r{i}" for i in range(replicas)}
    for _ in range(5):
        timed("node_agent_page_ms", lambda: ray_blocks(agent_page, names))
    return {"replicas": float(replicas), **sizes, **timed.medians()}


class _Timed:
    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        started = time.thread_time()  # of this thread's CPU: a busy machine does not count
        value = work()
        self._seconds.setdefault(name, []).append(time.thread_time() - started)
        return value

    def medians(self) -> dict[str, float]:
        return {name: 1e3 * quantile(seconds, 0.5) for name, seconds in self._seconds.items()}


def engine_metrics() -> None:
    """Registers as many metrics as vLLM does, under its names, where it does."""
    kinds = {Kind.COUNTER: prometheus_client.Counter, Kind.GAUGE: prometheus_client.Gauge}
    for name, kind in VLLM.items():
        plain = name.removesuffix("_total") if kind is Kind.COUNTER else name
        if kind is Kind.HISTOGRAM:
            buckets = [2.0**i for i in range(25)]
            prometheus_client.Histogram(name, name, ["model_name", "engine"], buckets=buckets).labels(
                "ce", "0"
            ).observe(1)
        else:
            kinds[kind](plain, name, ["model_name", "engine"]).labels("ce", "0").inc()


def node_agent_page(replicas: int) -> str:
    """A page as Ray's node agents write it: half of it is not Serve's, a third of the replicas is dead."""
    common = (
        'Component="core_worker",NodeAddress="10.0.0.1",SessionName="session",Version="2.60.0",WorkerId="' + "a" * 56
    )
    lines = []
    for family in range(40):
        prefix = "ray_serve" if family % 2 else "ray_node"
        name = f"{prefix}_metric_{family}"
        lines += [f"# HELP {name} Help.", f"# TYPE {name} gauge"]
        for replica in range(replicas + replicas // 2):
            lines.append(f'{name}{{{common}",otel_scope_name="ray._private.telemetry",replica="r{replica}"}} 1.0')
    return "\n".join(lines)

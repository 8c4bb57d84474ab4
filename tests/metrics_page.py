"""A made-up Prometheus page with every metric of ours, for tests of what reads it."""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.observability.catalogue import OURS, Kind, Metric

_VALUES = {
    "deployment": "PoolingEngine",
    "replica": "ce-1#PoolingEngine#abcdef",
    "route": "/v1/rerank",
    "status": "200",
    "status_class": "2xx",
    "code": "internal",
    "stage": "engine",
    "by": "engine",
    "reason": "model",
    "outcome": "written",
    "kind": "score",
    "cache": "device",
    "source": "ray",
    "node": "10.0.0.1",
    "gpu": "0",
    "uuid": "GPU-1",
}
_STAGES = ("tokenize", "queue", "engine", "post", "total")
LIMIT = 100


def page(requests: int, models: Sequence[tuple[str, str]] = (("ce", "1"),), latency_s: float = 0.0275) -> str:
    """The page after so many requests of every model, each of which took `latency_s`; a fifth of it in each stage.

    Gauges are 42, limits 100.
    """
    lines = []
    for metric in OURS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for model, version in models:
            stages = _STAGES if "stage" in metric.labels else ("",)
            for stage in stages:
                own = {**_VALUES, "model": model, "version": version, "stage": stage}
                took = latency_s if stage in ("", "total") else latency_s / 5
                lines += _samples(metric, {name: own.get(name, "x") for name in metric.page_labels}, requests, took)
            if "model" not in metric.page_labels:
                break
    lines += [
        f'ray_serve_deployment_queued_queries{{application="{model}-{version}",deployment="PoolingEngine"}} 7'
        for model, version in models
    ]
    return "\n".join(lines) + "\n"


def _samples(metric: Metric, labels: dict[str, str], count: int, took: float) -> list[str]:
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    braces = f"{{{text}}}" if text else ""
    if metric.kind is Kind.COUNTER:
        return [f"{metric.name}{braces} {count}"]
    if metric.kind is Kind.GAUGE:
        return [f"{metric.name}{braces} {LIMIT if metric.name.endswith(('limit', 'slots', 'total_bytes')) else 42}"]
    comma = "," if text else ""
    bounds = [*map(str, metric.buckets), "+Inf"]
    buckets = [
        f'{metric.name}_bucket{{{text}{comma}le="{bound}"}} {count if took <= float(bound) else 0}' for bound in bounds
    ]
    return [*buckets, f"{metric.name}_sum{braces} {count * took}", f"{metric.name}_count{braces} {count}"]

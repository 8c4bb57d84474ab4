"""Writes docs/metrics.md from the catalogue of metrics. `--check` fails when the page is out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from serve_app.observability import catalogue
from serve_app.observability.catalogue import Kind, Merge, Metric

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
HEAD = f"""# Metrics

Made by `scripts/metrics_page.py` from `serve_app/observability/catalogue.py`.

`GET /metrics` on the gateway's port is one page, in Prometheus's text format, for the whole application: every replica
of every deployment on every node, vLLM, Ray Serve, the proxies and the GPUs. One scrape job with one target is enough.
The page is made at most once a second, whoever asks and however often.

* Counters and histograms of ours are sums over replicas. They do not fall when a replica ends, is killed or replaced,
  nor when the gateway is redeployed. When the collector itself dies they begin at zero again, which `rate()` knows.
* Series with the labels {", ".join(f"`{label}`" for label in catalogue.REPLICA_LABELS)} are a replica's own, and so are
  vLLM's. They disappear with it: at once when it ends in order, 15 seconds after its last report when it was killed.
* Durations are in seconds, sizes in bytes. `model` and `version` are those of the routing table; both are empty for
  requests that name none that exists. No label holds anything of a single request.
* What Ray Serve itself counts has a label `NodeAddress`, what HAProxy counts a label `node`. Ray's series of replicas
  that are gone are left out.
"""


def ours(title: str, metrics: Iterable[Metric]) -> str:
    """A table of metrics of ours."""
    lines = [f"## {title}\n", "| metric | type | labels | over replicas | meaning |", "| --- | --- | --- | --- | --- |"]
    for metric in metrics:
        labels = ", ".join(metric.page_labels)
        merge = {Merge.SUM: "sum", Merge.MIN: "smallest", Merge.MAX: "largest", Merge.REPLICA: "each"}[metric.merge]
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {merge} | {metric.help} |")
    return "\n".join(lines) + "\n"


def foreign(title: str, text: str, metrics: Mapping[str, Kind]) -> str:
    """A list of others' metrics."""
    return f"## {title}\n\n{text}\n\n" + "\n".join(f"* `{name}` ({kind})" for name, kind in metrics.items()) + "\n"


def page() -> str:
    """The whole page."""
    labels = ", ".join(f"`{label}`" for label in catalogue.VLLM_LABELS)
    vllm = f"All that the engine registers, {len(catalogue.VLLM)} families in vLLM 0.32, each with the labels {labels}:"
    return "\n".join(
        [
            HEAD,
            ours("Requests, counted in the gateways", catalogue.REQUESTS),
            ours("Work behind the gateway", catalogue.WORK),
            ours("Processes and the page itself", catalogue.PROCESSES),
            ours("GPUs, absent without one", catalogue.GPU),
            foreign("vLLM", vllm, catalogue.VLLM),
            foreign("Ray Serve", "All families `ray_serve_*`, among them:", catalogue.RAY_SERVE),
            foreign("HAProxy", "All families `haproxy_*` (187), among them:", catalogue.HAPROXY),
        ]
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else "docs/metrics.md is out of date: python scripts/metrics_page.py")
    PAGE.write_text(page())

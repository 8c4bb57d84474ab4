"""Recording rules and alerts.

The latency budget is a p95: of a model's answered requests 5 % may take longer than it. How fast that allowance is used
up is the burn rate; 1 is just as allowed. Two windows must agree, so that an alert neither sleeps through an outage nor
outlives it (https://sre.google/workbook/alerting-on-slos/, "multiwindow, multi-burn-rate").
"""

from __future__ import annotations

from typing import Any

from cluster.dashboards.spec import Alert, Recording
from serve_app.observability.catalogue import LATENCY_S

ALLOWED = 0.05
"""Share of requests that may be slower than a p95 budget."""
FAST, SLOW = 6.0, 1.5
"""Burn rates that call somebody (over 5 minutes and an hour) and that open a ticket (over 30 minutes and six hours)."""
WINDOWS = ("5m", "30m", "1h", "6h")
_BY = "model, version"
_WHO = "{{ $labels.model }}@{{ $labels.version }}"


def budget_bound(p95_ms: float) -> str:
    """A budget as the bucket's `le`.

    Raises:
        ValueError: no bucket of the latency histogram ends there, so that the share below it is not known.
    """
    if p95_ms / 1e3 not in LATENCY_S:
        known = ", ".join(f"{bound * 1e3:g}" for bound in LATENCY_S)
        raise ValueError(f"p95_ms: {p95_ms:g} is no bound of the latency histogram; there are: {known}")
    return repr(p95_ms / 1e3)  # as prometheus_client writes it


def recordings(p95_ms: float) -> tuple[Recording, ...]:
    """Rules that alerts and people's queries share."""
    bound = budget_bound(p95_ms)
    answered = 'status_class="2xx"'
    rules = []
    for window in WINDOWS:
        fast = f'sum by ({_BY}) (rate(poolserve_request_seconds_bucket{{{answered},le="{bound}"}}[{window}]))'
        count = f"sum by ({_BY}) (rate(poolserve_request_seconds_count{{{answered}}}[{window}]))"
        rules.append(
            Recording(f"model_version:poolserve_slow_requests:ratio_rate{window}", f"1 - {fast} / ({count} > 0)")
        )
    faults = f'sum by ({_BY}) (rate(poolserve_requests_total{{status=~"5.."}}[5m]))'
    rejected = f"sum by ({_BY}) (rate(poolserve_rejected_total[5m]))"
    count = f"sum by ({_BY}) (rate(poolserve_requests_total[5m]))"
    rules += [
        Recording("model_version:poolserve_requests:rate5m", count),
        Recording("model_version:poolserve_faults:ratio_rate5m", f"{faults} / ({count} > 0)"),
        Recording("model_version:poolserve_rejected:ratio_rate5m", f"{rejected} / ({count} > 0)"),
        Recording("model_version:poolserve_documents_in_flight:sum", f"sum by ({_BY}) (poolserve_documents_in_flight)"),
        Recording(
            "model_version:poolserve_latency:p95_5m",
            f"histogram_quantile(0.95, sum by (le, {_BY}) (rate(poolserve_request_seconds_bucket{{{answered}}}[5m])))",
        ),
    ]
    return tuple(rules)


def alerts(p95_ms: float) -> tuple[Alert, ...]:
    """What somebody should know. `page` calls, `ticket` waits for working hours."""

    def burn(rate: float, *windows: str) -> str:
        terms = (f"model_version:poolserve_slow_requests:ratio_rate{window} > {rate * ALLOWED:g}" for window in windows)
        return " and ".join(terms)

    engine_queue = f"histogram_quantile(0.95, sum by (le, {_BY}) (rate(poolserve_engine_queue_seconds_bucket[5m])))"
    engine_work = f"histogram_quantile(0.95, sum by (le, {_BY}) (rate(poolserve_engine_seconds_bucket[5m])))"
    device = 'cache="device"'
    misses = f"sum by ({_BY}) (rate(poolserve_cache_misses_total{{{device}}}[10m]))"
    # Without a single hit there is no series of hits, and the worst thrash would go unseen.
    hits = f"(sum by ({_BY}) (rate(poolserve_cache_hits_total{{{device}}}[10m])) or {misses} * 0)"
    return (
        Alert(
            "LatencyBudgetBurnsFast",
            burn(FAST, "5m", "1h"),
            "2m",
            "page",
            f"{_WHO}: {{{{ $value | humanizePercentage }}}} of the requests take longer than {p95_ms:g} ms.",
            "The stages dashboard says which stage grew. queue: more engines. tokenize: more IOProcessors. "
            "fetch: the picture host.",
        ),
        Alert(
            "LatencyBudgetBurns",
            burn(SLOW, "30m", "6h"),
            "15m",
            "ticket",
            f"{_WHO}: {{{{ $value | humanizePercentage }}}} of the requests take longer than {p95_ms:g} ms.",
            "As above, with less haste; or the budget is not what this model can hold.",
        ),
        Alert(
            "Faults",
            "model_version:poolserve_faults:ratio_rate5m > 0.01",
            "5m",
            "page",
            f"{_WHO}: {{{{ $value | humanizePercentage }}}} of the answers are 5xx.",
            "Errors by code on the overview; the request ids are in the gateway's log.",
        ),
        Alert(
            "NotReady",
            "poolserve_model_ready == 0",
            "2m",
            "page",
            f"{_WHO} does not answer its canary.",
            "`serve status`; the log of its IOProcessor and PoolingEngine. Take its weight away in the routing table.",
        ),
        Alert(
            "NothingToSee",
            'up{job="poolserve"} == 0 or absent(poolserve_model_ready)',
            "2m",
            "page",
            "The gateway gives no metrics, or serves no model.",
            "`/health` and `/ready` of the gateway; the proxy's port.",
        ),
        Alert(
            "GpuMemoryNearlyFull",
            "poolserve_gpu_memory_used_bytes / poolserve_gpu_memory_total_bytes > 0.95",
            "10m",
            "ticket",
            "GPU {{ $labels.gpu }} of {{ $labels.node }}: {{ $value | humanizePercentage }} of the memory is in use.",
            "The engines' gpu_memory_utilization together must stay at or below 0.90; somebody else may use the GPU.",
        ),
        Alert(
            "ReplicaMemoryGrows",
            "predict_linear(poolserve_replica_memory_bytes[1h], 14400) > 2 * poolserve_replica_memory_bytes"
            " and deriv(poolserve_replica_memory_bytes[1h]) > 0"
            " and time() - poolserve_replica_start_time_seconds > 7200",
            "30m",
            "ticket",
            "{{ $labels.deployment }} {{ $labels.model }} {{ $labels.replica }} will have doubled its memory in four "
            "hours.",
            "What grows: pixel caches (cache_mib, host_cache_gib, vector_cache), or a plugin that keeps what it got.",
        ),
        Alert(
            "FeatureCacheThrashes",
            f"{misses} / ({hits} + {misses}) > 0.5 and on ({_BY}) sum by ({_BY}) (poolserve_feature_slots_used)"
            f" / sum by ({_BY}) (poolserve_feature_slots) > 0.95",
            "15m",
            "ticket",
            f"{_WHO}: the slots for image features are full, and {{{{ $value | humanizePercentage }}}} of the images "
            "are not among them.",
            "images.device_cache is too small for what is asked, or the same pictures spread over too many engines.",
        ),
        Alert(
            "KvCacheThrashes",
            f"sum by ({_BY}) (rate(vllm:num_preemptions_total[10m])) > 0.1",
            "10m",
            "ticket",
            f"{_WHO}: vLLM drops and repeats {{{{ $value | humanize }}}} sequences a second for want of cache.",
            "More gpu_memory_utilization, or a smaller max_num_seqs.",
        ),
        Alert(
            "EngineNearlyFull",
            "poolserve_engine_documents_in_flight / poolserve_engine_documents_limit > 0.8 or "
            "poolserve_engine_tokens_in_flight / poolserve_engine_tokens_limit > 0.8",
            "5m",
            "ticket",
            "{{ $labels.model }} {{ $labels.replica }} holds {{ $value | humanizePercentage }} of what it admits.",
            "More engines; or, if the latency is fine, higher admission limits.",
        ),
        Alert(
            "QueueGrows",
            f"{engine_queue} > {engine_work} and on ({_BY}) "
            "deriv(model_version:poolserve_documents_in_flight:sum[15m]) > 0",
            "10m",
            "page",
            f"{_WHO}: sequences wait longer ({{{{ $value | humanizeDuration }}}} at p95) than they are worked on, and "
            "more come.",
            "More engines. Until they are there the admission limits keep the rest alive.",
        ),
        Alert(
            "Rejected",
            "model_version:poolserve_rejected:ratio_rate5m > 0.01",
            "5m",
            "page",
            f"{_WHO}: {{{{ $value | humanizePercentage }}}} of the requests are refused for want of room.",
            "by=gateway: max_documents_in_flight of the gateway. by=engine: admission limits, or more engines.",
        ),
        Alert(
            "FeatureLogDrops",
            'sum by (outcome) (increase(poolserve_feature_log_records_total{outcome=~"dropped|failed"}[10m])) > 0',
            "0m",
            "ticket",
            "The feature log has {{ $labels.outcome }} {{ $value | humanize }} records in ten minutes; no answer was "
            "lost.",
            "The disk: full or slow. Or the queue of the log is too short.",
        ),
        Alert(
            "SourceUnread",
            "poolserve_metrics_source_up == 0",
            "10m",
            "ticket",
            "The page lacks what {{ $labels.source }} on {{ $labels.node }} says.",
            "That process is gone, or its metrics port cannot be reached from the gateway.",
        ),
    )


def rule_file(p95_ms: float) -> dict[str, Any]:
    """Prometheus's rule file."""
    return {
        "groups": [
            {
                "name": "poolserve",
                "interval": "15s",
                "rules": [{"record": rule.record, "expr": rule.expr} for rule in recordings(p95_ms)],
            },
            {
                "name": "poolserve-alerts",
                "rules": [
                    {
                        "alert": f"Poolserve{alert.name}",
                        "expr": alert.expr,
                        "for": alert.wait,
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.summary, "description": alert.action},
                    }
                    for alert in alerts(p95_ms)
                ],
            },
        ]
    }

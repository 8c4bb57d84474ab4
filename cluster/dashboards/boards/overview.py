"""Is everything well?"""

from __future__ import annotations

from cluster.dashboards.queries import ANSWERED, BY, NAMED, one, quantile, quantiles, rate, share
from cluster.dashboards.spec import Dashboard, Kind, Panel, Query, Row

_FAULTS = share(rate("poolserve_requests_total", where='status=~"5.."'), rate("poolserve_requests_total"))

OVERVIEW = Dashboard(
    "overview",
    "Poolserve: overview",
    (
        Row(
            "Now",
            (
                Panel(
                    "Versions ready",
                    (
                        Query("sum(poolserve_model_ready)", "ready"),
                        Query("count(poolserve_model_ready)", "in the table"),
                    ),
                    kind=Kind.NUMBER,
                    width=4,
                    height=5,
                ),
                Panel("Requests", one(rate("poolserve_requests_total")), "reqps", Kind.NUMBER, width=4, height=5),
                Panel(
                    "p95",
                    one(quantile(0.95, "poolserve_request_seconds", where=ANSWERED)),
                    "s",
                    Kind.NUMBER,
                    width=4,
                    height=5,
                ),
                Panel("Faults (5xx)", one(_FAULTS), "percentunit", Kind.NUMBER, width=4, height=5),
                Panel(
                    "Documents in flight",
                    one("sum(poolserve_documents_in_flight)"),
                    kind=Kind.NUMBER,
                    width=4,
                    height=5,
                ),
                Panel(
                    "Replicas",
                    one("sum by (deployment) (poolserve_replica_up)", "{{deployment}}"),
                    kind=Kind.NUMBER,
                    width=4,
                    height=5,
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Latency of answered requests",
                    quantiles("poolserve_request_seconds", ANSWERED),
                    "s",
                    help="From the arrival in the gateway to the answer; without the proxy and the network.",
                ),
                Panel("Requests by model", one(rate("poolserve_requests_total", BY), NAMED), "reqps"),
                Panel(
                    "Requests by route and status",
                    one(rate("poolserve_requests_total", "route, status"), "{{route}} {{status}}"),
                    "reqps",
                ),
                Panel("p95 by model", one(quantile(0.95, "poolserve_request_seconds", BY, ANSWERED), NAMED), "s"),
                Panel("Errors by code", one(rate("poolserve_errors_total", "code"), "{{code}}"), "reqps"),
                Panel(
                    "Refused, cancelled, repeated",
                    (
                        Query(rate("poolserve_rejected_total", "by"), "refused by {{by}}"),
                        Query(rate("poolserve_cancelled_total"), "client left"),
                        Query(rate("poolserve_retried_total", "reason"), "repeated: {{reason}}"),
                    ),
                    "reqps",
                    help="Refused by the gateway: max_documents_in_flight there. By the engine: its admission limits.",
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel("Documents and inputs", one(rate("poolserve_documents_total", BY), NAMED), "cps"),
                Panel("Tokens", one(rate("poolserve_tokens_total", BY), NAMED), "cps"),
                Panel(
                    "Images",
                    (
                        Query(rate("poolserve_images_total"), "in answers"),
                        Query(rate("poolserve_images_fetched_total"), "downloaded"),
                        Query(rate("poolserve_images_decoded_total"), "decoded"),
                    ),
                    "cps",
                ),
                Panel(
                    "In flight",
                    (
                        Query(f"sum by ({BY}) (poolserve_documents_in_flight)", f"{NAMED} documents"),
                        Query(f"sum by ({BY}) (poolserve_requests_in_flight)", f"{NAMED} requests"),
                    ),
                ),
                Panel(
                    "Documents without an answer", one(rate("poolserve_item_errors_total", "code"), "{{code}}"), "cps"
                ),
                Panel(
                    "Cut documents",
                    one(
                        share(rate("poolserve_truncated_documents_total", BY), rate("poolserve_documents_total", BY)),
                        NAMED,
                    ),
                    "percentunit",
                    help="Share of the documents that were longer than max_model_len leaves room for.",
                ),
            ),
        ),
        Row(
            "Processes and proxy",
            (
                Panel(
                    "Memory by deployment",
                    one("sum by (deployment, model) (poolserve_replica_memory_bytes)", "{{deployment}} {{model}}"),
                    "bytes",
                ),
                Panel(
                    "CPU by deployment",
                    one(rate("poolserve_replica_cpu_seconds_total", "deployment, model"), "{{deployment}} {{model}}"),
                    "short",
                    help="Cores. A gateway or IOProcessor near one core per replica is the limit: more replicas.",
                ),
                Panel(
                    "Calls that wait in Ray Serve",
                    one(
                        "sum by (application, deployment) (ray_serve_deployment_queued_queries)",
                        "{{application}} {{deployment}}",
                    ),
                    help="Should be near zero: admission is before it.",
                ),
                Panel(
                    "Proxy: answers by class",
                    one(
                        rate("haproxy_frontend_http_responses_total", "code"),
                        "{{code}}",
                    ),
                    "reqps",
                ),
                Panel(
                    "Proxy: queue, retries, refused connections",
                    (
                        Query("sum(haproxy_backend_current_queue)", "queue"),
                        Query(rate("haproxy_backend_retry_warnings_total"), "retries / s"),
                        Query(rate("haproxy_backend_connection_errors_total"), "connection errors / s"),
                    ),
                ),
                Panel(
                    "The page itself",
                    (
                        Query("poolserve_metrics_build_seconds", "building it"),
                        Query("min by (source) (poolserve_metrics_source_up)", "{{source}} was read"),
                    ),
                    "short",
                ),
            ),
        ),
    ),
)

"""Metrics of others that dashboards and alerts use, with the labels that they have on our page.

Read off a page of Ray 2.60 with HAProxy; `tests/ray` looks for each of them on a running server's page. What
vLLM gives is in `serve_app.observability.catalogue`.
"""

from __future__ import annotations

_DEPLOYMENT = ("application", "deployment", "NodeAddress", "WorkerId")

FOREIGN: dict[str, tuple[str, ...]] = {
    "ray_serve_deployment_queued_queries": (*_DEPLOYMENT, "handle", "actor_id"),
    "ray_serve_replica_processing_queries": (*_DEPLOYMENT, "replica"),
    "ray_serve_deployment_replica_healthy": (*_DEPLOYMENT, "replica"),
    "ray_serve_autoscaling_target_replicas": _DEPLOYMENT,
    "ray_serve_event_loop_scheduling_latency_ms_bucket": (*_DEPLOYMENT, "component", "loop_type", "actor_id", "le"),
    "haproxy_frontend_http_responses_total": ("proxy", "code", "node"),
    "haproxy_backend_current_queue": ("proxy", "node"),
    "haproxy_backend_retry_warnings_total": ("proxy", "node"),
    "haproxy_backend_connection_errors_total": ("proxy", "node"),
}
"""Samples' names and labels."""

PROMETHEUS: dict[str, tuple[str, ...]] = {"up": ("job", "instance")}
"""What Prometheus itself adds when it scrapes."""

"""Every metric of ours. Dashboards and alert rules are checked against this module; nothing else makes a metric.

Labels are bounded: `route` is a route's path as it is declared, `model` and `version` stand in the routing table (""
where a request named none that exists), `status` and `code` come from the table in `errors.py`. No label holds anything
of a single request.

Counters and histograms are added up over replicas: what a replica that is gone has counted stays in the sum, so that
they never fall. Gauges of a replica disappear with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus's types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """How the replicas' values become the page's."""

    SUM = "sum"
    """Added up. Counters and histograms keep what replicas counted that are gone; gauges add up the living ones."""
    MIN = "min"
    """Gauges: the smallest of the living."""
    MAX = "max"
    """Gauges: the largest of the living; also for what several processes read off the same thing."""
    REPLICA = "replica"
    """A series per replica, with the labels of `REPLICA_LABELS`; it disappears with the replica."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as on the page; counters end in `_total`.
        kind: its type.
        help: one sentence.
        labels: names of its own labels. With `Merge.REPLICA` those of `REPLICA_LABELS` come on top.
        buckets: upper bounds, for histograms, in the name's unit.
        merge: how replicas are put together.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    merge: Merge = Merge.SUM

    @property
    def page_labels(self) -> tuple[str, ...]:
        """Its labels on the page."""
        if self.merge is not Merge.REPLICA:
            return self.labels
        return (*REPLICA_LABELS, *(label for label in self.labels if label not in REPLICA_LABELS))

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of its samples, which is what queries name."""
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


REPLICA_LABELS = ("deployment", "model", "version", "replica")
"""Who reports: Gateway, ImageLoader, IOProcessor or PoolingEngine; "" for model and version of the first two."""

LATENCY_S = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.075, 0.1, 0.15, 0.2, 0.3,
    0.5, 1.0, 2.5, 10.0,
)  # fmt: skip
"""Seconds. Ray Serve's own have nothing between 20 and 50 ms, where ranking happens."""
STAGE_S = (0.0001, 0.00025, 0.0005, *LATENCY_S)
"""Seconds. Post-processing takes less than a millisecond."""
DOCUMENTS = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 500, 1_000, 2_000)
TOKENS = (16, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 262_144)

_TARGET = ("model", "version")
_SHADOW = (*_TARGET, "shadow")
"""The version that answered the caller, and the one that got a copy."""
SENT = "Copies for shadow versions by outcome: sent, answered, failed, cancelled, dropped, not_comparable, compared."
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

REQUESTS = (
    Metric(
        "poolserve_requests_total", _C, "Answers, by HTTP status; 499: the client left.", ("route", *_TARGET, "status")
    ),
    Metric(
        "poolserve_errors_total", _C, "Answers that are errors, by the code in their body.", ("route", *_TARGET, "code")
    ),
    Metric(
        "poolserve_request_seconds",
        _H,
        "From the request's arrival in the gateway to its answer, by class of status (2xx, 4xx, 5xx).",
        ("route", *_TARGET, "status_class"),
        LATENCY_S,
    ),
    Metric(
        "poolserve_stage_seconds",
        _H,
        "A request's time by stage: fetch, decode, tokenize, queue, engine, post, total; as in Server-Timing.",
        (*_TARGET, "stage"),
        STAGE_S,
    ),
    Metric("poolserve_documents_total", _C, "Documents and inputs of answered requests.", _TARGET),
    Metric("poolserve_tokens_total", _C, "Tokens that the engine read for answered requests.", _TARGET),
    Metric("poolserve_truncated_documents_total", _C, "Documents of answered requests that were cut.", _TARGET),
    Metric("poolserve_images_total", _C, "Images of answered requests.", _TARGET),
    Metric(
        "poolserve_item_errors_total",
        _C,
        "Documents without an answer in answered requests, by code.",
        (*_TARGET, "code"),
    ),
    Metric("poolserve_request_documents", _H, "Documents of an answered request.", _TARGET, DOCUMENTS),
    Metric(
        "poolserve_rejected_total",
        _C,
        "Requests refused for want of room, by who refused: gateway, engine.",
        (*_TARGET, "by"),
    ),
    Metric("poolserve_cancelled_total", _C, "Requests whose client left before the answer.", _TARGET),
    Metric(
        "poolserve_retried_total",
        _C,
        "Requests sent once more, by why: replica_died, engine_dead.",
        (*_TARGET, "reason"),
    ),
    Metric(
        "poolserve_routing_decisions_total",
        _C,
        "Requests routed to a version, by how it was chosen: pinned, latest, sticky, weighted, default.",
        (*_TARGET, "reason"),
    ),
    Metric("poolserve_requests_in_flight", _G, "Requests under way in the gateways.", _TARGET),
    Metric("poolserve_documents_in_flight", _G, "Documents under way in the gateways.", _TARGET),
    Metric(
        "poolserve_model_ready", _G, "1: the last canary was answered; 0: not, or not yet.", _TARGET, merge=Merge.MIN
    ),
    Metric("poolserve_model_weight", _G, "The version's weight in the routing table.", _TARGET, merge=Merge.MAX),
    Metric("poolserve_shadow_requests_total", _C, SENT, (*_SHADOW, "outcome")),
    Metric("poolserve_shadow_values_total", _C, "Scores, or components of vectors, that were compared.", _SHADOW),
    Metric("poolserve_shadow_difference_total", _C, "Sum of the absolute differences of compared values.", _SHADOW),
    Metric("poolserve_shadow_difference_max", _G, "Largest absolute difference so far.", _SHADOW, merge=Merge.MAX),
    Metric("poolserve_shadow_tops_total", _C, "Rankings whose first places were compared.", _SHADOW),
    Metric("poolserve_shadow_tops_equal_total", _C, "Rankings whose first places were the same.", _SHADOW),
)
"""Counted in the gateways."""

WORK = (
    Metric(
        "poolserve_engine_documents_in_flight",
        _G,
        "Sequences admitted by an engine and not answered.",
        _TARGET,
        merge=Merge.REPLICA,
    ),
    Metric(
        "poolserve_engine_tokens_in_flight",
        _G,
        "Tokens admitted by an engine and not answered.",
        _TARGET,
        merge=Merge.REPLICA,
    ),
    Metric("poolserve_engine_documents_limit", _G, "Sequences that an engine admits.", _TARGET, merge=Merge.REPLICA),
    Metric("poolserve_engine_tokens_limit", _G, "Tokens that an engine admits.", _TARGET, merge=Merge.REPLICA),
    Metric(
        "poolserve_engine_batch_documents", _H, "Sequences of a batch that an engine was given.", _TARGET, DOCUMENTS
    ),
    Metric("poolserve_engine_batch_tokens", _H, "Tokens of a batch that an engine was given.", _TARGET, TOKENS),
    Metric(
        "poolserve_engine_queue_seconds",
        _H,
        "From a batch's arrival in the engine to its first step.",
        _TARGET,
        STAGE_S,
    ),
    Metric("poolserve_engine_seconds", _H, "From a batch's first step to its last output.", _TARGET, STAGE_S),
    Metric(
        "poolserve_engine_cancelled_total",
        _C,
        "Batches that an engine dropped: the caller left, or the deadline passed.",
        _TARGET,
    ),
    Metric("poolserve_images_fetched_total", _C, "Images downloaded."),
    Metric("poolserve_images_decoded_total", _C, "Images decoded."),
    Metric("poolserve_images_failed_total", _C, "Images that could not be used, by code.", ("code",)),
    Metric("poolserve_loader_pixels_in_flight", _G, "Pixels being decoded, about 4 bytes each."),
    Metric(
        "poolserve_loader_bytes_in_flight",
        _G,
        "Bytes of URLs' images that are being fetched or wait for their decoding; not of images sent as data.",
    ),
    Metric(
        "poolserve_cache_hits_total",
        _C,
        "Images found in a cache: url, pixels (ImageLoader), vector (IOProcessor), device (PoolingEngine).",
        ("cache", *_TARGET),
    ),
    Metric("poolserve_cache_misses_total", _C, "Images looked up in a cache and not found.", ("cache", *_TARGET)),
    Metric(
        "poolserve_feature_slots_used",
        _G,
        "Images whose features an engine holds on its device.",
        _TARGET,
        merge=Merge.REPLICA,
    ),
    Metric(
        "poolserve_feature_slots", _G, "Images whose features fit on an engine's device.", _TARGET, merge=Merge.REPLICA
    ),
)
"""Counted in the ImageLoaders, IOProcessors and PoolingEngines."""

PROCESSES = (
    Metric("poolserve_replica_up", _G, "1 for every replica that reports.", merge=Merge.REPLICA),
    Metric(
        "poolserve_replica_start_time_seconds",
        _G,
        "When the replica's process began, seconds since the epoch.",
        merge=Merge.REPLICA,
    ),
    Metric(
        "poolserve_replica_memory_bytes",
        _G,
        "Resident memory of the replica's process and those below it.",
        merge=Merge.REPLICA,
    ),
    Metric(
        "poolserve_replica_cpu_seconds_total",
        _C,
        "CPU time of the replica's process, without those below it.",
        merge=Merge.REPLICA,
    ),
    Metric("poolserve_build_info", _G, "1; the versions that run.", ("poolserve", "ray", "vllm"), merge=Merge.MAX),
    Metric(
        "poolserve_feature_log_records_total",
        _C,
        "Records of the feature log by outcome: written, dropped, failed.",
        ("outcome",),
    ),
    Metric("poolserve_feature_log_queued", _G, "Records of the feature log that wait to be written."),
    Metric("poolserve_metrics_replicas", _G, "Replicas on this page."),
    Metric("poolserve_metrics_build_seconds", _G, "How long it took to make the last page."),
    Metric(
        "poolserve_metrics_source_up",
        _G,
        "1: a foreign page was read; by source: ray, haproxy.",
        ("source", "node"),
        merge=Merge.MAX,
    ),
)

_GPU = ("node", "gpu", "uuid")
GPU = (
    Metric("poolserve_gpu_memory_used_bytes", _G, "Memory of the GPU in use, by whomever.", _GPU, merge=Merge.MAX),
    Metric("poolserve_gpu_memory_total_bytes", _G, "Memory of the GPU.", _GPU, merge=Merge.MAX),
    Metric(
        "poolserve_gpu_utilization_ratio",
        _G,
        "Share of the last sample period in which a kernel ran, 0 to 1.",
        _GPU,
        merge=Merge.MAX,
    ),
    Metric(
        "poolserve_gpu_memory_utilization_ratio",
        _G,
        "Share of the last sample period in which memory was read or written.",
        _GPU,
        merge=Merge.MAX,
    ),
    Metric("poolserve_gpu_power_watts", _G, "Power that the GPU draws.", _GPU, merge=Merge.MAX),
    Metric("poolserve_gpu_power_limit_watts", _G, "Power that the GPU may draw.", _GPU, merge=Merge.MAX),
    Metric("poolserve_gpu_temperature_celsius", _G, "Temperature of the GPU.", _GPU, merge=Merge.MAX),
)
"""Absent without a GPU."""

OURS = (*REQUESTS, *WORK, *PROCESSES, *GPU)
BY_NAME = {metric.name: metric for metric in OURS}

VLLM_LABELS = (*REPLICA_LABELS, "model_name", "engine")
"""Labels of the `vllm:` series on the page: ours, then vLLM's own, which a few lack."""

VLLM = {
    "vllm:admission_rejections_total": Kind.COUNTER,
    "vllm:cache_config_info": Kind.GAUGE,
    "vllm:e2e_request_latency_seconds": Kind.HISTOGRAM,
    "vllm:engine_sleep_state": Kind.GAUGE,
    "vllm:estimated_flops_per_gpu_total": Kind.COUNTER,
    "vllm:estimated_read_bytes_per_gpu_total": Kind.COUNTER,
    "vllm:estimated_write_bytes_per_gpu_total": Kind.COUNTER,
    "vllm:external_prefix_cache_hits_total": Kind.COUNTER,
    "vllm:external_prefix_cache_queries_total": Kind.COUNTER,
    "vllm:generation_tokens_total": Kind.COUNTER,
    "vllm:inter_token_latency_seconds": Kind.HISTOGRAM,
    "vllm:iteration_tokens_total": Kind.HISTOGRAM,
    "vllm:kv_cache_usage_perc": Kind.GAUGE,
    "vllm:mm_cache_hits_total": Kind.COUNTER,
    "vllm:mm_cache_queries_total": Kind.COUNTER,
    "vllm:num_preemptions_total": Kind.COUNTER,
    "vllm:num_requests_running": Kind.GAUGE,
    "vllm:num_requests_waiting": Kind.GAUGE,
    "vllm:num_requests_waiting_by_reason": Kind.GAUGE,
    "vllm:prefix_cache_hits_total": Kind.COUNTER,
    "vllm:prefix_cache_queries_total": Kind.COUNTER,
    "vllm:prompt_tokens_by_source_total": Kind.COUNTER,
    "vllm:prompt_tokens_cached_by_source_total": Kind.COUNTER,
    "vllm:prompt_tokens_cached_total": Kind.COUNTER,
    "vllm:prompt_tokens_total": Kind.COUNTER,
    "vllm:request_decode_time_seconds": Kind.HISTOGRAM,
    "vllm:request_generation_tokens": Kind.HISTOGRAM,
    "vllm:request_inference_time_seconds": Kind.HISTOGRAM,
    "vllm:request_max_num_generation_tokens": Kind.HISTOGRAM,
    "vllm:request_num_preemptions": Kind.HISTOGRAM,
    "vllm:request_params_max_tokens": Kind.HISTOGRAM,
    "vllm:request_params_n": Kind.HISTOGRAM,
    "vllm:request_prefill_kv_computed_tokens": Kind.HISTOGRAM,
    "vllm:request_prefill_time_seconds": Kind.HISTOGRAM,
    "vllm:request_prompt_tokens": Kind.HISTOGRAM,
    "vllm:request_queue_time_seconds": Kind.HISTOGRAM,
    "vllm:request_success_total": Kind.COUNTER,
    "vllm:request_time_per_output_token_seconds": Kind.HISTOGRAM,
    "vllm:time_to_first_token_seconds": Kind.HISTOGRAM,
}
"""What vLLM 0.32 registers in an engine. Others depend on how it runs (speculation, LoRA, cache connectors); the page
passes on all that there are. A test on a real engine keeps this list complete."""

RAY_SERVE_PREFIX = "ray_serve_"
HAPROXY_PREFIX = "haproxy_"
"""What the page takes over from Ray's node agents (label `NodeAddress`) and from HAProxy (label `node`)."""

RAY_SERVE = {
    "ray_serve_application_status": Kind.GAUGE,
    "ray_serve_autoscaling_target_replicas": Kind.GAUGE,
    "ray_serve_controller_control_loop_duration_s": Kind.GAUGE,
    "ray_serve_controller_num_control_loops": Kind.GAUGE,
    "ray_serve_deployment_processing_latency_ms": Kind.HISTOGRAM,
    "ray_serve_deployment_queued_queries": Kind.GAUGE,
    "ray_serve_deployment_replica_healthy": Kind.GAUGE,
    "ray_serve_deployment_replica_starts_total": Kind.COUNTER,
    "ray_serve_deployment_request_counter_total": Kind.COUNTER,
    "ray_serve_deployment_status": Kind.GAUGE,
    "ray_serve_event_loop_scheduling_latency_ms": Kind.HISTOGRAM,
    "ray_serve_event_loop_tasks": Kind.GAUGE,
    "ray_serve_handle_request_counter_total": Kind.COUNTER,
    "ray_serve_haproxy_process_count": Kind.GAUGE,
    "ray_serve_haproxy_target_mismatch": Kind.GAUGE,
    "ray_serve_haproxy_update_latency_s": Kind.HISTOGRAM,
    "ray_serve_health_check_latency_ms": Kind.HISTOGRAM,
    "ray_serve_http_request_latency_ms": Kind.HISTOGRAM,
    "ray_serve_num_http_requests_total": Kind.COUNTER,
    "ray_serve_num_ongoing_http_requests": Kind.GAUGE,
    "ray_serve_num_ongoing_requests_at_replicas": Kind.GAUGE,
    "ray_serve_num_router_requests_total": Kind.COUNTER,
    "ray_serve_num_scheduling_tasks": Kind.GAUGE,
    "ray_serve_proxy_status": Kind.GAUGE,
    "ray_serve_replica_initialization_latency_ms": Kind.HISTOGRAM,
    "ray_serve_replica_processing_queries": Kind.GAUGE,
    "ray_serve_replica_startup_latency_ms": Kind.HISTOGRAM,
    "ray_serve_request_router_fulfillment_time_ms": Kind.HISTOGRAM,
    "ray_serve_request_router_queue_len": Kind.GAUGE,
}
"""Ray Serve's metrics that dashboards may use; those of errors appear with the first."""

HAPROXY = {
    "haproxy_backend_active_servers": Kind.GAUGE,
    "haproxy_backend_connection_errors_total": Kind.COUNTER,
    "haproxy_backend_current_queue": Kind.GAUGE,
    "haproxy_backend_http_responses_total": Kind.COUNTER,
    "haproxy_backend_response_errors_total": Kind.COUNTER,
    "haproxy_backend_response_time_average_seconds": Kind.GAUGE,
    "haproxy_backend_retry_warnings_total": Kind.COUNTER,
    "haproxy_frontend_bytes_in_total": Kind.COUNTER,
    "haproxy_frontend_bytes_out_total": Kind.COUNTER,
    "haproxy_frontend_current_sessions": Kind.GAUGE,
    "haproxy_frontend_http_requests_total": Kind.COUNTER,
    "haproxy_frontend_http_responses_total": Kind.COUNTER,
    "haproxy_process_current_connections": Kind.GAUGE,
    "haproxy_process_uptime_seconds": Kind.GAUGE,
    "haproxy_server_check_failures_total": Kind.COUNTER,
    "haproxy_server_current_queue": Kind.GAUGE,
    "haproxy_server_current_sessions": Kind.GAUGE,
    "haproxy_server_http_responses_total": Kind.COUNTER,
    "haproxy_server_status": Kind.GAUGE,
}
"""HAProxy's metrics that dashboards may use; absent under Ray's own proxy."""

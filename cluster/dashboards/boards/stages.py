"""Where the milliseconds go."""

from __future__ import annotations

from cluster.dashboards.queries import CHOICES, CHOSEN, one, quantile, rate
from cluster.dashboards.spec import Dashboard, Panel, Query, Row

_STAGE = f'{CHOSEN},stage!="total"'
_TOTAL = f'{CHOSEN},stage="total"'
STAGES = Dashboard(
    "stages",
    "Poolserve: where the milliseconds go",
    (
        Row(
            "A request's stages",
            (
                Panel(
                    "Mean by stage",
                    one(
                        f"{rate('poolserve_stage_seconds_sum', 'stage', _STAGE)} / on () group_left () "
                        f"{rate('poolserve_stage_seconds_count', where=_TOTAL)}",
                        "{{stage}}",
                    ),
                    "s",
                    width=12,
                    stacked=True,
                    help="Seconds of an average request; stages that a request skips count as 0, so that they add up.",
                ),
                Panel(
                    "p95 by stage",
                    one(quantile(0.95, "poolserve_stage_seconds", "stage", CHOSEN), "{{stage}}"),
                    "s",
                    width=12,
                    help="queue: the way to the engine, back, and waiting there. It alone grows when engines lack; "
                    "fetch alone when a picture host is slow.",
                ),
                Panel(
                    "p50 by stage",
                    one(quantile(0.5, "poolserve_stage_seconds", "stage", CHOSEN), "{{stage}}"),
                    "s",
                    width=12,
                ),
                Panel(
                    "p99 by stage",
                    one(quantile(0.99, "poolserve_stage_seconds", "stage", CHOSEN), "{{stage}}"),
                    "s",
                    width=12,
                ),
            ),
        ),
        Row(
            "Images",
            (
                Panel(
                    "Downloaded, decoded, failed",
                    (
                        Query(rate("poolserve_images_fetched_total"), "downloaded"),
                        Query(rate("poolserve_images_decoded_total"), "decoded"),
                        Query(rate("poolserve_images_failed_total", "code"), "{{code}}"),
                    ),
                    "cps",
                ),
                Panel(
                    "Pixels being decoded",
                    one("poolserve_loader_pixels_in_flight"),
                    help="Near max_pixels_in_flight: decoding is the limit, more ImageLoaders.",
                ),
                Panel("Bytes waiting to be decoded", one("poolserve_loader_bytes_in_flight"), "bytes"),
            ),
        ),
        Row(
            "Event loops and queues",
            (
                Panel(
                    "Event loop lag p99 (ms)",
                    one(
                        quantile(0.99, "ray_serve_event_loop_scheduling_latency_ms", "deployment, loop_type"),
                        "{{deployment}} {{loop_type}}",
                    ),
                    "ms",
                    help="Above some 10 ms something blocks: more replicas of that deployment.",
                ),
                Panel(
                    "Calls that run",
                    one(
                        "sum by (application, deployment) (ray_serve_replica_processing_queries)",
                        "{{application}} {{deployment}}",
                    ),
                ),
                Panel(
                    "Calls that wait",
                    one(
                        "sum by (application, deployment) (ray_serve_deployment_queued_queries)",
                        "{{application}} {{deployment}}",
                    ),
                ),
            ),
        ),
    ),
    CHOICES,
)

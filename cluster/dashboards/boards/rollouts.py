"""Which version serves, and how the new one does beside the old."""

from __future__ import annotations

from cluster.dashboards.queries import ANSWERED, BY, CHOICES, CHOSEN, NAMED, one, quantile, rate, share
from cluster.dashboards.spec import Dashboard, Kind, Panel, Query, Row

PAIR = "{{model}} {{shadow}}"
SHADOW = "model, shadow"
VALUES = rate("poolserve_shadow_values_total", SHADOW, CHOSEN)
TOPS = rate("poolserve_shadow_tops_total", SHADOW, CHOSEN)

ROLLOUTS = Dashboard(
    "rollouts",
    "Poolserve: rollouts",
    (
        Row(
            "Which version serves",
            (
                Panel("Weights", one(f"poolserve_model_weight{{{CHOSEN}}}", NAMED)),
                Panel(
                    "Share of the requests",
                    one(
                        f"{rate('poolserve_requests_total', BY, CHOSEN)}"
                        f" / on (model) group_left () {rate('poolserve_requests_total', 'model', CHOSEN)}",
                        NAMED,
                    ),
                    "percentunit",
                    top=1,
                    stacked=True,
                ),
                Panel(
                    "How versions were chosen",
                    one(
                        rate("poolserve_routing_decisions_total", "version, reason", CHOSEN),
                        "{{version}} by {{reason}}",
                    ),
                    "reqps",
                ),
                Panel("Ready", one(f"poolserve_model_ready{{{CHOSEN}}}", NAMED), top=1),
            ),
        ),
        Row(
            "Old beside new",
            (
                Panel(
                    "p50 by version",
                    one(quantile(0.5, "poolserve_request_seconds", BY, f"{CHOSEN},{ANSWERED}"), NAMED),
                    "s",
                ),
                Panel(
                    "p95 by version",
                    one(quantile(0.95, "poolserve_request_seconds", BY, f"{CHOSEN},{ANSWERED}"), NAMED),
                    "s",
                ),
                Panel(
                    "Faults (5xx) by version",
                    one(
                        share(
                            rate("poolserve_requests_total", BY, f'{CHOSEN},status=~"5.."'),
                            rate("poolserve_requests_total", BY, CHOSEN),
                        ),
                        NAMED,
                    ),
                    "percentunit",
                ),
                Panel(
                    "Repeated on another replica",
                    one(rate("poolserve_retried_total", f"{BY}, reason", CHOSEN), f"{NAMED} {{{{reason}}}}"),
                    "reqps",
                ),
            ),
        ),
        Row(
            "Shadow versions",
            (
                Panel(
                    "Copies by outcome",
                    one(
                        rate("poolserve_shadow_requests_total", "model, shadow, outcome", CHOSEN),
                        f"{PAIR} {{{{outcome}}}}",
                    ),
                    "reqps",
                    width=6,
                ),
                Panel(
                    "Mean difference of a score",
                    one(share(rate("poolserve_shadow_difference_total", SHADOW, CHOSEN), VALUES), PAIR),
                    width=6,
                ),
                Panel("Largest difference", one(f"poolserve_shadow_difference_max{{{CHOSEN}}}", PAIR), width=6),
                Panel(
                    "Same first places",
                    one(share(rate("poolserve_shadow_tops_equal_total", SHADOW, CHOSEN), TOPS), PAIR),
                    "percentunit",
                    width=6,
                    top=1,
                    help="Share of the compared rankings whose first places are the same.",
                ),
            ),
        ),
        Row(
            "Replicas",
            (
                Panel(
                    "Replicas by version",
                    one(f"sum by (deployment, {BY}) (poolserve_replica_up{{{CHOSEN}}})", f"{NAMED} {{{{deployment}}}}"),
                ),
                Panel(
                    "Age of the youngest replica",
                    one(
                        f"time() - max by (deployment, {BY}) (poolserve_replica_start_time_seconds{{{CHOSEN}}})",
                        f"{NAMED} {{{{deployment}}}}",
                    ),
                    "s",
                ),
                Panel(
                    "Wanted and healthy",
                    (
                        Query(
                            "sum by (application, deployment) (ray_serve_autoscaling_target_replicas)",
                            "{{application}} {{deployment}} wanted",
                        ),
                        Query(
                            "sum by (application, deployment) (ray_serve_deployment_replica_healthy)",
                            "{{application}} {{deployment}} healthy",
                        ),
                    ),
                ),
                Panel(
                    "Feature log",
                    (
                        Query(rate("poolserve_feature_log_records_total", "outcome"), "{{outcome}}"),
                        Query("sum(poolserve_feature_log_queued)", "queued"),
                    ),
                    "short",
                ),
                Panel(
                    "What runs",
                    one("poolserve_build_info", "Poolserve {{poolserve}}, Ray {{ray}}, vLLM {{vllm}}"),
                    kind=Kind.TABLE,
                    width=16,
                ),
            ),
        ),
    ),
    CHOICES,
)

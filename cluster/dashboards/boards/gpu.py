"""The GPUs, and what runs on them."""

from __future__ import annotations

from cluster.dashboards.queries import BY, NAMED, one, rate
from cluster.dashboards.spec import Dashboard, Panel, Row

_GPU = "{{node}} GPU {{gpu}}"
GPU = Dashboard(
    "gpu",
    "Poolserve: GPUs",
    (
        Row(
            "GPUs",
            (
                Panel(
                    "Memory in use",
                    one("poolserve_gpu_memory_used_bytes / poolserve_gpu_memory_total_bytes", _GPU),
                    "percentunit",
                    top=1,
                    help="Engines reserve theirs at the start; growth afterwards is activations or others.",
                ),
                Panel("Memory", one("poolserve_gpu_memory_used_bytes", _GPU), "bytes"),
                Panel(
                    "Busy",
                    one("poolserve_gpu_utilization_ratio", _GPU),
                    "percentunit",
                    top=1,
                    help="A kernel ran. Low under load: the engine's Python or the stages before it are the limit; "
                    "more engines per GPU.",
                ),
                Panel("Memory busy", one("poolserve_gpu_memory_utilization_ratio", _GPU), "percentunit", top=1),
                Panel(
                    "Power, share of the limit",
                    one("poolserve_gpu_power_watts / poolserve_gpu_power_limit_watts", _GPU),
                    "percentunit",
                ),
                Panel("Temperature", one("poolserve_gpu_temperature_celsius", _GPU), "celsius"),
            ),
        ),
        Row(
            "What runs on them",
            (
                Panel("Documents by model", one(rate("poolserve_documents_total", BY), NAMED), "cps"),
                Panel(
                    "Tokens per joule",
                    one("sum (rate(poolserve_tokens_total[$__rate_interval])) / sum (poolserve_gpu_power_watts)"),
                ),
                Panel(
                    "Feature slots in use",
                    one("poolserve_feature_slots_used / poolserve_feature_slots", "{{model}} {{replica}}"),
                    "percentunit",
                    top=1,
                ),
                Panel(
                    "Engines' memory outside the GPU",
                    one('poolserve_replica_memory_bytes{deployment="PoolingEngine"}', "{{model}} {{replica}}"),
                    "bytes",
                ),
            ),
        ),
    ),
)

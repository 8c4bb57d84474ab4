"""One model: its requests, its engines, its caches."""

from __future__ import annotations

from cluster.dashboards.queries import ANSWERED, BY, CHOICES, CHOSEN, NAMED, mean, one, quantiles, rate, share
from cluster.dashboards.spec import Dashboard, Panel, Query, Row

_WORK = (
    Row(
        "Requests",
        (
            Panel("Latency", quantiles("poolserve_request_seconds", f"{CHOSEN},{ANSWERED}"), "s"),
            Panel("Requests by status", one(rate("poolserve_requests_total", "status", CHOSEN), "{{status}}"), "reqps"),
            Panel("Documents of a request", quantiles("poolserve_request_documents", CHOSEN)),
            Panel("Documents", one(rate("poolserve_documents_total", BY, CHOSEN), NAMED), "cps"),
            Panel(
                "Tokens of a document",
                one(
                    f"{rate('poolserve_tokens_total', BY, CHOSEN)} / {rate('poolserve_documents_total', BY, CHOSEN)}",
                    NAMED,
                ),
            ),
            Panel("Errors by code", one(rate("poolserve_errors_total", "code", CHOSEN), "{{code}}"), "reqps"),
        ),
    ),
    Row(
        "Engine",
        (
            Panel(
                "Documents in flight, share of the limit",
                one(
                    f"poolserve_engine_documents_in_flight{{{CHOSEN}}} / poolserve_engine_documents_limit{{{CHOSEN}}}",
                    "{{replica}}",
                ),
                "percentunit",
                top=1,
                help="At 1 requests are refused. admission.max_documents_in_flight moves it.",
            ),
            Panel(
                "Tokens in flight, share of the limit",
                one(
                    f"poolserve_engine_tokens_in_flight{{{CHOSEN}}} / poolserve_engine_tokens_limit{{{CHOSEN}}}",
                    "{{replica}}",
                ),
                "percentunit",
                top=1,
            ),
            Panel(
                "Running and waiting in vLLM",
                (
                    Query(f"sum by ({BY}) (vllm:num_requests_running{{{CHOSEN}}})", f"{NAMED} running"),
                    Query(f"sum by ({BY}) (vllm:num_requests_waiting{{{CHOSEN}}})", f"{NAMED} waiting"),
                ),
            ),
            Panel("Sequences of a batch", quantiles("poolserve_engine_batch_documents", CHOSEN)),
            Panel("Tokens of a batch", quantiles("poolserve_engine_batch_tokens", CHOSEN)),
            Panel(
                "Tokens of a step",
                one(mean("vllm:iteration_tokens_total", BY, CHOSEN), NAMED),
                help="vLLM's own steps. Far below max_num_batched_tokens under load: requests arrive one by one, or "
                "max_num_seqs is too small.",
            ),
            Panel("Waiting in the engine", quantiles("poolserve_engine_queue_seconds", CHOSEN), "s"),
            Panel("Work of the engine", quantiles("poolserve_engine_seconds", CHOSEN), "s"),
            Panel(
                "Batches dropped",
                one(rate("poolserve_engine_cancelled_total", BY, CHOSEN), NAMED),
                "cps",
                help="The caller left, or the deadline passed.",
            ),
        ),
    ),
    Row(
        "Caches",
        (
            Panel(
                "Image caches: hits",
                one(
                    share(
                        rate("poolserve_cache_hits_total", "cache", CHOSEN),
                        f"({rate('poolserve_cache_hits_total', 'cache', CHOSEN)}"
                        f" + {rate('poolserve_cache_misses_total', 'cache', CHOSEN)})",
                    ),
                    "{{cache}}",
                ),
                "percentunit",
                top=1,
            ),
            Panel(
                "Feature slots in use",
                one(f"poolserve_feature_slots_used{{{CHOSEN}}} / poolserve_feature_slots{{{CHOSEN}}}", "{{replica}}"),
                "percentunit",
                top=1,
                help="Full is normal; full with few device hits is thrash: images.device_cache.",
            ),
            Panel(
                "vLLM: key/value cache in use",
                one(f"vllm:kv_cache_usage_perc{{{CHOSEN}}}", "{{replica}}"),
                "percentunit",
                top=1,
            ),
            Panel(
                "vLLM: prefix cache hits",
                one(
                    share(
                        rate("vllm:prefix_cache_hits_total", BY, CHOSEN),
                        rate("vllm:prefix_cache_queries_total", BY, CHOSEN),
                    ),
                    NAMED,
                ),
                "percentunit",
                top=1,
            ),
            Panel(
                "vLLM: multimodal cache hits",
                one(
                    share(
                        rate("vllm:mm_cache_hits_total", BY, CHOSEN), rate("vllm:mm_cache_queries_total", BY, CHOSEN)
                    ),
                    NAMED,
                ),
                "percentunit",
                top=1,
            ),
            Panel("vLLM: preemptions", one(rate("vllm:num_preemptions_total", BY, CHOSEN), NAMED), "cps"),
        ),
    ),
)
MODEL = Dashboard("model", "Poolserve: a model", _WORK, CHOICES)

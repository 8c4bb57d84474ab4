"""Registries of several processes, put together: sums, restarts, replicas that are gone, what the page looks like."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve_app.observability import collector as module
from serve_app.observability.collector import Collector, Push, Reporter
from serve_app.observability.registry import Reading, Registry
from serve_app.observability.reporter import ProcessSource, ReportingThread

REJECTED = "poolserve_rejected_total"
BATCHES = "poolserve_engine_batch_documents"


class Process:
    """A replica, whose reports go straight to the current collector."""

    def __init__(self, cluster: Cluster, replica: str, model: str = "ce") -> None:
        self.registry = Registry()
        self.reporter = Reporter("PoolingEngine", model, "1", replica, time.time())
        self.thread = ReportingThread(self.registry, self.reporter, cluster.send, 0.01)

    def reject(self, count: int = 1) -> None:
        self.registry.counter(REJECTED).labels("ce", "1", "engine").inc(count)


class Cluster:
    """A collector that can be replaced, and its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fail = False
        self.schemas = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.collector = Collector(lambda: self.now)

    def send(self, reporter: Reporter, push: Push) -> bool:
        if self.fail:
            raise ConnectionError("away")
        self.schemas += push.schema is not None
        return self.collector.push(reporter, push)

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """The page, as Prometheus reads it."""
        self.collector.expire()
        text = self.collector.page().decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in found, f"{key} is on the page twice"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, tuple(sorted(labels.items()))))


TARGET = {"model": "ce", "version": "1"}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def rejected(cluster: Cluster) -> float | None:
    return cluster.value(REJECTED, **TARGET, by="engine")


def test_counters_and_histograms_are_sums_over_replicas(cluster: Cluster) -> None:
    a, b = Process(cluster, "a"), Process(cluster, "b")
    for process, count in ((a, 2), (b, 3)):
        process.reject(count)
        process.registry.histogram(BATCHES).labels("ce", "1").observe(count * 10)
        process.thread.report()
    assert rejected(cluster) == 5
    assert cluster.value(f"{BATCHES}_count", **TARGET) == 2
    assert cluster.value(f"{BATCHES}_sum", **TARGET) == 50
    assert cluster.value(f"{BATCHES}_bucket", **TARGET, le="20.0") == 1
    assert cluster.value(f"{BATCHES}_bucket", **TARGET, le="+Inf") == 2


def test_counters_never_fall_when_replicas_come_and_go(cluster: Cluster) -> None:
    seen = []
    for generation in range(4):
        process = Process(cluster, f"replica-{generation}")
        for _ in range(3):
            process.reject()
            cluster.now += 1
            process.thread.report()
            seen.append(rejected(cluster))
        cluster.now += module.GONE_AFTER_S + 1
        seen.append(rejected(cluster))
    assert seen == sorted(seen)
    assert seen[-1] == 12


def test_a_replica_that_was_only_slow_is_not_counted_twice(cluster: Cluster) -> None:
    process = Process(cluster, "a")
    process.reject(5)
    process.thread.report()
    cluster.now += module.GONE_AFTER_S + 1
    assert rejected(cluster) == 5
    process.reject(2)
    process.thread.report()
    assert rejected(cluster) == 7
    cluster.now += module.GONE_AFTER_S + 1
    assert rejected(cluster) == 7


def test_series_of_a_dead_replica_disappear_and_its_sums_stay(cluster: Cluster) -> None:
    a, b = Process(cluster, "a"), Process(cluster, "b")
    for process in (a, b):
        process.registry.add_source(lambda: [Reading("poolserve_replica_up", 1.0)])
        process.reject()
        process.thread.report()
    up = {"deployment": "PoolingEngine", **TARGET}
    assert cluster.value("poolserve_replica_up", **up, replica="a") == 1
    cluster.now += module.GONE_AFTER_S - 1
    b.thread.report()
    cluster.now += 2
    assert cluster.value("poolserve_replica_up", **up, replica="a") is None
    assert cluster.value("poolserve_replica_up", **up, replica="b") == 1
    assert cluster.collector.replicas == {"b"}
    assert rejected(cluster) == 2


def test_a_new_collector_begins_at_zero_and_not_with_the_replicas_lives(cluster: Cluster) -> None:
    """A counter that falls to 95 of 100 looks to `rate()` like 95 events; one that falls to 0 like none."""
    process = Process(cluster, "a")
    process.reject(100)
    process.thread.report()
    cluster.begin_anew()
    process.reject(3)
    process.thread.report()
    assert rejected(cluster) == 3
    process.reject(2)
    process.thread.report()
    assert rejected(cluster) == 5
    late = Process(cluster, "b")  # has counted before its first report
    late.reject(7)
    late.thread.report()
    assert rejected(cluster) == 12


def test_names_travel_once(cluster: Cluster) -> None:
    process = Process(cluster, "a")
    for _ in range(10):
        process.reject()
        process.thread.report()
    assert cluster.schemas == 1
    process.registry.counter(REJECTED).labels("ce", "2", "gateway").inc()
    process.thread.report()
    assert cluster.schemas == 2
    assert rejected(cluster) == 10
    assert cluster.value(REJECTED, model="ce", version="2", by="gateway") == 1


def test_gauges_are_merged_as_the_catalogue_says(cluster: Cluster) -> None:
    for replica, ready, weight, documents in (("a", 1.0, 2.0, 10.0), ("b", 0.0, 2.0, 5.0)):
        process = Process(cluster, replica)
        process.registry.add_source(
            lambda ready=ready, weight=weight, documents=documents: [
                Reading("poolserve_model_ready", ready, ("ce", "1")),
                Reading("poolserve_model_weight", weight, ("ce", "1")),
                Reading("poolserve_documents_in_flight", documents, ("ce", "1")),
                Reading("poolserve_engine_documents_in_flight", documents, ("ce", "1")),
            ]
        )
        process.thread.report()
    assert cluster.value("poolserve_model_ready", **TARGET) == 0
    assert cluster.value("poolserve_model_weight", **TARGET) == 2
    assert cluster.value("poolserve_documents_in_flight", **TARGET) == 15
    own = {"deployment": "PoolingEngine", **TARGET}
    assert cluster.value("poolserve_engine_documents_in_flight", **own, replica="a") == 10
    assert cluster.value("poolserve_engine_documents_in_flight", **own, replica="b") == 5


@pytest.fixture
def engine_counter() -> Iterator[prometheus_client.Counter]:
    """A metric as vLLM registers its own: in the global registry."""
    counter = prometheus_client.Counter("vllm:prompt_tokens", "Prefill tokens.", ["model_name", "engine"])
    yield counter
    prometheus_client.REGISTRY.unregister(counter)


def test_the_engines_metrics_get_model_version_and_replica(
    cluster: Cluster, engine_counter: prometheus_client.Counter
) -> None:
    engine_counter.labels("ce", "0").inc(42)
    Process(cluster, "a").thread.report()
    labels = {"deployment": "PoolingEngine", **TARGET, "replica": "a", "model_name": "ce", "engine": "0"}
    assert cluster.value("vllm:prompt_tokens_total", **labels) == 42
    page = cluster.collector.page().decode()
    assert "# HELP vllm:prompt_tokens_total Prefill tokens." in page
    assert "# TYPE vllm:prompt_tokens_total counter" in page
    assert "_created" not in page
    assert "python_gc" not in page


@pytest.mark.parametrize("value", ['with "quotes"', "back\\slash", "line\nbreak", "\\n", "한국어", ""])
def test_any_label_value_survives_the_text_format(cluster: Cluster, value: str) -> None:
    process = Process(cluster, "a")
    process.registry.counter(REJECTED).labels(value, "1", "engine").inc()
    process.thread.report()
    assert cluster.value(REJECTED, model=value, version="1", by="engine") == 1


@pytest.mark.parametrize("value", [0.0, 1.5, -2.0, 1e300, 1e-9, 123456789012.0, float("inf"), float("-inf")])
def test_any_value_survives_the_text_format(cluster: Cluster, value: float) -> None:
    process = Process(cluster, "a")
    process.registry.add_source(lambda: [Reading("poolserve_model_weight", value, ("ce", "1"))])
    process.thread.report()
    assert cluster.value("poolserve_model_weight", **TARGET) == value


def test_reports_go_on_after_the_collector_was_away(cluster: Cluster) -> None:
    process = Process(cluster, "a")
    process.thread.start()
    process.reject(4)
    wait_for(lambda: rejected(cluster) == 4)
    cluster.fail = True
    process.reject(4)
    time.sleep(0.05)
    cluster.fail = False
    wait_for(lambda: rejected(cluster) == 8)
    cluster.fail = True
    cluster.begin_anew()
    process.reject(1)
    time.sleep(0.05)
    cluster.fail = False
    wait_for(lambda: rejected(cluster) == 1)
    process.thread.stop()


def test_the_last_report_is_sent_on_the_way_out(cluster: Cluster) -> None:
    process = Process(cluster, "a")
    process.thread = ReportingThread(process.registry, process.reporter, cluster.send, 60.0)
    process.thread.start()
    process.reject(3)
    process.thread.stop()
    assert rejected(cluster) == 3
    assert "metrics" not in {thread.name for thread in threading.enumerate()}


def test_every_replica_says_how_it_is(cluster: Cluster) -> None:
    process = Process(cluster, "a")
    process.registry.add_source(ProcessSource())
    process.thread.report()
    own = {"deployment": "PoolingEngine", **TARGET, "replica": "a"}
    assert cluster.value("poolserve_replica_up", **own) == 1
    memory = cluster.value("poolserve_replica_memory_bytes", **own)
    assert memory is not None
    assert memory > 10e6
    started = cluster.value("poolserve_replica_start_time_seconds", **own)
    assert started is not None
    assert 0 < time.time() - started < 7 * 86_400
    assert cluster.value("poolserve_replica_cpu_seconds_total", **own)


def test_a_metric_outside_the_catalogue_is_refused() -> None:
    with pytest.raises(KeyError):
        Registry().counter("poolserve_made_up_total")
    with pytest.raises(ValueError, match="is a counter"):
        Registry().gauge(REJECTED)


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

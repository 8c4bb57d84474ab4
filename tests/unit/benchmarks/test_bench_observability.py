"""The observability benchmark runs and says what its numbers mean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import prometheus_client
import pytest

from benchmarks.cli import main
from benchmarks.observability import BASELINE, LOADS, VARIANTS, added, noise
from benchmarks.observability_worker import LocalBackend, gateway
from serve_app.observability.catalogue import VLLM


@pytest.fixture(autouse=True)
def _clean_registry() -> object:
    before = set(prometheus_client.REGISTRY._collector_to_names)
    yield
    for collector in set(prometheus_client.REGISTRY._collector_to_names) - before:
        prometheus_client.REGISTRY.unregister(collector)


def test_a_short_run_writes_a_result(tmp_path: Path) -> None:
    words = "observability --rounds 1 --processes 1 --requests 8 --concurrency 2 --replicas 3 --engine-ms 0"
    assert main([*words.split(), "--commit", "test", "--results-dir", str(tmp_path)]) == 0
    (data,) = tmp_path.glob("*.json")
    result = orjson.loads(data.read_bytes())
    assert list(result["processes"]) == list(VARIANTS)
    for (process,) in result["processes"].values():
        assert list(process) == list(LOADS)
        for turns in process.values():
            assert [len(turn["milliseconds"]) for turn in turns] == [8]
            assert turns[0]["cpu_ms"] > 0
    assert result["settings"]["rate"] > 0
    scrape = result["scrape"]
    assert scrape["series"] > 10 * len(VLLM)
    assert scrape["report_bytes"] < scrape["first_report_bytes"] / 5
    assert scrape["page_bytes"] > 3 * scrape["series"] * 20
    text = data.with_suffix(".md").read_text()
    assert all(text.count(f"| {name} |") == len(LOADS) for name in VARIANTS)


def _process(*p95: float) -> dict[str, list[dict[str, Any]]]:
    return {"open": [{"milliseconds": [ms] * 10} for ms in p95]}


def test_noise_is_what_equal_processes_differ_by() -> None:
    processes = {BASELINE: [_process(1.0), _process(4.0), _process(2.0)], "b": [_process(9.0)] * 3}
    assert noise(processes, "open") == pytest.approx(3.0)
    assert added(processes, "open") == pytest.approx({BASELINE: 0.0, "b": 7.0})


@pytest.mark.parametrize("name", VARIANTS)
async def test_a_variant_does_what_its_name_says(name: str, tmp_path: Path) -> None:
    changes = VARIANTS[name]
    if "tracing" in changes:
        changes = changes | {"tracing": {"endpoint": "http://127.0.0.1:9", **changes["tracing"]}}
    frontend, end = gateway(LocalBackend(None), changes, tmp_path)  # type: ignore[arg-type]
    with frontend.observer.request("/v1/rerank", {}) as note:
        note.status = 400
    counted = any("requests_total" in series.sample for series in frontend.observer.registry.snapshot().schema.series)
    end()
    assert counted == (name != BASELINE)
    files = [name for name in os.listdir(tmp_path) if name.startswith("access-")]
    assert len(files) == ("access log" in name)

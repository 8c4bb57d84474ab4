"""The observability benchmark runs and says what its numbers mean."""

from __future__ import annotations

from pathlib import Path

import orjson
import prometheus_client
import pytest

from benchmarks.cli import main
from benchmarks.observability import AGAIN, BASELINE, VARIANTS, noise
from serve_app.observability.catalogue import VLLM


@pytest.fixture(autouse=True)
def _clean_registry() -> object:
    before = set(prometheus_client.REGISTRY._collector_to_names)
    yield
    for collector in set(prometheus_client.REGISTRY._collector_to_names) - before:
        prometheus_client.REGISTRY.unregister(collector)


def test_a_short_run_writes_a_result(tmp_path: Path) -> None:
    words = (
        "observability --rounds 1 --requests 8 --concurrency 2 --replicas 3 --engine-ms 0 --commit test --results-dir"
    )
    assert main([*words.split(), str(tmp_path)]) == 0
    (data,) = tmp_path.glob("*.json")
    result = orjson.loads(data.read_bytes())
    assert list(result["turns"]) == list(VARIANTS)
    assert VARIANTS[BASELINE] == VARIANTS[AGAIN]
    for turns in result["turns"].values():
        assert [len(turn["milliseconds"]) for turn in turns] == [8]
        assert turns[0]["cpu_ms"] > 0
    scrape = result["scrape"]
    assert scrape["series"] > 10 * len(VLLM)
    assert scrape["report_bytes"] < scrape["first_report_bytes"] / 5
    assert scrape["page_bytes"] > 3 * scrape["series"] * 20
    text = data.with_suffix(".md").read_text()
    assert all(f"| {name} |" in text for name in VARIANTS)


def test_noise_is_what_a_variant_differs_by_between_its_own_rounds() -> None:
    turns = {"a": [{"milliseconds": [ms] * 10} for ms in (1.0, 4.0, 1.0, 4.0)], "b": [{"milliseconds": [9.0] * 10}] * 4}
    assert noise(turns) == pytest.approx(3.0)

"""`/metrics`, the logs and the spans of whole requests, with fake engines."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from serve_app import frontend, readiness
from serve_app.api.routes import ROUTES
from serve_app.errors import STATUS, ReplicaDied
from serve_app.observability import lines
from serve_app.observability.catalogue import BY_NAME, OURS
from serve_app.observability.lines import LineFile
from serve_app.observability.registry import Registry
from serve_app.observability.request import Observer, make_observer
from serve_app.observability.tracing import OtelTracer
from serve_app.settings import GatewayObservabilitySettings, GatewaySettings, TracingSettings
from tests.app.conftest import SETTINGS, App

RERANK = {"model": "ce", "query": "fox", "documents": ["a", "quick fox", "the lazy dog"]}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Samples = dict[tuple[str, ...], float]


async def samples(app: App) -> Samples:
    """The page as {(sample, label value, …): value}, labels in alphabetical order."""
    page = await app.client.get("/metrics")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            found[(sample.name, *(sample.labels[label] for label in sorted(sample.labels)))] = sample.value
    return found


def observed_by(app: App, observer: Observer) -> None:
    """Puts an observer of the test's own into the application."""
    app.frontend.observer = observer


async def test_one_scrape_tells_of_every_kind_of_request(app: App) -> None:
    assert (await app.post("/v1/rerank", RERANK)).status_code == 200
    assert (await app.post("/v1/rerank", {**RERANK, "model": "ce@1"})).status_code == 200
    assert (await app.post("/v1/classify", {"input": ["a fox"]})).status_code == 200
    assert (await app.post("/v1/rerank", {**RERANK, "model": "nope"})).status_code == 404
    assert (await app.post("/v1/rerank", {**RERANK, "documents": 5})).status_code == 400
    app.backend.failures.append(ReplicaDied("gone"))
    assert (await app.post("/v1/rerank", RERANK)).status_code == 200
    found = await samples(app)
    # labels: model, route, status, version
    assert found[("poolserve_requests_total", "ce", "/v1/rerank", "200", "1")] == 3
    assert found[("poolserve_requests_total", "clf", "/v1/classify", "200", "1")] == 1
    assert found[("poolserve_requests_total", "", "/v1/rerank", "404", "")] == 1
    assert found[("poolserve_errors_total", "model_not_found", "", "/v1/rerank", "")] == 1
    assert found[("poolserve_errors_total", "invalid_request", "", "/v1/rerank", "")] == 1
    assert found[("poolserve_request_seconds_count", "ce", "/v1/rerank", "2xx", "1")] == 3
    assert found[("poolserve_routing_decisions_total", "ce", "default", "1")] == 2
    assert found[("poolserve_routing_decisions_total", "ce", "pinned", "1")] == 1
    assert found[("poolserve_routing_decisions_total", "clf", "default", "1")] == 1
    assert found[("poolserve_retried_total", "ce", "replica_died", "1")] == 1
    assert found[("poolserve_documents_total", "ce", "1")] == 9
    assert found[("poolserve_request_documents_bucket", "5.0", "ce", "1")] == 3
    for stage in ("tokenize", "queue", "engine", "post", "total"):
        assert found[("poolserve_stage_seconds_count", "ce", stage, "1")] == 3
    assert found[("poolserve_model_ready", "ce", "1")] == 1
    assert found[("poolserve_model_weight", "ce", "1")] == 1
    assert found[("poolserve_documents_in_flight", "ce", "1")] == 0


async def test_labels_are_bounded_whatever_is_sent(app: App) -> None:
    for i in range(40):
        await app.post("/v1/rerank", {**RERANK, "model": f"made-up-{i}"}, X_Request_Id=f"id-{i}")
        await app.post("/v1/rerank", {**RERANK, "model": f"ce@{i + 5}"})
        await app.client.post(f"/v1/{i}", json={})
        await app.post("/v1/rerank", {**RERANK, f"field{i}": 1})
    page = (await app.client.get("/metrics")).text
    routes = {route.path for route in ROUTES}
    statuses = {str(status.http) for status in STATUS.values()} | {"200", "499"}
    names = {target.model for target in app.frontend._table} | {""}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = sample.labels
            assert labels.get("route", "/v1/rerank") in routes
            assert labels.get("model", "") in names
            assert labels.get("version", "") in {"", "1"}
            assert labels.get("status", "200") in statuses
    assert "made-up" not in page
    assert "id-1" not in page


async def test_the_page_holds_nothing_but_the_catalogue(app: App) -> None:
    await app.post("/v1/rerank", RERANK)
    page = (await app.client.get("/metrics")).text
    typed = {line.split()[2]: line.split()[3] for line in page.splitlines() if line.startswith("# TYPE poolserve_")}
    assert typed
    for name, kind in typed.items():
        assert BY_NAME[name].kind.value == kind
    expected = {metric.name: set(metric.page_labels) for metric in OURS}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name if sample.name in expected else sample.name.rpartition("_")[0]
            if name.startswith("poolserve_"):
                assert set(sample.labels) - {"le"} == expected[name], name


async def test_rejections_and_cancellations_are_counted(app: App) -> None:
    app.engines["ce"].delay_s = 30
    body = {**RERANK, "documents": ["x"] * 50}
    held = asyncio.ensure_future(app.post("/v1/rerank", body))
    await asyncio.sleep(0.2)
    found = await samples(app)
    assert found[("poolserve_documents_in_flight", "ce", "1")] == 50
    assert found[("poolserve_requests_in_flight", "ce", "1")] == 1
    assert (await app.post("/v1/rerank", body)).status_code == 429
    held.cancel()
    with pytest.raises((asyncio.CancelledError, httpx.HTTPError)):
        await held
    found = await samples(app)
    assert found[("poolserve_rejected_total", "gateway", "ce", "1")] == 1
    assert found[("poolserve_cancelled_total", "ce", "1")] == 1
    assert found[("poolserve_requests_total", "ce", "/v1/rerank", "499", "1")] == 1
    assert found[("poolserve_documents_in_flight", "ce", "1")] == 0


@pytest.mark.parametrize(
    "app", [{"api_keys": ["k"], "observability": {"metrics": {"require_key": True}}}], indirect=True
)
async def test_the_page_can_ask_for_a_key(app: App) -> None:
    assert (await app.client.get("/metrics")).status_code == 401
    assert (await app.client.get("/metrics", headers={"Authorization": "Bearer k"})).status_code == 200


async def test_readiness_is_looked_after_without_anyone_asking(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "READINESS_EVERY_S", 0.01)
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    watching = asyncio.create_task(app.frontend.watch_readiness())
    for dead, expected in ((True, 0), (False, 1)):
        app.engines["clf"].dead = dead
        end = time.monotonic() + 10
        while (await samples(app))[("poolserve_model_ready", "clf", "1")] != expected:
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        assert (await samples(app))[("poolserve_model_ready", "ce", "1")] == 1
    watching.cancel()


async def test_no_page_is_better_than_a_part_of_it(app: App) -> None:
    from serve_app.errors import ModelUnavailable

    async def fails() -> bytes:
        raise ModelUnavailable("the metrics' collector does not answer")

    app.frontend._make_metrics = fails
    assert (await app.client.get("/metrics")).status_code == 503


def _observer(tmp_path: Path, **features: Any) -> Observer:
    settings = GatewayObservabilitySettings.model_validate(
        {"access_log": {"folder": str(tmp_path / "access")}, "feature_log": {"folder": str(tmp_path / "f"), **features}}
    )
    return make_observer(settings, Registry(), "replica1", tmp_path)


def _read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


async def test_one_access_line_per_request_and_none_per_document(app: App, tmp_path: Path) -> None:
    observer = _observer(tmp_path)
    observed_by(app, observer)
    answer = await app.post("/v1/rerank", {**RERANK, "documents": ["secret"] * 20}, X_Request_Id="my-id")
    await app.post("/v1/rerank", {**RERANK, "query": ""})
    await app.post("/v1/rerank", {"model": "nope", "query": "secret", "documents": ["secret"]}, X_Request_Id="bad-id")
    await app.post("/v1/rerank", {"frobnicate": 1})
    observer.close()
    logged = _read(tmp_path / "access")
    assert [line["status"] for line in logged][::2] == [200, 404]
    assert len(logged) == 4
    assert "secret" not in json.dumps(logged)
    first = logged[0]
    assert (first["id"], first["documents"], first["model"], first["route"]) == ("my-id", 20, "ce", "/v1/rerank")
    assert first["tokens"] == answer.json()["usage"]["total_tokens"]
    assert {"tokenize", "queue", "engine", "post", "total"} <= first["stages_ms"].keys()
    assert logged[2]["id"] == "bad-id"
    assert logged[2]["code"] == "model_not_found"
    (features,) = [line for line in _read(tmp_path / "f") if line["id"] == "my-id"]
    results = sorted(answer.json()["results"], key=lambda row: row["index"])
    assert len(features["scores"]) == len(results) == 20
    assert features["version"] == "1"
    assert "secret" not in json.dumps(features)


class FullDisk(LineFile):
    """A file system without room."""

    def write(self, lines: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class StuckDisk(LineFile):
    """A file system that takes its time."""

    def write(self, lines: bytes) -> None:
        time.sleep(0.2)
        super().write(lines)


@pytest.mark.parametrize("disk", [FullDisk, StuckDisk])
async def test_2000_requests_with_the_feature_logs_disk_full_lose_no_answer(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: type[LineFile]
) -> None:
    monkeypatch.setattr("serve_app.observability.request.LineFile", disk)
    monkeypatch.setattr(lines, "STOP_S", 0.1)
    observer = _observer(tmp_path, max_queue=50)
    observed_by(app, observer)

    async def several(count: int) -> list[int]:
        return [(await app.post("/v1/rerank", RERANK)).status_code for _ in range(count)]

    statuses = await asyncio.gather(*(several(100) for _ in range(20)))
    assert [status for group in statuses for status in group] == [200] * 2_000
    snapshot = observer.registry.snapshot()
    records = {
        dict(series.labels)["outcome"]: value
        for series, value in zip(snapshot.schema.series, snapshot.values.tolist(), strict=True)
        if series.sample == "poolserve_feature_log_records_total"
    }
    assert records["dropped"] > 0
    assert records["written"] + records["failed"] + records["dropped"] <= 2_000
    if disk is FullDisk:
        assert records["written"] == 0
        assert records["failed"] > 0


async def _spans_of(app: App, call: Callable[[], Any]) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(TracingSettings(sample_ratio=0.0), {}, exporter)
    observed_by(app, Observer(Registry(), tracer=tracer))
    for pipeline in app.backend.pipelines.values():
        pipeline._tracer = tracer
    await call()
    tracer._provider.force_flush()
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_callers_trace_goes_through_the_stages(app: App) -> None:
    spans = await _spans_of(app, lambda: app.post("/v1/rerank", RERANK, traceparent=CALLER, X_Request_Id="my-id"))
    assert {"POST /v1/rerank", "tokenize", "post"} == set(spans)
    root = spans["POST /v1/rerank"]
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {CALLER[3:35]}
    assert spans["tokenize"].parent.span_id == root.context.span_id
    attributes = dict(root.attributes)
    assert (attributes["poolserve.model"], attributes["poolserve.version"]) == ("ce", "1")
    assert (attributes["poolserve.documents"], attributes["http.response.status_code"]) == (3, 200)
    assert attributes["poolserve.tokens"] > 0
    everything = " ".join(span.to_json() for span in spans.values())
    assert not any(text in everything for text in RERANK["documents"][1:])
    (context, _), *_ = app.backend.calls
    assert context.trace.startswith(CALLER[:35])
    batch_trace = context.trace
    assert len(batch_trace) == 55


async def test_without_a_callers_trace_nothing_is_sampled_at_ratio_zero(app: App) -> None:
    assert not await _spans_of(app, lambda: app.post("/v1/rerank", RERANK))
    assert app.backend.calls[0][0].trace == ""


def test_the_default_settings_log_and_count_and_do_not_trace() -> None:
    settings = GatewaySettings.model_validate(SETTINGS).observability
    assert settings.metrics.enabled
    assert settings.access_log.enabled
    assert settings.feature_log.folder is None
    assert settings.tracing.endpoint is None

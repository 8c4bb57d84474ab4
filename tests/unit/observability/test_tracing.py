"""Spans: names, parents, sampling; nothing of OpenTelemetry while tracing is off; a real OTLP receiver."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from serve_app.observability.tracing import NO_TRACER, OtelTracer, make_tracer
from serve_app.settings import TracingSettings

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


def tracer(ratio: float = 1.0) -> tuple[OtelTracer, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return OtelTracer(TracingSettings(sample_ratio=ratio), {"poolserve.deployment": "Gateway"}, exporter), exporter


def finished(made: OtelTracer, exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    made._provider.force_flush()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_off_imports_nothing() -> None:
    """In a fresh process: the gateway's and a pipeline's modules, a tracer that is off, and its spans."""
    code = """
import sys
from serve_app.frontend import Frontend
from serve_app.pipeline import Pipeline
from serve_app.observability.tracing import make_tracer
from serve_app.settings import TracingSettings
tracer = make_tracer(TracingSettings())
span = tracer.begin("x", {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
with tracer.span("tokenize", span.trace) as trace:
    assert trace == span.trace == ""
tracer.past("engine", trace, 0.0, 1.0)
found = [name for name in sys.modules if name.startswith("opentelemetry")]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert make_tracer(TracingSettings()) is NO_TRACER


def test_stages_hang_below_the_callers_span() -> None:
    made, exporter = tracer(ratio=0.0)  # the caller's flag decides
    span = made.begin("POST /v1/rerank", {"traceparent": f"{CALLER}-01", "tracestate": "vendor=1"})
    with made.span("io_processor", span.trace, model="ce") as trace:
        with made.span("tokenize", trace):
            pass
        began = time.time()
        made.past("engine", trace, began, 20.0, documents=3)
    span.end({"poolserve.model": "ce", "http.response.status_code": 200}, failed=False)
    spans = finished(made, exporter)
    assert set(spans) == {"POST /v1/rerank", "io_processor", "tokenize", "engine"}
    root = spans["POST /v1/rerank"]
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == CALLER[-16:]
    assert {f"{s.context.trace_id:032x}" for s in spans.values()} == {CALLER[3:35]}
    parents = {name: span.parent.span_id for name, span in spans.items() if span.parent is not None}
    assert parents["io_processor"] == root.context.span_id
    assert parents["tokenize"] == parents["engine"] == spans["io_processor"].context.span_id
    engine = spans["engine"]
    assert engine.start_time is not None
    assert engine.end_time is not None
    assert engine.end_time - engine.start_time == pytest.approx(20e6)
    assert engine.attributes == {"documents": 3}
    assert root.resource.attributes["service.name"] == "poolserve"
    assert root.resource.attributes["poolserve.deployment"] == "Gateway"


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": f"{CALLER}-00"}])
def test_what_is_not_sampled_has_no_spans_anywhere(headers: dict[str, str]) -> None:
    made, exporter = tracer(ratio=0.0)
    span = made.begin("POST /v1/rerank", headers)
    assert span.trace == ""
    with made.span("io_processor", span.trace) as trace:
        assert trace == ""
        made.past("engine", trace, time.time(), 1.0)
    span.end({}, failed=False)
    assert not finished(made, exporter)


def test_an_unsampled_caller_is_followed_even_when_all_else_is_sampled() -> None:
    made, exporter = tracer(ratio=1.0)
    assert made.begin("x", {"traceparent": f"{CALLER}-00"}).trace == ""
    begun = made.begin("y", {})
    assert len(begun.trace) == 55
    begun.end({}, failed=True)
    spans = finished(made, exporter)
    assert set(spans) == {"y"}
    assert spans["y"].status.status_code is StatusCode.ERROR


def test_the_ratio_holds() -> None:
    made, _ = tracer(ratio=0.2)
    sampled = sum(made.begin("x", {}).trace != "" for _ in range(3_000))
    assert 0.15 < sampled / 3_000 < 0.25


def test_an_errors_words_are_not_in_its_span() -> None:
    made, exporter = tracer()
    with pytest.raises(ValueError, match="my secret query"), made.span("tokenize", f"{CALLER}-01"):
        raise ValueError("my secret query")
    span = finished(made, exporter)["tokenize"]
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.to_json()


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """An OTLP receiver: its URL, and (path, token, body) of what it got."""
    got: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers.get("Authorization"), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()


def test_spans_reach_a_collector(
    receiver: tuple[str, list[tuple[str, str | None, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got = receiver
    monkeypatch.setenv("OTEL_TOKEN", "Bearer abc")
    settings = TracingSettings(endpoint=url, headers={"Authorization": "env:OTEL_TOKEN"}, sample_ratio=1.0)
    made = make_tracer(settings, deployment="PoolingEngine", replica="r1", model="ce", version="")
    made.past("engine", f"{CALLER}-01", time.time(), 5.0, documents=3)
    made.close()
    (path, token, body) = got[0]
    assert (path, token) == ("/v1/traces", "Bearer abc")
    message = ExportTraceServiceRequest.FromString(body)
    (resource,) = message.resource_spans
    attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert attributes["poolserve.deployment"] == "PoolingEngine"
    assert "poolserve.version" not in attributes
    (span,) = resource.scope_spans[0].spans
    assert span.name == "engine"
    assert span.trace_id.hex() == CALLER[3:35]


def test_a_header_that_names_no_variable_is_said_by_name() -> None:
    with pytest.raises(ValueError, match="NOT_THERE"):
        make_tracer(TracingSettings(endpoint="http://x", headers={"a": "env:NOT_THERE"}))


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}], ids=["no caller's", "one that is none"])
def test_the_share_that_is_sampled(headers: dict[str, str]) -> None:
    made, _ = tracer(0.3)
    sampled = sum(made.begin("x", headers).trace != "" for _ in range(2_000))
    assert 500 <= sampled <= 700  # 600, and five standard deviations
    assert all(made.begin("x", {"traceparent": f"{CALLER}-01"}).trace for _ in range(20))
    assert not any(made.begin("x", {"traceparent": f"{CALLER}-00"}).trace for _ in range(20))

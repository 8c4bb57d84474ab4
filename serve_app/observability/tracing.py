"""Spans, as OpenTelemetry has them. While tracing is off nothing of OpenTelemetry is imported and a span is a no-op.

A trace travels between stages as a `traceparent` (55 characters) in the messages, and as "" for a request that is not
sampled: the gateway decides, the stages behind it follow. Spans are named by their stage and hold counts, never texts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from serve_app.settings import TracingSettings

Attributes = Mapping[str, str | int | float | bool]


class Tracer(Protocol):
    """Makes spans, or does not."""

    def begin(self, name: str, headers: Mapping[str, str]) -> RequestSpan:
        """The gateway's span of a request, below the caller's `traceparent` if there is one."""
        ...

    def span(self, name: str, trace: str, **attributes: str | int | float | bool) -> AbstractContextManager[str]:
        """A span below `trace`; its own trace is given for what happens in it. No span if `trace` is ""."""
        ...

    def past(self, name: str, trace: str, start_s: float, duration_ms: float, **attributes: str | int | float) -> None:
        """A span that is over. start_s: wall-clock seconds."""
        ...

    def close(self) -> None:
        """Sends what waits."""
        ...


class RequestSpan(Protocol):
    """The gateway's span of one request. trace: for the stages behind it, "" if they shall make none."""

    trace: str

    def end(self, attributes: Attributes, failed: bool) -> None:
        """Ends it."""
        ...


class NoSpan:
    """A request that is not traced."""

    trace = ""

    def end(self, attributes: Attributes, failed: bool) -> None:
        """Nothing to end."""


NO_SPAN = NoSpan()


class NoTracer:
    """Tracing is off."""

    def begin(self, name: str, headers: Mapping[str, str]) -> RequestSpan:
        """No span."""
        return NO_SPAN

    def span(self, name: str, trace: str, **attributes: str | int | float | bool) -> AbstractContextManager[str]:
        """No span."""
        return nullcontext("")

    def past(self, name: str, trace: str, start_s: float, duration_ms: float, **attributes: str | int | float) -> None:
        """No span."""

    def close(self) -> None:
        """Nothing waits."""


NO_TRACER = NoTracer()


class _Span:
    def __init__(self, span: Any, trace: str) -> None:
        self._span, self.trace = span, trace

    def end(self, attributes: Attributes, failed: bool) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class OtelTracer:
    """Spans through OpenTelemetry's SDK; a provider of its own, so that nothing else in the process is traced.

    Args:
        settings: sampling, names.
        resource: attributes of the process: deployment, replica, model, version.
        exporter: takes the spans; batches of them, from a thread with a bounded queue.
    """

    def __init__(self, settings: TracingSettings, resource: Attributes, exporter: Any) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        names = {"service.name": settings.service_name, **resource}
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON),  # `begin` draws: 4 us for a request that is not sampled, not 12
            resource=Resource.create(names),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._ratio = settings.sample_ratio
        self._tracer = self._provider.get_tracer("poolserve")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, headers: Mapping[str, str]) -> RequestSpan:
        """See `Tracer.begin`. A `traceparent` that is not one counts as none."""
        from opentelemetry.trace import SpanKind, get_current_span

        carrier = {key: headers[key] for key in ("traceparent", "tracestate") if key in headers}
        context = self._propagator.extract(carrier) if carrier else None
        has_parent = context is not None and get_current_span(context).get_span_context().is_valid
        if not has_parent and random.random() >= self._ratio:
            return NO_SPAN
        span = self._tracer.start_span(name, context, SpanKind.SERVER)
        return _Span(span, self._trace(span)) if span.is_recording() else NO_SPAN

    @contextmanager
    def _recorded(self, name: str, trace: str, attributes: Attributes) -> Iterator[str]:
        from opentelemetry.trace import Status, StatusCode

        span = self._tracer.start_span(name, self._propagator.extract({"traceparent": trace}), attributes=attributes)
        try:
            yield self._trace(span)
        except BaseException:  # what went wrong is in the gateway's span, as a code; messages may hold a caller's words
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def span(self, name: str, trace: str, **attributes: str | int | float | bool) -> AbstractContextManager[str]:
        """See `Tracer.span`."""
        return self._recorded(name, trace, attributes) if trace else nullcontext("")

    def past(self, name: str, trace: str, start_s: float, duration_ms: float, **attributes: str | int | float) -> None:
        """See `Tracer.past`."""
        if not trace:
            return
        begin = int(start_s * 1e9)
        span = self._tracer.start_span(
            name, self._propagator.extract({"traceparent": trace}), attributes=attributes, start_time=begin
        )
        span.end(begin + int(duration_ms * 1e6))

    def close(self) -> None:
        """See `Tracer.close`."""
        self._provider.shutdown()

    def _trace(self, span: Any) -> str:
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        return carrier.get("traceparent", "")


def make_tracer(settings: TracingSettings, **resource: str) -> Tracer:
    """The tracer that the settings name.

    Raises:
        ValueError: a header names a variable that is not set.
    """
    if settings.endpoint is None:
        return NO_TRACER
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    headers = {name: _resolved(value) for name, value in settings.headers.items()}
    exporter = OTLPSpanExporter(f"{settings.endpoint.rstrip('/')}/v1/traces", headers=headers, timeout=5)
    return OtelTracer(settings, {f"poolserve.{name}": value for name, value in resource.items() if value}, exporter)


def _resolved(value: str) -> str:
    if not value.startswith("env:"):
        return value
    if value[4:] not in os.environ:
        raise ValueError(f"observability.tracing.headers: the variable {value[4:]} is not set")
    return os.environ[value[4:]]

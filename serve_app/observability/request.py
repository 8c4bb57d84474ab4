"""What a request leaves behind in the gateway: metrics, an access line, a feature record, a span.

HTTP and gRPC put their handling of a request into `Observer.request`; what is known of it is noted on the way, in
`noting()`, by whoever knows.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from serve_app.errors import EngineDead, ReplicaDied
from serve_app.observability import feature_log
from serve_app.observability.lines import LineFile, LineWriter
from serve_app.observability.note import CLIENT_LEFT, NOTE, Note, access_line
from serve_app.observability.registry import Reading, Registry
from serve_app.observability.tracing import NO_SPAN, NO_TRACER, Tracer, make_tracer
from serve_app.settings import GatewayObservabilitySettings
from serve_app.vocabulary import Stage

logger = logging.getLogger(__name__)

GATHERED = 64
"""Requests that are over and counted together, in about 1 ms. One by one, between other work, each one's counting
finds cold caches and takes five times as long."""


class Observer:
    """Belongs to a gateway replica.

    Args:
        registry: where it counts.
        access: takes access lines; None: there are none.
        features: takes feature records; None: there are none.
        texts: feature records hold texts and not their hashes.
        sample_ratio: share of the requests that leave a feature record.
        tracer: makes the requests' spans.
        counting: False: nothing is counted.
    """

    def __init__(
        self,
        registry: Registry,
        access: LineWriter | None = None,
        features: LineWriter | None = None,
        *,
        texts: bool = False,
        sample_ratio: float = 1.0,
        tracer: Tracer = NO_TRACER,
        counting: bool = True,
    ) -> None:
        self.registry = registry
        self._access, self._features = access, features
        self._texts, self._sample_ratio = texts, sample_ratio
        self._tracer = tracer
        self._under_way: Counter[tuple[str, str]] = Counter()
        self._documents: Counter[tuple[str, str]] = Counter()
        registry.add_source(self._in_flight)
        if features is not None:
            registry.add_source(feature_log.source(features))
        self._metrics = _RequestMetrics(registry) if counting else None
        self._over: deque[tuple[Note, float]] = deque()
        if counting:
            registry.before_snapshot(self._count)

    def expect(self, targets: Iterable[tuple[str, str]]) -> None:
        """Shows zeros for model versions that have had no request, so that their first one is an increase."""
        if self._metrics is not None:
            for target in targets:
                self._metrics.expect(target)

    @contextmanager
    def request(self, route: str, headers: Mapping[str, str]) -> Iterator[Note]:
        """Watches a request. Whoever answers it sets `status`; a cancellation sets 499."""
        note = Note(route, time=time.time(), started=time.perf_counter())
        note.span = self._tracer.begin(f"POST {route}", headers)
        token = NOTE.set(note)
        try:
            yield note
        except asyncio.CancelledError:
            note.status = CLIENT_LEFT
            raise
        finally:
            NOTE.reset(token)
            try:
                self._finish(note, time.perf_counter() - note.started)
            except Exception:  # no answer is lost to what is written about it
                logger.exception("a request could not be noted")

    @contextmanager
    def under_way(self, note: Note) -> Iterator[None]:
        """Counts an admitted request as under way."""
        target = (note.model, note.version)
        note.admitted = True
        self._under_way[target] += 1
        self._documents[target] += note.documents
        try:
            yield
        finally:
            self._under_way[target] -= 1
            self._documents[target] -= note.documents

    def close(self) -> None:
        """Writes and sends what waits."""
        for writer in (self._access, self._features):
            if writer is not None:
                writer.close()
        self._tracer.close()

    def _in_flight(self) -> Sequence[Reading]:
        return [
            *(Reading("poolserve_requests_in_flight", n, target) for target, n in list(self._under_way.items())),
            *(Reading("poolserve_documents_in_flight", n, target) for target, n in list(self._documents.items())),
        ]

    def _count(self) -> None:
        """Counts what is over; the event loop and a thread that takes a snapshot may do so at the same time."""
        assert self._metrics is not None
        while self._over:
            try:
                note, seconds = self._over.popleft()
            except IndexError:  # the other one took the last
                return
            self._metrics.count(note, seconds)

    def _finish(self, note: Note, seconds: float) -> None:
        try:
            self._write(note, seconds)
        finally:
            note.forget()
            if self._metrics is not None:
                self._over.append((note, seconds))
                if len(self._over) >= GATHERED:
                    self._count()

    def _write(self, note: Note, seconds: float) -> None:
        if self._access is not None:
            self._access.put(lambda: access_line(note, seconds), 1_000)  # made by the thread, many at a time
        if self._features is not None and note.status == 200 and random.random() < self._sample_ratio:
            self._features.put(*feature_log.record(note, texts=self._texts))
        if note.span is not NO_SPAN:
            attributes: dict[str, str | int] = {
                "poolserve.model": note.model,
                "poolserve.version": note.version,
                "poolserve.routing": note.routing,
                "poolserve.documents": note.documents,
                "poolserve.tokens": note.tokens,
                "poolserve.request_id": note.request_id,
                "http.route": note.route,
                "http.response.status_code": note.status,
                "error.type": note.code,
            }
            failed = note.status >= 500
            note.span.end({name: value for name, value in attributes.items() if value != ""}, failed)


def make_observer(
    settings: GatewayObservabilitySettings, registry: Registry, replica: str, log_folder: Path
) -> Observer:
    """The observer that the settings name. `log_folder`: of the access log, unless they name one."""
    access, features = settings.access_log, settings.feature_log
    writers: list[LineWriter | None] = [None, None]
    if access.enabled:
        folder = Path(access.folder) if access.folder is not None else log_folder
        writers[0] = LineWriter(LineFile(folder, f"access-{replica}", access), access, "access log")
    if features.folder is not None:
        file = LineFile(Path(features.folder), f"features-{replica}", features)
        writers[1] = LineWriter(file, features, "feature log")
    tracer = make_tracer(settings.tracing, deployment="Gateway", replica=replica)
    return Observer(
        registry,
        *writers,
        texts=features.texts,
        sample_ratio=features.sample_ratio,
        tracer=tracer,
        counting=settings.metrics.enabled,
    )


class _RequestMetrics:
    """The catalogue's `REQUESTS`, as far as a note tells them."""

    def __init__(self, registry: Registry) -> None:
        counter = registry.counter
        self.requests = counter("poolserve_requests_total")
        self.errors = counter("poolserve_errors_total")
        self.seconds = registry.histogram("poolserve_request_seconds")
        self.stages = registry.histogram("poolserve_stage_seconds")
        self.request_documents = registry.histogram("poolserve_request_documents")
        self.totals: tuple[tuple[Any, Callable[[Note], int]], ...] = (
            (counter("poolserve_documents_total"), lambda note: note.documents),
            (counter("poolserve_tokens_total"), lambda note: note.tokens),
            (counter("poolserve_truncated_documents_total"), lambda note: note.truncated),
            (counter("poolserve_images_total"), lambda note: note.images),
        )
        self.item_errors = counter("poolserve_item_errors_total")
        self.rejected = counter("poolserve_rejected_total")
        self.cancelled = counter("poolserve_cancelled_total")
        self.retried = counter("poolserve_retried_total")
        self.routing = counter("poolserve_routing_decisions_total")
        # `labels` takes a lock and makes strings, 14 times a request; this is a look-up in C.
        self.child: Callable[..., Any] = lru_cache(4_096)(lambda metric, *labels: metric.labels(*labels))

    def expect(self, target: tuple[str, str]) -> None:
        """See `Observer.expect`."""
        for metric in (*(metric for metric, _ in self.totals), self.cancelled):
            metric.labels(*target)
        for by in ("gateway", "engine"):
            self.rejected.labels(*target, by)
        for code in (ReplicaDied.code, EngineDead.code):
            self.retried.labels(*target, code)

    def count(self, note: Note, seconds: float) -> None:
        """Counts a request that is over."""
        of, target = self.child, (note.model, note.version)
        of(self.requests, note.route, *target, str(note.status)).inc()
        of(self.seconds, note.route, *target, f"{note.status // 100}xx").observe(seconds)
        if note.routing:
            of(self.routing, *target, note.routing).inc()
        if note.code:
            of(self.errors, note.route, *target, note.code).inc()
        if note.refused_by:
            of(self.rejected, *target, note.refused_by).inc()
        if note.retried:
            of(self.retried, *target, note.retried).inc()
        if note.cancelled:
            of(self.cancelled, *target).inc()
        if not note.is_answered or note.status != 200:
            return
        for stage, milliseconds in note.stages.items():
            of(self.stages, *target, stage).observe(milliseconds / 1e3)
        of(self.stages, *target, Stage.TOTAL).observe(seconds)
        of(self.request_documents, *target).observe(note.documents)
        for metric, amount in self.totals:
            of(metric, *target).inc(amount(note))
        for code, errors in note.item_errors.items():
            of(self.item_errors, *target, code).inc(errors)

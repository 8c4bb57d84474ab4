"""What the stages behind the gateway count, in the catalogue's words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serve_app.engine.protocol import Engine
from serve_app.media.loader import LoaderStats
from serve_app.messages import EngineBatch, EngineOutput, MissingImages
from serve_app.observability.registry import Reading, Registry, Source
from serve_app.observability.tracing import Tracer
from serve_app.settings import ModelSettings
from serve_app.tasks.images import ImageStage
from serve_app.vocabulary import Stage, Task

SHADOW_OUTCOMES = ("sent", "answered", "failed", "cancelled", "dropped", "not_comparable", "compared")
SHADOW_FIGURES = {
    "values_total": "values",
    "difference_total": "sum_abs",
    "difference_max": "max_abs",
    "tops_total": "tops",
    "tops_equal_total": "tops_equal",
}
IMAGES_EVERY_S = 2.0
"""Asking an engine for its images is a call to its core."""


def loader_source(stats: Callable[[], LoaderStats]) -> Source:
    """An ImageLoader's metrics."""

    def read() -> Sequence[Reading]:
        now = stats()
        return [
            Reading("poolserve_images_fetched_total", now.fetched),
            Reading("poolserve_images_decoded_total", now.decoded),
            *(Reading("poolserve_images_failed_total", n, (str(code),)) for code, n in now.failed.items()),
            Reading("poolserve_loader_pixels_in_flight", now.pixels_in_flight),
            Reading("poolserve_loader_bytes_in_flight", now.bytes_in_flight),
            Reading("poolserve_cache_hits_total", now.url_hits, ("url", "", "")),
            Reading("poolserve_cache_misses_total", now.url_misses, ("url", "", "")),
            Reading("poolserve_cache_hits_total", now.pixel_hits, ("pixels", "", "")),
            Reading("poolserve_cache_misses_total", now.pixel_misses, ("pixels", "", "")),
        ]

    return read


def shadow_source(snapshot: Callable[[], Mapping[str, Any]]) -> Source:
    """What the gateway's shadows count.

    Args:
        snapshot: gives `shadows`, a list of {model, version, shadow, sent, answered, failed, cancelled, dropped,
            not_comparable, compared, values, sum_abs, max_abs, tops, tops_equal}, all totals since the start.
    """

    def read() -> Sequence[Reading]:
        readings: list[Reading] = []
        for row in snapshot()["shadows"]:
            names = (row["model"], row["version"], row["shadow"])
            copies = "poolserve_shadow_requests_total"
            readings += [Reading(copies, row[outcome], (*names, outcome)) for outcome in SHADOW_OUTCOMES]
            readings += [Reading(f"poolserve_shadow_{name}", row[key], names) for name, key in SHADOW_FIGURES.items()]
        return readings

    return read


def vector_cache_source(images: ImageStage, model: str, version: str) -> Source:
    """A dual encoder's cache of image vectors."""
    labels = ("vector", model, version)

    def read() -> Sequence[Reading]:
        return [
            Reading("poolserve_cache_hits_total", images.vector_hits, labels),
            Reading("poolserve_cache_misses_total", images.vector_misses, labels),
        ]

    return read


class EngineMetrics:
    """An engine replica's metrics and spans.

    Args:
        registry: the replica's.
        settings: the model's.
        engine: a started one.
        tracer: makes the spans.
    """

    def __init__(self, registry: Registry, settings: ModelSettings, engine: Engine, tracer: Tracer) -> None:
        self._engine, self._tracer = engine, tracer
        self._limits = settings.admission
        self._target = (settings.name, settings.version)
        self._slots = max(settings.images.device_cache, settings.markers_per_sequence)
        self._documents = registry.histogram("poolserve_engine_batch_documents").labels(*self._target)
        self._tokens = registry.histogram("poolserve_engine_batch_tokens").labels(*self._target)
        self._queue = registry.histogram("poolserve_engine_queue_seconds").labels(*self._target)
        self._seconds = registry.histogram("poolserve_engine_seconds").labels(*self._target)
        self._looked_up = self._hits = 0
        self._counts: dict[str, int] | None = None
        self._first_encoded = 0
        self._watching: asyncio.Task[None] | None = None
        if settings.task is Task.IMAGE_RANK:
            self._watching = asyncio.create_task(self._watch_images())
        registry.add_source(self._read)

    def ran(self, batch: EngineBatch, output: EngineOutput | MissingImages, began: float) -> None:
        """Counts a batch that was answered. began: wall-clock seconds of its arrival."""
        if isinstance(output, MissingImages):
            return
        tokens = int(batch.offsets[-1])
        self._documents.observe(len(batch) if batch.images is None else max(len(batch), len(batch.images.members)))
        self._tokens.observe(tokens)
        self._queue.observe(output.queue_ms / 1e3)
        self._seconds.observe(output.engine_ms / 1e3)
        if batch.images is not None:
            self._looked_up += len(batch.images.keys)
        if batch.trace:
            sizes = {"documents": len(batch), "tokens": tokens}
            self._tracer.past(Stage.QUEUE.value, batch.trace, began, output.queue_ms, **sizes)
            started = began + output.queue_ms / 1e3
            self._tracer.past(Stage.ENGINE.value, batch.trace, started, output.engine_ms, **sizes)

    def close(self) -> None:
        """Ends what was begun."""
        if self._watching is not None:
            self._watching.cancel()
        self._tracer.close()

    def _read(self) -> Sequence[Reading]:
        load, target = self._engine.load(), self._target
        readings = [
            Reading("poolserve_engine_documents_in_flight", load.sequences, target),
            Reading("poolserve_engine_tokens_in_flight", load.tokens, target),
            Reading("poolserve_engine_documents_limit", self._limits.max_documents_in_flight, target),
            Reading("poolserve_engine_tokens_limit", self._limits.max_tokens_in_flight, target),
            Reading("poolserve_engine_cancelled_total", load.cancelled, target),
        ]
        if self._counts is not None:
            encoded = self._counts["encoded"] - self._first_encoded
            readings += [
                Reading("poolserve_feature_slots_used", self._counts["held"], target),
                Reading("poolserve_feature_slots", self._slots, target),
                Reading("poolserve_cache_hits_total", self._hits, ("device", *target)),
                Reading("poolserve_cache_misses_total", encoded, ("device", *target)),
            ]
        return readings

    async def _watch_images(self) -> None:
        """Asks for the engine's images, after batches that had some."""
        first = await self._engine.image_counts()
        self._first_encoded, self._counts = first["encoded"], first
        seen = 0
        while True:
            await asyncio.sleep(IMAGES_EVERY_S)
            if self._looked_up != seen:
                seen = self._looked_up
                with contextlib.suppress(Exception):  # the engine's health check says what is wrong with it
                    self._counts = await self._engine.image_counts()
                    encoded = self._counts["encoded"] - self._first_encoded
                    self._hits = max(self._hits, seen - encoded)  # never back: more may have been encoded meanwhile

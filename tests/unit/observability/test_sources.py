"""What the stages count, in the catalogue's words."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from serve_app.engine.fake_engine import FakeEngine
from serve_app.media.loader import LoaderStats
from serve_app.messages import EngineBatch, EngineImages, EngineOutput, LoadedImages, MissingImages
from serve_app.observability import sources
from serve_app.observability.catalogue import BY_NAME
from serve_app.observability.registry import Registry, Source
from serve_app.observability.sources import EngineMetrics, loader_source, shadow_source
from serve_app.observability.tracing import NO_TRACER
from serve_app.settings import ModelSettings
from serve_app.vocabulary import MediaErrorCode, PoolingTask

SHADOW = {
    "model": "ce",
    "version": "1",
    "shadow": "2",
    "sent": 10,
    "answered": 8,
    "failed": 1,
    "cancelled": 0,
    "dropped": 1,
    "not_comparable": 2,
    "compared": 6,
    "values": 120,
    "max_abs": 0.25,
    "sum_abs": 3.0,
    "tops": 6,
    "tops_equal": 5,
}


def values(source: Source) -> dict[tuple[str, ...], float]:
    """Readings by name and labels; each is in the catalogue, with as many labels as it says."""
    found = {}
    for reading in source():
        assert len(reading.labels) == len(BY_NAME[reading.name].labels), reading.name
        found[(reading.name, *reading.labels)] = reading.value
    return found


def test_shadow_differences_are_shown() -> None:
    found = values(shadow_source(lambda: {"shadows": [SHADOW, {**SHADOW, "shadow": "3", "max_abs": 0.5}]}))
    assert found[("poolserve_shadow_requests_total", "ce", "1", "2", "compared")] == 6
    assert found[("poolserve_shadow_difference_total", "ce", "1", "2")] == 3.0
    assert found[("poolserve_shadow_difference_max", "ce", "1", "3")] == 0.5
    assert found[("poolserve_shadow_tops_equal_total", "ce", "1", "2")] == 5
    names = {name for name, *_ in found}
    assert names == {name for name in BY_NAME if name.startswith("poolserve_shadow_")}


def test_the_loaders_counters() -> None:
    stats = LoaderStats(
        fetched=7,
        decoded=5,
        url_hits=3,
        url_misses=8,
        pixel_hits=2,
        pixel_misses=6,
        failed={MediaErrorCode.FORBIDDEN: 4},
        pixels_in_flight=1_000,
        bytes_in_flight=2_000,
    )
    found = values(loader_source(lambda: stats))
    assert found[("poolserve_images_fetched_total",)] == 7
    assert found[("poolserve_images_failed_total", "media_forbidden")] == 4
    assert found[("poolserve_cache_hits_total", "url", "", "")] == 3
    assert found[("poolserve_cache_misses_total", "url", "", "")] == 8
    assert found[("poolserve_cache_hits_total", "pixels", "", "")] == 2
    assert found[("poolserve_cache_misses_total", "pixels", "", "")] == 6
    assert found[("poolserve_loader_pixels_in_flight",)] == 1_000


def settings(task: str) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "name": "m",
            "version": "1",
            "source": "x",
            "task": task,
            "device": "cpu",
            "dtype": "float32",
            "max_model_len": 64,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
        }
    )


def batch(keys: list[str], rows: list[int]) -> EngineBatch:
    """One sequence: a token of text, and a marker per image."""
    count = len(keys)
    images = EngineImages(
        keys, np.array(rows, np.int32), np.arange(count, dtype=np.int32), np.array([0, count], np.int32)
    )
    ids, offsets = np.arange(count + 1, dtype=np.int32), np.array([0, count + 1], np.int32)
    return EngineBatch("r", PoolingTask.CLASSIFY, ids, offsets, None, 2e9, images, score_per_marker=True)


def of_registry(registry: Registry) -> dict[tuple[str, ...], float]:
    snapshot = registry.snapshot()
    return {
        (series.sample, *(value for _, value in series.labels)): value
        for series, value in zip(snapshot.schema.series, snapshot.values.tolist(), strict=True)
    }


async def test_device_cache_hits_and_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "IMAGES_EVERY_S", 0.01)
    registry, engine = Registry(), FakeEngine(settings("image_rank"))
    engine.images_encoded = 1  # the engine's own warm-up
    metrics = EngineMetrics(registry, settings("image_rank"), engine, NO_TRACER)
    await asyncio.sleep(0.02)
    pixels = LoadedImages(["a", "b"], np.arange(2, dtype=np.int32), np.zeros((2, 4, 4, 3), np.uint8), [], 0.0, 0.0)
    for sent in (batch(["a", "b"], [0, 1]), batch(["a", "b"], [-1, -1]), batch(["a"], [-1])):
        output = await engine.run(sent, pixels)
        metrics.ran(sent, output, 0.0)
    missing = await engine.run(batch(["c"], [-1]))
    assert isinstance(missing, MissingImages)
    metrics.ran(batch(["c"], [-1]), missing, 0.0)
    await asyncio.sleep(0.1)
    found = of_registry(registry)
    assert found[("poolserve_cache_misses_total", "device", "m", "1")] == 2
    assert found[("poolserve_cache_hits_total", "device", "m", "1")] == 3
    assert found[("poolserve_feature_slots_used", "m", "1")] == 2
    assert found[("poolserve_feature_slots", "m", "1")] == 1_024
    assert found[("poolserve_engine_batch_documents_sum", "m", "1")] == 5
    assert found[("poolserve_engine_batch_documents_count", "m", "1")] == 3
    metrics.close()


async def test_a_text_engine_has_no_slots_and_counts_its_batches() -> None:
    registry, engine = Registry(), FakeEngine(settings("rerank"))
    metrics = EngineMetrics(registry, settings("rerank"), engine, NO_TRACER)
    offsets = np.array([0, 3, 7], np.int32)
    sent = EngineBatch("r", PoolingTask.CLASSIFY, np.arange(7, dtype=np.int32), offsets, None, 2e9)
    output = await engine.run(sent)
    assert isinstance(output, EngineOutput)
    metrics.ran(sent, output, 0.0)
    found = of_registry(registry)
    assert found[("poolserve_engine_batch_tokens_sum", "m", "1")] == 7
    assert found[("poolserve_engine_batch_documents_sum", "m", "1")] == 2
    assert found[("poolserve_engine_documents_limit", "m", "1")] == 4_000
    assert found[("poolserve_engine_seconds_count", "m", "1")] == 1
    assert not [name for name, *_ in found if "slots" in name or "cache" in name]

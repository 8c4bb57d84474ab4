"""ImageLoader: downloads, decodes and resizes images, on CPUs. Shared by all models; no image work runs elsewhere."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from deployments.metrics import Reporting
from serve_app.media.fetch import Fetcher
from serve_app.media.loader import ImageLoader as Loader
from serve_app.media.loader import LoaderStats
from serve_app.messages import LoadedImages, LoadRequest
from serve_app.observability.sources import loader_source
from serve_app.observability.tracing import make_tracer
from serve_app.scaling.meter import Meter
from serve_app.settings import ImageLoaderSettings
from serve_app.startup import freeze
from serve_app.vocabulary import Measure, Stage


class ImageLoader:
    """Adds to the loader what Ray Serve asks of a deployment: a constructor and an end."""

    async def __init__(self, settings: ImageLoaderSettings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        threads = settings.replicas.threads
        self._loader = Loader(settings, Fetcher(settings), ThreadPoolExecutor(threads, "decode"))
        self._meter = Meter(Measure.IMAGES)
        self._reporting = Reporting(settings.observability, "ImageLoader")
        self._reporting.registry.add_source(loader_source(self._loader.stats))
        tracing = settings.observability.tracing
        self._tracer = make_tracer(tracing, deployment="ImageLoader", replica=self._reporting.replica)
        freeze()

    async def load(self, request: LoadRequest) -> LoadedImages:
        """See `serve_app.media.loader.ImageLoader.load`."""
        began, images = time.time(), len(request.images)
        with self._meter.work({Measure.IMAGES: images}):
            loaded = await self._loader.load(request)
        self._tracer.past(Stage.FETCH.value, request.trace, began, loaded.fetch_ms, images=images)
        decoding = began + loaded.fetch_ms / 1e3
        self._tracer.past(Stage.DECODE.value, request.trace, decoding, loaded.decode_ms, images=images)
        return loaded

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Ray Serve when the replicas follow their work: images in flight, and pixels in or before decoding.

        Pixels have no rates: those of an image are known only once it is here.
        """
        return {**self._meter.figures(), str(Measure.PIXELS): float(self._loader.pixels_wanted)}

    async def stats(self) -> LoaderStats:
        """Counters since the start, and work in flight; for tests and diagnosis."""
        return self._loader.stats()

    async def __del__(self) -> None:
        if (loader := getattr(self, "_loader", None)) is not None:
            await asyncio.shield(loader.close())
            self._reporting.close()
            self._tracer.close()

"""ImageLoader: downloads, decodes and resizes images, on CPUs. Shared by all models; no image work runs elsewhere."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from serve_app.media.fetch import Fetcher
from serve_app.media.loader import ImageLoader as Loader
from serve_app.media.loader import LoaderStats
from serve_app.messages import LoadedImages, LoadRequest
from serve_app.scaling.meter import Meter
from serve_app.settings import ImageLoaderSettings
from serve_app.vocabulary import Measure


class ImageLoader:
    """Adds to the loader what Ray Serve asks of a deployment: a constructor and an end."""

    async def __init__(self, settings: ImageLoaderSettings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        threads = settings.replicas.threads
        self._loader = Loader(settings, Fetcher(settings), ThreadPoolExecutor(threads, "decode"))
        self._meter = Meter(Measure.IMAGES)

    async def load(self, request: LoadRequest) -> LoadedImages:
        """See `serve_app.media.loader.ImageLoader.load`."""
        with self._meter.work({Measure.IMAGES: len(request.images)}):
            return await self._loader.load(request)

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

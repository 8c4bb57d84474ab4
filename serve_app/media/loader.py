"""Loads the images of a request: each distinct one is fetched once and decoded once, and one's failure is its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from blake3 import blake3
from cachetools import LRUCache, TTLCache

from serve_app.media import decode, header
from serve_app.media.errors import MediaError
from serve_app.media.fetch import MIB, Fetcher
from serve_app.media.flights import Flights
from serve_app.media.semaphore import Lease, WeightedSemaphore
from serve_app.messages import ByteArray, ImageRef, IntArray, ItemError, LoadedImages, LoadRequest, PixelSpec
from serve_app.settings import ImageLoaderSettings
from serve_app.vocabulary import MediaErrorCode

logger = logging.getLogger(__name__)

URLS_REMEMBERED = 50_000
"""Entries of the URL cache; about 500 bytes each."""
_INLINE_BYTES = 128 * 1024  # hashing that takes 0.1 ms, less than the way to a thread and back


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Counters since the start, and what is in flight now.

    Attributes:
        fetched: images fetched.
        decoded: images decoded.
        url_hits: images answered from the caches by their URL, without a fetch.
        url_misses: those that were looked up so and had to be fetched.
        pixel_hits: images that were fetched or sent, and whose content had been decoded before.
        pixel_misses: those that had to be decoded.
        failed: images without an answer, by code.
        pixels_in_flight: pixels being decoded, about 4 bytes each.
        bytes_in_flight: bytes of URLs' images that are being fetched or wait for their decoding.
    """

    fetched: int
    decoded: int
    url_hits: int
    url_misses: int
    pixel_hits: int
    pixel_misses: int
    failed: Mapping[MediaErrorCode, int]
    pixels_in_flight: int
    bytes_in_flight: int


@dataclass(frozen=True, slots=True)
class _Fetched:
    data: bytes
    digest: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class _Loaded:
    digest: str
    pixels: ByteArray


class ImageLoader:
    """Fetches, decodes and resizes images. Belongs to one event loop.

    Args:
        settings: limits, per replica.
        fetcher: gets URLs; the loader closes it.
        executor: threads for hashing and decoding; its owner shuts it down.
        clock: seconds, for the age of cached URLs.
    """

    def __init__(
        self,
        settings: ImageLoaderSettings,
        fetcher: Fetcher,
        executor: Executor,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        decode.silence_pillow()
        self._settings = settings
        self._fetcher = fetcher
        self._executor = executor
        self._max_bytes = int(settings.max_image_mib * MIB)
        self._pixels_in_flight = WeightedSemaphore(settings.max_pixels_in_flight)
        self._fetches: Flights[bytes, _Fetched] = Flights(lambda fetched: fetched.lease.release())
        self._decodes: Flights[tuple[str, str], ByteArray] = Flights()
        self._digests: TTLCache[bytes, str] = TTLCache(URLS_REMEMBERED, settings.cache_ttl_s, timer=clock)
        self._pixels: LRUCache[tuple[str, str], ByteArray] = LRUCache(
            int(settings.cache_mib * MIB), getsizeof=lambda pixels: pixels.nbytes
        )
        self._counts: Counter[str] = Counter()
        self._failed: Counter[MediaErrorCode] = Counter()

    async def load(self, request: LoadRequest) -> LoadedImages:
        """Loads all images of a request, as far as they can be had by its deadline. Cancelling it cancels its work."""
        started = time.perf_counter()
        fetched: list[float] = [started]
        tasks = [asyncio.create_task(self._load_one(ref, request.spec, fetched)) for ref in request.images]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, request.deadline - time.time()))
            outcomes = [self._outcome(task) for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = [
            ItemError(index, outcome.code, f"{field}: {outcome.message}")
            for index, (field, outcome) in enumerate(zip(request.fields, outcomes, strict=True))
            if isinstance(outcome, MediaError)
        ]
        self._failed.update(error.code for error in errors)
        rows, pixels = _stacked(outcomes, request.spec)
        return LoadedImages(
            hashes=["" if isinstance(outcome, MediaError) else outcome.digest for outcome in outcomes],
            rows=rows,
            pixels=pixels,
            errors=errors,
            fetch_ms=(max(fetched) - started) * 1_000,
            decode_ms=(time.perf_counter() - max(fetched)) * 1_000,
        )

    def stats(self) -> LoaderStats:
        """What was done so far, for metrics and diagnosis."""
        return LoaderStats(
            fetched=self._counts["fetched"],
            decoded=self._counts["decoded"],
            url_hits=self._counts["url_hits"],
            url_misses=self._counts["url_misses"],
            pixel_hits=self._counts["pixel_hits"],
            pixel_misses=self._counts["pixel_misses"],
            failed=dict(self._failed),
            pixels_in_flight=self._pixels_in_flight.used,
            bytes_in_flight=self._fetcher.bytes_in_flight,
        )

    @property
    def pixels_wanted(self) -> int:
        """Pixels being decoded, and of those that wait for room."""
        return self._pixels_in_flight.used + self._pixels_in_flight.waiting

    async def close(self) -> None:
        """Gives up what is in flight and closes the connections."""
        self._fetches.cancel_all()
        self._decodes.cancel_all()
        await self._fetcher.close()

    def _outcome(self, task: asyncio.Task[_Loaded]) -> _Loaded | MediaError:
        if not task.done():
            return MediaError(MediaErrorCode.UNREACHABLE, "took longer than the request has time")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, MediaError):
            return error
        logger.error("an image could not be loaded, which is our fault", exc_info=error)
        return MediaError(MediaErrorCode.UNDECODABLE, "could not be loaded")

    async def _load_one(self, ref: ImageRef, spec: PixelSpec, fetched: list[float]) -> _Loaded:
        if ref.url is None:
            data = ref.data or b""
            if len(data) > self._max_bytes:
                message = f"is larger than {self._settings.max_image_mib:g} MiB"
                raise MediaError(MediaErrorCode.TOO_LARGE, message)
            digest = await self._digest(data)
            return _Loaded(digest, await self._decoded(data, digest, spec))
        if not self._settings.allow_urls:
            raise MediaError(MediaErrorCode.FORBIDDEN, "is a URL; only image data are accepted here")
        key = blake3(ref.url.encode("utf-8", "surrogatepass")).digest(length=16)
        known = self._digests.get(key)
        pixels = None if known is None else self._pixels.get((known, spec.fingerprint))
        if known is not None and pixels is not None:
            self._counts["url_hits"] += 1
            return _Loaded(known, pixels)
        self._counts["url_misses"] += 1
        body: _Fetched | None = None
        try:
            async with self._fetches.join(key, partial(self._fetch, ref.url, key)) as body:
                fetched.append(time.perf_counter())
                return _Loaded(body.digest, await self._decoded(body.data, body.digest, spec))
        finally:
            if body is None:
                fetched.append(time.perf_counter())

    async def _fetch(self, url: str, key: bytes) -> _Fetched:
        body = await self._fetcher.fetch(url)
        try:
            digest = await self._digest(body.data)
        except BaseException:
            body.lease.release()
            raise
        self._digests[key] = digest
        self._counts["fetched"] += 1
        return _Fetched(body.data, digest, body.lease)

    async def _decoded(self, data: bytes, digest: str, spec: PixelSpec) -> ByteArray:
        key = (digest, spec.fingerprint)
        pixels = self._pixels.get(key)
        if pixels is not None:
            self._counts["pixel_hits"] += 1
            return pixels
        self._counts["pixel_misses"] += 1
        async with self._decodes.join(key, partial(self._decode, data, key, spec)) as decoded:
            return decoded

    async def _decode(self, data: bytes, key: tuple[str, str], spec: PixelSpec) -> ByteArray:
        loop = asyncio.get_running_loop()
        limit = self._settings.max_image_pixels
        cost = await loop.run_in_executor(self._executor, header.measure, data, spec, limit)
        lease = await self._pixels_in_flight.acquire(cost)
        try:
            future = self._executor.submit(decode.decode, data, spec, limit)
        except BaseException:
            lease.release()
            raise

        def release(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lease.release)

        # The thread goes on when this task is cancelled, and its memory is in use until it is done.
        future.add_done_callback(release)
        pixels = await asyncio.wrap_future(future)
        pixels.flags.writeable = False  # shared by requests
        self._counts["decoded"] += 1
        with suppress(ValueError):  # larger than the whole cache
            self._pixels[key] = pixels
        return pixels

    async def _digest(self, data: bytes) -> str:
        """BLAKE3 of an image's bytes, 32 hex digits."""
        if len(data) <= _INLINE_BYTES:
            return blake3(data).hexdigest(length=16)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: blake3(data).hexdigest(length=16))


def _stacked(outcomes: Sequence[_Loaded | MediaError], spec: PixelSpec) -> tuple[IntArray, ByteArray]:
    """Each image's row, and the distinct pictures, in the order in which they first appear."""
    distinct: dict[str, int] = {}
    pictures: list[ByteArray] = []
    rows = np.full(len(outcomes), -1, np.int32)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, MediaError):
            continue
        row = distinct.setdefault(outcome.digest, len(pictures))
        if row == len(pictures):
            pictures.append(outcome.pixels)
        rows[index] = row
    return rows, np.stack(pictures) if pictures else np.zeros((0, *spec.output_size, 3), np.uint8)

"""A request's images: together, once each, cached, bounded, and one's failure is its own."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
from blake3 import blake3
from PIL import Image

from serve_app.media import decode as decoding
from serve_app.media import header
from serve_app.messages import PixelSpec
from serve_app.vocabulary import MediaErrorCode, Resample
from tests.unit.media.conftest import HOST, SPEC, FaultyServer, MakeLoader, encoded, load, picture
from tests.unit.media.test_addresses import LOCAL_FORMS


def _pillow_blocks() -> int:
    """Blocks of 16 MiB that Pillow has in use for pixels."""
    stats = Image.core.get_stats()
    return int(stats["allocated_blocks"] - stats["freed_blocks"])


OTHER_SPEC = PixelSpec(shortest_edge=None, size=(6, 6), resample=Resample.BILINEAR, crop=None)
PICTURE_MIB = 8 * 8 * 3 / 1024**2


def _expected(seed: int) -> np.ndarray:
    return np.asarray(picture(seed).resize((8, 8), Image.Resampling.BILINEAR))


async def test_urls_and_data_in_the_requests_order(make_loader: MakeLoader, server: FaultyServer) -> None:
    loader = make_loader()
    data = encoded(picture(2))
    loaded = await load(loader, server.url("/image?seed=1"), data, server.url("/image?seed=3"), data)
    assert loaded.rows.tolist() == [0, 1, 2, 1]
    assert loaded.rows.dtype == np.int32
    np.testing.assert_array_equal(loaded.pixels, np.stack([_expected(1), _expected(2), _expected(3)]))
    assert loaded.hashes[1] == loaded.hashes[3] == blake3(data).hexdigest()[:32]
    assert loaded.hashes[0] == blake3(encoded(picture(1))).hexdigest()[:32]
    assert loaded.errors == []
    assert loaded.fetch_ms > 0
    assert loaded.decode_ms > 0
    stats = loader.stats()
    assert (stats.fetched, stats.decoded, stats.bytes_in_flight, stats.pixels_in_flight) == (2, 3, 0, 0)


async def test_equal_content_at_different_urls_is_decoded_once(make_loader: MakeLoader, server: FaultyServer) -> None:
    loader = make_loader()
    loaded = await load(loader, server.url("/image?seed=1&a"), server.url("/other?seed=1"), encoded(picture(1)))
    assert loaded.rows.tolist() == [0, 0, 0]
    assert loaded.pixels.shape == (1, 8, 8, 3)
    assert (loader.stats().fetched, loader.stats().decoded) == (2, 1)


async def test_no_images_at_all(make_loader: MakeLoader) -> None:
    loaded = await load(make_loader())
    assert (loaded.pixels.shape, loaded.rows.shape, loaded.errors) == ((0, 8, 8, 3), (0,), [])


async def test_twenty_slow_images_come_together(make_loader: MakeLoader, server: FaultyServer) -> None:
    """All twenty are asked for before the first has answered: 0.3 s in all, not 6 (benchmarks/results has the time)."""
    loaded = await load(make_loader(), *(server.url(f"/slow?ms=300&seed={seed}") for seed in range(20)))
    assert loaded.errors == []
    assert loaded.pixels.shape[0] == 20
    assert loaded.fetch_ms >= 300
    assert server.most_active == 20


BAD: dict[str, tuple[MediaErrorCode, str]] = {
    "/404": (MediaErrorCode.UNREACHABLE, "answered 404"),
    "/500": (MediaErrorCode.UNREACHABLE, "answered 500"),
    "/short": (MediaErrorCode.UNREACHABLE, "broke off"),
    "/truncated": (MediaErrorCode.UNDECODABLE, "is a broken image"),
    "/html": (MediaErrorCode.UNDECODABLE, "is not a JPEG, PNG, WebP, GIF or BMP image"),
    "/endless": (MediaErrorCode.TOO_LARGE, "is larger than 2 MiB"),
    "/huge": (MediaErrorCode.TOO_LARGE, "is larger than 2 MiB"),
    "/silent": (MediaErrorCode.UNREACHABLE, "took longer than 500 ms"),
    "/drip": (MediaErrorCode.UNREACHABLE, "took longer than 500 ms"),
    "/redirect?to=http://169.254.169.254/latest/meta-data/": (
        MediaErrorCode.FORBIDDEN,
        "has an address that may not be fetched",
    ),
}


async def test_one_bad_image_costs_only_itself(make_loader: MakeLoader, server: FaultyServer) -> None:
    loader = make_loader(max_image_mib=2, timeout_ms=500)
    images: list[str | bytes] = [server.url(path) for path in BAD]
    images += ["http://unknown.test/a?token=secret", "file:///etc/passwd", bytes(3 * 1024**2), b"", b"no image"]
    images += [server.url("/image?seed=1"), encoded(picture(2))]
    loaded = await load(loader, *images)
    assert loaded.rows.tolist() == [-1] * (len(images) - 2) + [0, 1]
    np.testing.assert_array_equal(loaded.pixels, np.stack([_expected(1), _expected(2)]))
    assert [error.index for error in loaded.errors] == list(range(len(images) - 2))
    expected = [
        *BAD.values(),
        (MediaErrorCode.UNREACHABLE, "could not be reached"),
        (MediaErrorCode.FORBIDDEN, "is not an http or https URL"),
        (MediaErrorCode.TOO_LARGE, "is larger than 2 MiB"),
        (MediaErrorCode.UNDECODABLE, "is not a JPEG, PNG, WebP, GIF or BMP image"),
        (MediaErrorCode.UNDECODABLE, "is not a JPEG, PNG, WebP, GIF or BMP image"),
    ]
    for error, (code, message) in zip(loaded.errors, expected, strict=True):
        assert (error.code, error.message) == (code, f"documents[{error.index}].image: {message}")
        assert loaded.hashes[error.index] == ""
    assert loader.stats().failed == {
        MediaErrorCode.UNREACHABLE: 6,
        MediaErrorCode.UNDECODABLE: 4,
        MediaErrorCode.TOO_LARGE: 3,
        MediaErrorCode.FORBIDDEN: 2,
    }
    assert (loader.stats().bytes_in_flight, loader.stats().pixels_in_flight) == (0, 0)


async def test_no_form_of_a_local_address_reaches_a_canary(make_loader: MakeLoader) -> None:
    canary = FaultyServer()
    await canary.start("0.0.0.0")
    urls = [f"http://{host}:{canary.port}/image" for host in LOCAL_FORMS]
    loaded = await load(make_loader(), *urls)
    await canary.stop()
    assert {error.code for error in loaded.errors} <= {MediaErrorCode.FORBIDDEN, MediaErrorCode.UNREACHABLE}
    assert len(loaded.errors) == len(urls)
    assert not canary.hits


async def test_urls_can_be_forbidden_altogether(make_loader: MakeLoader, server: FaultyServer) -> None:
    loaded = await load(make_loader(allow_urls=False), server.url("/image"), encoded(picture()))
    assert [(error.index, error.code) for error in loaded.errors] == [(0, MediaErrorCode.FORBIDDEN)]
    assert loaded.rows.tolist() == [-1, 0]
    assert not server.hits


async def test_the_requests_deadline(make_loader: MakeLoader, server: FaultyServer) -> None:
    loader = make_loader()
    loaded = await load(loader, server.url("/silent"), server.url("/image"), seconds=0.4)
    assert [(error.index, error.code) for error in loaded.errors] == [(0, MediaErrorCode.UNREACHABLE)]
    assert loaded.errors[0].message == "documents[0].image: took longer than the request has time"
    assert loaded.fetch_ms >= 300
    while not server.broken_off:
        await asyncio.sleep(0.01)


async def test_a_deadline_that_has_passed_still_gets_what_is_cached(
    make_loader: MakeLoader, server: FaultyServer
) -> None:
    loader = make_loader()
    await load(loader, server.url("/image?seed=1"))
    loaded = await load(loader, server.url("/image?seed=1"), server.url("/image?seed=2"), seconds=-1)
    assert loaded.rows.tolist() == [0, -1]


async def test_a_server_that_never_answers_does_not_hold_up_others(
    make_loader: MakeLoader, server: FaultyServer
) -> None:
    loader = make_loader(timeout_ms=1_000)
    stuck = asyncio.create_task(load(loader, *(server.url(f"/silent?n={n}") for n in range(10))))
    await asyncio.sleep(0.1)
    loaded = await load(loader, server.url("/image"))
    assert loaded.errors == []
    assert not stuck.done()
    assert len((await stuck).errors) == 10


class TestSharedWork:
    async def test_the_same_url_in_flight_is_fetched_once(self, make_loader: MakeLoader, server: FaultyServer) -> None:
        loader = make_loader(cache_mib=0)
        url = server.url("/slow?ms=100&seed=1")
        first, second, other = await asyncio.gather(
            load(loader, url, url), load(loader, url), load(loader, url, spec=OTHER_SPEC)
        )
        assert server.hits["/slow"] == 1
        assert (loader.stats().fetched, loader.stats().decoded) == (1, 2)
        assert first.rows.tolist() == [0, 0]
        np.testing.assert_array_equal(first.pixels, second.pixels)
        assert other.pixels.shape == (1, 6, 6, 3)

    async def test_a_cancelled_request_does_not_take_the_others_image(
        self, make_loader: MakeLoader, server: FaultyServer
    ) -> None:
        loader = make_loader()
        url = server.url("/slow?ms=200&seed=1")
        first = asyncio.create_task(load(loader, url))
        second = asyncio.create_task(load(loader, url))
        hurried = asyncio.create_task(load(loader, url, seconds=0.05))
        await asyncio.sleep(0.1)
        first.cancel()
        assert (await second).rows.tolist() == [0]
        assert (await hurried).rows.tolist() == [-1]
        assert first.cancelled()
        assert server.hits["/slow"] == 1
        assert server.broken_off == 0

    async def test_the_fetch_ends_with_the_last_request(self, make_loader: MakeLoader, server: FaultyServer) -> None:
        loader = make_loader()
        requests = [asyncio.create_task(load(loader, server.url("/drip"))) for _ in range(3)]
        await asyncio.sleep(0.2)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        assert server.hits["/drip"] == 1
        while not server.broken_off:
            await asyncio.sleep(0.01)
        assert loader.stats().bytes_in_flight == 0
        assert (await load(loader, server.url("/image"))).errors == []

    async def test_a_failure_is_not_remembered(self, make_loader: MakeLoader, server: FaultyServer) -> None:
        loader = make_loader()
        for _ in range(2):
            loaded = await load(loader, server.url("/404"), server.url("/404"))
            assert len(loaded.errors) == 2
        assert server.hits["/404"] == 2

    async def test_closing_gives_up_what_is_in_flight(self, make_loader: MakeLoader, server: FaultyServer) -> None:
        loader = make_loader()
        request = asyncio.create_task(load(loader, server.url("/silent")))
        await asyncio.sleep(0.1)
        await loader.close()
        loaded = await asyncio.wait_for(request, 1)
        assert [error.code for error in loaded.errors] == [MediaErrorCode.UNREACHABLE]


class TestCaches:
    async def test_a_cached_url_costs_neither_fetch_nor_decode(
        self, make_loader: MakeLoader, server: FaultyServer
    ) -> None:
        loader = make_loader()
        first = await load(loader, server.url("/image?seed=1"))
        second = await load(loader, server.url("/image?seed=1"))
        np.testing.assert_array_equal(first.pixels, second.pixels)
        assert first.hashes == second.hashes
        assert second.fetch_ms == 0
        stats = loader.stats()
        assert (stats.fetched, stats.decoded, stats.url_hits) == (1, 1, 1)
        assert server.hits.total() == 1

    async def test_equal_bytes_are_not_decoded_again(self, make_loader: MakeLoader) -> None:
        loader = make_loader()
        for _ in range(3):
            await load(loader, encoded(picture(1)))
        assert (loader.stats().decoded, loader.stats().pixel_hits) == (1, 2)

    async def test_hits_and_misses_are_of_look_ups(self, make_loader: MakeLoader, server: FaultyServer) -> None:
        loader = make_loader(max_image_mib=1)

        async def counted(*images: str | bytes) -> tuple[int, int, int, int]:
            before = loader.stats()
            await load(loader, *images)
            after = loader.stats()
            names = ("url_hits", "url_misses", "pixel_hits", "pixel_misses")
            hits, misses, found, not_found = (getattr(after, name) - getattr(before, name) for name in names)
            return hits, misses, found, not_found

        assert await counted(server.url("/404"), "http://unknown.test/a", "ftp://a/") == (0, 3, 0, 0)
        assert await counted(bytes(2 * 1024**2)) == (0, 0, 0, 0)  # refused before anything is looked up
        assert await counted(server.url("/html"), b"no image") == (0, 1, 0, 2)
        assert await counted(server.url("/image?seed=1")) == (0, 1, 0, 1)
        assert await counted(server.url("/image?seed=1"), server.url("/other?seed=1")) == (1, 1, 1, 0)
        forbidding = make_loader(allow_urls=False)
        await load(forbidding, server.url("/image?seed=1"))
        assert (forbidding.stats().url_misses, forbidding.stats().pixel_misses) == (0, 0)

    async def test_another_preprocessing_is_another_picture(
        self, make_loader: MakeLoader, server: FaultyServer
    ) -> None:
        loader = make_loader()
        await load(loader, server.url("/image?seed=1"))
        loaded = await load(loader, server.url("/image?seed=1"), spec=OTHER_SPEC)
        assert loaded.pixels.shape == (1, 6, 6, 3)
        assert loader.stats().decoded == 2

    async def test_a_url_is_fetched_again_after_its_time(self, make_loader: MakeLoader, server: FaultyServer) -> None:
        now = 0.0
        loader = make_loader(cache_ttl_s=60, clock=lambda: now)
        for now, fetched in ((0.0, 1), (59.0, 1), (61.0, 2), (120.0, 2), (122.0, 3)):
            await load(loader, server.url("/image?seed=1"))
            assert loader.stats().fetched == fetched, now
        assert loader.stats().decoded == 1  # the content is the same

    async def test_the_least_recently_used_picture_makes_room(
        self, make_loader: MakeLoader, server: FaultyServer
    ) -> None:
        loader = make_loader(cache_mib=2.5 * PICTURE_MIB)
        for seed in (1, 2, 1, 3, 1, 2):
            await load(loader, server.url(f"/image?seed={seed}"))
        assert loader.stats().url_hits == 2  # 1 both times; 3 took the room of 2
        assert loader.stats().decoded == 4

    async def test_no_cache(self, make_loader: MakeLoader) -> None:
        loader = make_loader(cache_mib=0)
        for _ in range(2):
            loaded = await load(loader, encoded(picture(1)))
            np.testing.assert_array_equal(loaded.pixels[0], _expected(1))
        assert loader.stats().decoded == 2

    async def test_what_a_caller_does_to_its_pixels_is_its_own_affair(self, make_loader: MakeLoader) -> None:
        loader = make_loader()
        (await load(loader, encoded(picture(1)))).pixels[:] = 0
        np.testing.assert_array_equal((await load(loader, encoded(picture(1)))).pixels[0], _expected(1))


class TestBounds:
    async def test_pixels_in_flight(self, make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch) -> None:
        lock, running, peak, order = threading.Lock(), 0, 0, []
        original = decoding.decode

        def watched(data: bytes, spec: PixelSpec, limit: int) -> Any:
            nonlocal running, peak
            pixels = Image.open(io.BytesIO(data)).size[0] * 100
            with lock:
                running += pixels
                peak = max(peak, running)
                order.append(pixels)
            time.sleep(0.02)
            with lock:
                running -= pixels
            return original(data, spec, limit)

        monkeypatch.setattr(decoding, "decode", watched)
        loader = make_loader(max_image_pixels=25_000, max_pixels_in_flight=25_000)
        sizes = [(100, 100)] * 4 + [(240, 100)] + [(99, 100)] * 8
        loaded = await load(loader, *(encoded(picture(seed, size)) for seed, size in enumerate(sizes)))
        assert loaded.errors == []
        assert 19_800 <= peak <= 25_000
        assert 24_000 in order[:-4]  # the large one was not left to the end
        await asyncio.sleep(0.05)
        assert loader.stats().pixels_in_flight == 0

    async def test_a_cancelled_decode_counts_until_its_thread_is_done(
        self, make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started, proceed = threading.Event(), threading.Event()

        def stuck(*_: object) -> Any:
            started.set()
            proceed.wait(5)

        monkeypatch.setattr(decoding, "decode", stuck)
        loader = make_loader()
        request = asyncio.create_task(load(loader, encoded(picture(1))))
        while not started.is_set():
            await asyncio.sleep(0.01)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        assert loader.stats().pixels_in_flight > 0
        proceed.set()
        while loader.stats().pixels_in_flight:
            await asyncio.sleep(0.01)

    @pytest.mark.parametrize(("scaled", "images"), [(True, 100), (False, 12)])
    async def test_many_large_images_in_one_request(self, make_loader: MakeLoader, scaled: bool, images: int) -> None:
        # One file of 12 Mpx as many different ones: JPEG readers skip what follows the picture.
        data = encoded(Image.new("RGB", (4_000, 3_000), "red"), "JPEG")
        loader = make_loader(max_image_pixels=12_000_000, max_pixels_in_flight=13_000_000)
        before, most = _pillow_blocks(), 0
        spec = replace(SPEC, scaled_decoding=scaled)
        request = asyncio.create_task(load(loader, *(data + bytes([n]) for n in range(images)), spec=spec))
        while not request.done():
            await asyncio.sleep(0.002)
            most = max(most, _pillow_blocks() - before)
        loaded = await request
        assert loaded.errors == []
        assert len(loaded.pixels) == images
        # A whole picture is three blocks, 48 MB, and there are four threads; two small ones may lie beside it.
        assert most <= (10 if scaled else 6)

    async def test_memory_is_flat_over_many_requests(self, make_loader: MakeLoader) -> None:
        loader = make_loader(cache_mib=0.01)
        image = picture(1, (600, 500))

        def images(round_: int) -> list[bytes]:
            files = []
            for n in range(5):
                image.putpixel((n, 0), (round_, n, 0))
                files.append(encoded(image, "BMP"))
            return files

        process = psutil.Process()
        for round_ in range(60):
            assert (await load(loader, *images(round_))).errors == []
            if round_ == 15:
                before = process.memory_info().rss
        assert loader.stats().decoded == 300
        assert process.memory_info().rss - before < 20 * 1024**2  # 200 MB went through in the meantime


async def test_our_own_faults_are_logged_and_cost_one_image(
    make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(data: bytes, *_: object) -> int:
        raise KeyError("ours")

    loader = make_loader()
    await load(loader, encoded(picture(1)))
    monkeypatch.setattr(header, "measure", broken)
    with caplog.at_level(logging.ERROR):
        loaded = await load(loader, encoded(picture(1)), encoded(picture(2)))
    assert [(error.index, error.message) for error in loaded.errors] == [(1, "documents[1].image: could not be loaded")]
    assert "our fault" in caplog.text


async def test_pillow_does_not_fill_the_log(make_loader: MakeLoader) -> None:
    data = encoded(picture(6), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoding.decode(data, SPEC, 10_000)
        assert caught  # it would
        caught.clear()
        assert (await load(make_loader(), data)).errors == []
        assert not caught


async def test_many_requests_at_once(make_loader: MakeLoader, server: FaultyServer) -> None:
    loader = make_loader(connections=16, connections_per_host=8, timeout_ms=60_000)
    urls = [f"http://{HOST}:{server.port}/slow?ms=10&seed={n % 7}&n={n % 40}" for n in range(400)]
    results = await asyncio.gather(*(load(loader, *urls[n : n + 10], seconds=120) for n in range(0, 400, 10)))
    for start, loaded in zip(range(0, 400, 10), results, strict=True):
        assert loaded.errors == []
        for offset in range(10):
            np.testing.assert_array_equal(loaded.pixels[loaded.rows[offset]], _expected((start + offset) % 7))
    assert server.most_active <= 8
    assert loader.stats().bytes_in_flight == 0

"""The sides of `image-loading`, in this process and against a server in a thread."""

from __future__ import annotations

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.image_loading import BASELINE, SCALED, WHOLE, LoadingOptions, sides
from benchmarks.image_server import Pool, application
from benchmarks.image_urls import ImageUrls
from benchmarks.loaders import Loader, Order, Side, make, peak_mib, play, prepared, spec
from benchmarks.pictures import picture
from serve_app.media.decode import decode

THREADS, OURS = Side("threads", "threads", False, 64, 1), Side("ours", "loader", False, 64, 1)


def test_both_prepare_pixels_alike() -> None:
    data = picture("small", 4)
    ours = decode(data, spec(64, scaled_decoding=False), 10**8)
    np.testing.assert_array_equal(prepared(data, spec(64, scaled_decoding=False)), ours)


@pytest.mark.parametrize("side", [THREADS, OURS], ids=lambda side: side.name)
async def test_a_side_loads_what_the_server_has_in_the_urls_order(side: Side) -> None:
    pool = Pool.make({"small": 2}, seed=0)
    async with TestServer(application(pool)) as server:
        origin = str(server.make_url("/")).rstrip("/")
        urls = ImageUrls(origin, "s").take(3)
        loader = make(side)
        pixels = await loader.load(urls)
        await loader.close()
    names = [url.rsplit("/", 1)[-1].removesuffix(".jpg") for url in urls]
    wanted = [prepared(pool.serve("small", name), spec(64, scaled_decoding=False)) for name in names]
    np.testing.assert_array_equal(pixels, np.stack(wanted))


@pytest.mark.parametrize("side", [THREADS, OURS], ids=lambda side: side.name)
async def test_an_image_that_fails_is_an_error_of_the_turn(side: Side) -> None:
    async with TestServer(web.Application()) as server:
        loader = make(side)
        report = await play(loader, order(str(server.make_url("/")).rstrip("/")))
        await loader.close()
    assert report.outcomes
    assert all(o.error for o in [*report.outcomes, *report.warmup])


async def test_a_turn_measures_a_loader() -> None:
    class Counting:
        loaded = 0

        async def load(self, urls: list[str]) -> np.ndarray:
            Counting.loaded += len(urls)
            return np.zeros((len(urls), 2, 2, 3), np.uint8)

        async def close(self) -> None:
            pass

    loader: Loader = Counting()
    report = await play(loader, order("http://h"))
    assert Counting.loaded == 3 * (len(report.outcomes) + 1)
    assert not any(o.error for o in report.outcomes)
    assert report.cpu_s >= 0
    assert peak_mib() > 1


def order(origin: str) -> Order:
    return Order(origin, "s", 0.0, 0, images=3, concurrency=2, seconds=0.05, minimum=2, warmup=1)


def test_the_baseline_is_compared_with_whole_and_scaled_decoding(tmp_path: object) -> None:
    found = sides(LoadingOptions("n", tmp_path, "s"))  # type: ignore[arg-type]
    assert [(s.name, s.kind, s.scaled_decoding) for s in found] == [
        (BASELINE, "threads", False),
        (WHOLE, "loader", False),
        (SCALED, "loader", True),
    ]

"""The sides of `image-loading`: our ImageLoader, and what it is compared with, each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from benchmarks.image_urls import ImageUrls
from benchmarks.load import Outcome
from benchmarks.timed import timed_loop
from serve_app.messages import ByteArray, ImageRef, LoadRequest, PixelSpec
from serve_app.vocabulary import Resample

THREADS = 16
"""Of the baseline, as the published system has it."""
TIMEOUT_S = 30.0


class Loader(Protocol):
    """Loads images."""

    async def load(self, urls: list[str]) -> ByteArray:
        """URLs of a request to pixels, uint8 [images, height, width, 3]; raises if an image fails."""
        ...

    async def close(self) -> None:
        """Closes connections and ends threads."""
        ...


def spec(size: int, *, scaled_decoding: bool) -> PixelSpec:
    """CLIP's preprocessing for pictures of `size` x `size`."""
    return PixelSpec(size, None, Resample.BICUBIC, (size, size), scaled_decoding)


@dataclass(frozen=True, slots=True)
class Side:
    """Who loads.

    Attributes:
        name: in tables.
        kind: `threads` (ThreadPoolExecutor, requests, Pillow) or `loader` (serve_app.media).
        scaled_decoding: loader: decode large JPEGs at a fraction of their size.
        size: of the pictures that come out.
        decode_threads: loader: threads for decoding.
    """

    name: str
    kind: str
    scaled_decoding: bool
    size: int
    decode_threads: int


@dataclass(frozen=True, slots=True)
class Order:
    """One turn. `seed`, `large_share`, `delay_ms`: see `ImageUrls`; `warmup`: requests before, not counted."""

    origin: str
    seed: str
    large_share: float
    delay_ms: int
    images: int
    concurrency: int
    seconds: float
    minimum: int
    warmup: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a turn gave. `cpu_s`: of the loading process, all threads; `peak_mib`: its largest resident memory."""

    outcomes: list[Outcome]
    warmup: list[Outcome]
    cpu_s: float
    peak_mib: float


class ThreadedLoader:
    """`ThreadPoolExecutor(16)`, requests, Pillow. Connections are kept alive, one per thread, which flatters it."""

    def __init__(self, pixel_spec: PixelSpec, threads: int = THREADS) -> None:
        self._spec = pixel_spec
        self._pool = ThreadPoolExecutor(threads, "load")
        self._drivers = ThreadPoolExecutor(64, "request")
        self._local = threading.local()

    async def load(self, urls: list[str]) -> ByteArray:
        """See `Loader`."""
        return await asyncio.get_running_loop().run_in_executor(self._drivers, self._load_all, urls)

    async def close(self) -> None:
        """See `Loader`."""
        self._drivers.shutdown()
        self._pool.shutdown()

    def _load_all(self, urls: Sequence[str]) -> ByteArray:
        return np.stack(list(self._pool.map(self._load_one, urls)))

    def _load_one(self, url: str) -> ByteArray:
        import requests

        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
        answer = self._local.session.get(url, timeout=TIMEOUT_S)
        answer.raise_for_status()
        return prepared(answer.content, self._spec)


def prepared(data: bytes, pixel_spec: PixelSpec) -> ByteArray:
    """Resize of the shorter side and centre crop with Pillow alone, as CLIP's image processor does it."""
    from PIL import Image

    edge = pixel_spec.shortest_edge
    assert edge is not None
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = picture.size
    target = (edge, int(edge * height / width)) if width <= height else (int(edge * width / height), edge)
    picture = picture.resize(target, Image.Resampling.BICUBIC)
    left, top = (target[0] - edge) // 2, (target[1] - edge) // 2
    return np.asarray(picture.crop((left, top, left + edge, top + edge)))


class OurLoader:
    """`serve_app.media.ImageLoader` as a replica has it. Without its cache of pixels: every URL is new."""

    def __init__(self, pixel_spec: PixelSpec, decode_threads: int) -> None:
        from serve_app.media.fetch import Fetcher
        from serve_app.media.loader import ImageLoader
        from serve_app.settings import ImageLoaderSettings

        settings = ImageLoaderSettings(
            allow_networks=("127.0.0.0/8",), allow_ports=(), timeout_ms=int(TIMEOUT_S * 1e3), cache_mib=0
        )
        self._spec = pixel_spec
        self._threads = ThreadPoolExecutor(decode_threads, "decode")
        self._loader = ImageLoader(settings, Fetcher(settings), self._threads)

    async def load(self, urls: list[str]) -> ByteArray:
        """See `Loader`."""
        request = LoadRequest(
            [ImageRef(url=url) for url in urls], ["image"] * len(urls), self._spec, time.time() + TIMEOUT_S
        )
        loaded = await self._loader.load(request)
        if loaded.errors:
            raise RuntimeError(loaded.errors[0].message)
        return loaded.pixels[loaded.rows]

    async def close(self) -> None:
        """See `Loader`."""
        await self._loader.close()
        self._threads.shutdown()


def make(side: Side) -> Loader:
    """The side's loader; needs a running event loop."""
    pixel_spec = spec(side.size, scaled_decoding=side.scaled_decoding)
    return ThreadedLoader(pixel_spec) if side.kind == "threads" else OurLoader(pixel_spec, side.decode_threads)


async def play(loader: Loader, order: Order) -> Report:
    """One turn."""
    urls = ImageUrls(order.origin, order.seed, order.large_share, order.delay_ms)

    async def send(_: int) -> Outcome:
        wanted = urls.take(order.images)
        started = time.perf_counter()
        error = None
        try:
            pixels = await loader.load(wanted)
            if len(pixels) != order.images:
                error = "pixels are missing"
        except Exception as failure:  # whatever a loader fails with is an error of its turn
            error = type(failure).__name__
        return Outcome(started, time.perf_counter(), error)

    warmup = [await send(i) for i in range(order.warmup)]
    _forget_peak()
    cpu = time.process_time()
    outcomes = await timed_loop(send, order.concurrency, order.seconds, order.minimum)
    return Report(outcomes, warmup, time.process_time() - cpu, peak_mib())


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # Linux only, and not in every container
        Path("/proc/self/clear_refs").write_text("5")


def peak_mib() -> float:
    """Largest resident memory of this process, since `_forget_peak` where that works; NaN elsewhere than on Linux."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float("nan")


async def _serve(connection: Connection, side: Side) -> None:
    loader = make(side)
    connection.send(os.getpid())
    while True:
        try:
            wanted = await asyncio.to_thread(connection.recv)
        except EOFError:
            break
        connection.send(await (play(loader, wanted) if isinstance(wanted, Order) else loader.load(wanted)))
    await loader.close()


def _process(connection: Connection, side: Side) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    asyncio.run(_serve(connection, side))


class LoaderProcess:
    """A context manager around one side's process."""

    def __init__(self, side: Side) -> None:
        self.side = side
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process: Any = spawn.Process(target=_process, args=(theirs, side), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def __enter__(self) -> LoaderProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._connection.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.terminate()

    def play(self, order: Order) -> Report:
        """Runs a turn."""
        self._connection.send(order)
        report = self._receive()
        assert isinstance(report, Report)
        return report

    def pixels(self, urls: list[str]) -> ByteArray:
        """Pixels of some URLs, for parity."""
        self._connection.send(urls)
        return np.asarray(self._receive())

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except EOFError:
            raise RuntimeError(f"{self.side.name}: its process ended, exit code {self._process.exitcode}") from None

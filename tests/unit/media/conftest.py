"""A web server that misbehaves on request, and what the tests of images share."""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from PIL import Image

from serve_app.media.fetch import Fetcher
from serve_app.media.loader import ImageLoader
from serve_app.messages import ImageRef, LoadedImages, LoadRequest, PixelSpec
from serve_app.settings import ImageLoaderSettings
from serve_app.vocabulary import Resample

HOST = "images.test"
"""Trusted by the tests' settings, and resolved to this machine."""
SPEC = PixelSpec(shortest_edge=None, size=(8, 8), resample=Resample.BILINEAR, crop=None)


def picture(seed: int = 0, size: tuple[int, int] = (20, 12), mode: str = "RGB") -> Image.Image:
    """Noise over a gradient; other pixels for every seed."""
    rng = np.random.default_rng(seed)
    width, height = size
    gradient = np.add.outer(np.linspace(0, 150, height), np.linspace(0, 60, width))[..., None]
    return Image.fromarray((gradient + rng.integers(0, 45, (height, width, 3))).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


class FaultyServer:
    """HTTP/1.1 on this machine. A path's name says how it misbehaves; `hits` counts requests by path."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self.headers: list[str] = []
        self.sent = 0
        self.broken_off = 0
        self.active = 0
        self.most_active = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._connection, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def url(self, path: str, host: str = HOST) -> str:
        return f"http://{host}:{self.port}{path}"

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                target = urlsplit(head.split(" ")[1])
                self.hits[target.path] += 1
                self.headers.append(head)
                self.active += 1
                self.most_active = max(self.most_active, self.active)
                options = {name: unquote(values[0]) for name, values in parse_qs(target.query).items()}
                answer = asyncio.create_task(self._answer(target.path, options, writer))
                answer.add_done_callback(
                    lambda done: done.cancelled() or done.exception()
                )  # so that asyncio is content
                gone = asyncio.create_task(reader.read(1) if target.path in _ENDLESS else asyncio.sleep(3_600))
                await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
                self.active -= 1
                self.broken_off += not answer.done()
                for part in (answer, gone):
                    part.cancel()
                await asyncio.gather(answer, gone, return_exceptions=True)
                if target.path in _ENDLESS or target.path == "/short":
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # asyncio logs a stream's task that is cancelled
        finally:
            self._connections.discard(task)
            with suppress(ConnectionError):
                writer.close()

    async def _answer(self, path: str, options: dict[str, str], writer: asyncio.StreamWriter) -> None:
        async def reply(body: bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> None:
            fields = [f"Content-Length: {len(body) if length is None else length}", *headers]
            writer.write(f"HTTP/1.1 {status}\r\n{''.join(field + chr(13) + chr(10) for field in fields)}\r\n".encode())
            writer.write(body)
            await writer.drain()

        seed = int(options.get("seed", 0))
        match path.removeprefix("/"):
            case "slow":
                await asyncio.sleep(float(options["ms"]) / 1_000)
                await reply(encoded(picture(seed)), "200 OK", "Content-Type: image/png")
            case "endless":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
                    await writer.drain()
                    self.sent += 0x10000
            case "huge":
                await reply(b"", length=10 * 1024**3)
                while True:
                    writer.write(bytes(0x10000))
                    await writer.drain()
                    self.sent += 0x10000
            case "short":
                await reply(encoded(picture(seed))[:-5], length=len(encoded(picture(seed))))
            case "truncated":
                await reply(encoded(picture(seed, (200, 100)), "JPEG")[:-400])
            case "drip":
                await reply(b"", length=1_000)
                while True:
                    writer.write(b"\x89")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            case "silent":
                await asyncio.sleep(3_600)
            case "redirect":
                await reply(b"", options.get("status", "302") + " Found", f"Location: {options['to']}")
            case "nowhere":
                await reply(b"", "302 Found")
            case "loop":
                await reply(b"", "302 Found", "Location: /loop")
            case "html":
                await reply(b"<!doctype html><p>Log in, please", "200 OK", "Content-Type: image/png")
            case "gzip":
                await reply(encoded(picture(seed)), "200 OK", "Content-Encoding: gzip")
            case "cookie":
                await reply(encoded(picture(seed)), "200 OK", "Set-Cookie: a=b; Path=/")
            case "chunked":
                body = encoded(picture(seed))
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
            case "404" | "500" | "304" | "206":
                await reply(b"" if path == "/304" else b"secret", f"{path[1:]} secret reason")
            case _:
                await reply(encoded(picture(seed)), "200 OK", "Content-Type: text/plain")


_ENDLESS = {"/endless", "/huge", "/drip", "/silent"}


class FakeResolver(AbstractResolver):
    """Host names and their addresses: a list for every look-up, the last one for all later ones."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self.answers = {HOST: [["127.0.0.1"]], **{name: list(answers) for name, answers in names.items()}}

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        answers = self.answers.get(host)
        if answers is None:
            raise OSError("no such name")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=10 if ":" in address else 2, proto=0, flags=4)
            for address in addresses
        ]

    async def close(self) -> None:
        pass


def loader_settings(**options: Any) -> ImageLoaderSettings:
    return ImageLoaderSettings(**{"allow_hosts": (HOST,), "allow_ports": (), "timeout_ms": 20_000, **options})


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    started = FaultyServer()
    await started.start()
    yield started
    await started.stop()


MakeFetcher = Callable[..., Fetcher]


@pytest.fixture
async def make_fetcher() -> AsyncIterator[MakeFetcher]:
    """Makes fetchers that know the tests' host name; keyword arguments are settings."""
    made: list[Fetcher] = []

    def make(*, resolver: AbstractResolver | None = None, **options: Any) -> Fetcher:
        made.append(Fetcher(loader_settings(**options), resolver=resolver or FakeResolver()))
        return made[-1]

    yield make
    for fetcher in made:
        await fetcher.close()


MakeLoader = Callable[..., ImageLoader]


@pytest.fixture
async def make_loader() -> AsyncIterator[MakeLoader]:
    """Makes loaders with four threads; keyword arguments are settings."""
    made: list[ImageLoader] = []
    executor = ThreadPoolExecutor(4)

    def make(*, clock: Callable[[], float] = time.monotonic, **options: Any) -> ImageLoader:
        settings = loader_settings(**options)
        made.append(ImageLoader(settings, Fetcher(settings, resolver=FakeResolver()), executor, clock=clock))
        return made[-1]

    yield make
    for loader in made:
        await loader.close()
    executor.shutdown()


def load(
    loader: ImageLoader, *images: str | bytes, spec: PixelSpec = SPEC, seconds: float = 60.0
) -> Awaitable[LoadedImages]:
    """Loads URLs and data."""
    refs = [ImageRef(url=image) if isinstance(image, str) else ImageRef(data=image) for image in images]
    fields = [f"documents[{index}].image" for index in range(len(refs))]
    return loader.load(LoadRequest(refs, fields, spec, time.time() + seconds))

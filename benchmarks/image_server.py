"""A small image server in a process of its own. Every URL is another picture, as far as any cache can tell.

`/<size>/<delay in ms>/<name>.jpg` answers with one of a few JPEGs of that size, after that delay, and with the name in
a comment of the file: any name works, and the same name always gives the same bytes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from aiohttp import web

from benchmarks.pictures import PictureSize, picture, with_comment

DEFAULT_VARIETY: Mapping[PictureSize, int] = {"small": 24, "large": 4}
_START_LIMIT_S = 120.0


def variety(large_share: float) -> dict[PictureSize, int]:
    """Different JPEGs of each size; no large ones, which take a second each to make, where none is asked for."""
    return {size: count for size, count in DEFAULT_VARIETY.items() if size == "small" or large_share > 0}


@dataclass(frozen=True, slots=True)
class Pool:
    """The JPEGs that are served, by size."""

    jpegs: Mapping[PictureSize, Sequence[bytes]]

    @classmethod
    def make(cls, variety: Mapping[PictureSize, int], seed: int) -> Pool:
        """Different JPEGs of each size."""
        return cls({size: [picture(size, seed + i) for i in range(count)] for size, count in variety.items()})

    def serve(self, size: str, name: str) -> bytes:
        """The picture of a name.

        Raises:
            KeyError: there is no such size.
        """
        jpegs = self.jpegs[size]  # type: ignore[index]  # a size from outside
        return with_comment(jpegs[zlib.crc32(name.encode()) % len(jpegs)], name)

    @property
    def mean_bytes(self) -> dict[str, int]:
        """Mean size of the files."""
        return {size: sum(map(len, jpegs)) // len(jpegs) for size, jpegs in self.jpegs.items() if jpegs}


def application(pool: Pool) -> web.Application:
    """The server's routes."""

    async def image(request: web.Request) -> web.Response:
        delay_ms = int(request.match_info["delay"])
        try:
            body = pool.serve(request.match_info["size"], request.match_info["name"])
        except KeyError:
            raise web.HTTPNotFound from None
        if delay_ms:
            await asyncio.sleep(delay_ms / 1e3)
        return web.Response(body=body, content_type="image/jpeg")

    app = web.Application()
    app.router.add_get(r"/{size}/{delay:\d+}/{name}.jpg", image)
    return app


async def _serve(connection: Connection, pool: Pool) -> None:
    runner = web.AppRunner(application(pool), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    connection.send((runner.addresses[0][1], pool.mean_bytes))
    await asyncio.to_thread(_wait_for_end, connection)
    await runner.cleanup()


def _wait_for_end(connection: Connection) -> None:
    try:
        connection.recv()
    except (EOFError, KeyboardInterrupt):
        return


def _process(connection: Connection, variety: Mapping[PictureSize, int], seed: int) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    asyncio.run(_serve(connection, Pool.make(variety, seed)))


@dataclass(slots=True)
class ImageServer:
    """A context manager around the server's process.

    Attributes:
        variety: different JPEGs of each size.
        url: where it listens.
        mean_bytes: mean size of the files it serves.
    """

    variety: Mapping[PictureSize, int] = field(default_factory=lambda: dict(DEFAULT_VARIETY))
    seed: int = 0
    url: str = ""
    mean_bytes: dict[str, int] = field(default_factory=dict)
    _process: Any = None
    _connection: Connection | None = None

    def __enter__(self) -> ImageServer:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_process, args=(theirs, self.variety, self.seed), daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(_START_LIMIT_S):
            self._process.terminate()
            raise RuntimeError(f"the image server did not start within {_START_LIMIT_S:.0f} s")
        port, self.mean_bytes = self._connection.recv()
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.terminate()

    @property
    def pid(self) -> int:
        """The process' id, for its CPU time."""
        return int(self._process.pid)

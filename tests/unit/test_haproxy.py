"""Ray Serve's HAProxy as we start it: whoever leaves is noticed behind it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from serve_app import haproxy
from tests.cluster import free_port

SCRIPT = Path(sysconfig.get_path("scripts")) / haproxy.NAME
# What matters of Ray 2.60's template, with the flags of serve_config.yaml.
CONFIG = """
global
    maxconn 4096
    nbthread 4
    tune.bufsize 131072
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option abortonclose
    option splice-request
    option splice-response
    option redispatch 1
    retry-on conn-failure empty-response
    retries 2
    option http-no-delay
    option idle-close-on-response
frontend front
    bind 127.0.0.1:{front}
    default_backend back
backend back
    http-reuse always
    server only 127.0.0.1:{back}
"""
ROUNDS, CLIENTS, BODY = 12, 20, 100_000
NOTICED_S = 5.0


def _request(size: int) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size


class _Backend:
    """Answers what is small; of what is large it waits for the client to leave."""

    def __init__(self) -> None:
        self.left = self.stayed = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                if size == BODY and not await self._leaves(reader):
                    self.stayed += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def _leaves(self, reader: asyncio.StreamReader) -> bool:
        try:
            await asyncio.wait_for(reader.read(1), NOTICED_S)
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        self.left += 1
        return True


@contextlib.asynccontextmanager
async def _proxy(folder: Path, back: int) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    front = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(CONFIG.format(front=front, back=back))
    environment = haproxy.variable()  # as Ray's proxy has it
    assert environment == {haproxy.VARIABLE: str(SCRIPT)}
    process = await asyncio.create_subprocess_exec(SCRIPT, "-db", "-f", config, env=environment)
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(ConnectionError):
                    _, writer = await asyncio.open_connection("127.0.0.1", front)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield front, process
    finally:
        process.kill()
        await process.wait()


async def test_no_client_that_leaves_is_missed(tmp_path: Path) -> None:
    """Without `-dS` HAProxy 2.8 missed 11 or 12 of these 240, in three runs."""
    backend = _Backend()
    server = await asyncio.start_server(backend, "127.0.0.1", 0, limit=2**20)
    async with server, _proxy(tmp_path, server.sockets[0].getsockname()[1]) as (front, process):
        assert "-dS" in psutil.Process(process.pid).cmdline()
        for _ in range(ROUNDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(_request(100))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
            writers = [(await asyncio.open_connection("127.0.0.1", front))[1] for _ in range(CLIENTS)]
            for writer in writers:
                writer.write(_request(BODY))
            await asyncio.sleep(0.02)
            for writer in writers:
                writer.close()
            await asyncio.sleep(0.2)
        await asyncio.sleep(NOTICED_S + 1)
    assert backend.stayed == 0
    assert backend.left > ROUNDS * CLIENTS / 2


def test_it_is_the_same_haproxy() -> None:
    """The proxy that Ray Serve would start, and the operator's if a variable names one."""
    done = subprocess.run([SCRIPT, "-v"], env=haproxy.variable(), capture_output=True, text=True, check=True)
    assert "HAProxy version" in done.stdout
    other = {haproxy.VARIABLE: "/bin/echo"}
    done = subprocess.run([SCRIPT, "-f", "x"], env=other, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-dS", "-f", "x"]

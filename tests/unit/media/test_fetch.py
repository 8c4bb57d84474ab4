"""Every way in which a server can misbehave costs no more than the limits say."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading

import pytest

from serve_app.media.errors import MediaError
from serve_app.media.fetch import Fetcher
from serve_app.vocabulary import MediaErrorCode
from tests.unit.media.conftest import HOST, FakeResolver, FaultyServer, MakeFetcher, encoded, loader_settings, picture

MIB = 1024 * 1024


@pytest.mark.parametrize("path", ["/image?seed=3", "/chunked?seed=3"])
async def test_the_bytes_at_a_url(make_fetcher: MakeFetcher, server: FaultyServer, path: str) -> None:
    fetcher = make_fetcher()
    body = await fetcher.fetch(server.url(path))
    assert body.data == encoded(picture(3))
    assert fetcher.bytes_in_flight == len(body.data)
    body.lease.release()
    assert fetcher.bytes_in_flight == 0


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/404", MediaErrorCode.UNREACHABLE, "answered 404"),
        ("/500", MediaErrorCode.UNREACHABLE, "answered 500"),
        ("/304", MediaErrorCode.UNREACHABLE, "answered 304"),
        ("/206", MediaErrorCode.UNREACHABLE, "answered 206"),
        ("/short", MediaErrorCode.UNREACHABLE, "broke off"),
        ("/huge", MediaErrorCode.TOO_LARGE, "is larger than 1 MiB"),
        ("/endless", MediaErrorCode.TOO_LARGE, "is larger than 1 MiB"),
        ("/gzip", MediaErrorCode.UNDECODABLE, "is sent with a content encoding, which is not supported"),
        ("/loop", MediaErrorCode.FORBIDDEN, "redirects more than 3 times"),
        ("/nowhere", MediaErrorCode.UNREACHABLE, "answered 302"),
        ("/drip", MediaErrorCode.UNREACHABLE, "took longer than 400 ms"),
        ("/silent", MediaErrorCode.UNREACHABLE, "took longer than 400 ms"),
    ],
)
async def test_misbehaviour(
    make_fetcher: MakeFetcher, server: FaultyServer, path: str, code: MediaErrorCode, message: str
) -> None:
    fetcher = make_fetcher(max_image_mib=1, timeout_ms=400)
    with pytest.raises(MediaError) as raised:
        await asyncio.wait_for(fetcher.fetch(server.url(path)), 30)
    assert (raised.value.code, str(raised.value)) == (code, message)
    assert fetcher.bytes_in_flight == 0
    assert server.hits.total() == (4 if path == "/loop" else 1)  # no retries
    assert server.sent < 12 * MIB  # what the limit lets through and the sockets' buffers hold
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.code, str(copy)) == (code, message)


@pytest.mark.parametrize("host", ["unknown.test", HOST])
async def test_no_such_host_and_no_such_port(make_fetcher: MakeFetcher, host: str) -> None:
    closed = FaultyServer()
    await closed.start()
    await closed.stop()
    with pytest.raises(MediaError, match=r"^could not be reached$") as raised:
        await make_fetcher().fetch(closed.url("/image", host))
    assert raised.value.code is MediaErrorCode.UNREACHABLE


async def test_nothing_of_ours_is_sent(
    make_fetcher: MakeFetcher, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    fetcher = make_fetcher(user_agent="tests/1")
    for _ in range(2):
        (await fetcher.fetch(server.url("/cookie"))).lease.release()
    for head in server.headers:
        lines = {line.split(":")[0].lower(): line for line in head.strip().split("\r\n")[1:]}
        assert set(lines) == {"host", "accept", "accept-encoding", "user-agent"}
        assert lines["accept"] == "Accept: image/*"
        assert lines["accept-encoding"] == "Accept-Encoding: identity"
        assert lines["user-agent"] == "User-Agent: tests/1"


async def test_bytes_in_flight_make_others_wait(make_fetcher: MakeFetcher, server: FaultyServer) -> None:
    fetcher = make_fetcher(max_image_mib=1, max_mib_in_flight=1, timeout_ms=300)
    # Its length is not known, so it counts as the largest that may come, until it is there.
    first = await fetcher.fetch(server.url("/chunked?seed=1"))
    second = await fetcher.fetch(server.url("/image?seed=2"))
    assert fetcher.bytes_in_flight == len(first.data) + len(second.data)
    waiting = asyncio.create_task(fetcher.fetch(server.url("/chunked?seed=3")))
    await asyncio.sleep(0.5)
    assert not waiting.done()  # longer than its own time, which stands still
    first.lease.release()
    second.lease.release()
    (await asyncio.wait_for(waiting, 1)).lease.release()


async def test_connections_are_limited(make_fetcher: MakeFetcher, server: FaultyServer) -> None:
    fetcher = make_fetcher(connections_per_host=4, timeout_ms=800)
    fetches = [fetcher.fetch(server.url(f"/slow?ms=100&n={n}")) for n in range(48)]
    bodies = await asyncio.gather(*fetches)  # 1.2 s in all, of which waiting for a connection does not count
    assert len(bodies) == 48
    assert server.most_active == 4


async def test_a_dead_host_costs_its_timeout_once(make_fetcher: MakeFetcher, server: FaultyServer) -> None:
    fetcher = make_fetcher(connections_per_host=4, timeout_ms=300)
    results = await asyncio.gather(
        *(fetcher.fetch(server.url(f"/silent?n={n}")) for n in range(80)), return_exceptions=True
    )
    assert {str(result) for result in results} == {"took longer than 300 ms"}
    assert server.hits.total() < 80  # those that queued behind the first rounds fail with them, and are not sent
    (await fetcher.fetch(server.url("/image"))).lease.release()  # and the next one is tried again


async def test_a_silent_path_of_a_living_host_costs_the_others_nothing(
    make_fetcher: MakeFetcher, server: FaultyServer
) -> None:
    fetcher = make_fetcher(connections_per_host=2, timeout_ms=300)
    silent = asyncio.create_task(fetcher.fetch(server.url("/silent")))
    await asyncio.sleep(0.05)
    bodies = await asyncio.gather(*(fetcher.fetch(server.url(f"/slow?ms=60&n={n}")) for n in range(16)))
    assert len(bodies) == 16
    with pytest.raises(MediaError):
        await silent


async def test_a_cancelled_fetch_lets_go(make_fetcher: MakeFetcher, server: FaultyServer) -> None:
    fetcher = make_fetcher()
    task = asyncio.create_task(fetcher.fetch(server.url("/drip")))
    while not server.hits:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert fetcher.bytes_in_flight == 1_000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert fetcher.bytes_in_flight == 0
    while not server.broken_off:
        await asyncio.sleep(0.01)


async def test_a_slow_look_up_counts(make_fetcher: MakeFetcher) -> None:
    class Slow(FakeResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[object]:  # type: ignore[override]
            await asyncio.sleep(30)
            raise AssertionError

    with pytest.raises(MediaError, match="took longer than 200 ms"):
        await make_fetcher(resolver=Slow(), timeout_ms=200).fetch("http://slow.test/")


async def test_dead_name_servers_hold_up_nobody_else(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look_up(host: str, *_: object) -> list[object]:
        if host != HOST:
            over.wait(10)
            raise OSError
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    fetcher = Fetcher(loader_settings())
    dead = [asyncio.create_task(fetcher.fetch(f"http://dead-{n}.test/")) for n in range(40)]
    await asyncio.sleep(0.1)
    (await asyncio.wait_for(fetcher.fetch(server.url("/image")), 2)).lease.release()
    for task in dead:
        task.cancel()
    await asyncio.gather(*dead, return_exceptions=True)
    over.set()
    await fetcher.close()

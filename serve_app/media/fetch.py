"""Fetches one image: one deadline from the look-up of its name to its last byte, no retries, bounded at every step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from aiohttp import hdrs
from aiohttp.abc import AbstractResolver
from cachetools import LRUCache
from yarl import URL

from serve_app.media.addresses import ATTEMPT, AddressPolicy, Attempt
from serve_app.media.clock import Clock, Host
from serve_app.media.errors import MediaError
from serve_app.media.resolver import ThreadedResolver
from serve_app.media.semaphore import Lease, WeightedSemaphore
from serve_app.settings import ImageLoaderSettings
from serve_app.vocabulary import MediaErrorCode

MIB = 1024 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Body:
    """What was fetched, and its share of the bytes in flight, which the receiver releases."""

    data: bytes
    lease: Lease


class Fetcher:
    """Fetches URLs under the operator's limits, over one pool of connections.

    Args:
        settings: limits, per replica.
        resolver: looks host names up; None: the system's, in threads of its own.
    """

    def __init__(self, settings: ImageLoaderSettings, *, resolver: AbstractResolver | None = None) -> None:
        self._settings = settings
        self._policy = AddressPolicy(settings)
        self._resolver = resolver or ThreadedResolver(settings.connections)
        self._max_bytes = int(settings.max_image_mib * MIB)
        self._bytes = WeightedSemaphore(int(settings.max_mib_in_flight * MIB))
        self._hosts: LRUCache[str, Host] = LRUCache(1_024)
        self._session: aiohttp.ClientSession | None = None

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of images that are being fetched or wait to be decoded."""
        return self._bytes.used

    async def fetch(self, url: str) -> Body:
        """The bytes at a URL.

        Raises:
            MediaError: `media_forbidden`, `media_unreachable`, `media_too_large`, or `media_undecodable` when the
                server compresses what it sends.
        """
        target = self._policy.parse(url)
        clock: Clock | None = None
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1_000) as timer:
                clock = Clock(timer)
                for _ in range(self._settings.max_redirects + 1):
                    reply = await self._get(target, clock)
                    if isinstance(reply, Body):
                        return reply
                    target = reply
        except TimeoutError:
            if clock is not None:
                clock.run_out()
            message = f"took longer than {self._settings.timeout_ms} ms"
            raise MediaError(MediaErrorCode.UNREACHABLE, message) from None
        message = f"redirects more than {self._settings.max_redirects} times"
        raise MediaError(MediaErrorCode.FORBIDDEN, message)

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    async def _get(self, url: URL, clock: Clock) -> Body | URL:
        """One request; answers with the body, or with where a redirect leads."""
        clock.answered = False
        clock.host = self._hosts.setdefault(url.authority, Host())
        attempt = Attempt(trusted=self._policy.trusts(url))
        token = ATTEMPT.set(attempt)
        try:
            async with self._client().get(url, allow_redirects=False, trace_request_ctx=clock) as response:
                clock.answer()
                location = response.headers.get(hdrs.LOCATION)
                if response.status in _REDIRECTS and location:
                    return self._policy.follow(url, location)
                if response.status != 200:
                    raise MediaError(MediaErrorCode.UNREACHABLE, f"answered {response.status}")
                return await self._read(response, clock)
        except aiohttp.InvalidURL:
            raise MediaError(MediaErrorCode.FORBIDDEN, "is not a valid URL") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            if attempt.refused:
                raise MediaError(MediaErrorCode.FORBIDDEN, "has an address that may not be fetched") from None
            message = "broke off" if clock.answered else "could not be reached"
            raise MediaError(MediaErrorCode.UNREACHABLE, message) from None
        finally:
            ATTEMPT.reset(token)

    async def _read(self, response: aiohttp.ClientResponse, clock: Clock) -> Body:
        if response.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower() != "identity":
            raise MediaError(MediaErrorCode.UNDECODABLE, "is sent with a content encoding, which is not supported")
        announced = response.content_length
        if announced is not None and announced > self._max_bytes:
            raise self._too_large()
        clock.pause()
        lease = await self._bytes.acquire(self._max_bytes if announced is None else announced)
        clock.resume()
        try:
            chunks: list[bytes] = []
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > self._max_bytes:
                    raise self._too_large()
                chunks.append(chunk)
            data = b"".join(chunks)
        except BaseException:
            lease.release()
            raise
        lease.shrink(size)
        return Body(data, lease)

    def _too_large(self) -> MediaError:
        return MediaError(MediaErrorCode.TOO_LARGE, f"is larger than {self._settings.max_image_mib:g} MiB")

    def _client(self) -> aiohttp.ClientSession:
        """The session, made at first use because aiohttp ties it to the running loop."""
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_queued_start.append(_queued)
            trace.on_connection_queued_end.append(_dequeued)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._settings.connections,
                    limit_per_host=self._settings.connections_per_host,
                    resolver=self._resolver,
                    socket_factory=self._policy.open_socket,
                ),
                # Nothing of one image's answer may reach the next request, and nothing of ours any host: no cookies,
                # no proxies or passwords of the environment (netrc), no decompression, which has no bound.
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                headers={
                    hdrs.ACCEPT: "image/*",
                    hdrs.ACCEPT_ENCODING: "identity",
                    hdrs.USER_AGENT: self._settings.user_agent,
                },
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                trace_configs=[trace],
            )
        return self._session


async def _queued(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.pause()


async def _dequeued(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.resume()

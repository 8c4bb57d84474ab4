"""Pages of others as part of ours: what Ray Serve counts, from Ray's node agents, and HAProxy's own.

A node agent's page has 0.5-0.9 MB, most of it about Ray itself, and series of dead replicas never leave it: 12 MB after
133 replicas.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass

import aiohttp

from serve_app.observability.catalogue import BY_NAME, HAPROXY_PREFIX, RAY_SERVE_PREFIX
from serve_app.observability.exposition import Block, prefix

TIMEOUT_S = 2.0
_REPLICA = re.compile(r'[{,]replica="([^"]*)"')
_CONSTANT = re.compile(r'(?:otel_scope_\w+|SessionName|Version|Component)="[^"]*",?')
"""Labels that say nothing: they are two thirds of a node agent's page."""
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")


@dataclass(frozen=True, slots=True)
class Page:
    """A page to read. source: ray or haproxy; node: the node's address."""

    source: str
    node: str
    url: str


def ray_blocks(text: str, replicas: Set[str]) -> dict[str, Block]:
    """Ray Serve's families of a node agent's page, without series of replicas that are not among the living."""

    def line(sample: str) -> str | None:
        found = _REPLICA.search(sample)
        if found is not None and found[1] not in replicas:
            return None
        return _CONSTANT.sub("", sample).replace(",}", "}", 1)

    return _blocks(text, RAY_SERVE_PREFIX, line)


def haproxy_blocks(text: str, node: str) -> dict[str, Block]:
    """HAProxy's families with a label `node`."""
    label = prefix("", [("node", node)])[1:-1]

    def line(sample: str) -> str | None:
        name, brace, rest = sample.partition("{")
        if brace:
            return f"{name}{{{label},{rest}"
        name, _, value = sample.partition(" ")
        return f"{name}{{{label}}} {value}"

    return _blocks(text, HAPROXY_PREFIX, line)


def _blocks(text: str, wanted: str, change: Callable[[str], str | None]) -> dict[str, Block]:
    blocks: dict[str, Block] = {}
    helps: dict[str, str] = {}
    block: Block | None = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, words = line[7:].partition(" ")
            helps[name] = words
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            ours = name.startswith(wanted) and kind in _TYPES
            block = blocks.setdefault(name, Block(name, kind, helps.get(name, ""))) if ours else None
        elif block is not None and line.startswith(block.name) and (changed := change(line)) is not None:
            block.lines.append(changed)
    return {name: block for name, block in blocks.items() if block.lines}


class ForeignPages:
    """Reads the pages of all nodes at once.

    Args:
        where: says which pages there are now.
    """

    def __init__(self, where: Callable[[], Awaitable[Sequence[Page]]]) -> None:
        self._where = where

    async def blocks(self, replicas: Set[str]) -> dict[str, Block]:
        """Their families, and which pages could be read. A page that cannot be read in time is left out."""
        pages = await self._where()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            texts = await asyncio.gather(*(_read(session, page.url) for page in pages))
        merged: dict[str, Block] = {}
        up = Block("poolserve_metrics_source_up", "gauge", BY_NAME["poolserve_metrics_source_up"].help)
        for page, text in zip(pages, texts, strict=True):
            if text is None and page.source == "haproxy":
                continue  # no proxy on this node
            labels = [("source", page.source), ("node", page.node)]
            up.lines.append(f"{prefix(up.name, labels)} {int(bool(text))}")
            if not text:
                continue
            found = ray_blocks(text, replicas) if page.source == "ray" else haproxy_blocks(text, page.node)
            for name, block in found.items():
                merged.setdefault(name, Block(name, block.kind, block.help)).lines.extend(block.lines)
            await asyncio.sleep(0)  # snapshots want to come in between
        return {**merged, up.name: up} if up.lines else merged


async def _read(session: aiohttp.ClientSession, url: str) -> str | None:
    """A page; "" if it could not be read; None if nobody listens there."""
    try:
        async with session.get(url) as response:
            return (await response.text()) if response.status == 200 else ""
    except aiohttp.ClientConnectorError:
        return None
    except (aiohttp.ClientError, TimeoutError):
        return ""


class Cached:
    """Makes a page at most once per `for_s` seconds, however many ask.

    Args:
        make: makes it.
        for_s: seconds.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]], for_s: float) -> None:
        self._make = make
        self._for_s = for_s
        self._page = b""
        self._made = -1e9
        self._lock = asyncio.Lock()

    async def get(self) -> bytes:
        """The page."""
        async with self._lock:
            if time.monotonic() - self._made >= self._for_s:
                self._page = await self._make()
                self._made = time.monotonic()
            return self._page

"""The system's resolver in threads of its own.

aiohttp's uses the event loop's default threads, of which there are five on a machine with one core. A look-up cannot
be cancelled: five names whose name servers are dead would hold up every other image for ten seconds or more.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult


class ThreadedResolver(AbstractResolver):
    """Looks host names up with `getaddrinfo`.

    Args:
        threads: look-ups at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolver")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host name.

        Raises:
            OSError: there are none, or they could not be looked up.
        """
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Lets go of the threads; those that are still looking a name up end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

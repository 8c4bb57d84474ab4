"""An aiohttp application in a thread, on a free loopback port."""

from __future__ import annotations

import asyncio
import threading

from aiohttp import web


class Serving:
    """Runs until `end`. `url`: where it listens."""

    def __init__(self, app: web.Application) -> None:
        self.url = ""
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        runner = web.AppRunner(self._app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._stopped = asyncio.Event()
        self._ready.set()
        await self._stopped.wait()
        await runner.cleanup()

    def end(self) -> None:
        """Stops serving."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

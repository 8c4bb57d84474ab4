"""The in-process application behind a real socket, and a browser that looks at its page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from tests.app.conftest import App
from tests.browser import Seen, browsing


@pytest.fixture
async def url(app: App) -> AsyncIterator[str]:
    """Base URL of the application."""
    server = uvicorn.Server(uvicorn.Config(app.frontend.app(), port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await serving


@pytest.fixture
async def seen(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Seen]:
    """The loaded page. Fails the test afterwards if a script failed, something asked for attention, the policy was
    violated or anything but the server was asked. `request.param`: options of the browser's context.
    """
    options: dict[str, Any] = getattr(request, "param", {})
    async with browsing(url, **options) as page:
        await page.open()
        yield page
        assert page.complaints == []
        assert page.elsewhere == []

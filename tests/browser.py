"""A headless Chromium for tests, and what every page that they look at must keep to."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import ConsoleMessage, Page, async_playwright

SCREENSHOTS = Path(__file__).parent.parent / ".run" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The browser's path. Skips the test where there is none; in CI that is a failure."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = "no Chromium on this machine: `apt-get install chromium`, or set CHROMIUM to its path"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    return found


@dataclass
class Seen:
    """A page and what it complained of.

    Attributes:
        page: Playwright's page.
        url: the server's base URL.
        complaints: errors of scripts, and what the console said of errors and violations of the policy.
        elsewhere: requests that left the server.
    """

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    async def open(self, path: str = "/ui") -> None:
        """Loads the page and waits until it knows the models."""
        await self.page.goto(self.url + path)
        await self.page.wait_for_selector("html[data-ready]")

    async def shot(self, name: str) -> None:
        """Keeps a picture of the whole page, for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    async def violations(self) -> list[str]:
        """What axe-core finds against WCAG 2.2 A and AA, and against its best practices."""
        before = len(self.complaints)
        await self.page.evaluate(AXE_SCRIPT)
        found: list[dict[str, Any]] = (await self.page.evaluate("() => axe.run()"))["violations"]
        del self.complaints[before:]  # axe tries what the page's policy forbids, and goes on without
        return [f"{v['id']}: {node['html'][:200]} {node['failureSummary']}" for v in found for node in v["nodes"]]


@asynccontextmanager
async def browsing(url: str, **context: Any) -> AsyncIterator[Seen]:
    """A page of a fresh browser; `context` are options of Playwright's `new_context`."""
    path = chromium()
    async with async_playwright() as playwright:
        # Chromium's sandbox refuses to run as root, which CI is; the pages are our own.
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"] if not os.getuid() else []
        )
        opened = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        seen = Seen(await opened.new_page(), url)
        seen.page.set_default_timeout(60_000)
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.on("console", lambda message: _note(seen, message))
        seen.page.on("dialog", lambda dialog: seen.complaints.append(f"dialog: {dialog.message}"))
        seen.page.on("request", lambda request: _leaves(seen, request.url))
        try:
            yield seen
        finally:
            await browser.close()


def _note(seen: Seen, message: ConsoleMessage) -> None:
    # Chromium reports every answer above 399 as an error of the console; those are what some tests are about.
    if message.type == "error" and not message.text.startswith("Failed to load resource"):
        seen.complaints.append(message.text)


def _leaves(seen: Seen, url: str) -> None:
    if not url.startswith((seen.url, "blob:", "data:")):
        seen.elsewhere.append(url)

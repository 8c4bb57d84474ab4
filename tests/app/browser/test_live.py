"""The live view: what it makes of two readings of /metrics, and what is left without them."""

from __future__ import annotations

import itertools

from playwright.async_api import Route

from tests.app.conftest import App
from tests.browser import Seen
from tests.metrics_page import LIMIT, page


async def _tile(seen: Seen, name: str) -> str:
    return (await seen.page.locator(f".tiles li:has-text('{name}') b").inner_text()).strip()


async def test_readings_become_rates_times_and_meters(seen: Seen) -> None:
    readings = itertools.count(1)

    async def metrics(route: Route) -> None:
        await route.fulfill(body=page(100 * next(readings), (("ce", "1"), ("emb", "1"))), content_type="text/plain")

    await seen.page.route("**/metrics", metrics)
    await seen.page.click("#tab-live")
    await seen.page.wait_for_selector(".tiles li:has-text('Requests / s') b:not(:text('–'))")
    assert float(await _tile(seen, "Requests / s")) > 0
    assert await _tile(seen, "p50") == "27.5 ms"  # halfway in the bucket from 25 to 30 ms
    assert await _tile(seen, "p95") == "29.8 ms"
    assert await _tile(seen, "In flight") == "84"
    stages = seen.page.locator("article", has_text="ce@1")
    legend = [text.strip() for text in await stages.locator(".legend li").all_inner_texts()]
    assert legend == ["tokenize 5.50 ms", "queue 5.50 ms", "engine 5.50 ms", "post 5.50 ms", "other 5.50 ms"]
    await stages.locator("summary").click()
    await seen.page.wait_for_selector(".tiles polyline[points*=' ']")
    assert await stages.locator("details").get_attribute("open") is not None  # drawn anew, and still open
    engines = await seen.page.locator("table:has-text('Engines and what they hold') tbody tr").all_inner_texts()
    assert len(engines) == 2
    assert f"42 of {LIMIT}" in engines[0]
    assert "ce-1" in await seen.page.inner_text("table:has-text('Calls that wait')")
    assert "PoolingEngine" in await seen.page.inner_text("table:has-text('Replicas')")
    assert "42 °C" in await seen.page.inner_text("table:has-text('GPUs')")
    assert await seen.violations() == []
    await seen.shot("live")
    await seen.page.click("#pause")
    before = next(readings)
    await seen.page.wait_for_timeout(2_500)
    assert next(readings) == before + 1
    assert await seen.page.inner_text("#live-status") == "Paused."


async def test_without_metrics_the_models_are_shown(app: App, seen: Seen) -> None:
    await seen.page.route("**/metrics", lambda route: route.fulfill(status=404, body="{}"))
    await seen.page.click("#tab-live")
    await seen.page.wait_for_selector("#live-status:has-text('no /metrics')")
    rows = await seen.page.locator("table:has-text('Models and versions') tbody tr").all_inner_texts()
    assert [f"{row.split()[0]}-1" for row in rows] == list(app.backend.pipelines)
    assert all("ready" in row for row in rows)
    assert await seen.page.locator(".tiles").count() == 0


async def test_a_key_that_metrics_wants_is_asked_for(seen: Seen) -> None:
    await seen.page.route("**/metrics", lambda route: route.fulfill(status=401, body="{}"))
    await seen.page.click("#tab-live")
    await seen.page.wait_for_selector("#live-status:has-text('wants a key')")


async def test_a_server_that_went_away_is_said_and_found_again(seen: Seen) -> None:
    await seen.page.route("**/v1/models", lambda route: route.abort())
    await seen.page.click("#tab-live")
    await seen.page.wait_for_selector("#live-status:has-text('does not answer')")
    await seen.page.unroute("**/v1/models")
    await seen.page.wait_for_selector("table:has-text('Models and versions')")
    await seen.page.click("#tab-try")
    assert await seen.page.locator("#try").is_visible()

"""The page against the real default: real models rank texts and pictures, and the live view shows the cluster."""

from __future__ import annotations

import httpx

from cluster.dashboards.names import FOREIGN
from tests.browser import browsing
from tests.cluster import Server


async def test_the_page_ranks_texts_and_pictures(server: Server) -> None:
    async with browsing(server.url) as seen:
        page = seen.page
        await seen.open()
        await page.select_option("#model", "ce-mini")
        await page.click("#example")
        await page.click("#run")
        await page.wait_for_selector(".ranked li")
        assert (await page.inner_text(".ranked li:first-child .text")).startswith("Insulated waterproof boots")
        legend = [text.split()[0] for text in await page.locator("#result .legend li").all_inner_texts()]
        assert {"tokenize", "queue", "engine", "post"} <= set(legend)
        await seen.shot("cluster-texts")
        for model in ("fusion-mini", "clip-mini"):
            await page.select_option("#model", model)
            await page.check("input[value=images]", force=True)
            await page.click("#example")
            await page.wait_for_selector("#file-list li:nth-child(4)")
            await page.click("#run")
            await page.wait_for_selector(f"#result .facts:has-text('{model}@1')")
            assert await page.inner_text(".ranked li:first-child .name") == "red-circle.png", model
            await seen.shot(f"cluster-pictures-{model}")
        assert seen.complaints == []
        assert seen.elsewhere == []


async def test_the_live_view_shows_the_cluster(server: Server) -> None:
    async with browsing(server.url) as seen:
        await seen.open("/ui/#live")
        await seen.page.wait_for_selector("table:has-text('Models and versions') tr:has-text('ce-mini')")
        await seen.page.wait_for_selector(".tiles")
        await seen.page.wait_for_selector("article:has-text('ce-mini@1') .legend:has-text('engine')")
        replicas = await seen.page.inner_text("table:has-text('Replicas')")
        assert all(name in replicas for name in ("Gateway", "IOProcessor", "PoolingEngine", "ImageLoader"))
        await seen.shot("cluster-live")
        assert seen.complaints == []


def test_metrics_of_others_that_dashboards_use_are_on_the_page(server: Server) -> None:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    for name, labels in FOREIGN.items():
        found = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        assert found, name
        for label in set(labels) - {"WorkerId"}:
            assert f'{label}="' in found[0], f"{name} has no label {label}"

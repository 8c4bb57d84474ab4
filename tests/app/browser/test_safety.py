"""Hostile texts, hostile servers, errors, keyboards, small screens, and the rules of accessibility."""

from __future__ import annotations

import json
from functools import partial

import pytest
from playwright.async_api import Route

from serve_app.errors import Overloaded
from tests.app.conftest import App
from tests.browser import Seen, browsing

HOSTILE = [
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "javascript:window.pwned=1",
    "</textarea></li><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u202egnihtemos\u202c",
    "<style>*{display:none}</style>",
    "A" * 1_000,
    "words " * 3_000,
]


async def _untouched(seen: Seen) -> None:
    assert await seen.page.evaluate("window.pwned") is None
    assert (
        await seen.page.locator("main script, main iframe, main style, main svg[onload], main img[onerror]").count()
        == 0
    )
    assert await seen.page.locator("#answer").is_visible()


async def test_hostile_texts_stay_texts(app: App, seen: Seen) -> None:
    page = seen.page
    for model in ("ce", "clf", "absa", "emb"):
        await page.select_option("#model", model)
        if model == "emb":
            await page.check("input[value=compare]", force=True)
        if model == "ce":
            await page.fill("#query", HOSTILE[0])
        await page.fill("#texts", "\n".join(HOSTILE))
        await page.click("#run")
        await page.wait_for_selector(f"#result .facts:has-text('{model}@1')")
        await _untouched(seen)
        shown = await page.inner_text("#result")
        assert all(text in shown.replace("\n", "") for text in HOSTILE[1:3]), model
    await seen.shot("hostile")


async def test_hostile_picture_urls_load_nothing_and_run_nothing(seen: Seen) -> None:
    page = seen.page
    await page.select_option("#model", "fusion")
    await page.fill("#query", "red")
    await page.fill(
        "#urls",
        "javascript:window.pwned=1\ndata:text/html,<script>window.pwned=1</script>\nfile:///etc/passwd\n"
        'http://x" onerror="pwned=1',
    )
    await page.click("#run")
    await page.wait_for_selector("#error .problem, #result .facts")
    await _untouched(seen)


async def test_a_server_that_answers_with_markup(seen: Seen) -> None:
    page = seen.page
    evil = HOSTILE[1]
    row = {"id": evil, "version": evil, "task": "rerank", "weight": 1, "state": evil, "application": evil}
    body = {
        "model": evil,
        "model_version": evil,
        "results": [{"index": 0, "relevance_score": 0.5}, {"index": 7, "relevance_score": -3}],
        "usage": {"total_tokens": evil},
        "errors": [{"index": 0, "code": evil, "message": evil}, {"index": 99, "code": evil, "message": None}],
    }
    await page.route("**/v1/models", lambda route: route.fulfill(json={"data": [row]}))
    await page.route(
        "**/metrics",
        lambda route: route.fulfill(body=f'poolserve_replica_up{{deployment="{evil}",replica="{evil}"}} 1\n'),
    )
    await page.route(
        "**/v1/rerank", lambda route: route.fulfill(json=body, headers={"Server-Timing": "<b>;dur=x, engine;dur=1"})
    )
    await seen.open()
    await page.fill("#texts", evil)
    await page.click("#run")
    await page.wait_for_selector("#result .facts")
    await _untouched(seen)
    await page.click("#tab-live")
    await page.wait_for_selector("table:has-text('Replicas')")
    assert await seen.page.evaluate("window.pwned") is None
    assert evil in await page.inner_text("#live")


async def _fulfil(route: Route, status: int, body: str) -> None:
    await route.fulfill(status=status, body=body, content_type="text/html")


async def test_answers_that_are_no_json(seen: Seen) -> None:
    await seen.page.select_option("#model", "ce")
    evil = "<h1>Bad gateway</h1><script>window.pwned=1</script>"
    for status, body, says in ((502, evil, "Bad gateway"), (200, "plain words", "plain words"), (500, "", "not JSON")):
        await seen.page.route("**/v1/rerank", partial(_fulfil, status=status, body=body))
        await seen.page.click("#run")
        await seen.page.wait_for_selector(f"#error .problem:has-text('{status}')")
        assert says in await seen.page.inner_text("#error")
        await _untouched(seen)
        await seen.page.unroute("**/v1/rerank")


async def test_the_page_cannot_be_made_to_read_html(seen: Seen) -> None:
    """Trusted Types: what a mistake in a script could do, the browser refuses."""
    said = await seen.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch (error) { return error.name; } }"
    )
    assert said == "TypeError"
    seen.complaints.clear()


async def test_errors_name_their_field(app: App, seen: Seen) -> None:
    page = seen.page
    await page.select_option("#model", "ce")
    await page.fill("#texts", "boots")
    await page.click("#run")
    await page.wait_for_selector("#error .problem")
    want = (await app.post("/v1/rerank", {"model": "ce", "query": "", "documents": ["boots"]})).json()["error"]
    text = await page.inner_text("#error")
    assert want["message"] in text
    assert f"400 · {want['code']}" in text
    assert await page.get_attribute("#query", "aria-invalid") == "true"
    assert await page.get_attribute("#error", "role") == "alert"
    await seen.shot("error")
    assert await seen.violations() == []
    await page.fill("#query", "boots")
    app.backend.failures.append(Overloaded("no room now: 60 documents in flight", retry_after_s=3.0))
    await page.click("#run")
    await page.wait_for_selector("#error:has-text('429')")
    assert "in 3 seconds" in await page.inner_text("#error")
    assert await page.get_attribute("#query", "aria-invalid") is None
    await page.click("#run")
    await page.wait_for_selector(".ranked li")
    assert await page.locator("#error .problem").count() == 0
    await page.route("**/v1/rerank", lambda route: route.abort())
    await page.click("#run")
    await page.wait_for_selector("#error:has-text('could not be reached')")


@pytest.mark.parametrize("app", [{"api_keys": ["secret-key"]}], indirect=True)
async def test_a_key_is_asked_for_and_kept_in_the_tab_only(app: App, seen: Seen) -> None:
    page = seen.page
    assert "wants a key" in await page.inner_text("#error")
    await page.click("#tab-live")
    await page.wait_for_selector("#live-status:has-text('wants a key')")
    await page.click("#tab-try")
    await page.focus("#key")
    for sent, press in (("nope", "Enter"), ("secret-key", "Control+Enter")):
        assert await page.evaluate("document.activeElement.id") == "key"
        assert await page.locator("#model option").count() == 0
        await page.fill("#key", sent)
        async with page.expect_response("**/v1/models"):
            await page.keyboard.press(press)
    await page.wait_for_selector("#model option[value=ce]", state="attached")
    assert await page.inner_text("#error") == ""
    assert (await page.inner_text("#server")).strip()
    await page.select_option("#model", "ce")
    await page.click("#example")
    await page.click("#run")
    await page.wait_for_selector(".ranked li")
    assert "secret-key" not in await page.inner_text("main")
    assert "$POOLSERVE_API_KEY" in await page.inner_text("#curl pre")
    assert await page.evaluate("[localStorage.length, document.cookie, sessionStorage.length]") == [0, "", 1]
    await page.reload()
    await page.wait_for_selector("#model option[value=ce]", state="attached")
    assert await page.input_value("#key") == "secret-key"


async def test_everything_can_be_reached_and_used_by_keyboard(app: App, seen: Seen) -> None:
    page = seen.page
    wanted = "Skip to the form,tab-try,API,model,version,query,apart,texts,Options,run,example".split(",")
    reached: list[str] = []
    for _ in wanted:
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        outline = await page.evaluate(
            "() => { const at = document.activeElement; const next = at.nextElementSibling;"
            " return [at, next].filter(Boolean).some(node => getComputedStyle(node).outlineStyle !== 'none'); }"
        )
        assert outline, reached[-1]
    assert reached == wanted
    await page.focus("#tab-try")
    await page.keyboard.press("ArrowRight")
    assert await page.locator("#live").is_visible()
    assert await page.evaluate("document.activeElement.id") == "tab-live"
    await page.keyboard.press("ArrowRight")
    assert await page.locator("#try").is_visible()
    await page.focus("#model")
    await page.keyboard.type("ce")
    assert await page.input_value("#model") == "ce"
    await page.focus("#query")
    await page.keyboard.type("boots")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.type("warm boots")
    await page.keyboard.press("Enter")
    await page.keyboard.type("a phone case")
    await page.keyboard.press("Control+Enter")
    await page.wait_for_selector(".ranked li")
    assert await page.locator(".ranked li").count() == 2
    assert (await page.inner_text("#status")).startswith("2 results in")
    await page.focus("#curl button")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#curl [role=status]:text('Copied')")
    await page.focus("#model")
    await page.keyboard.type("emb")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.press("ArrowRight")
    assert await page.locator("#query").is_hidden()  # compare


async def test_files_can_be_dropped_and_pasted(seen: Seen) -> None:
    page = seen.page
    await page.select_option("#model", "fusion")
    put = (
        "type => { const data = new DataTransfer();"
        " data.items.add(new File(['x'], type + '.png', {type: 'image/png'}));"
        " const event = type === 'drop' ? new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})"
        " : new ClipboardEvent('paste', {clipboardData: data, bubbles: true});"
        " document.getElementById('drop').dispatchEvent(event); }"
    )
    await page.evaluate(put, "drop")
    await page.evaluate(put, "paste")
    assert await page.locator("#file-list .name").all_inner_texts() == ["drop.png", "paste.png"]


async def _rank(seen: Seen) -> None:
    await seen.page.select_option("#model", "ce")
    await seen.page.click("#example")
    await seen.page.click("#run")
    await seen.page.wait_for_selector(".ranked li")


async def _pictures(seen: Seen) -> None:
    await seen.page.select_option("#model", "fusion")
    await seen.page.click("#example")
    await seen.page.click("#run")
    await seen.page.wait_for_selector(".ranked img")


async def test_a_request_waits_for_the_example_that_is_being_drawn(seen: Seen) -> None:
    slow = (
        "() => { const draw = HTMLCanvasElement.prototype.toBlob;"
        " HTMLCanvasElement.prototype.toBlob = function (...given)"
        " { setTimeout(() => draw.apply(this, given), 500); }; }"
    )
    await seen.page.evaluate(slow)
    await _pictures(seen)
    assert await seen.page.locator(".ranked img").count() == 4


async def _others(seen: Seen) -> None:
    for model in ("absa", "clf", "emb"):
        await seen.page.select_option("#model", model)
        if model == "emb":
            await seen.page.check("input[value=compare]", force=True)
        await seen.page.click("#example")
        await seen.page.click("#run")
        await seen.page.wait_for_selector(f"#result .facts:has-text('{model}@1')")
        assert await seen.violations() == [], model


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_rules_of_accessibility_hold(url: str, scheme: str) -> None:
    async with browsing(url, color_scheme=scheme) as seen:
        await seen.open()
        assert await seen.violations() == []
        await _others(seen)
        await _rank(seen)
        assert await seen.violations() == []
        await seen.shot(f"rank-{scheme}")
        await _pictures(seen)
        assert await seen.violations() == []
        await seen.shot(f"pictures-{scheme}")
    assert seen.elsewhere == []


async def test_it_fits_a_narrow_screen(url: str) -> None:
    async with browsing(url, viewport={"width": 340, "height": 700}) as seen:
        await seen.open()
        for step in (_rank, _pictures):
            await step(seen)
            assert await seen.page.evaluate("document.documentElement.scrollWidth") <= 340
            await seen.shot(f"narrow{step.__name__}")
        await seen.page.click("#tab-live")
        await seen.page.wait_for_selector("#live table:has-text('Models and versions')")
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= 340
        assert json.dumps(seen.complaints) == "[]"

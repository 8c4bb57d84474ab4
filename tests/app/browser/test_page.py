"""The page at /ui in a real browser: what each task's form sends and how its answer is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.app.conftest import App
from tests.browser import Seen
from tests.parity.images import picture

QUERY = "waterproof boots"
TEXTS = ["red boots for winter", "a phone case", "boots", "how to return an order", "wool socks 😀"]
LONG = "boots " * 200


async def texts_of(seen: Seen, selector: str) -> list[str]:
    return [text.strip() for text in await seen.page.locator(selector).all_inner_texts()]


async def run(seen: Seen) -> None:
    await seen.page.click("#run")
    await seen.page.wait_for_selector("#answer[aria-busy=false]")


async def answered(seen: Seen) -> None:
    await run(seen)
    assert await seen.page.locator("#error .problem").count() == 0, await seen.page.inner_text("#error")


async def test_texts_are_ranked(app: App, seen: Seen) -> None:
    page = seen.page
    await page.select_option("#model", "ce")
    await page.fill("#query", QUERY)
    await page.fill("#texts", "\n".join([*TEXTS, "", LONG]))
    await answered(seen)
    want = (await app.post("/v1/rerank", {"model": "ce", "query": QUERY, "documents": [*TEXTS, LONG.strip()]})).json()
    order = [result["index"] for result in want["results"]]
    shown = await texts_of(seen, ".ranked .text")
    assert [text[:20] for text in shown] == [[*TEXTS, LONG][index][:20] for index in order]
    scores = await texts_of(seen, ".ranked .score b")
    assert [float(score) for score in scores] == pytest.approx(
        [r["relevance_score"] for r in want["results"]], abs=1e-3
    )
    assert await page.locator(".ranked .badge").count() == 1
    cut = page.locator(".ranked li", has=page.locator(".badge"))
    assert "no. 6" in await cut.inner_text()
    legend = await texts_of(seen, "#result .legend li")
    assert [line.split()[0] for line in legend] == ["tokenize", "queue", "engine", "post", "other"]
    assert await page.inner_text("#status") == (await page.inner_text("#status")).strip() != ""
    assert "ce@1" in await page.inner_text("#result .facts")
    await seen.shot("rank-texts")


async def test_a_version_and_the_options_are_sent(app: App, seen: Seen) -> None:
    page = seen.page
    await page.select_option("#model", "ce")
    await page.select_option("#version", "1")
    await page.fill("#query", QUERY)
    await page.check("#apart")
    await page.fill("#field-list textarea >> nth=0", "two\nlines")
    await page.click("#add")
    await page.keyboard.type("boots")
    await page.click("summary:text('Options')")
    await page.fill("#top", "1")
    await page.fill("#timeout", "1234")
    await page.check("#raw")
    async with page.expect_request("**/v1/rerank") as sent:
        await answered(seen)
    body = (await sent.value).post_data_json
    assert body == {
        "model": "ce@1",
        "query": QUERY,
        "documents": ["two\nlines", "boots"],
        "top_n": 1,
        "raw_scores": True,
    }
    assert (await sent.value).headers["x-request-timeout-ms"] == "1234"
    assert await page.locator(".ranked li").count() == 1
    await page.select_option("#truncate", "no")
    await page.fill("#field-list textarea >> nth=1", LONG)
    await run(seen)
    assert "context_length_exceeded" in await page.inner_text("#error")
    assert await page.get_attribute("#field-list textarea >> nth=1", "aria-invalid") == "true"


async def test_pictures_are_ranked(app: App, seen: Seen, tmp_path: Path) -> None:
    page = seen.page
    app.loader.urls = {"http://127.0.0.1:9/a.png": picture(7)}
    urls = ["http://127.0.0.1:9/a.png", "http://127.0.0.1:9/gone.png"]
    await page.route("http://127.0.0.1:9/**", lambda route: route.abort())  # the browser has no such pictures
    await page.select_option("#model", "fusion")
    await page.fill("#query", "a red circle")
    await page.fill("#urls", "\n".join(urls))
    names = ["one.png", "it's $(touch pwned) `x` !.png", "three.png", "four.png"]
    contents = [picture(1), picture(2), picture(3), picture(4)]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    await page.set_input_files("#files", [tmp_path / name for name in names])
    await page.click("[aria-label='Remove three.png']")
    assert await page.evaluate("document.activeElement.ariaLabel") == "Remove four.png"
    await answered(seen)
    images = [base64.b64encode(contents[i]).decode() for i in (0, 1, 3)]
    body = {"model": "fusion", "query": "a red circle", "documents": [{"image": image} for image in [*urls, *images]]}
    want = (await app.post("/v1/rerank", body)).json()
    order = [result["index"] for result in want["results"]]
    assert sorted(order) == [0, 2, 3, 4]
    assert await texts_of(seen, ".ranked .name") == [[*urls, names[0], names[1], names[3]][index] for index in order]
    widths = await page.locator(".ranked img").evaluate_all("all => all.map(image => image.naturalWidth)")
    assert len(widths) == 3
    assert min(widths) > 0
    assert await page.locator(".ranked .lost").count() == 1  # the server has that picture, the browser does not
    failed = await texts_of(seen, ".failed li")
    assert ["No. 2 · media_unreachable" in text for text in failed] == [True]
    assert "1 failed" in await page.inner_text("#status")
    assert {line.split()[0] for line in await texts_of(seen, "#result .legend li")} >= {"fetch", "decode"}
    await seen.shot("rank-pictures")
    seen.elsewhere = [url for url in seen.elsewhere if url not in urls]  # only what the caller named
    again = json.loads(await _shell(await _copied(seen), tmp_path))
    assert [result["index"] for result in again["results"]] == order
    assert not (tmp_path / "pwned").exists()


async def _copied(seen: Seen) -> str:
    """What the copy button gives."""
    await seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await seen.page.click("#curl button")
    await seen.page.wait_for_selector("#curl [role=status]:text('Copied')")
    text: str = await seen.page.evaluate("navigator.clipboard.readText()")
    return text


async def _shell(command: str, folder: Path) -> str:
    """What a command prints; in a thread, since the server runs in this one."""
    run = partial(subprocess.run, ["bash", "-c", command], cwd=folder, capture_output=True, check=True, text=True)
    return str((await asyncio.to_thread(run)).stdout)


async def test_spans_are_shown_where_they_are(app: App, seen: Seen) -> None:
    page = seen.page
    texts = [
        "😀👍🏽 The pasta was great 😡 but the waiter 👨‍👩‍👧 rude",
        "음식이 맛있어요 🚀 서비스",
        "e\u0301 café <b>food</b> & 𝕏",
    ]
    await page.select_option("#model", "absa")
    await page.fill("#texts", "\n".join(texts))
    await answered(seen)
    want = (await app.post("/v1/absa", {"model": "absa", "inputs": texts})).json()["data"]
    assert sum(len(item["spans"]) for item in want) > 3
    for index, item in enumerate(want):
        row = page.locator(".cards > li").nth(index)
        whole = await row.locator(".marked").evaluate(
            "node => [...node.childNodes].filter(part => !part.classList?.contains('tag'))"
            ".map(part => part.textContent).join('')"
        )
        assert whole == texts[index]
        covered = [any(s["start"] <= at < s["end"] for s in item["spans"]) for at in range(len(texts[index]))]
        marks = "".join(await row.locator("mark").all_text_contents())
        assert marks == "".join(char for char, inside in zip(texts[index], covered, strict=True) if inside)
        rows = [await line.locator("td").all_text_contents() for line in await row.locator("tbody tr").all()]
        assert [(cells[0], cells[1]) for cells in rows] == [(s["text"], s["aspect"]) for s in item["spans"]]
        assert all(span["polarity"] in cells[2] for cells, span in zip(rows, item["spans"], strict=True))
    await seen.shot("absa")


async def test_labels_have_bars(app: App, seen: Seen) -> None:
    await seen.page.select_option("#model", "clf")
    await seen.page.click("#example")
    await answered(seen)
    texts = (await seen.page.input_value("#texts")).split("\n")
    want = (await app.post("/v1/classify", {"model": "clf", "input": texts})).json()
    first = await texts_of(seen, ".cards > li:first-child .labels li span:first-child")
    best = sorted(zip(want["data"][0]["probs"], want["labels"], strict=True), reverse=True)
    assert first == [label for _, label in best]
    await seen.shot("classify")


async def test_vectors_are_compared(app: App, seen: Seen) -> None:
    page = seen.page
    await page.select_option("#model", "emb")
    await page.check("input[value=compare]", force=True)
    await page.fill("#texts", "red\nblue\nred")
    await answered(seen)
    cells = [float(text) for text in await texts_of(seen, ".matrix tbody td")]
    assert len(cells) == 9
    assert cells[0] == cells[2] == cells[4] == 1
    assert cells[1] == cells[3] < 1
    await seen.shot("compare")
    await page.check("input[value=rank]", force=True)
    await page.fill("#query", "red")
    await answered(seen)
    assert await page.locator(".ranked li").count() == 3


async def test_the_command_gives_the_same_answer_whatever_the_texts(app: App, seen: Seen, tmp_path: Path) -> None:
    page = seen.page
    texts = [
        "it's",
        "$(touch pwned)",
        "`touch pwned`",
        '"; touch pwned; "',
        "'; touch pwned; '",
        "\\ back \\n !! 100%",
        "-d @/etc/passwd",
    ]
    await page.select_option("#model", "ce")
    await page.fill("#query", "'$HOME'")
    await page.fill("#texts", "\n".join(texts))
    await answered(seen)
    want = (await app.post("/v1/rerank", {"model": "ce", "query": "'$HOME'", "documents": texts})).json()["results"]
    output = await _shell(await _copied(seen), tmp_path)
    assert [r["index"] for r in json.loads(output)["results"]] == [r["index"] for r in want]
    assert os.listdir(tmp_path) == []


async def test_stop_ends_the_work(app: App, seen: Seen) -> None:
    page = seen.page
    app.engines["ce"].delay_s = 4.0
    await page.select_option("#model", "ce")
    await page.click("#example")
    await page.click("#run")
    await page.click("#stop")
    await page.wait_for_selector("#error:has-text('Stopped')")
    app.engines["ce"].delay_s = 0.0
    await answered(seen)
    assert await page.locator("#stop").is_hidden()

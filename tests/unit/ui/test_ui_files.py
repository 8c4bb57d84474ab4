"""The page's files: what they are, what goes with them, and that they need nothing but this server."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette

from serve_app import ui
from serve_app.settings import GatewaySettings
from serve_app.vocabulary import Stage, Task


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Starlette(routes=ui.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as made:
        yield made


async def test_every_file_comes_with_its_type_and_the_policy(client: httpx.AsyncClient) -> None:
    for name, content in ui.assets().items():
        response = await client.get(f"/ui/{'' if name == 'index.html' else name}")
        assert (response.status_code, response.content) == (200, content)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
        assert response.headers["content-type"].startswith(kind[name.rpartition(".")[2]])


async def test_the_address_without_a_slash_leads_to_the_page(client: httpx.AsyncClient) -> None:
    response = await client.get("/ui")
    assert (response.status_code, response.headers["location"]) == (308, "ui/")
    assert (await client.get("/ui", follow_redirects=True)).text.startswith("<!doctype html>")
    assert (await client.get("/ui/nothing.js")).status_code == 404
    assert (await client.get("/ui/../settings/__init__.py")).status_code == 404


async def test_what_a_browser_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/ui/main.js")
    again = await client.get("/ui/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = await client.get("/ui/main.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(content)) for content in ui.assets().values()) < 30_000
    assert sum(map(len, ui.assets().values())) < 80_000


def test_nothing_comes_from_elsewhere_and_nothing_is_read_as_html() -> None:
    for name, content in ui.assets().items():
        text = content.decode()
        addresses = set(re.findall(r"https?://[\w./]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name
        sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc"
        assert not re.search(sinks, text), name
        assert not re.search(r"\son\w+=|<style|\sstyle=", text) or name != "index.html"


def test_modules_import_only_what_is_there() -> None:
    files = ui.assets()
    for name, content in files.items():
        for target in re.findall(r'from "\./([\w.]+)"', content.decode()):
            assert target in files, f"{name} imports {target}"


def test_the_page_knows_every_task_and_every_stage() -> None:
    files = {name: content.decode() for name, content in ui.assets().items()}
    for task in Task:
        assert re.search(rf"^  {task}: {{", files["tasks.js"], re.MULTILINE), task
    for stage in set(Stage) - {Stage.TOTAL}:
        assert re.search(rf"^  {stage}: ", files["timing.js"], re.MULTILINE), stage
        assert f".s-{stage} " in files["style.css"]


def test_the_page_is_on_unless_it_is_switched_off() -> None:
    assert GatewaySettings().ui is True

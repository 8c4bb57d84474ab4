"""The page's place in the application: on by default, without a key, and gone when it is switched off."""

from __future__ import annotations

import pytest

from tests.app.conftest import App


@pytest.mark.parametrize("app", [{}, {"api_keys": ["secret"]}], indirect=True)
async def test_the_page_is_there_and_needs_no_key(app: App) -> None:
    response = await app.client.get("/ui", follow_redirects=True)
    assert (response.status_code, response.url.path) == (200, "/ui/")
    for name in ("main.js", "style.css", "icon.svg"):
        assert (await app.client.get(f"/ui/{name}")).status_code == 200
    assert (await app.client.post("/ui/")).status_code == 405


@pytest.mark.parametrize("app", [{"ui": False}], indirect=True)
async def test_it_can_be_switched_off(app: App) -> None:
    for path in ("/ui", "/ui/", "/ui/main.js"):
        response = await app.client.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")

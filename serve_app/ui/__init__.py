"""The page at `/ui`: static files, read once and served from memory. What it shows comes from the public routes.

The files in `static/` are what the browser gets: HTML, CSS and JavaScript modules without a build step and without
anything from elsewhere. The headers below hold the page to that, so that a document's text can never run as code:
scripts and styles come from this server only, and the browser refuses every sink that reads a string as HTML
(Trusted Types), which leaves `textContent`.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

PATH = "/ui"

HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            # Pictures of image documents: chosen files, and what the caller's own URLs name.
            "img-src 'self' blob: data: http: https:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # an update is seen at once; the ETag spares the download
    "Vary": "Accept-Encoding",
}

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def assets() -> dict[str, bytes]:
    """The page's files by name."""
    folder = resources.files(__package__) / "static"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.rpartition(".")[2] in _TYPES}


def routes() -> list[BaseRoute]:
    """`/ui`, which leads to `/ui/`, and the files below it."""
    files = assets()
    found: list[BaseRoute] = [Route(PATH, _to_folder)]
    found += [
        Route(f"{PATH}/{'' if name == 'index.html' else name}", _page(content, _TYPES[name.rpartition(".")[2]]))
        for name, content in files.items()
    ]
    return found


async def _to_folder(request: Request) -> Response:
    """Relative, so that it also holds behind a proxy that adds a prefix."""
    return RedirectResponse("ui/", 308)


def _page(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    headers = {**HEADERS, "ETag": f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'}
    packed = gzip.compress(content, mtime=0)

    async def page(request: Request) -> Response:
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=media_type)
        return Response(content, headers=headers, media_type=media_type)

    return page

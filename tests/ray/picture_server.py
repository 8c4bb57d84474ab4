"""A web server with pictures, and with faults of its own, for tests of a running cluster."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class PictureServer:
    """Serves `pictures` by path on loopback, counts requests and how many ran at once.

    Paths: `/wait/…` answers after `delay_s`, `/never` not at all, `/404` and `/500` with that status, `/html` with a
    page, `/to/ADDRESS` redirects there, `/truncated/…` breaks off half way.
    """

    def __init__(self) -> None:
        self.pictures: dict[str, bytes] = {}
        self.hits: Counter[str] = Counter()
        self.delay_s = 0.3
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with owner._counted(self.path):
                    owner._answer(self)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256  # connections that wait to be accepted; 5 by default, the rest would be dropped

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def _counted(self, path: str) -> Iterator[None]:
        with self._lock:
            self.hits[path] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self._lock:
                self.at_once -= 1

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        if path == "/never":
            self._stopping.wait(60)
            return
        if path.startswith("/to/"):
            handler.send_response(302)
            handler.send_header("Location", path.removeprefix("/to/"))
            handler.end_headers()
            return
        if path.startswith("/wait/"):
            time.sleep(self.delay_s)
        status = int(path[1:]) if path[1:].isdigit() else 200
        name = path.rsplit("/", 1)[-1]
        known = self.pictures.get(name) or self.pictures.get(name.partition("?")[0])
        body = b"<html>secret page</html>" if path == "/html" else known or b"nothing"
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if path.startswith("/truncated/") else body)

    def __enter__(self) -> PictureServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

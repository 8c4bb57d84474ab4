"""A Hugging Face hub of one's own: the two routes that a download needs, with faults to order."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Serves one repository, `org/model`, over HTTP on this machine.

    Attributes:
        files: content by path; `*.safetensors` are LFS files.
        commit: of the branch `main`.
        cut: paths whose next answer breaks off after so many bytes.
        hang: paths whose next answers stop, and stay open, after so many bytes.
        altered: paths that are sent with their first byte changed.
        ranges: whether `Range` is honoured.
        asked: (path, first byte) of each request for a file.
    """

    files: dict[str, bytes]
    commit: str = COMMIT
    cut: dict[str, int] = field(default_factory=dict)
    hang: dict[str, int] = field(default_factory=dict)
    altered: set[str] = field(default_factory=set)
    ranges: bool = True
    asked: list[tuple[str, int]] = field(default_factory=list)
    hanging: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub._answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its `HF_ENDPOINT`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.split("?")[0]
        if path.startswith("/api/models/"):
            if path not in {
                f"/api/models/org/model{end}" for end in ("", "/revision/main", f"/revision/{self.commit}")
            }:
                handler.send_response(404)
                handler.send_header("X-Error-Code", "RepoNotFound")
                handler.end_headers()
                return
            _send(handler, 200, json.dumps(self._info()).encode())
            return
        name = path.removeprefix(f"/org/model/resolve/{self.commit}/")
        if name not in self.files:
            _send(handler, 404, b"")
            return
        content = self.files[name]
        if name in self.altered:
            content = bytes([content[0] ^ 1]) + content[1:]
        asked = handler.headers.get("Range")
        first = int(asked.removeprefix("bytes=").split("-")[0]) if asked is not None and self.ranges else 0
        self.asked.append((name, first))
        status, body = (206 if first else 200), content[first:]
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        if first:
            handler.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        if name in self.hang:
            handler.wfile.write(body[: self.hang[name]])
            handler.wfile.flush()
            self.hanging.set()
            self.released.wait()
        elif name in self.cut:
            handler.wfile.write(body[: self.cut.pop(name)])
        else:
            handler.wfile.write(body)

    def _info(self) -> dict[str, Any]:
        siblings = []
        for path, content in self.files.items():
            entry: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": _git_sha1(content)}
            if path.endswith(".safetensors"):
                digest = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        return {"id": "org/model", "modelId": "org/model", "sha": self.commit, "siblings": siblings, "tags": []}


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    handler.wfile.write(body)

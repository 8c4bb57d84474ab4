"""A whole run of `images-path` against a small server that takes the place of Poolserve and of Ray's dashboard."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environment import REPOSITORY
from benchmarks.images_path import PathOptions, PathRun

SERVER = """
import http.server, json, pathlib, sys, urllib.request, yaml
port, folder, failing = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
config = yaml.safe_load(pathlib.Path(sys.argv[4]).read_text())
known = []

def images(config):
    return next(a for a in config["applications"] if a["name"] == "images")["args"]

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Server-Timing", "fetch;dur=2, total;dur=5")
        self.end_headers()
        self.wfile.write(data)

    def read(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self):
        count = images(config)["replicas"]["num_replicas"]
        deployments = {"ImageLoader": {"replicas": [{"state": "RUNNING"}] * count}}
        self.say({"applications": {"images": {"status": "RUNNING", "deployments": deployments}}})

    def do_PUT(self):
        global config
        config = self.read()
        self.say({}, 500 if failing == "deploy" else 200)

    def do_POST(self):
        body = self.read()
        urls = [d["image"] for d in body["documents"]]
        with (folder / "requests").open("a") as file:
            loaders = images(config)["replicas"]["num_replicas"]
            file.write(json.dumps({"urls": urls, "loaders": loaders, **body}) + "\\n")
        if urls[0] not in known:
            known.extend(urls)
            urllib.request.urlopen(urls[0]).read()  # the image server is there
        self.say({"results": [{"index": i, "relevance_score": 0.5} for i in range(len(urls))]})

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def run(folder: Path, failing: str = "nothing") -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    (folder / "server.py").write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = PathOptions(
        name="small",
        results_dir=folder,
        logs_dir=folder / "logs",
        base=REPOSITORY / "serve_config.yaml",
        seed="s",
        command_up=f"{sys.executable} {folder / 'server.py'} {port} {folder} {failing}",
        url=f"http://127.0.0.1:{port}",
        dashboard=f"http://127.0.0.1:{port}",
        loaders=(1, 2),
        concurrencies=(1, 2),
        images=3,
        large_share=0.0,
        rounds=2,
        seconds=0.05,
        minimum=2,
        warm_requests=2,
        parity_requests=0,
        start_limit_s=60,
    )
    code = PathRun(options).execute()
    (data,) = folder.glob("*.json")
    requests = [json.loads(line) for line in (folder / "requests").read_text().splitlines()]
    return code, json.loads(data.read_text()), requests


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_cold_images_are_new_and_warm_ones_return_and_loaders_change_between_sides(tmp_path: Path) -> None:
    code, result, requests = run(tmp_path)
    assert code == 0
    assert result["valid"]
    order = [(row["round"], row["side"], row["condition"]["c"], row["condition"]["images"]) for row in result["rows"]]
    assert order[:4] == [(0, "1 loader", c, state) for c in (1, 2) for state in ("cold", "warm")]
    assert [side for _, side, c, state in order if (c, state) == (1, "cold")] == [
        "1 loader", "2 loaders", "2 loaders", "1 loader"
    ]  # fmt: skip
    cold = [url for r in requests for url in r["urls"] if "-warm-" not in url]
    warm = {url for r in requests for url in r["urls"] if "-warm-" in url}
    assert len(set(cold)) == len(cold)
    assert len(warm) == 2 * 3
    assert {r["loaders"] for r in requests} == {1, 2}
    assert {r["model"] for r in requests} == {"fusion-mini"}
    assert result["summary"][0]["stages"]["fetch"]["p50_ms"] == 2.0
    assert result["rows"][0]["items_per_s"] == pytest.approx(3 * result["rows"][0]["requests_per_s"])


def test_a_redeploy_that_fails_leaves_what_was_measured(tmp_path: Path) -> None:
    code, result, _ = run(tmp_path, failing="deploy")
    assert code == 1
    assert {row["side"] for row in result["rows"]} == {"1 loader"}
    assert any("answered 500" in problem for problem in result["problems"])

"""Configurations for `images-path`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.backends import UsageError
from benchmarks.environment import REPOSITORY
from benchmarks.images_config import RunningServe, images_application, only_model, running_replicas, with_loaders
from benchmarks.processes import ServerFailed
from serve_app.check import check_file

BASE = yaml.safe_load((REPOSITORY / "serve_config.yaml").read_text())


def test_one_model_is_left_and_the_gateway_knows_no_other() -> None:
    config, served = only_model(BASE, None)
    assert (served.name, served.task, served.dtype) == ("fusion-mini", "image_rank", "float32")
    assert [a["name"] for a in config["applications"]] == ["gateway", "images", "fusion-mini-1"]
    table = config["applications"][0]["deployments"][0]["user_config"]["models"]
    assert list(table) == ["fusion-mini"]
    assert len(BASE["applications"]) > 3, "the base must stay as it was"
    assert only_model(BASE, "clip-mini")[1].task == "embed"


def test_a_model_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"nothing.*clip-mini"):
        only_model(BASE, "nothing")
    without = {**BASE, "applications": [a for a in BASE["applications"] if a["name"] != "images"]}
    with pytest.raises(UsageError, match="images"):
        only_model(without, None)


def test_loaders_change_nothing_but_the_images_application() -> None:
    config, _ = only_model(BASE, None)
    one, four = with_loaders(config, 1), with_loaders(config, 4, num_cpus=1)
    different = [a["name"] for a, b in zip(one["applications"], four["applications"], strict=True) if a != b]
    assert different == [images_application(config)] == ["images"]
    args = four["applications"][1]["args"]
    assert args["replicas"]["num_replicas"] == 4
    assert args["replicas"]["num_cpus"] == 1
    assert args["allow_networks"] == ["127.0.0.0/8"]
    assert args["allow_ports"] == []
    assert "allow_networks" not in config["applications"][1].get("args", {})


@pytest.mark.parametrize("base", ["serve_config.yaml"])
def test_what_is_derived_passes_the_check(base: str, tmp_path: Path) -> None:
    config, _ = only_model(yaml.safe_load((REPOSITORY / base).read_text()), None)
    path = tmp_path / "derived.yaml"
    path.write_text(yaml.safe_dump(with_loaders(config, 2), sort_keys=False))
    assert [str(problem) for problem in check_file(path).problems] == []


def test_the_gpu_configuration_serves_one_model_with_images() -> None:
    text = (REPOSITORY / "benchmarks" / "gpu_images.yaml").read_text()
    filled = text.replace("@DTYPE@", "bfloat16").replace("@GPU_MEMORY@", "0.4").replace("@EAGER@", "true")
    config, served = only_model(yaml.safe_load(filled), None)
    assert served.dtype == "bfloat16"
    assert len(config["applications"]) == 3


def application(*states: str, status: str = "RUNNING") -> dict[str, Any]:
    return {"status": status, "deployments": {"ImageLoader": {"replicas": [{"state": state} for state in states]}}}


def test_replicas_count_only_when_none_starts_or_stops() -> None:
    assert running_replicas(application("RUNNING", "RUNNING")) == 2
    assert running_replicas(application("RUNNING", "STOPPING")) == -1
    assert running_replicas({}) == 0


class Dashboard(BaseHTTPRequestHandler):
    """Ray's dashboard: two loaders, the second of which takes two questions to start."""

    asked = 0
    taken: dict[str, Any] | None = None

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Dashboard.taken = body
        self.send_response(400 if body.get("bad") else 200)
        self.end_headers()

    def do_GET(self) -> None:
        Dashboard.asked += 1
        states = ["RUNNING", "STARTING" if Dashboard.asked < 3 else "RUNNING"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"applications": {"images": application(*states)}}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def dashboard() -> Iterator[RunningServe]:
    server = HTTPServer(("127.0.0.1", 0), Dashboard)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield RunningServe(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_a_change_is_waited_for(dashboard: RunningServe) -> None:
    Dashboard.asked = 0
    dashboard.deploy({"applications": []})
    assert Dashboard.taken == {"applications": []}
    assert dashboard.await_loaders("images", 2, limit_s=10) > 0
    assert Dashboard.asked == 3
    with pytest.raises(ServerFailed, match="not 3 loaders"):
        dashboard.await_loaders("images", 3, limit_s=0.1)
    with pytest.raises(ServerFailed, match="400"):
        dashboard.deploy({"bad": True})

"""A cluster of several nodes: every stage on a node of its own, and the same answers as on one."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import yaml

from cluster.materialize.store import materialize
from serve_app.engine.fake_engine import FakeEngine
from serve_app.messages import Context, ImageRef, ScoreRequest, ScoreResult
from serve_app.pipeline import Pipeline
from serve_app.settings import ModelSettings
from serve_app.tasks.model import load_text_model
from serve_app.up import token_header
from tests.cluster import ROOT, default_config, free_port
from tests.parity.images import DecodingLoader, picture

NODES = ("edge", "input", "pictures", "engines")
PLACES = {"Gateway": "edge", "IOProcessor": "input", "ImageLoader": "pictures", "PoolingEngine": "engines"}
MODELS = {"ce-mini-1", "fusion-mini-1"}


class Nodes:
    """The cluster and what was deployed to it."""

    def __init__(self, url: str, dashboard: str, config: dict[str, Any], output: Path) -> None:
        self.url, self.dashboard, self.config, self.output = url, dashboard, config, output

    def post(self, path: str, body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60)

    def details(self) -> dict[str, Any]:
        """What Ray Serve says of its applications."""
        answer = httpx.get(f"{self.dashboard}/api/serve/applications/", headers=token_header(), timeout=30)
        found: dict[str, Any] = answer.json()
        return found

    def settings(self, application: str) -> ModelSettings:
        (args,) = [a["args"] for a in self.config["applications"] if a["name"] == application]
        return ModelSettings.model_validate(args)


def placed_config(folder: Path, port: int) -> dict[str, Any]:
    """The default's gateway, ranker and fusion ranker with fake engines, each stage pinned to a node; the ranker's
    checkpoint is a materialized one."""
    config = default_config()
    del config["controller_options"]  # a machine has room for one HAProxy of Ray Serve, and it may be in use
    config.pop("grpc_options", None)  # its port may be in use as well
    config["proxy_location"] = "HeadOnly"
    config["http_options"]["port"] = port
    config["applications"] = [a for a in config["applications"] if a["name"] in MODELS | {"gateway", "images"}]

    def on(stage: str) -> dict[str, Any]:
        return {"num_cpus": 0.1, "resources": {PLACES[stage]: 0.001}}

    for application in config["applications"]:
        args = application["args"]
        if application["name"] == "gateway":
            args["replicas"] = on("Gateway")
            models = application["deployments"][0]["user_config"]["models"]
            kept = {n: m for n, m in models.items() if m["versions"]["1"]["application"] in MODELS}
            application["deployments"][0]["user_config"]["models"] = kept
        elif application["name"] == "images":
            args["replicas"] = on("ImageLoader")
        else:
            args |= {
                "engine": {"kind": "fake"},
                "io_processor": on("IOProcessor"),
                "pooling_engine": on("PoolingEngine"),
            }
        if application["name"] == "ce-mini-1":
            materialize(args["source"], None, folder / "models")
            args["materialized"] = {"folder": str(folder / "models"), "check": "hashes"}
    return config


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("nodes")
    port, dashboard = free_port(), free_port()
    output = folder / "output.log"
    command = [sys.executable, "-m", "cluster", "local", "--names", ",".join(NODES), "--dashboard-port", str(dashboard)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "RAY_AUTH_MODE": "token"}
    with output.open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment)
    family: list[psutil.Process] = []
    try:
        _wait(lambda: b"nodes are up" in output.read_bytes(), process, output, 300)
        config = placed_config(folder, port)
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        line = next(line for line in output.read_text().splitlines() if "serve deploy CONFIG" in line)
        deploy = ["-m", "ray.serve.scripts", *line.split("serve ")[1].replace("CONFIG", str(path)).split()]
        for attempt in range(3):  # Ray gives its proxies 60 s to start, too few for a busy machine; then it goes on
            done = subprocess.run([sys.executable, *deploy], env=environment, capture_output=True, text=True)
            if done.returncode == 0:
                break
            print(f"serve deploy, attempt {attempt + 1}: {done.stderr[-2_000:]}")
        assert done.returncode == 0, done.stderr[-4_000:]
        url = f"http://127.0.0.1:{port}"
        _wait(lambda: _is_ready(url), process, output, 240)
        yield Nodes(url, f"http://127.0.0.1:{dashboard}", config, output)
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert [process.name() for process in alive] == []


def _wait(condition: Any, process: subprocess.Popen[bytes], output: Path, timeout: float) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, output.read_text(errors="replace")[-4_000:]
        assert time.monotonic() < end, output.read_text(errors="replace")[-4_000:]
        time.sleep(0.5)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=30).status_code == 200
    except httpx.HTTPError:
        return False


def test_every_stage_runs_on_the_node_that_the_settings_name(nodes: Nodes) -> None:
    placed: dict[str, set[str]] = {}
    for application in nodes.details()["applications"].values():
        for name, deployment in application["deployments"].items():
            assert deployment["status"] == "HEALTHY"
            placed.setdefault(name, set()).update(replica["node_id"] for replica in deployment["replicas"])
    assert placed.keys() == PLACES.keys()
    assert all(len(found) == 1 for found in placed.values()), placed
    assert len(set.union(*placed.values())) == len(NODES)  # no two stages share one


async def _expected(nodes: Nodes, application: str, request: ScoreRequest) -> np.ndarray:
    """The answer of the same pipeline with everything in this process."""
    settings = nodes.settings(application)
    model = load_text_model(settings)
    loader = DecodingLoader()
    with ThreadPoolExecutor(1) as executor:
        engine = FakeEngine(model.settings, width=max(1, model.checkpoint.width))
        pipeline = Pipeline(model, engine, executor, loader)
        result = await pipeline.run(Context("expected", time.time() + 60), request)
    assert isinstance(result, ScoreResult)
    return np.asarray(result.scores)


def _scores(response: httpx.Response) -> np.ndarray:
    assert response.status_code == 200, response.text
    rows = sorted(response.json()["results"], key=lambda row: row["index"])
    return np.array([row["relevance_score"] for row in rows])


async def test_texts_are_ranked_as_on_one_node(nodes: Nodes) -> None:
    documents = [f"waterproof boots number {i}" for i in range(40)]
    body = {"model": "ce-mini", "query": "boots", "documents": documents}
    want = await _expected(nodes, "ce-mini-1", ScoreRequest(["boots"] * 40, documents))
    np.testing.assert_allclose(_scores(nodes.post("/v1/rerank", body)), want, atol=1e-5)


@pytest.mark.parametrize("count", [3, 24])
async def test_pixels_cross_nodes(nodes: Nodes, count: int) -> None:
    """By value up to four, by reference beyond. The fake engine's scores are made of the pixels' mean."""
    pictures = [picture(1_000 * count + i) for i in range(count)]
    documents = [{"image": base64.b64encode(data).decode()} for data in pictures]
    body = {"model": "fusion-mini", "query": "a red circle", "documents": documents}
    want = await _expected(
        nodes, "fusion-mini-1", ScoreRequest(["a red circle"] * count, [ImageRef(data=data) for data in pictures])
    )
    assert len(set(want.tolist())) > count // 2
    first = nodes.post("/v1/rerank", body)
    assert "decode" in first.headers["server-timing"]
    np.testing.assert_allclose(_scores(first), want, atol=1e-5)
    np.testing.assert_allclose(_scores(nodes.post("/v1/rerank", body)), want, atol=1e-5)


def test_nothing_on_this_machine_joins_the_cluster_unasked(nodes: Nodes) -> None:
    """`make serve` and `ray.init()` look into this file for a cluster to join."""
    from ray._common.utils import get_ray_address_file

    file = Path(get_ray_address_file(None))
    found = re.search(r"up at (\S+);", nodes.output.read_text())
    assert found is not None
    assert not file.exists() or found[1] not in file.read_text()


def test_models_say_how_long_their_stages_took_to_start(nodes: Nodes) -> None:
    models = {model["id"]: model["start_seconds"] for model in httpx.get(nodes.url + "/v1/models").json()["data"]}
    assert models.keys() == {"ce-mini", "fusion-mini"}
    for stages in models.values():
        assert {"verify", "resolve", "tokenizer", "total"} <= stages["io_processor"].keys()
        assert {"verify", "resolve", "total"} <= stages["pooling_engine"].keys()


def test_a_changed_checkpoint_is_refused_and_the_old_one_serves_on(nodes: Nodes) -> None:
    settings = nodes.settings("ce-mini-1")
    assert settings.materialized is not None
    (weights,) = Path(settings.materialized.folder).rglob("model.safetensors")
    original = weights.read_bytes()
    weights.chmod(0o644)
    config = json.loads(json.dumps(nodes.config))
    (application,) = [a for a in config["applications"] if a["name"] == "ce-mini-1"]
    application["args"]["admission"] = {"max_documents_in_flight": 3_000}  # a change, so that it starts anew
    path = nodes.output.parent / "changed.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "ray.serve.scripts", "deploy", str(path), "--address", nodes.dashboard]
    body = {"model": "ce-mini", "query": "boots", "documents": ["a", "b"]}
    before = _scores(nodes.post("/v1/rerank", body))
    try:
        weights.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        environment = {**os.environ, "RAY_AUTH_MODE": "token"}
        subprocess.run(command, check=True, capture_output=True, env=environment, timeout=60)
        end = time.monotonic() + 120
        while not (message := _failure(nodes, "ce-mini-1")):
            assert time.monotonic() < end, "the change was not refused"
            time.sleep(1)
        assert re.search(r"model\.safetensors: other content", message)
        np.testing.assert_array_equal(_scores(nodes.post("/v1/rerank", body)), before)
    finally:
        weights.write_bytes(original)


def _failure(nodes: Nodes, application: str) -> str:
    """Why its deployments cannot start; empty if nothing is said."""
    details = nodes.details()["applications"][application]
    messages = [details.get("message") or "", *(d.get("message") or "" for d in details["deployments"].values())]
    return next((message for message in messages if "materialized" in message), "")

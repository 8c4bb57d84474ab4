"""Engines that die, and both proxies. Runs after the other cluster tests: it kills what they use."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest

from serve_app.observability.collector import GONE_AFTER_S
from tests.cluster import Server, default_config, running
from tests.ray.test_grpc import assert_grpc_equals_http
from tests.ray.test_metrics import fallen, page, samples, total

BODY = {"model": "intent-mini", "input": ["where is my parcel"]}


def _engine_cores(server: Server, application: str) -> list[psutil.Process]:
    """The engine cores of an application: children of its engine's replicas."""
    replicas = server.processes(f"{application}:PoolingEngine")
    return [child for replica in replicas for child in replica.children() if "EngineCore" in child.name()]


def test_a_killed_engine_is_not_ready_and_is_replaced(server: Server) -> None:
    if server.process is None:
        pytest.skip("the server was started by hand")
    assert server.post("/v1/classify", BODY).status_code == 200
    time.sleep(2.5)  # the replicas' reports: one a second
    before = page(server)
    (core,) = _engine_cores(server, "intent-mini-1")
    os.kill(core.pid, signal.SIGKILL)
    time.sleep(1.5)
    ready = httpx.get(server.url + "/ready", timeout=30)
    assert ready.status_code == 503
    states = {model["model"]: model["state"] for model in ready.json()["models"]}
    assert states.pop("intent-mini") == "not ready"
    assert set(states.values()) == {"ready"}
    failed = server.post("/v1/classify", BODY, X_Request_Timeout_Ms="2000")
    assert failed.status_code in {503, 504}
    assert "Traceback" not in failed.text
    assert server.post("/v1/rerank", {"model": "ce-mini", "query": "a", "documents": ["b"]}).status_code == 200
    end = time.monotonic() + 180
    while httpx.get(server.url + "/ready", timeout=30).status_code != 200:
        assert time.monotonic() < end, "the engine was not replaced"
        time.sleep(1)
    assert server.post("/v1/classify", BODY).status_code == 200
    assert len(_engine_cores(server, "intent-mini-1")) == 1
    _replaced_in_the_metrics(server, before)


def _replaced_in_the_metrics(server: Server, before: str) -> None:
    """Sums have not fallen; the dead engine's series are gone and the new one's are there."""
    who = {"deployment": "PoolingEngine", "model": "intent-mini"}
    dead = _replicas(before, who)
    assert len(dead) == 1
    end = time.monotonic() + GONE_AFTER_S + 15
    while True:
        after = page(server)
        living = _replicas(after, who)
        if (len(living) == 1 and not living & dead) or time.monotonic() > end:
            break
        time.sleep(1)
    assert len(living) == 1
    assert not living & dead
    assert not [line for line in after.splitlines() if f'replica="{next(iter(dead))}"' in line]
    assert not fallen(before, after)
    assert total(after, "poolserve_engine_batch_documents_count", model="intent-mini") > 0
    assert total(after, "vllm:num_requests_running", model="intent-mini", replica=next(iter(living))) == 0


def _replicas(text: str, who: dict[str, str]) -> set[str]:
    found = [dict(labels) for name, labels in samples(text) if name == "poolserve_replica_up"]
    return {labels["replica"] for labels in found if who.items() <= labels.items()}


def test_the_default_proxy_serves_the_same(tmp_path: Path) -> None:
    """Ray's Python proxy instead of HAProxy; engines are fakes, since the way to them is what differs."""
    config = default_config()
    del config["controller_options"]
    config["applications"] = [a for a in config["applications"] if a["name"] in {"gateway", "ce-mini-1"}]
    models = config["applications"][0]["deployments"][0]["user_config"]["models"]
    config["applications"][0]["deployments"][0]["user_config"]["models"] = {"ce-mini": models["ce-mini"]}
    config["applications"][1]["args"]["engine"] = {"kind": "fake"}
    with running(config, tmp_path) as server:
        answer = server.post("/v1/rerank", {"model": "ce-mini", "query": "a", "documents": ["b", "c"]})
        assert answer.status_code == 200
        assert len(answer.json()["results"]) == 2
        assert "server-timing" in answer.headers
        score = server.post("/v1/score", {"text_1": "a", "text_2": ["b", "c"]})
        assert [row["score"] for row in score.json()["data"]] == [
            result["relevance_score"] for result in sorted(answer.json()["results"], key=lambda r: r["index"])
        ]
        for body, status in (({"model": "nope"}, 400), ({"model": "nope", "query": "a", "documents": ["b"]}, 404)):
            response = server.post("/v1/rerank", body)
            assert (response.status_code, "error" in response.json()) == (status, True)
        large = {"model": "ce-mini", "query": "a", "documents": ["word " * 1_000] * 900}  # 4.5 MB between replicas
        assert server.post("/v1/rerank", large).status_code == 200
        over = {"model": "ce-mini", "query": "a", "documents": ["x" * 17 * 2**20]}
        assert server.post("/v1/rerank", over).status_code == 413
        assert_grpc_equals_http(server)
        family = psutil.Process(server.process.pid).children(recursive=True)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert [process.name() for process in alive] == []

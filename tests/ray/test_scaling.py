"""Replicas that follow the work, and requests that are split over them. Engines are stand-ins of a set speed."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster import Server, default_config, run_in_cluster, running

DOCUMENTS = [f"boots number {i} for winter walks in the {'deep ' * (i % 7)}snow" for i in range(500)]
AUTOSCALING = {
    "min_replicas": 1,
    "max_replicas": 3,
    "target": {"tokens": 500},
    "interval_s": 0.2,
    "window_s": 1.0,
    "upscale_delay_s": 0.5,
    "downscale_delay_s": 8.0,
}
ENGINES: dict[str, dict[str, Any]] = {
    "grows": {"engine": {"kind": "fake", "fake_tokens_per_s": 500}, "pooling_engine": {"autoscaling": AUTOSCALING}},
    "four": {"engine": {"kind": "fake"}, "pooling_engine": {"num_replicas": 4}},
}


@pytest.fixture(scope="module")
def scaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The default's gateway, and its reranker twice: with one to three engines, and with four."""
    config = default_config()
    applications = {application["name"]: application for application in config["applications"]}
    gateway, ranker = applications["gateway"], applications["ce-mini-1"]
    config["applications"] = [gateway]
    models = {}
    for name, changes in ENGINES.items():
        args = {**ranker["args"], "name": name, **changes}
        args["pooling_engine"] = {**args["pooling_engine"], "num_cpus": 0.05}
        config["applications"].append({**ranker, "name": f"{name}-1", "args": args})
        models[name] = {"versions": {"1": {"application": f"{name}-1", "task": "rerank"}}}
    gateway["deployments"][0]["user_config"]["models"] = models
    with running(config, tmp_path_factory.mktemp("scaling")) as server:
        yield server


def _scores(server: Server, documents: list[str]) -> list[float]:
    answer = server.post("/v1/rerank", {"model": "four", "query": "boots", "documents": documents})
    assert answer.status_code == 200, answer.text
    results = sorted(answer.json()["results"], key=lambda result: result["index"])
    return [result["relevance_score"] for result in results]


def test_a_large_request_is_spread_over_the_engines(scaling: Server) -> None:
    small = [_scores(scaling, part) for part in (DOCUMENTS[i : i + 100] for i in range(0, 500, 100))]
    before = run_in_cluster(scaling, "tests.ray.engines_work", "four-1", "4")
    scores = _scores(scaling, DOCUMENTS)
    after = run_in_cluster(scaling, "tests.ray.engines_work", "four-1", "4")
    assert scores == list(itertools.chain(*small))
    work = [b - a for a, b in zip(before, after, strict=True)]
    assert len(work) == 4
    # The rest are the tokens of a few canaries.
    assert all(0.22 < tokens / sum(work) < 0.28 for tokens in work), work


class Clients:
    """Clients that ask until they are told to stop: the first now and then for a little, the others all the time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stops: list[threading.Event] = []
        self._threads: list[threading.Thread] = []
        self.answers: Counter[int] = Counter()

    def be(self, count: int) -> None:
        """As many are to be there."""
        for stop in self._stops[count:]:
            stop.set()
        while len(self._stops) < count:
            stop = threading.Event()
            thread = threading.Thread(target=self._ask, args=(stop, not self._stops))
            self._stops.append(stop)
            self._threads.append(thread)
            thread.start()
        del self._stops[count:]

    def leave(self) -> None:
        """All are to be gone."""
        self.be(0)
        for thread in self._threads:
            thread.join()

    def _ask(self, stop: threading.Event, little: bool) -> None:
        body = {"model": "grows", "query": "boots", "documents": DOCUMENTS[: 1 if little else 10]}
        with httpx.Client(base_url=self._server.url, timeout=60) as client:
            while not stop.wait(0.2 if little else 0.0):
                self.answers[client.post("/v1/rerank", json=body).status_code] += 1


def test_replicas_follow_a_step_of_load_up_and_down_once_and_nothing_is_lost(scaling: Server) -> None:
    seen = [1]

    def watch(until: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            count = len(scaling.processes("grows-1:PoolingEngine"))
            if count != seen[-1]:
                seen.append(count)
            if count == until:
                return
            time.sleep(0.5)

    clients = Clients(scaling)
    try:
        clients.be(1)
        watch(2, 5.0)
        assert seen == [1]  # the first client's load is what one replica is for
        clients.be(20)
        watch(3, 90.0)
        watch(4, 12.0)  # longer than the delay of a step down
        assert seen[-1] == 3
        assert seen == sorted(seen)
        clients.be(1)
        watch(1, 120.0)
        watch(2, 12.0)
    finally:
        clients.leave()
    assert seen[-1] == 1
    top = seen.index(3)
    assert seen[top:] == sorted(seen[top:], reverse=True)
    assert set(clients.answers) == {200}
    assert clients.answers.total() > 40

"""Versions change, replicas die, and no request is lost: one cluster under constant load from start to end.

Engines are fakes that answer otherwise in each version, and so do the IOProcessors (another activation), so an answer
shows which versions its stages were of. A model with vLLM's engines is there for what only those have, a process of
their own. `POOLSERVE_ROLLOUT_REQUESTS=12000` runs it with more load, 2,000 otherwise; `POOLSERVE_ROLLOUT_PROXY=python`
with Ray Serve's default proxy.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from cluster.__main__ import main
from cluster.rollout.ray_cluster import RayCluster
from serve_app.routing.table import digest
from serve_app.settings import RoutingSettings
from tests.cluster import Server, default_config, free_port, running
from tests.ray.load import BODIES, Load, constant_load

REQUESTS = int(os.environ.get("POOLSERVE_ROLLOUT_REQUESTS", "2000"))
PROXY = os.environ.get("POOLSERVE_ROLLOUT_PROXY", "haproxy")
LOST_WITH_A_GATEWAY = (
    {f"kill {which}: 500 Internal Server Error" for which in ("IOProcessor", "Gateway")} if PROXY == "python" else set()
)
"""What Ray's Python proxy answers to requests inside a gateway replica that is killed: it does not repeat them, HAProxy
does. A request carries the name of the phase in which it was sent, which may be the one before."""
PHASES = 12
REPLICAS = {"num_replicas": 2, "num_cpus": 0.05}
ALONE = [part for name in ("io_processor", "pooling_engine") for part in ("--set", f"{name}.num_replicas=1")]
"""For versions that do not stay."""


def _model(version: str, *, raw: bool) -> dict[str, Any]:
    (model,) = [a for a in default_config()["applications"] if a["name"] == "ce-mini-1"]
    engine = {"kind": "fake", "fake": {"salt": int(version)}}
    activation = {"activation": "none"} if raw else {}
    args = {**model["args"], "name": "ce", "version": version, "engine": engine, **activation}
    return {
        **model,
        "name": f"ce-{version}",
        "args": {**args, "io_processor": {**REPLICAS}, "pooling_engine": {**REPLICAS}},
    }


def _real() -> dict[str, Any]:
    """Version 7 of another reranker: vLLM's engines."""
    (model,) = [a for a in default_config()["applications"] if a["name"] == "ce-mini-1"]
    args = {**model["args"], "name": "real", "version": "7"}
    return {**model, "name": "real-7", "args": {**args, "pooling_engine": {**REPLICAS}}}


def _config() -> dict[str, Any]:
    """Two gateways; versions 1 and 2 of a reranker, version 1 with all traffic. A HAProxy apart from any other one."""
    config = default_config()
    if PROXY == "python":
        del config["controller_options"]
    flags = config.get("controller_options", {}).get("runtime_env", {}).get("env_vars", {})
    flags |= {f"RAY_SERVE_HAPROXY_{name}_PORT": str(free_port()) for name in ("STATS", "METRICS")}
    flags |= {
        f"RAY_SERVE_DIRECT_INGRESS_{edge}_{kind}_PORT": str(base + (500 if edge == "MAX" else 0))
        for edge in ("MIN", "MAX")
        for kind, base in (("HTTP", 31_500), ("GRPC", 41_500))
    }
    (gateway,) = [a for a in config["applications"] if a["name"] == "gateway"]
    gateway["args"]["replicas"] = dict(REPLICAS)
    versions = {v: {"application": f"ce-{v}", "task": "rerank", "weight": w} for v, w in (("1", 1), ("2", 0))}
    real = {"7": {"application": "real-7", "task": "rerank"}}
    models = {"ce": {"versions": versions}, "real": {"versions": real}}
    gateway["deployments"][0]["user_config"] = {"models": models}
    config["applications"] = [gateway, _model("1", raw=False), _model("2", raw=True), _real()]
    return config


@dataclass
class Site:
    """The running cluster, its configuration's file, and the load on it."""

    server: Server
    path: Path
    dashboard: str
    cluster: RayCluster
    load: Load

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the configuration and deploys it."""
        config = yaml.safe_load(self.path.read_text())
        change(config)
        self.path.write_text(yaml.safe_dump(config, sort_keys=False))
        self.cluster.apply(config)

    def rollout(self, *arguments: str) -> int:
        """`python -m cluster rollout …`."""
        action, *rest = arguments
        return main(["rollout", action, str(self.path), *rest, "--dashboard", self.dashboard])

    def table_seen(self) -> None:
        wanted = digest(RoutingSettings.model_validate(_table(yaml.safe_load(self.path.read_text()))))
        _until(lambda: (s := self.cluster.gateways())[1] and {v.table for v in s[0].values()} == {wanted}, "the table")

    def settled(self, timeout: float = 120.0) -> None:
        """Waits until Ray Serve has what the configuration asks for."""
        names = [a["name"] for a in yaml.safe_load(self.path.read_text())["applications"]]
        _until(lambda: all(self.cluster.status(name).status == "RUNNING" for name in names), "RUNNING", timeout)

    def replicas(self, application: str, deployment: str) -> dict[str, int]:
        """Running replicas and their process ids."""
        deployments = self.cluster._applications()[application]["deployments"]  # none while they are made anew
        found = deployments.get(deployment, {}).get("replicas", [])
        return {r["replica_id"]: r["pid"] for r in found if r["state"] == "RUNNING"}

    def kill_one(self, application: str, deployment: str) -> None:
        """Kills one of two replicas and waits for the one in its place."""
        self.settled()
        before = self.replicas(application, deployment)
        assert len(before) == 2
        victim = next(iter(before))
        os.kill(before[victim], signal.SIGKILL)
        _until(lambda: not psutil.pid_exists(before[victim]) or _zombie(before[victim]), "the end of a killed process")
        self.wait(50)
        _until(lambda: len(now := self.replicas(application, deployment)) == 2 and victim not in now, "a new replica")

    def wait(self, requests: int) -> None:
        self.load.wait_for(self.load.answered[self.load.phase] + requests)

    def begin(self, phase: str) -> None:
        """What follows happens under this name."""
        self.load.phase = phase

    def end(self, *versions: str) -> None:
        """Enough requests have passed, none failed, and those since now come from these versions."""
        self.load.wait_for(max(30, REQUESTS // PHASES))
        failed = [failure for failure in self.load.failed if failure.startswith(self.load.phase + ":")]
        assert [failure for failure in failed if failure not in LOST_WITH_A_GATEWAY] == []
        before = dict(self.load.versions[self.load.phase])
        self.wait(20)
        grown = {v for v, n in self.load.versions[self.load.phase].items() if n > before.get(v, 0)}
        assert grown == set(versions)


def _zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _table(config: dict[str, Any]) -> dict[str, Any]:
    (gateway,) = [a for a in config["applications"] if a["name"] == "gateway"]
    table: dict[str, Any] = gateway["deployments"][0]["user_config"]
    return table


def _until(condition: Callable[[], bool], what: str, timeout: float = 90.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {timeout:.0f} s"
        time.sleep(0.3)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("rollout")
    with running(_config(), folder) as server:
        log = (folder / ".run" / "serve.log").read_text(errors="replace")
        found = re.search(r"dashboard at .*?127\.0\.0\.1:(\d+)", log)
        dashboard = f"http://127.0.0.1:{found[1] if found else 8265}"
        cluster = RayCluster(dashboard, server.url)
        with constant_load(server.url, server.grpc) as load:
            yield Site(server, folder / "config.yaml", dashboard, cluster, load)
        print(f"\n{load.total} requests, {load.over_grpc} of them over gRPC, {len(load.failed)} failed")
        print(*load.versions.items(), sep="\n")
        print(f"{load.repeated} repeated on a connection that was closed")
        lost = [failure for failure in load.failed if failure in LOST_WITH_A_GATEWAY]
        assert [failure for failure in load.failed if failure not in lost] == []
        assert len(lost) <= 8
        assert load.repeated <= 10
        _one_version_per_answer(load)


def _one_version_per_answer(load: Load) -> None:
    """Each version has one answer to each request (`load.failed` says otherwise), and no two versions the same."""
    for number in range(len(BODIES)):
        answers = [tuple(round(score, 5) for score in scores) for (_, n), scores in load.scores.items() if n == number]
        assert len(answers) == len(set(answers)) >= 3


def _weights(site: Site, weights: dict[str, float]) -> None:
    def change(config: dict[str, Any]) -> None:
        for version, weight in weights.items():
            _table(config)["models"]["ce"]["versions"][version]["weight"] = weight

    site.edit(change)
    site.table_seen()


def test_the_table_flips(site: Site) -> None:
    site.begin("flip")
    site.wait(30)
    _weights(site, {"1": 0, "2": 1})
    site.end("2")
    assert site.load.versions["flip"]["1"] >= 30


def test_a_wrong_table_changes_nothing(site: Site) -> None:
    site.begin("wrong table")
    site.settled()  # a replica that takes a table is none of the running ones
    before = set(site.replicas("gateway", "Gateway"))
    good = site.path.read_text()
    site.edit(lambda config: _table(config)["models"]["ce"]["versions"]["2"].update(weight=0))
    _until(lambda: all(view.refused for view in site.cluster.gateways()[0].values()), "the refusal")
    site.end("2")
    site.path.write_text(good)
    site.edit(lambda config: None)
    _until(lambda: not any(view.refused for view in site.cluster.gateways()[0].values()), "the old table")
    site.settled()
    assert set(site.replicas("gateway", "Gateway")) == before


def test_a_rolling_change(site: Site) -> None:
    site.begin("rolling change")
    before = set(site.replicas("ce-2", "PoolingEngine"))

    def change(config: dict[str, Any]) -> None:
        config["applications"][2]["args"]["max_num_seqs"] = 64

    site.edit(change)
    _until(lambda: bool(now := site.replicas("ce-2", "PoolingEngine")) and before.isdisjoint(now), "new engines", 180)
    site.settled()
    site.end("2")


def test_a_constructor_that_raises(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.begin("failed rollout")
    before = site.path.read_text()
    arguments = ("--to", "3", "--set", "engine.fake.start_error=the weights are gone")
    assert site.rollout("red-black", "ce", *arguments, *ALONE) == 1
    output = capsys.readouterr().out
    assert "ce-3: DEPLOY_FAILED" in output
    assert "the weights are gone" in output
    assert yaml.safe_load(site.path.read_text()) == yaml.safe_load(before)
    site.end("2")


def test_red_black_returns_by_itself(site: Site, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    site.begin("automatic return")
    canary = tmp_path / "canary.jsonl"
    canary.write_text('{"query": "boots", "documents": ["red boots", "a phone"]}\n')
    arguments = ("--to", "4", "--set", "engine.fake.delay_ms=3000", "--set", "engine.fake.salt=4", "--steps", "50,100")
    limits = ("--hold", "15", "--min-requests", "15", "--canary", str(canary), "--probes", "4", "--p95-slack-ms", "300")
    assert site.rollout("red-black", "ce", *arguments, *limits, *ALONE) == 1
    assert re.search(r"(p95 of the traffic|median of the probes) is \d+", capsys.readouterr().out)
    assert site.load.versions["automatic return"]["4"] > 0
    assert "ce-4" not in site.path.read_text()
    site.end("2")


def test_red_black(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.begin("red-black")
    arguments = ("--to", "5", "--set", "engine.fake.salt=5", "--steps", "30,100", "--hold", "4", "--keep", "3")
    # What is tested is the way, on a machine that may be busy: other times are no reason to return.
    assert site.rollout("red-black", "ce", *arguments, "--max-p95-ratio", "100") == 0
    assert "deploy\nroute\nwarm\nshift 30 %" in capsys.readouterr().out
    assert site.cluster.status("ce-2").status is None
    site.end("5")
    site.path.with_name("config.yaml.asked.json").unlink(missing_ok=True)
    assert site.rollout("list") == 0
    assert "latest" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("application", "deployment"), [("ce-5", "PoolingEngine"), ("ce-5", "IOProcessor"), ("gateway", "Gateway")]
)
def test_a_replica_is_killed(site: Site, application: str, deployment: str) -> None:
    site.begin(f"kill {deployment}")
    site.kill_one(application, deployment)
    site.end("5")


def test_the_process_of_one_of_two_engines_is_killed(site: Site) -> None:
    """Not the replica: vLLM's core, which the replica has to notice."""
    site.begin("kill a core")
    site.load.models = ("ce", "real")
    try:
        site.end("5", "7")
        before = site.replicas("real-7", "PoolingEngine")
        cores = site.server.processes("EngineCore")
        assert len(before) == len(cores) == 2
        cores[0].kill()
        _until(lambda: len(now := site.replicas("real-7", "PoolingEngine")) == 2 and now != before, "a new one", 300)
        site.end("5", "7")
    finally:
        site.load.models = ("ce",)


def test_scaling_up_and_down(site: Site) -> None:
    for count in (3, 2):
        site.begin(f"scale to {count}")

        def change(config: dict[str, Any], count: int = count) -> None:
            for application in config["applications"]:
                names = {"gateway": ("Gateway",), "ce-5": ("PoolingEngine", "IOProcessor")}.get(application["name"], ())
                listed = application.setdefault("deployments", [])
                for name in names:
                    if not any(d["name"] == name for d in listed):
                        listed.append({"name": name})
                    next(d for d in listed if d["name"] == name)["num_replicas"] = count

        site.edit(change)
        places = (("gateway", "Gateway"), ("ce-5", "PoolingEngine"), ("ce-5", "IOProcessor"))
        _until(lambda: {len(site.replicas(*place)) for place in places} == {count}, f"{count} replicas", 180)  # noqa: B023
        site.settled()
        site.end("5")


def test_a_version_that_is_named_is_served_until_it_retires(site: Site) -> None:
    site.begin("retire")
    named = {"model": "ce@1", **BODIES[0]}
    assert site.server.post("/v1/rerank", named).headers["x-routing"] == "pinned"
    assert site.rollout("retire", "ce", "--unasked-days", "1") == 0
    listed = httpx.get(site.server.url + "/v1/models").json()["data"]
    assert "1" in {row["version"] for row in listed}  # somebody has asked for it
    assert site.rollout("retire", "ce", "--version", "1") == 0
    assert site.server.post("/v1/rerank", named).status_code == 404
    assert site.rollout("retire", "ce", "--version", "5") == 1  # the last one
    site.end("5")

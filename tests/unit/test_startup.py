"""Start times: collected by phase, measured in vLLM's workers, and told by `/v1/models`."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from serve_app.errors import ModelUnavailable
from serve_app.frontend import Frontend
from serve_app.routing import Target
from serve_app.settings import GatewaySettings, RoutingSettings
from serve_app.startup import Phase, StartClock, StartTimes, in_words, uncollected
from serve_app.tasks.model import load_text_model
from serve_app.up import key_header, slowest_starts
from serve_app.vllm_plugin.timed_worker import Timed
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that a test moves."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_phases_add_up_in_their_order(clock: list[float]) -> None:
    start = StartClock()
    for phase, seconds in ((Phase.VERIFY, 1.0), (Phase.WEIGHTS, 3.0), (Phase.VERIFY, 0.5)):
        with start.phase(phase):
            clock[0] += seconds
    start.add({"compile": 2.0})
    clock[0] += 10
    times = start.times()
    assert list(times) == ["verify", "weights", "compile", "total"]
    assert times == {"verify": 1.5, "weights": 3.0, "compile": 2.0, "total": 14.5}
    assert in_words(times) == "verify 1.5, weights 3.0, compile 2.0, total 14.5"


def test_a_phase_that_fails_is_counted(clock: list[float]) -> None:
    start = StartClock()

    def fails() -> None:
        with start.phase(Phase.RESOLVE):
            clock[0] += 2
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert start.times()["resolve"] == 2


def test_a_worker_measures_what_it_inherits(clock: list[float]) -> None:
    class Worker:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def load_model(self, *, dummy: bool = False) -> str:
            clock[0] += self.seconds
            return f"loaded {dummy}"

        def determine_available_memory(self) -> int:
            clock[0] += 2
            return 7

        def initialize_from_config(self, config: object) -> None:
            clock[0] += 1

        def compile_or_warm_up_model(self) -> float:
            clock[0] += 4
            return 0.5

    class TimedWorker(Timed, Worker):
        pass

    worker = TimedWorker(3)
    assert worker.start_times() == {}
    assert worker.load_model(dummy=True) == "loaded True"
    assert worker.determine_available_memory() == 7
    worker.initialize_from_config(None)
    assert worker.compile_or_warm_up_model() == 0.5
    assert worker.start_times() == {"weights": 3, "profile": 3, "compile": 4}
    assert TimedWorker(1).start_times() == {}


def test_loading_a_model_takes_its_times(checkpoints: Checkpoints, tmp_path: Path) -> None:
    start = StartClock()
    load_text_model(settings_for(checkpoints.bert(1), "rerank"), start)
    assert list(start.times()) == ["verify", "resolve", "tokenizer", "total"]
    assert start.times()["tokenizer"] > 0


class _Backend:
    """Answers canaries with start times, or not at all."""

    def __init__(self, times: Mapping[str, StartTimes] | None) -> None:
        self.times = times
        self.down = False

    async def canary(self, target: Target, deadline: float) -> Mapping[str, StartTimes] | None:
        if self.down:
            raise ModelUnavailable("down")
        return self.times

    async def run(self, *args: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize("times", [None, {"pooling_engine": {"weights": 3.0, "total": 4.0}}])
def test_the_models_page_tells_what_the_canary_told(times: Mapping[str, StartTimes] | None) -> None:
    backend = _Backend(times)
    frontend = Frontend(GatewaySettings(), backend)
    routing = {"models": {"m": {"versions": {"1": {"application": "m-1", "task": "rerank"}}}}}

    async def startup() -> None:
        frontend.reconfigure(RoutingSettings.model_validate(routing))

    app = frontend.app()
    with TestClient(app) as client:
        assert client.portal is not None
        client.portal.call(startup)
        assert client.get("/ready").status_code == 200
        (model,) = client.get("/v1/models").json()["data"]
        assert model["start_seconds"] == times
        backend.down = True
        (model,) = client.get("/v1/models").json()["data"]
        assert model["start_seconds"] == times  # what is known stays


def test_the_slowest_engines_are_named_first() -> None:
    def model(name: str, total: float | None) -> dict[str, Any]:
        times = None if total is None else {"pooling_engine": {"weights": total - 1, "canary": 0.01, "total": total}}
        return {"id": name, "version": "1", "start_seconds": times}

    found = slowest_starts({"data": [model("a", 5.0), model("b", None), model("c", 9.0), model("d", 2.0)]}, 2)
    assert found == ["c@1: 9.0 s (weights 8.0)", "a@1: 5.0 s (weights 4.0)"]
    assert slowest_starts(None) == []


def test_what_serves_a_configuration_knows_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "secret")
    assert key_header(GatewaySettings(api_keys=("env:SHOP_KEY", "other"))) == {"Authorization": "Bearer secret"}
    assert key_header(GatewaySettings(api_keys=("plain",))) == {"Authorization": "Bearer plain"}
    monkeypatch.delenv("SHOP_KEY")
    assert key_header(GatewaySettings(api_keys=("env:SHOP_KEY",))) == key_header(GatewaySettings()) == {}
    assert key_header(None) == {}


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_as_before_after_an_import_also_a_failed_one(enabled: bool) -> None:
    seen = []

    def fail() -> None:
        with uncollected():
            seen.append(gc.isenabled())
            raise ImportError("no such package")

    try:
        if not enabled:
            gc.disable()
        with pytest.raises(ImportError):
            fail()
        seen.append(gc.isenabled())
    finally:
        gc.enable()
    assert seen == [False, enabled]

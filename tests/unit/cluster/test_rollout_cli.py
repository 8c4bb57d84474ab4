"""The command: plans, refusals, states of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cluster.__main__ import main
from cluster.rollout import plan
from cluster.rollout.config_text import content
from cluster.rollout.judge import GatewayView
from cluster.rollout.ray_cluster import RayCluster
from cluster.rollout.runner import NotNow, read_canary
from cluster.rollout.state import Kind, Limits, Options, Phase, Sample, State, StateFile
from tests.unit.cluster.conftest import CONFIG
from tests.unit.cluster.fake_cluster import FakeCluster


def test_a_dry_run_prints_the_edits_and_changes_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rollout", "red-black", str(config), "ce", "--to", "2", "--set", "max_num_seqs=4", "--dry-run"]
    assert main([*arguments, "--steps", "20,100"]) == 0
    output = capsys.readouterr().out
    phases = ["deploy", "route", "warm", "shift 20 %", "shift 100 %", "keep", "unroute", "remove", "done"]
    places = [output.index(f"red-black ce: 1 → 2 is in phase {phase}") for phase in phases]
    assert places == sorted(places)
    assert "+  - name: ce-2" in output
    assert "+      max_num_seqs: 4" in output
    assert "weight: 0.2" in output
    assert config.read_text() == CONFIG
    assert not StateFile(config).path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["red-black", "nope", "--to", "2"], "model 'nope' is not in the routing table"),
        (["red-black", "ce", "--to", "2", "--steps", "5,50"], "steps: must rise from above 0 to 100"),
        (["red-black", "ce", "--to", "2", "--set", "frobnicate"], "--set: must be FIELD=VALUE"),
        (["red-black", "ce", "--to", "2", "--set", "dtype=fp8"], "dtype"),
        (["red-black", "ce", "--to", "2", "--set", "dtype={"], "--set dtype: no YAML"),
        (["red-black", "ce", "--to", "2", "--api-key", "env:NO_SUCH_KEY"], "variable 'NO_SUCH_KEY' is not set"),
        (["red-black", "ce", "--to", "2", "--canary", "/nowhere"], "/nowhere"),
        (["retire", "ce", "--version", "1"], "last version"),
        (["resume"], "no rollout under way"),
        (["return"], "no rollout under way"),
    ],
)
def test_what_cannot_work_is_said(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["rollout", arguments[0], str(config), *arguments[1:]]) == 1
    assert message in capsys.readouterr().out
    assert config.read_text() == CONFIG


def test_a_rollout_under_way_is_shown_and_bars_another(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(changes={"max_num_seqs": 4}, limits=Limits(score_difference=0.1))
    state = plan.begin(CONFIG, Kind.RED_BLACK, "ce", None, "2", options, 5.0)
    state = replace(state, phase=Phase.SHIFT, step=1, baseline=Sample(10, 0, 5.0))
    StateFile(config).write(state)
    assert StateFile(config).read() == state
    assert main(["rollout", "status", str(config)]) == 0
    assert "red-black ce: 1 → 2 is in phase shift 10 %" in capsys.readouterr().out
    assert main(["rollout", "red-black", str(config), "ce", "--to", "3"]) == 1
    assert "resume it, or return" in capsys.readouterr().out


def test_without_a_cluster_the_rollout_can_be_resumed(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.rollout.ray_cluster._TRIES", 1)
    monkeypatch.setattr(RayCluster, "check_gateway", lambda self: None)
    arguments = ["rollout", "red-black", str(config), "ce", "--to", "2", "--dashboard", "http://127.0.0.1:9"]
    assert main(arguments) == 2
    assert "resume or return" in capsys.readouterr().out
    state = StateFile(config).read()
    assert isinstance(state, State)
    assert state.phase is Phase.DEPLOY
    assert any(app["name"] == "ce-2" for app in content(config.read_text())["applications"])


GATEWAY = httpx.Response(200, json={"replica": "a", "since": 0.0, "table": "t", "refused": None, "versions": []})
WITHOUT_KEY = {"error": {"message": "a valid key is required", "type": "authentication_error"}}


def _answering(monkeypatch: pytest.MonkeyPatch, *answers: httpx.Response) -> RayCluster:
    """A cluster whose gateway gives these answers, the last one again and again."""
    cluster, left = RayCluster("http://dashboard", "http://gateway"), list(answers)
    transport = httpx.MockTransport(lambda request: left.pop(0) if len(left) > 1 else left[0])
    cluster._gateway = httpx.Client(base_url="http://gateway", transport=transport)
    replicas = {"replicas": [{"replica_id": "a", "state": "RUNNING"}]}
    applications = {"applications": {"gateway": {"deployments": {"Gateway": replicas}}}}
    dashboard = httpx.MockTransport(lambda request: httpx.Response(200, json=applications))
    cluster._dashboard = httpx.Client(base_url="http://dashboard", transport=dashboard)
    monkeypatch.setattr(RayCluster, "sleep", lambda self, seconds: None)
    return cluster


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(401, json=WITHOUT_KEY), "/v1/routing with 401: a valid key is required (--api-key)"),
        (httpx.Response(404, text="no such path"), "/v1/routing with 404: no such path"),
        (httpx.Response(503), "/v1/routing with 503"),
    ],
)
def test_a_gateway_that_does_not_show_its_table_stops_a_rollout_before_the_first_edit(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: httpx.Response,
    message: str,
) -> None:
    cluster = _answering(monkeypatch, answer)
    monkeypatch.setattr("cluster.rollout.cli._cluster", lambda options: cluster)
    assert main(["rollout", "red-black", str(config), "ce", "--to", "2"]) == 1
    assert f"error: the gateway at http://gateway answers {message}; nothing was changed" in capsys.readouterr().out
    assert config.read_text() == CONFIG
    assert not StateFile(config).path.exists()


def test_a_gateway_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, httpx.Response(503), httpx.Response(404), GATEWAY).check_gateway()


def test_a_key_that_is_refused_later_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _answering(monkeypatch, GATEWAY, httpx.Response(403, json=WITHOUT_KEY))
    assert cluster.gateways()[1]
    with pytest.raises(NotNow, match="403: a valid key is required"):
        cluster.gateways()
    with pytest.raises(NotNow, match="403: a valid key is required"):
        cluster.models()


def test_a_rollout_that_is_running_is_named(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RayCluster, "check_gateway", lambda self: None)
    state = plan.begin(CONFIG, Kind.RED_BLACK, "ce", None, "2", Options(), 5.0)
    with StateFile(config).locked():
        StateFile(config).write(state)
        assert main(["rollout", "resume", str(config)]) == 1
    holder = f"another rollout is running: it holds the lock on '{config.parent}' (config.yaml.rollout.json)"
    assert capsys.readouterr().out.strip() == f"error: {holder}"
    assert config.read_text() == CONFIG


def test_a_table_that_cannot_be_edited_is_said_before_anything_changes(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CONFIG.replace(' {versions: {"1": {application: other-1', ' {versions: &v {"1": {application: ce-1')
    text = text.replace('ce: {versions: {"1": {application: ce-1, task: rerank}}}', "ce: {versions: *v}")
    config.write_text(text)
    for more in ([], ["--dry-run"]):
        assert main(["rollout", "red-black", str(config), "ce", "--to", "2", *more]) == 1
        assert "the block of 'ce' in the routing table cannot be edited" in capsys.readouterr().out
        assert config.read_text() == text


@pytest.mark.parametrize(
    ("lines", "message"),
    [("{}\n{\n", ":2: no JSON"), ("[]\n", ":1: must be a JSON object"), ("\n", "holds no requests")],
)
def test_a_wrong_canary_set_names_the_line(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "canary.jsonl"
    path.write_text(lines)
    with pytest.raises(ValueError, match=message):
        read_canary(path)


class Restless(FakeCluster):
    """One of two gateway replicas does not answer the first looks."""

    looks = 3

    def gateways(self) -> tuple[dict[str, GatewayView], bool]:
        views, _ = super().gateways()
        self.looks -= 1
        return (views, True) if self.looks < 0 else ({"a": views["a"]}, False)

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


@pytest.mark.parametrize(("looks", "code"), [(3, 0), (10_000, 2)])
def test_a_gateway_replica_that_comes_late_is_waited_for(
    looks: int, code: int, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Restless()
    cluster.looks = looks
    monkeypatch.setattr("cluster.rollout.cli._cluster", lambda options: cluster)
    assert main(["rollout", "retire", str(config), "ce", "--unasked-days", "1"]) == code
    said = capsys.readouterr().out
    assert ("clients' requests are known" in said) == (code == 0)
    assert ("not every gateway replica has answered within 30 s" in said) == (code == 2)
    assert cluster.clock - 1_000.0 == (1.5 if code == 0 else pytest.approx(30.0, abs=1))

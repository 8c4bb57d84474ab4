"""The command: plans, refusals, states of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.__main__ import main
from cluster.rollout import plan
from cluster.rollout.config_text import content
from cluster.rollout.judge import GatewayView
from cluster.rollout.runner import read_canary
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
    arguments = ["rollout", "red-black", str(config), "ce", "--to", "2", "--dashboard", "http://127.0.0.1:9"]
    assert main(arguments) == 2
    assert "resume or return" in capsys.readouterr().out
    state = StateFile(config).read()
    assert isinstance(state, State)
    assert state.phase is Phase.DEPLOY
    assert any(app["name"] == "ce-2" for app in content(config.read_text())["applications"])


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

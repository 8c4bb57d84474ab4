"""A whole rollout on a fake cluster: its steps, its returns, and a kill at every single operation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.rollout import plan
from cluster.rollout.config_text import ConfigError, application, routing
from cluster.rollout.judge import Answer
from cluster.rollout.runner import NotNow, Runner
from cluster.rollout.state import Kind, Limits, Options, Phase, State, StateFile
from serve_app.routing.table import digest
from tests.unit.cluster.conftest import CONFIG
from tests.unit.cluster.fake_cluster import FakeCluster, Killed

OPTIONS = Options(steps=(10, 50, 100), hold_s=30, keep_s=100, drain_s=5, ready_timeout_s=60)


def _start(config: Path, kind: Kind = Kind.RED_BLACK, old: str | None = None, **options: Any) -> State:
    cluster_now = FakeCluster().now()
    return plan.begin(config.read_text(), kind, "ce", old, "2", replace(OPTIONS, **options), cluster_now)


def _cluster(config: Path, **behaviour: Any) -> FakeCluster:
    cluster = FakeCluster(**behaviour)
    names = ("other-1", "ce-1", "images") + (("ce-2",) if "name: ce-2" in config.read_text() else ())
    cluster.apps = dict.fromkeys(names, 0.0)
    cluster.table = routing(config.read_text())
    return cluster


def _run(config: Path, cluster: FakeCluster, state: State) -> tuple[State, list[str]]:
    said: list[str] = []
    return Runner(config, cluster, said.append).run(state), said


def _versions(config: Path) -> dict[str, float]:
    return {version: route.weight for version, route in routing(config.read_text()).models["ce"].versions.items()}


def test_the_new_version_replaces_the_old_one(config: Path, canary: Path) -> None:
    cluster = _cluster(config)
    last, said = _run(config, cluster, _start(config, canary=str(canary), changes={"max_num_seqs": 4}))
    assert (last.phase, last.reason, cluster.lost) == (Phase.DONE, "", [])
    assert cluster.shares == [0.0, 0.1, 0.5, 1.0]
    assert _versions(config) == {"2": 1.0}
    assert cluster.apps.keys() == {"other-1", "ce-2", "images"}
    assert not StateFile(config).path.exists()
    settings = application(config.read_text(), "ce-2")
    assert settings is not None
    assert settings.max_num_seqs == 4
    assert cluster.asked[:6] == ["2", "2", "1", "1", "2", "2"]  # warmed, then compared
    assert any("2 canary requests: largest difference of a score 0, same first place 2 of 2" in line for line in said)


def test_everything_that_is_not_the_rollouts_stays_in_the_file_as_it_is(config: Path) -> None:
    _run(config, _cluster(config), _start(config))
    expected = CONFIG.replace("ce-1", "ce-2").replace('version: "1" # quoted', 'version: "2" # quoted')
    table = '{"1": {application: ce-2, task: rerank}}} # the reranker'
    expected = expected.replace(table, '{"2": {application: ce-2, task: rerank, weight: 1}}} # the reranker')
    assert config.read_text() == expected


def _back(config: Path, cluster: FakeCluster, state: State) -> str:
    before = config.read_text()
    last, _ = _run(config, cluster, state)
    assert cluster.lost == []
    assert (last.phase, _versions(config)) == (Phase.DONE, {"1": 1.0})
    assert cluster.apps.keys() == {"other-1", "ce-1", "images"}
    assert application(before, "ce-1") == application(config.read_text(), "ce-1")
    assert not StateFile(config).path.exists()
    assert cluster.shares[-1:] in ([], [0.0])
    return last.reason


def test_a_constructor_that_raises_leaves_the_old_version_and_says_why(config: Path) -> None:
    cluster = _cluster(config, broken={"2"})
    reason = _back(config, cluster, _start(config))
    assert reason == "ce-2: DEPLOY_FAILED: PoolingEngine: RuntimeError: no such checkpoint"
    assert cluster.shares == []  # the table never changed
    assert config.read_text() == CONFIG


def test_a_version_that_never_runs_is_given_up(config: Path) -> None:
    assert "DEPLOYING after 0 s" in _back(config, _cluster(config), _start(config, ready_timeout_s=0.5))


def test_slower_traffic_returns(config: Path) -> None:
    cluster = _cluster(config, latency_ms={"1": 10.0, "2": 60.0})
    reason = _back(config, cluster, _start(config))
    assert reason.startswith("p95 of the traffic is 6")
    assert cluster.shares == [0.0, 0.1, 0.0]  # at the first step


def test_errors_return_also_when_they_begin_late(config: Path) -> None:
    def late(cluster: FakeCluster) -> None:
        if cluster.shares and cluster.shares[-1] == 1.0:
            cluster.failing["2"] = 0.02

    cluster = _cluster(config, on_sleep=late)
    assert "requests failed" in _back(config, cluster, _start(config))
    assert cluster.shares == [0.0, 0.1, 0.5, 1.0, 0.0]  # with no old traffic left, the baseline's counts


def test_without_traffic_the_probes_decide(config: Path, canary: Path) -> None:
    cluster = _cluster(config, rate=0.0, latency_ms={"1": 10.0, "2": 60.0})
    assert "median of the probes" in _back(config, cluster, _start(config, canary=str(canary)))
    assert _run(config, _cluster(config, rate=0.0), _start(config, canary=str(canary)))[0].reason == ""


def test_a_canary_set_that_no_version_answers_returns(config: Path, canary: Path) -> None:
    cluster = _cluster(config)
    cluster.ask = lambda model, version, body: Answer(400, 1.0, (), "no such field")  # type: ignore[method-assign]
    reason = _back(config, cluster, _start(config, canary=str(canary)))
    assert reason == "canary request 1: 400 no such field; neither does the old version answer it: 400 no such field"
    assert cluster.shares == [0.0]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(score_difference=0.05), "scores differ by up to 0.8; the limit is 0.05"),
        (Limits(top1=0.9), "the first place is the same in 0% of the rankings; the limit is 90%"),
    ],
)
def test_other_scores_return_before_any_traffic(config: Path, canary: Path, limits: Limits, message: str) -> None:
    cluster = _cluster(config, scores={"1": (0.1, 0.9), "2": (0.9, 0.1)})
    assert _back(config, cluster, _start(config, canary=str(canary), limits=limits)) == message
    assert cluster.shares == [0.0]


def test_a_failed_version_can_be_kept(config: Path) -> None:
    cluster = _cluster(config, latency_ms={"1": 10.0, "2": 60.0})
    last, _ = _run(config, cluster, _start(config, keep_failed=True))
    assert last.reason
    assert _versions(config) == {"1": 1.0}
    assert "ce-2" in cluster.apps


def test_an_application_that_somebody_wrote_is_never_taken_out(config: Path) -> None:
    config.write_text(plan.desired(CONFIG, _start(config)))
    cluster = _cluster(config, broken={"2"})
    last, _ = _run(config, cluster, _start(config))
    assert "DEPLOY_FAILED" in last.reason
    assert application(config.read_text(), "ce-2") is not None


def test_beside_and_retire(config: Path) -> None:
    cluster = _cluster(config)
    last, _ = _run(config, cluster, _start(config, Kind.BESIDE))
    assert (last.reason, _versions(config)) == ("", {"1": 1.0, "2": 0.0})
    assert routing(config.read_text()).models["ce"].latest is None
    state = plan.begin(config.read_text(), Kind.RETIRE, "ce", "2", "", OPTIONS, 0.0)
    with pytest.raises(ConfigError, match="has traffic"):
        plan.begin(config.read_text(), Kind.RETIRE, "ce", "1", "", OPTIONS, 0.0)
    last, _ = _run(config, cluster, state)
    assert (_versions(config), cluster.lost) == ({"1": 1.0}, [])
    assert "ce-2" not in cluster.apps
    with pytest.raises(ConfigError, match="last version"):
        plan.begin(config.read_text(), Kind.RETIRE, "ce", "1", "", OPTIONS, 0.0)


def test_a_resumed_deployment_gets_its_time_again(config: Path) -> None:
    cluster = _cluster(config, kill_at=0)
    with pytest.raises(Killed):
        _run(config, cluster, _start(config))
    state = StateFile(config).read()
    assert state is not None
    assert state.phase is Phase.DEPLOY
    cluster.clock += OPTIONS.ready_timeout_s + 1
    assert _run(config, cluster, state)[0].reason == ""


@pytest.mark.parametrize("failing", [0.0, 0.5])
def test_after_a_pause_all_traffic_is_watched_for_the_whole_time(config: Path, failing: float) -> None:
    cluster = _cluster(config)

    def say(line: str) -> None:
        if line.startswith("keep"):
            raise Killed

    with pytest.raises(Killed):
        Runner(config, cluster, say).run(_start(config))
    state = StateFile(config).read()
    assert state is not None
    assert state.phase is Phase.KEEP
    cluster.clock += OPTIONS.keep_s + 600
    resumed = cluster.now()
    cluster.failing["2"] = failing
    last, _ = _run(config, cluster, state)
    assert ("requests failed" in last.reason) == (failing > 0)
    assert failing or cluster.now() - resumed >= OPTIONS.keep_s


def test_a_version_beside_is_the_clusters_too_wherever_the_run_was_killed(config: Path) -> None:
    cluster = _cluster(config)
    _run(config, cluster, _start(config, Kind.BESIDE))
    text, count = config.read_text(), cluster.operations
    for kill_at in range(count):
        config.write_text(CONFIG)
        cluster = _cluster(config, kill_at=kill_at)
        with pytest.raises(Killed):
            _run(config, cluster, _start(config, Kind.BESIDE))
        state = StateFile(config).read()
        assert state is not None, kill_at
        _run(config, cluster, state)
        assert (config.read_text(), cluster.table, cluster.lost) == (text, routing(text), []), kill_at
        assert StateFile(config).read() is None


def test_a_version_beside_is_not_done_before_the_gateways_say_so(config: Path) -> None:
    cluster = _cluster(config)
    apply, applied = cluster.apply, []

    def once(whole: Any) -> None:
        applied.append(whole)
        if len(applied) == 4:  # deploy, route, warm, done
            raise NotNow("Ray's dashboard does not answer")
        apply(whole)

    cluster.apply = once  # type: ignore[method-assign]
    with pytest.raises(NotNow):
        _run(config, cluster, _start(config, Kind.BESIDE))
    state = StateFile(config).read()
    assert state is not None
    assert state.phase is Phase.DONE
    _run(config, cluster, state)
    assert cluster.table == routing(config.read_text())
    assert cluster.gateways()[0]["a"].table == digest(cluster.table)
    assert not StateFile(config).path.exists()


def test_latest_follows_once_all_traffic_has(config: Path) -> None:
    seen = []

    def look(cluster: FakeCluster) -> None:
        route = cluster.table.models["ce"]
        if "2" in route.versions:
            seen.append((route.versions["2"].weight, route.latest))

    _run(config, _cluster(config, on_sleep=look), _start(config))
    assert list(dict.fromkeys(seen)) == [(0.0, "1"), (0.1, "1"), (0.5, "1"), (1.0, "1"), (1.0, "2"), (1.0, None)]


def test_other_versions_keep_their_share(config: Path) -> None:
    third = '"3": {application: ce-3, task: rerank, weight: 1}'
    config.write_text(CONFIG.replace("task: rerank}}} #", "task: rerank, weight: 3}, " + third + "}} #"))
    state = replace(_start(config), phase=Phase.SHIFT, step=0)
    text = plan.desired(plan.desired(config.read_text(), replace(state, phase=Phase.DEPLOY)), state)
    weights = {version: route.weight for version, route in routing(text).models["ce"].versions.items()}
    assert weights == {"1": 2.7, "2": 0.3, "3": 1.0}
    assert routing(text).models["ce"].latest == "3"


def test_a_gateway_that_refuses_the_table_stops_the_rollout_where_it_is(config: Path) -> None:
    cluster = _cluster(config)
    gateways = cluster.gateways
    cluster.gateways = lambda: ({"a": replace(gateways()[0]["a"], table="x", refused="no")}, True)  # type: ignore[method-assign]
    with pytest.raises(NotNow, match="0 of 1 gateway replicas have the table after 60 s; refused: no"):
        _run(config, cluster, _start(config))
    state = StateFile(config).read()
    assert state is not None
    assert state.phase is Phase.ROUTE


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembers what the configuration looks like in a phase: hundreds of runs ask for the same dozen."""
    known: dict[tuple[str, str], str] = {}
    desired = plan.desired

    def remembered(text: str, state: State) -> str:
        key = text, repr(replace(state, since=0.0, baseline=None))
        if key not in known:
            known[key] = desired(text, state)
        return known[key]

    monkeypatch.setattr(plan, "desired", remembered)
    monkeypatch.setattr("os.fsync", lambda file: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("outcome", ["good", "broken", "slow", "late"])
def test_killed_at_any_point_it_ends_the_same(config: Path, canary: Path, outcome: str) -> None:
    """Kills the run before each of its operations on the cluster and, in turn, right before each write of a file."""
    behaviour: dict[str, dict[str, Any]] = {
        "good": {},
        "broken": {"broken": {"2"}},
        "slow": {"latency_ms": {"1": 10.0, "2": 60.0}},
        "late": {"on_sleep": lambda cluster: cluster.failing.update({"2": 0.5 if cluster.shares[-1:] == [1.0] else 0})},
    }
    options = {"canary": str(canary), "probes": 2, "hold_s": 20.0, "keep_s": 40.0}
    cluster = _cluster(config, **behaviour[outcome])
    expected, _ = _run(config, cluster, _start(config, **options))
    text, count = config.read_text(), cluster.operations
    assert bool(expected.reason) == (outcome != "good")
    for kill_at in range(count):
        config.write_text(CONFIG)
        cluster = _cluster(config, kill_at=kill_at, **behaviour[outcome])
        with pytest.raises(Killed):
            _run(config, cluster, _start(config, **options))
        state = StateFile(config).read()
        assert state is not None
        last, _ = _run(config, cluster, state)
        assert (bool(last.reason), config.read_text(), cluster.lost) == (bool(expected.reason), text, []), kill_at
        assert cluster.apps.keys() == {"other-1", "images", "ce-1" if expected.reason else "ce-2"}
        assert StateFile(config).read() is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("outcome", ["good", "slow"])
def test_killed_while_files_are_written_it_ends_the_same(
    config: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    latency = {"1": 10.0, "2": 60.0 if outcome == "slow" else 10.0}
    writes, kill_at = 0, -1
    rename = Path.replace

    def replace_file(self: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if writes - 1 == kill_at:
            raise Killed
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace_file)
    expected, _ = _run(config, _cluster(config, latency_ms=latency), _start(config))
    text, count = config.read_text(), writes
    assert count > 10
    for place in range(count):
        config.write_text(CONFIG)
        cluster = _cluster(config, latency_ms=latency)
        state, writes, kill_at = _start(config), 0, place
        with pytest.raises(Killed):
            _run(config, cluster, state)
        kill_at = -1
        last, _ = _run(config, cluster, StateFile(config).read() or state)
        assert (last.reason, config.read_text(), cluster.lost) == (expected.reason, text, []), place
        assert StateFile(config).read() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Kind.RED_BLACK, "nope", None, "2"), "model 'nope' is not in the routing table; there are: other, ce"),
        ((Kind.RED_BLACK, "ce", "9", "2"), "the table has no version '9' of 'ce'|has no version '9'"),
        ((Kind.RED_BLACK, "ce", None, "1"), "'ce@1' is in the routing table already"),
    ],
)
def test_what_cannot_work_is_said_at_once(config: Path, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan.begin(config.read_text(), *arguments, OPTIONS, 0.0)


def test_a_wrong_field_is_said_at_once(config: Path) -> None:
    with pytest.raises(ValueError, match="max_num_sequences"):
        _start(config, changes={"max_num_sequences": 4})


@pytest.mark.parametrize("options", [{"steps": (10, 50)}, {"steps": (50, 10, 100)}, {"steps": ()}, {"drain_s": 1.0}])
def test_options_that_cannot_work(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"steps|drain"):
        Options(**options)


def test_one_process_at_a_time(config: Path) -> None:
    with StateFile(config).locked(), pytest.raises(BlockingIOError), StateFile(config).locked():
        pass
    with StateFile(config).locked():
        pass


def test_a_link_stays_a_link_and_leads_to_the_same_rollout(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "config.yaml"
    link.parent.mkdir()
    link.symlink_to(config)
    assert StateFile(link).path == StateFile(config).path
    last, _ = _run(link, _cluster(link), _start(link))
    assert last.reason == ""
    assert link.is_symlink()
    assert [path.name for path in link.parent.iterdir()] == ["config.yaml"]
    assert _versions(config) == {"2": 1.0}

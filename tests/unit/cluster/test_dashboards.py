"""Dashboards and alerts ask for what exists, are what is in the repository, and fire when they should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.utils import floatToGoString

from cluster.__main__ import main
from cluster.dashboards.boards import DASHBOARDS
from cluster.dashboards.cli import GENERATED, P95_MS, RULES, files
from cluster.dashboards.names import FOREIGN, PROMETHEUS
from cluster.dashboards.rules import alerts, budget_bound, recordings
from cluster.dashboards.spec import Dashboard
from serve_app.observability.catalogue import HAPROXY, LATENCY_S, OURS, RAY_SERVE, VLLM, VLLM_LABELS, Kind, Merge
from tests.unit.cluster.promql import Checker, Labels

_SAMPLES = ("_bucket", "_sum", "_count")


def known() -> dict[str, Labels]:
    """Every sample of the page, and the recording rules, with their labels."""
    found: dict[str, Labels] = {}
    for metric in OURS:
        for sample in metric.samples:
            found[sample] = frozenset((*metric.page_labels, *(["le"] if sample.endswith("_bucket") else [])))
    for name, kind in VLLM.items():
        suffixes = _SAMPLES if kind is Kind.HISTOGRAM else ("",)
        for suffix in suffixes:
            found[name + suffix] = frozenset((*VLLM_LABELS, *(["le"] if suffix == "_bucket" else [])))
    found |= {name: frozenset(labels) for name, labels in (FOREIGN | PROMETHEUS).items()}
    for rule in recordings(P95_MS):
        checker = Checker(found)
        found[rule.record] = checker.labels(rule.expr)
        assert checker.faults == [], rule.record
    return found


def _named(text: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, text))


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_every_query_names_metrics_and_labels_that_exist(board: Dashboard) -> None:
    checker = Checker(known())
    variables = {variable.name for variable in board.variables}
    for variable in board.variables:
        assert variable.name in checker.labels(variable.series)
    for row in board.rows:
        for panel in row.panels:
            for query in panel.queries:
                labels = checker.labels(query.expr)
                missing = _named(query.legend, r"\{\{(\w+)\}\}") - labels
                assert not missing, f"{panel.title}: the legend names {missing}"
                assert _named(query.expr, r"\$(\w+)") <= variables | {"__rate_interval"}, panel.title
            assert checker.faults == [], panel.title


def test_every_alert_names_metrics_and_labels_that_exist() -> None:
    checker = Checker(known())
    for alert in alerts(P95_MS):
        labels = checker.labels(alert.expr)
        assert checker.faults == [], alert.name
        assert _named(alert.summary, r"\$labels\.(\w+)") <= labels, alert.name
        assert alert.severity in ("page", "ticket")
        assert alert.action


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("sum(poolserve_requests)", "no metric poolserve_requests"),
        ("rate(poolserve_requests_total{modell='x'}[5m])", "poolserve_requests_total has no label modell"),
        ("sum by (stage) (poolserve_requests_total)", "has no label stage"),
        ("histogram_quantile(0.9, sum by (model) (rate(poolserve_stage_seconds_bucket[5m])))", "has no label le"),
        ("poolserve_requests_total / poolserve_documents_total", "nothing matches"),
        ("up / on (model) group_left () poolserve_model_ready", "left of on() has no label model"),
    ],
)
def test_the_check_itself_finds_what_is_wrong(expr: str, fault: str) -> None:
    checker = Checker(known())
    checker.labels(expr)
    assert any(fault in found for found in checker.faults), checker.faults


def test_every_metric_of_ours_is_on_a_dashboard_or_in_an_alert() -> None:
    checker = Checker(known())
    queries = [q.expr for board in DASHBOARDS for row in board.rows for panel in row.panels for q in panel.queries]
    for expr in [*queries, *(rule.expr for rule in recordings(P95_MS)), *(alert.expr for alert in alerts(P95_MS))]:
        checker.labels(expr)
    unused = {m.name for m in OURS if not set(m.samples) & checker.used}
    assert unused <= {"poolserve_metrics_replicas", "poolserve_gpu_power_limit_watts"}


def test_metrics_of_others_are_in_the_catalogue() -> None:
    catalogue = RAY_SERVE | HAPROXY
    for name in FOREIGN:
        base = name.removesuffix("_bucket")
        assert catalogue.get(base) is (Kind.HISTOGRAM if name != base else catalogue.get(name)) is not None, name


def test_gauges_of_replicas_are_not_mistaken_for_sums() -> None:
    """A series per replica has the replica's labels; the tests above rely on it."""
    for metric in OURS:
        assert ("replica" in metric.page_labels) == (metric.merge is Merge.REPLICA), metric.name


def test_the_files_in_the_repository_are_what_is_generated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "--check"]) == 0
    assert main(["dashboards", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in GENERATED.iterdir()} == set(files())
    (tmp_path / "overview.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    assert main(["dashboards", "--check", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "overview.json" in said
    assert "old.json" in said


def test_a_budget_between_two_buckets_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "--check", "--p95-ms", "80"]) == 2
    assert "p95_ms: 80 is no bound of the latency histogram; there are: 1, 2," in capsys.readouterr().err


def test_bounds_are_written_as_on_the_page() -> None:
    assert [budget_bound(bound * 1e3) for bound in LATENCY_S] == [floatToGoString(bound) for bound in LATENCY_S]


def test_panels_have_places_of_their_own() -> None:
    for board in DASHBOARDS:
        content = json.loads(files()[f"{board.name}.json"])
        assert (content["uid"], content["title"]) == (f"poolserve-{board.name}", board.title)
        taken: set[tuple[int, int]] = set()
        ids = [panel["id"] for panel in content["panels"]]
        assert len(ids) == len(set(ids))
        for panel in content["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            cells = {(x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells


def test_what_is_needed_to_look_at_it_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "--out", str(tmp_path), "--local", "--url", "http://127.0.0.1:9000/rank/"]) == 0
    scrape = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"][0]
    assert (scrape["job_name"], scrape["metrics_path"]) == ("poolserve", "/rank/metrics")
    assert scrape["static_configs"] == [{"targets": ["127.0.0.1:9000"]}]
    provider = yaml.safe_load((tmp_path / "grafana/provisioning/dashboards/poolserve.yml").read_text())["providers"][0]
    assert (Path(provider["options"]["path"]) / "overview.json").exists()
    said = capsys.readouterr().out
    assert f"prometheus --config.file={tmp_path}/prometheus.yml" in said
    assert main(["dashboards", "--out", str(tmp_path), "--local", "--url", "127.0.0.1"]) == 2
    _promtool("check", "config", str(tmp_path / "prometheus.yml"))


def _promtool(*arguments: str) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        message = "no promtool on this machine: `apt-get install prometheus`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    done = subprocess.run([tool, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_the_rules() -> None:
    _promtool("check", "rules", str(GENERATED / RULES))


_CE = 'model="ce",version="1"'
_ENGINE = f'deployment="PoolingEngine",{_CE},replica="a"'
_GPU = 'node="n",gpu="0",uuid="u"'


def _latency(below: str, count: str) -> dict[str, str]:
    """Answered requests, of which `below` take at most 100 ms."""
    return {
        f'poolserve_request_seconds_bucket{{route="/v1/rerank",{_CE},status_class="2xx",le="0.1"}}': below,
        f'poolserve_request_seconds_bucket{{route="/v1/rerank",{_CE},status_class="2xx",le="+Inf"}}': count,
        f'poolserve_request_seconds_count{{route="/v1/rerank",{_CE},status_class="2xx"}}': count,
    }


def _queue(waiting: str, working: str, in_flight: str) -> dict[str, str]:
    """Sequences that wait up to 0.2 s or 0.01 s in the engine, where they take up to 0.05 s."""
    series = {f"poolserve_documents_in_flight{{{_CE}}}": in_flight}
    for name, (at_10, at_50, at_200) in {
        "queue_seconds": (waiting, waiting, "0+60x180"),
        "seconds": ("0x180", working, "0+60x180"),
    }.items():
        for bound, values in (("0.01", at_10), ("0.05", at_50), ("0.2", at_200), ("+Inf", at_200)):
            series[f'poolserve_engine_{name}_bucket{{{_CE},le="{bound}"}}'] = values
    return series


_REQUESTS = f'poolserve_requests_total{{route="/v1/rerank",{_CE},status="200"}}'
FIRING: dict[str, dict[str, str]] = {
    "LatencyBudgetBurnsFast": _latency("0+30x180", "0+60x180"),
    "Faults": {_REQUESTS: "0+60x180", f'poolserve_requests_total{{route="/v1/rerank",{_CE},status="503"}}': "0+6x180"},
    "NotReady": {f"poolserve_model_ready{{{_CE}}}": "0x180"},
    "NothingToSee": {'up{job="poolserve",instance="x"}': "0x180"},
    "GpuMemoryNearlyFull": {
        f"poolserve_gpu_memory_used_bytes{{{_GPU}}}": "97x180",
        f"poolserve_gpu_memory_total_bytes{{{_GPU}}}": "100x180",
    },
    "ReplicaMemoryGrows": {
        f"poolserve_replica_memory_bytes{{{_ENGINE}}}": "100+10x180",
        f"poolserve_replica_start_time_seconds{{{_ENGINE}}}": "-9000x180",
    },
    "FeatureCacheThrashes": {
        f'poolserve_cache_misses_total{{cache="device",{_CE}}}': "0+60x180",
        f"poolserve_feature_slots_used{{{_ENGINE}}}": "99x180",
        f"poolserve_feature_slots{{{_ENGINE}}}": "100x180",
    },
    "KvCacheThrashes": {f'vllm:num_preemptions_total{{{_ENGINE},model_name="ce",engine="0"}}': "0+60x180"},
    "EngineNearlyFull": {
        f"poolserve_engine_documents_in_flight{{{_ENGINE}}}": "90x180",
        f"poolserve_engine_documents_limit{{{_ENGINE}}}": "100x180",
    },
    "QueueGrows": _queue("0x180", "0+60x180", "0+5x180"),
    "Rejected": {_REQUESTS: "0+60x180", f'poolserve_rejected_total{{{_CE},by="engine"}}': "0+6x180"},
    "FeatureLogDrops": {'poolserve_feature_log_records_total{outcome="dropped"}': "0+6x180"},
    "SourceUnread": {'poolserve_metrics_source_up{source="ray",node="n"}': "0x180"},
}
"""What makes each alert fire, a value a minute for three hours."""
QUIET: dict[str, str] = {
    **_latency("0+59x180", "0+60x180"),
    **_queue("0+60x180", "0+60x180", "5+5x180"),
    _REQUESTS: "0+600x180",
    f'poolserve_requests_total{{route="/v1/rerank",{_CE},status="503"}}': "0+1x180",
    f'poolserve_rejected_total{{{_CE},by="engine"}}': "0+1x180",
    f"poolserve_model_ready{{{_CE}}}": "1x180",
    'up{job="poolserve",instance="x"}': "1x180",
    f"poolserve_gpu_memory_used_bytes{{{_GPU}}}": "90x180",
    f"poolserve_gpu_memory_total_bytes{{{_GPU}}}": "100x180",
    f"poolserve_replica_memory_bytes{{{_ENGINE}}}": "1000+0.1x180",
    f"poolserve_replica_start_time_seconds{{{_ENGINE}}}": "-9000x180",
    f'poolserve_cache_misses_total{{cache="device",{_CE}}}': "0+10x180",
    f'poolserve_cache_hits_total{{cache="device",{_CE}}}': "0+60x180",
    f"poolserve_feature_slots_used{{{_ENGINE}}}": "100x180",
    f"poolserve_feature_slots{{{_ENGINE}}}": "100x180",
    f'vllm:num_preemptions_total{{{_ENGINE},model_name="ce",engine="0"}}': "1x180",
    f"poolserve_engine_documents_in_flight{{{_ENGINE}}}": "50x180",
    f"poolserve_engine_documents_limit{{{_ENGINE}}}": "100x180",
    'poolserve_feature_log_records_total{outcome="written"}': "0+60x180",
    'poolserve_feature_log_records_total{outcome="dropped"}': "3x180",
    'poolserve_metrics_source_up{source="ray",node="n"}': "1x180",
}
"""A healthy server: none fires."""


def _case(name: str, series: dict[str, str], firing: set[str]) -> dict[str, Any]:
    names = [f"Poolserve{alert.name}" for alert in alerts(P95_MS)]
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    wanted = [
        {"labels": f'{{alertname="{found}"}}', "value": 1}
        for found in names
        if found.removeprefix("Poolserve") in firing
    ]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "170m", "exp_samples": wanted}],
    }


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    ready = {f"poolserve_model_ready{{{_CE}}}": "1x180"}  # else NothingToSee fires as well
    cases = [_case("quiet", QUIET, set())]
    for name, series in FIRING.items():
        also = {"LatencyBudgetBurns"} if name == "LatencyBudgetBurnsFast" else set()
        cases.append(_case(name, {**ready, **series}, {name, *also}))
    assert set(FIRING) | {"LatencyBudgetBurns"} == {alert.name for alert in alerts(P95_MS)}
    shutil.copy(GENERATED / RULES, tmp_path)
    path = tmp_path / "test.yml"
    path.write_text(
        yaml.safe_dump({"rule_files": [RULES], "evaluation_interval": "1m", "tests": cases}, sort_keys=False)
    )
    _promtool("test", "rules", str(path))

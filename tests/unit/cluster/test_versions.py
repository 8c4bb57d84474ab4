"""Who was asked last, over gateway replicas, restarts and looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.rollout.judge import GatewayView
from cluster.rollout.versions import DAY_S, MAX_GAP_S, Asked, look, read_asked, unasked, write_asked
from serve_app.settings import RoutingSettings

NOW = 1_000_000_000.0
TABLE: dict[str, Any] = {"1": 0, "2": 0, "3": 1, "4": 0}


def _table(**model: Any) -> RoutingSettings:
    versions = {v: {"application": f"ce-{v}", "task": "rerank", "weight": w} for v, w in TABLE.items()}
    return RoutingSettings.model_validate({"models": {"ce": {"versions": versions, **model}}})


def _views(since: float, **replicas: dict[str, float]) -> dict[str, GatewayView]:
    return {
        name: GatewayView(
            name, since, "t", None, {("ce", version): {"last_asked": at} for version, at in asked.items()}
        )
        for name, asked in replicas.items()
    }


def test_the_latest_over_replicas_and_looks_counts() -> None:
    views = _views(NOW - 40 * DAY_S, a={"1": NOW - 9 * DAY_S}, b={"1": NOW - 2 * DAY_S, "2": NOW - 35 * DAY_S})
    asked = look(None, views, _table(), NOW)
    assert asked.last == {"ce@1": NOW - 2 * DAY_S, "ce@2": NOW - 35 * DAY_S}
    later = look(asked, _views(NOW, c={}), _table(), NOW + 3_600)  # all replicas are new, an hour later
    assert later.last == asked.last
    assert later.since == asked.since


def test_who_may_retire() -> None:
    route = _table().models["ce"]
    first = dict.fromkeys(("ce@1", "ce@2", "ce@3", "ce@4"), 0.0)
    asked = Asked(NOW - 40 * DAY_S, NOW, {"ce@1": NOW - 2 * DAY_S}, first)
    assert unasked(route, "ce", asked, 30, NOW) == ["2"]  # 4 is the latest, 3 has the traffic, 1 was asked
    assert unasked(route, "ce", asked, 1, NOW) == ["2", "1"]
    assert unasked(route, "ce", asked, 50, NOW) == []  # nobody knows about 50 days
    assert unasked(_table(shadow={"version": "2"}).models["ce"], "ce", asked, 30, NOW) == []
    assert unasked(_table(latest="2").models["ce"], "ce", asked, 30, NOW) == ["4"]


def test_a_version_that_is_new_is_not_unasked() -> None:
    asked = look(Asked(0.0, NOW - 3_600, {}, {"ce@1": 0.0}), _views(0.0, a={}), _table(), NOW)
    assert unasked(_table().models["ce"], "ce", asked, 30, NOW) == ["1"]


def test_a_gap_with_a_restart_begins_anew() -> None:
    old = Asked(0.0, NOW - MAX_GAP_S - 1, {"ce@1": 5.0}, dict.fromkeys(("ce@1", "ce@2"), 0.0))
    kept = look(old, _views(NOW - 2 * MAX_GAP_S, a={}), _table(), NOW)
    assert kept.since == 0.0  # the replica has seen all of it
    anew = look(old, _views(NOW - 60, a={}), _table(), NOW)
    assert anew.since == NOW - 60
    assert unasked(_table().models["ce"], "ce", anew, 1, NOW) == []


def test_it_is_written_down(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    assert read_asked(config) is None
    asked = look(None, _views(5.0, a={"1": 6.0}), _table(), NOW)
    write_asked(config, asked)
    assert read_asked(config) == asked

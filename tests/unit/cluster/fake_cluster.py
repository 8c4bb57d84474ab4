"""A cluster on a clock of its own, which checks that whatever is applied to it keeps the service whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.rollout.judge import Answer, GatewayView
from cluster.rollout.runner import AppStatus
from serve_app.routing.counters import BOUNDS_MS
from serve_app.routing.table import digest
from serve_app.settings import RoutingSettings

START_S = 1.0
TABLE_S = 0.8


class Killed(BaseException):
    """The process is gone: nothing may catch this."""


@dataclass
class FakeCluster:
    """Two gateway replicas and whatever applications were applied.

    Attributes:
        rate: requests a second that clients send to the model.
        latency_ms, failing: by version; `failing`: share of its answers that are errors.
        broken: versions whose constructor raises.
        scores: by version.
        kill_at: operation (counted from 0) before which the process is killed.
        lost: what went wrong for clients.
    """

    rate: float = 100.0
    latency_ms: dict[str, float] = field(default_factory=lambda: {"1": 10.0, "2": 10.0})
    failing: dict[str, float] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    scores: dict[str, tuple[float, ...]] = field(default_factory=dict)
    kill_at: int | None = None
    apps: dict[str, float] = field(default_factory=dict)
    """Application → when it runs."""
    table: RoutingSettings = field(default_factory=RoutingSettings)
    operations: int = 0
    clock: float = 1_000.0
    lost: list[str] = field(default_factory=list)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """Version 2's share of the traffic, each time it changed."""
    on_sleep: Callable[[FakeCluster], None] | None = None
    _changed: float = -1e9

    def _operation(self) -> None:
        if self.operations == self.kill_at:
            self.kill_at = None
            raise Killed
        self.operations += 1

    def apply(self, config: Mapping[str, Any]) -> None:
        self._operation()
        gateway = next(app for app in config["applications"] if app["name"] == "gateway")
        table = RoutingSettings.model_validate(gateway["deployments"][0]["user_config"])
        names = {app["name"] for app in config["applications"]} - {"gateway"}
        routed = {version.application for model in table.models.values() for version in model.versions.values()}
        if not routed <= names:
            self.lost.append(f"routed and not deployed: {routed - names}")
        gone = self.apps.keys() - names
        old_routes = {v.application for m in self.table.models.values() for v in m.versions.values()}
        if gone & old_routes or (gone and self.clock - self._changed < 2.0):
            self.lost.append(f"{gone} removed {self.clock - self._changed:.1f} s after the table's change")
        for app in gone:
            del self.apps[app]
        for app in names - self.apps.keys():
            self.apps[app] = self.clock + START_S
        if digest(table) != digest(self.table):
            self._changed = self.clock
            self.table = table
            share = self._share("2")
            if not self.shares or self.shares[-1] != share:
                self.shares.append(share)
        self._check()

    def _check(self) -> None:
        for model in self.table.models.values():
            for version, route in model.versions.items():
                ready = self.apps.get(route.application, float("inf")) <= self.clock and version not in self.broken
                if route.weight > 0 and not ready:
                    self.lost.append(f"traffic for {route.application}, which does not run")

    def _share(self, version: str) -> float:
        versions = self.table.models["ce"].versions
        total = sum(route.weight for route in versions.values())
        return round(versions[version].weight / total, 6) if version in versions else 0.0

    def status(self, application: str) -> AppStatus:
        self._operation()
        if application not in self.apps:
            return AppStatus(None)
        if application.rpartition("-")[2] in self.broken:
            return AppStatus("DEPLOY_FAILED", "PoolingEngine: RuntimeError: no such checkpoint")
        return AppStatus("RUNNING" if self.clock >= self.apps[application] else "DEPLOYING")

    def gateways(self) -> tuple[dict[str, GatewayView], bool]:
        self._operation()
        seen = digest(self.table) if self.clock - self._changed >= TABLE_S else "before"
        views = {}
        for replica in ("a", "b"):
            rows = {}
            for version, counts in self.counts.items():
                latency = next(i for i, bound in enumerate(BOUNDS_MS) if bound >= self.latency_ms[version])
                answered = int(counts["answered"] / 2)
                rows["ce", version] = {"answered": answered, "errors": int(counts["errors"] / 2), "refused": 0,
                                       "last_asked": None, "histogram": {str(latency): answered}}  # fmt: skip
            views[replica] = GatewayView(replica, 0.0, seen, None, rows)
        return views, True

    def ask(self, model: str, version: str, body: Mapping[str, Any]) -> Answer:
        self._operation()
        assert version in self.table.models[model].versions
        self.asked.append(version)
        self.clock += self.latency_ms[version] / 1e3
        return Answer(200, self.latency_ms[version], self.scores.get(version, (0.1, 0.9)))

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self._operation()
        if self.on_sleep is not None:
            self.on_sleep(self)
        self.clock += seconds
        for version in ("1", "2"):
            requests = self.rate * seconds * self._share(version)
            counts = self.counts.setdefault(version, {"answered": 0.0, "errors": 0.0})
            counts["errors"] += requests * self.failing.get(version, 0.0)
            counts["answered"] += requests * (1 - self.failing.get(version, 0.0))

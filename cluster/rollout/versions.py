"""Which versions there are, and which of them no client has asked for in a while.

A gateway replica remembers since its own start. What it says is therefore written down at each look (`rollout list`,
best once an hour, by cron) in `CONFIG.asked.json`: the latest time over all replicas and looks. A version counts as
unasked since it was last asked, or since looking began. Looking begins anew after a gap of more than `MAX_GAP_S` in
which a gateway replica has started, since that one's predecessor may have taken requests with it that nobody wrote
down; within a shorter gap that is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster.rollout.config_text import ConfigError
from cluster.rollout.judge import GatewayView
from cluster.rollout.state import write_whole
from serve_app.routing.table import latest
from serve_app.settings import ModelRoute, RoutingSettings

MAX_GAP_S = 26 * 3_600.0
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of clients' requests.

    Attributes:
        since: unix seconds since when nothing has been missed.
        looked: of the last look.
        last: of the last request, by `model@version`; missing: none since `since`, or since `first`.
        first: when each version was first seen in the table.
    """

    since: float
    looked: float
    last: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)

    def unasked_s(self, name: str, now: float) -> float:
        """Seconds for which a version is known to have had no client."""
        return now - max(self.since, self.first.get(name, now), self.last.get(name, 0.0))


def look(before: Asked | None, views: Mapping[str, GatewayView], routing: RoutingSettings, now: float) -> Asked:
    """What is known after another look at all gateway replicas."""
    started = max((view.since for view in views.values()), default=now)
    if before is None or (now - before.looked > MAX_GAP_S and started > before.looked):
        before = Asked(started, now, before.last if before else {}, before.first if before else {})
    last, first = dict(before.last), dict(before.first)
    for view in views.values():
        for (model, version), row in view.versions.items():
            if row["last_asked"] is not None:
                name = f"{model}@{version}"
                last[name] = max(last.get(name, 0.0), row["last_asked"])
    for model, route in routing.models.items():
        for version in route.versions:
            first.setdefault(f"{model}@{version}", now)
    return Asked(before.since, now, last, first)


def read_asked(config: Path) -> Asked | None:
    """What earlier looks have written down; None: nothing yet."""
    path = _path(config)
    return Asked(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write_asked(config: Path, asked: Asked) -> None:
    """Writes it down for the next look."""
    write_whole(_path(config), json.dumps(asdict(asked), indent=2) + "\n")


def _path(config: Path) -> Path:
    return config.with_name(config.name + ".asked.json")


def unasked(route: ModelRoute, model: str, asked: Asked, days: float, now: float) -> list[str]:
    """Versions that may retire, the longest unasked first: no weight, no copies, not the latest, no client in `days`.

    At least one version always stays, since a table needs one with weight.
    """
    kept = {latest(route), route.shadow.version if route.shadow is not None else None}
    idle = {
        version: asked.unasked_s(f"{model}@{version}", now)
        for version, target in route.versions.items()
        if target.weight == 0 and version not in kept
    }
    return sorted((v for v, seconds in idle.items() if seconds >= days * DAY_S), key=lambda v: -idle[v])


def check_known(routing: RoutingSettings, model: str) -> ModelRoute:
    """A model's block of the table. Raises ConfigError if there is none."""
    if model not in routing.models:
        raise ConfigError(f"model '{model}' is not in the routing table; there are: {', '.join(routing.models)}")
    return routing.models[model]

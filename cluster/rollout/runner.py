"""Walks a rollout from phase to phase. Every phase can be done again, so a run that was killed is simply run again.

The order is always the same: the state is written, then the configuration, then it is applied, then comes the wait.
Whatever a kill leaves undone, the next run finds the state and does the whole phase once more; applying an equal
configuration changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cluster.rollout import judge, plan
from cluster.rollout.config_text import content, routing
from cluster.rollout.judge import Answer, GatewayView
from cluster.rollout.state import Phase, State, StateFile, write_whole
from serve_app.routing.table import digest

POLL_S = 0.5
TABLE_TIMEOUT_S = 60.0
GONE_TIMEOUT_S = 120.0
FAILED = {"DEPLOY_FAILED", "UNHEALTHY"}


class NotNow(RuntimeError):
    """The cluster does not do what it is asked for. The rollout stays where it is and can be resumed."""


@dataclass(frozen=True, slots=True)
class AppStatus:
    """Ray Serve's word on an application; status: None: it does not exist."""

    status: str | None
    message: str = ""


class Cluster(Protocol):
    """A running service, as a rollout sees it."""

    def apply(self, config: Mapping[str, Any]) -> None:
        """Does what `serve deploy` does; does not wait."""
        ...

    def status(self, application: str) -> AppStatus:
        """What has become of an application."""
        ...

    def gateways(self) -> tuple[dict[str, GatewayView], bool]:
        """What the gateway replicas say, by replica; and whether those are all of them."""
        ...

    def ask(self, model: str, version: str, body: Mapping[str, Any]) -> Answer:
        """Sends a request of the canary set to one version."""
        ...

    def now(self) -> float:
        """Unix seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits."""
        ...


class Runner:
    """One rollout of one configuration.

    Args:
        config: the configuration's path.
        cluster: where it is applied.
        say: takes lines for whoever watches.
    """

    def __init__(self, config: Path, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._config = config
        self._cluster = cluster
        self._say = say
        self._file = StateFile(config)

    def run(self, state: State) -> State:
        """Goes on from a state to the end. Its phase begins anew: time in which nobody watched does not count.

        Returns:
            The last state; its `reason` says why the new version was taken back, "": it was not.

        Raises:
            NotNow: the cluster does not follow; run it again.
        """
        state = replace(state, since=self._cluster.now())
        while True:
            self._file.write(state)
            self._enter(state)
            if state.phase is Phase.DONE:
                if plan.ends_with_an_edit(state):
                    self._table_seen()
                self._file.remove()
                return state
            state = self._wait(state)

    def _enter(self, state: State) -> None:
        share = f" {state.share} %" if state.phase is Phase.SHIFT else ""
        self._say(f"{state.phase}{share}" + (f" (back: {state.reason})" if state.reason else ""))
        text = self._config.read_text(encoding="utf-8")
        wanted = plan.desired(text, state)
        if wanted != text:
            write_whole(self._config, wanted)
        # Not only if the text changes: a run before this one may have ended between the edit and here.
        if state.phase is not Phase.DONE or plan.ends_with_an_edit(state):
            self._cluster.apply(content(wanted))

    def _wait(self, state: State) -> State:
        """Waits until the phase is over; the next state."""
        reason = None
        match state.phase:
            case Phase.DEPLOY:
                reason = self._runs(state)
            case Phase.ROUTE:
                self._table_seen()
            case Phase.WARM:
                reason = self._compare(state)
            case Phase.SHIFT:
                self._table_seen()
                state, reason = self._watch(state, state.options.hold_s)
            case Phase.KEEP:
                self._table_seen()
                reason = self._keep(state)
            case Phase.RETURN:
                self._table_seen()
            case Phase.UNROUTE:
                self._table_seen()
                self._cluster.sleep(state.options.drain_s)
            case Phase.REMOVE:
                self._gone(state)
        now = self._cluster.now()
        if reason is not None:
            self._say(f"taking it back: {reason}")
            return plan.failed(state, reason, now)
        return plan.succeeded(state, now)

    def _runs(self, state: State) -> str | None:
        """Waits for the new application; why it does not run."""
        name, end = plan.application_name(state.model, state.new), state.since + state.options.ready_timeout_s
        while (found := self._cluster.status(name)).status != "RUNNING":
            if found.status in FAILED:
                return f"{name}: {found.status}: {found.message}".strip()
            if self._cluster.now() >= end:
                return f"{name}: {found.status or 'not deployed'} after {state.options.ready_timeout_s:.0f} s"
            self._cluster.sleep(POLL_S)
        return None

    def _table_seen(self) -> None:
        """Waits until every gateway replica has the configuration's table."""
        wanted = digest(routing(self._config.read_text(encoding="utf-8")))
        end = self._cluster.now() + TABLE_TIMEOUT_S
        while True:
            views, complete = self._cluster.gateways()
            if complete and all(view.table == wanted for view in views.values()):
                return
            if self._cluster.now() >= end:
                refused = {view.refused for view in views.values() if view.refused}
                have = sum(view.table == wanted for view in views.values())
                raise NotNow(
                    f"{have} of {len(views)} gateway replicas have the table after {TABLE_TIMEOUT_S:.0f} s"
                    + "".join(f"; refused: {why}" for why in refused)
                )
            self._cluster.sleep(POLL_S)

    def _gone(self, state: State) -> None:
        name = plan.application_name(state.model, state.leaving)
        if any(app.get("name") == name for app in content(self._config.read_text(encoding="utf-8"))["applications"]):
            return  # it was asked to stay
        end = self._cluster.now() + GONE_TIMEOUT_S
        while (found := self._cluster.status(name)).status is not None:
            if self._cluster.now() >= end:
                raise NotNow(f"{name} is {found.status} {GONE_TIMEOUT_S:.0f} s after its removal")
            self._cluster.sleep(POLL_S)

    # --- old against new ---------------------------------------------------------------------------------------------

    def _canary(self, state: State) -> Sequence[Mapping[str, Any]]:
        return read_canary(Path(state.options.canary)) if state.options.canary is not None else ()

    def _compare(self, state: State) -> str | None:
        requests = self._canary(state)
        if not requests:
            return None
        for body in requests:  # warms kernels, caches and the gateway's handle
            self._cluster.ask(state.model, state.new, body)
        old, new = (
            [self._cluster.ask(state.model, version, body) for body in requests] for version in (state.old, state.new)
        )
        reason, figures = judge.worse_scores(new, old, state.options.limits)
        self._say(f"  {len(requests)} canary requests: {figures or reason}")
        return reason

    def _watch(self, state: State, seconds: float) -> tuple[State, str | None]:
        """Watches both versions for a while; the state with a new baseline, and why the new version is worse."""
        limits, requests = state.options.limits, self._canary(state)
        probes: dict[str, list[Answer]] = {state.old: [], state.new: []}
        before, _ = self._cluster.gateways()
        end = self._cluster.now() + seconds
        count = state.options.probes if requests else 0
        for i in range(count):
            # In turns, so that whatever else goes on in the cluster hits both alike.
            for version, answers in probes.items():
                answers.append(self._cluster.ask(state.model, version, requests[i % len(requests)]))
            self._cluster.sleep(max(0.0, (end - self._cluster.now()) / (count - i)))
        self._cluster.sleep(max(0.0, end - self._cluster.now()))
        after, _ = self._cluster.gateways()
        old, new = (judge.traffic(before, after, state.model, version) for version in (state.old, state.new))
        if old.requests >= limits.min_requests:
            state = replace(state, baseline=old)
        for name, sample in (("old", old), ("new", new)):
            p95 = "-" if sample.p95_ms is None else f"{sample.p95_ms:.1f} ms"
            self._say(f"  {name}: {sample.requests} requests, {sample.errors} failed, p95 {p95}")
        reason = judge.worse_traffic(new, state.baseline, limits)
        if reason is None and requests:
            reason = judge.worse_probes(judge.of_probes(probes[state.new]), judge.of_probes(probes[state.old]), limits)
        return state, reason

    def _keep(self, state: State) -> str | None:
        while (left := state.since + state.options.keep_s - self._cluster.now()) > POLL_S:
            _, reason = self._watch(state, min(left, max(state.options.hold_s, POLL_S)))
            if reason is not None:
                return reason
        return None


def read_canary(path: Path) -> list[dict[str, Any]]:
    """The requests of a canary set: JSON objects, one a line, with the field `path` for another route than /v1/rerank.

    Raises:
        ValueError: a line is no JSON object; names it.
    """
    requests = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: no JSON: {error}") from None
        if not isinstance(body, dict):
            raise ValueError(f"{path}:{number}: must be a JSON object")
        requests.append(body)
    if not requests:
        raise ValueError(f"{path}: holds no requests")
    return requests

"""Brings a new version of a model into service, or retires an old one, by edits of one serve configuration.

`red-black` replaces a version: deploy the new one, wait, warm and compare it with a canary set, shift the traffic in
steps, keep the old one for a while, remove it; on the first sign that the new one is worse all returns to the old.
`beside` deploys a version for clients that name it. `list` shows versions and when they were last asked, `retire`
removes one. Each edit is written to the file and applied as `serve deploy` does. A command that was interrupted goes on
with `resume`; `return` takes a rollout back. `--dry-run` prints the edits and changes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from cluster.rollout import plan, versions
from cluster.rollout.config_text import ConfigError, content, routing
from cluster.rollout.ray_cluster import RayCluster
from cluster.rollout.runner import NotNow, Runner, read_canary
from cluster.rollout.state import Kind, Limits, Options, State, StateFile
from serve_app.settings import complaints

_OPTIONS = Options()
_GATEWAYS_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands and their options."""
    commands = parser.add_subparsers(dest="action", required=True)

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary)
        made.add_argument("config", type=Path, help="the serve configuration; edited in place")
        made.add_argument("--dashboard", default=os.environ.get("RAY_DASHBOARD_ADDRESS", "http://127.0.0.1:8265"))
        made.add_argument("--gateway", help="base URL of the gateway [http_options of the configuration]")
        made.add_argument("--api-key", metavar="KEY", help="the gateway's Bearer key; `env:NAME` reads a variable")
        return made

    for kind, summary in (
        (Kind.RED_BLACK, "replace a version"),
        (Kind.BESIDE, "deploy a version for clients that name it"),
    ):
        made = command(kind, summary)
        made.add_argument("model")
        made.add_argument("--to", required=True, metavar="VERSION", help="the new version")
        made.add_argument("--from", dest="old", metavar="VERSION", help="the old one [the one with most weight]")
        made.add_argument(
            "--set", action="append", default=[], metavar="FIELD=VALUE", help="field of the new version's args (YAML)"
        )
        _add_options(made, shifts=kind is Kind.RED_BLACK)
    made = command("retire", "remove a version that has no traffic")
    made.add_argument("model")
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("--version")
    which.add_argument("--unasked-days", type=float, help="the version that no client has asked for in so many days")
    made.add_argument("--drain", type=float, default=_OPTIONS.drain_s, help="seconds before the removal [%(default)s]")
    made.add_argument("--dry-run", action="store_true")
    command("list", "versions, their weights and states, and when clients last asked for them")
    command("resume", "go on with the rollout under way")
    command("return", "take the rollout under way back")
    commands.add_parser("status", help="where the rollout under way is").add_argument("config", type=Path)


def _add_options(parser: argparse.ArgumentParser, *, shifts: bool) -> None:
    limits = Limits()
    parser.add_argument("--canary", metavar="FILE", help="requests, one JSON object a line, without `model`")
    parser.add_argument("--ready-timeout", type=float, default=_OPTIONS.ready_timeout_s, help="seconds [%(default)s]")
    parser.add_argument("--max-score-difference", type=float, help="of the canary set's scores [any]")
    parser.add_argument("--min-top1", type=float, default=limits.top1, help="share of equal first places [%(default)s]")
    parser.add_argument("--keep-failed", action="store_true", help="leave the application of a version that failed")
    parser.add_argument("--drain", type=float, default=_OPTIONS.drain_s, help="seconds before a removal [%(default)s]")
    parser.add_argument("--dry-run", action="store_true", help="print the edits and change nothing")
    if not shifts:
        return
    parser.add_argument("--steps", default=",".join(map(str, _OPTIONS.steps)), help="per cent [%(default)s]")
    parser.add_argument("--hold", type=float, default=_OPTIONS.hold_s, help="seconds to watch each step [%(default)s]")
    parser.add_argument("--keep", type=float, default=_OPTIONS.keep_s, help="seconds to keep the old one [%(default)s]")
    parser.add_argument("--probes", type=int, default=_OPTIONS.probes, help="per version and step [%(default)s]")
    parser.add_argument("--max-p95-ratio", type=float, default=limits.p95_ratio, help="[%(default)s]")
    parser.add_argument("--p95-slack-ms", type=float, default=limits.p95_slack_ms, help="[%(default)s]")
    parser.add_argument("--max-error-rate", type=float, default=limits.error_rate, help="above the old's [%(default)s]")
    parser.add_argument("--min-requests", type=int, default=limits.min_requests, help="for a verdict [%(default)s]")


def run(options: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 the new version was taken back or nothing could be done, 2 interrupted: resume."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        return _run(options, console)
    except ValidationError as error:
        console.print(f"error: {complaints(error)}", style="red", markup=False)
        return 1
    except NotNow as error:
        console.print(f"error: {error}", style="red", markup=False)
        if StateFile(options.config).path.exists():
            console.print("The rollout stays where it is: resume or return.", markup=False)
        return 2
    except (ConfigError, ValueError, OSError) as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1


def _run(options: argparse.Namespace, console: Console) -> int:
    file = StateFile(options.config)
    state = file.read()
    if options.action == "status":
        console.print(_describe(state) if state else "no rollout under way", markup=False)
        return 0
    if options.action == "list":
        return _list(options, console)
    if options.action in {"resume", "return"}:
        if state is None:
            raise ConfigError("no rollout under way")
        if options.action == "return":
            state = plan.failed(state, "asked for", time.time())
    elif state is not None:
        raise ConfigError(f"{_describe(state)}; resume it, or return")
    else:
        state = _begin(options, console)
        if state is None:
            return 0
        if options.dry_run:
            show(options.config.read_text(encoding="utf-8"), state, console)
            return 0
    cluster = _cluster(options)
    with file.locked():
        if options.action not in {"resume", "return"}:
            _check_gateway(cluster)
        last = Runner(options.config, cluster, lambda line: console.print(line, markup=False)).run(state)
    if last.reason:
        console.print(f"{last.model}@{last.old} serves as before. {last.reason}", style="red", markup=False)
    return 1 if last.reason else 0


def _check_gateway(cluster: RayCluster) -> None:
    """Before the first edit: without the gateway's word no table counts as seen, and the rollout sticks half-way."""
    try:
        cluster.check_gateway()
    except NotNow as error:
        raise ConfigError(f"{error}; nothing was changed") from error


def _describe(state: State) -> str:
    what = f"{state.model}: {state.old} → {state.new}" if state.new else f"{state.model}@{state.old}"
    step = f" {state.share} %" if state.phase == "shift" else ""
    reason = f", going back: {state.reason}" if state.reason else ""
    return f"{state.kind} {what} is in phase {state.phase}{step}{reason}"


def _begin(options: argparse.Namespace, console: Console) -> State | None:
    """The first state of what is asked for; None: there is nothing to do."""
    text, now = options.config.read_text(encoding="utf-8"), time.time()
    if options.action == "retire":
        version = options.version or _unasked(options, console)
        made = Options(drain_s=options.drain)
        return plan.begin(text, Kind.RETIRE, options.model, version, "", made, now) if version else None
    if options.canary is not None:
        read_canary(Path(options.canary))
    made = Options(
        drain_s=options.drain,
        ready_timeout_s=options.ready_timeout,
        canary=str(Path(options.canary).resolve()) if options.canary else None,
        changes=dict(_change(item) for item in options.set),
        keep_failed=options.keep_failed,
        limits=Limits(score_difference=options.max_score_difference, top1=options.min_top1),
    )
    if options.action == Kind.RED_BLACK:
        limits = dataclasses.replace(
            made.limits,
            p95_ratio=options.max_p95_ratio,
            p95_slack_ms=options.p95_slack_ms,
            error_rate=options.max_error_rate,
            min_requests=options.min_requests,
        )
        steps = tuple(int(step) for step in options.steps.split(","))
        made = dataclasses.replace(
            made, steps=steps, hold_s=options.hold, keep_s=options.keep, probes=options.probes, limits=limits
        )
    return plan.begin(text, Kind(options.action), options.model, options.old, options.to, made, now)


def _change(item: str) -> tuple[str, Any]:
    path, equals, value = item.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set: must be FIELD=VALUE; got '{item}'")
    try:
        return path, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {path}: no YAML: {error}") from None


def show(text: str, state: State, console: Console) -> None:
    """Prints each phase with its edit of the file."""
    for step in plan.walk(state):
        console.print(f"[bold]{_describe(step)}[/bold]")
        wanted = plan.desired(text, step)
        lines = difflib.unified_diff(text.splitlines(), wanted.splitlines(), lineterm="", n=0)
        for line in list(lines)[2:]:
            console.print(f"  {line}", markup=False)
        text = wanted


def _cluster(options: argparse.Namespace) -> RayCluster:
    http = content(options.config.read_text(encoding="utf-8")).get("http_options") or {}
    if not isinstance(http, dict):
        raise ConfigError("http_options: must be a mapping")
    host = http.get("host", "127.0.0.1")
    local = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{http.get('port', 8000)}"
    key: str | None = options.api_key
    if key is not None and key.startswith("env:"):
        name = key.removeprefix("env:")
        key = os.environ.get(name)
        if not key:
            raise ConfigError(f"--api-key: the environment variable '{name}' is not set, or empty")
    return RayCluster(options.dashboard, options.gateway or local, key)


def _look(options: argparse.Namespace, cluster: RayCluster) -> versions.Asked:
    """Another look at the gateways, written down unless replicas were missing.

    Replicas that come or go while it looks are waited for.
    """
    ends = cluster.now() + _GATEWAYS_S
    while not (found := cluster.gateways())[1] and cluster.now() < ends:
        cluster.sleep(0.5)
    views, complete = found
    table = routing(options.config.read_text(encoding="utf-8"))
    asked = versions.look(versions.read_asked(options.config), views, table, time.time())
    if not complete:
        raise NotNow(f"not every gateway replica has answered within {_GATEWAYS_S:.0f} s; try again")
    versions.write_asked(options.config, asked)
    return asked


def _unasked(options: argparse.Namespace, console: Console) -> str | None:
    table = routing(options.config.read_text(encoding="utf-8"))
    route, now = versions.check_known(table, options.model), time.time()
    asked = _look(options, _cluster(options))
    found = versions.unasked(route, options.model, asked, options.unasked_days, now)
    if not found:
        known = (now - asked.since) / versions.DAY_S
        console.print(f"no version of {options.model} may retire; clients' requests are known for {known:.1f} days")
        return None
    return found[0]


def _list(options: argparse.Namespace, console: Console) -> int:
    cluster = _cluster(options)
    asked, now = _look(options, cluster), time.time()
    table = Table("model", "version", "share", "state", "application", "last asked", "")
    for row in cluster.models():
        name = f"{row['id']}@{row['version']}"
        table.add_row(row["id"], row["version"], f"{row['share']:.1%}", row["state"],
                      cluster.status(row["application"]).status or "absent", _ago(asked.last.get(name), now),
                      _marks(row))  # fmt: skip
    console.print(table)
    console.print(f"Clients' requests are known for {(now - asked.since) / versions.DAY_S:.1f} days.")
    return 0


def _ago(moment: float | None, now: float) -> str:
    if moment is None:
        return "never seen"
    seconds = max(0.0, now - moment)
    return f"{seconds / versions.DAY_S:.1f} days ago" if seconds > versions.DAY_S else f"{seconds:.0f} s ago"


def _marks(row: Mapping[str, Any]) -> str:
    shadow = row["shadow"] is not None and row["shadow"]["version"] == row["version"]
    return ", ".join(mark for mark, holds in (("latest", row["latest"]), ("shadow", shadow)) if holds)

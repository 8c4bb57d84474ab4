"""Starts a configuration and stays until Ctrl-C: what `make serve` runs.

Runs `serve run CONFIG` as a child, shows per model when it is ready, and ends everything it started. Asks the gateway's
`/ready` for progress, and Ray's dashboard for the reason when something fails.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from serve_app import haproxy
from serve_app.check import Report, check_file
from serve_app.http import key_of
from serve_app.settings import GatewaySettings
from serve_app.startup import in_words
from serve_app.vocabulary import OPERATIONS, Operation, Task

LOG = Path(".run/serve.log")
_STATUS_EVERY_S = 10.0
_STOP_TIMEOUT_S = 40.0
_DASHBOARD = re.compile(r"dashboard at .*?127\.0\.0\.1:(\d+)")
_FAILED = {"DEPLOY_FAILED", "UNHEALTHY"}


class Stop(Exception):
    """Ctrl-C, or SIGTERM."""


def bring_up(config: Path, timeout_s: float) -> int:
    """Checks, starts, reports, waits. Returns the exit code."""
    report = check_file(config)
    for note in report.notes:
        print(f"note: {note}")
    if report.problems:
        for problem in report.problems:
            print(f"error: {problem}", file=sys.stderr)
        return 1
    for port in (report.http_port, *report.grpc_ports, *report.proxy_ports):
        if (owner := port_owner(port)) is not None:
            print(
                f"error: port {port} is taken by {owner}. Another Ray Serve may be running; or a HAProxy that "
                "`ray stop --force` left behind: end it with `pkill haproxy`.",
                file=sys.stderr,
            )
            return 1
    # Also when a shell started us in the background, where SIGINT is ignored.
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w") as log:
        child = _serve_run(config, log)
        try:
            print(f"starting {config} with Ray Serve (log: {LOG})", flush=True)
            code = _watch(child, report, timeout_s)
            if code == 0:
                child.wait()
                print(f"serve ended with {child.returncode}; see {LOG}", file=sys.stderr)
                code = 1
            return code
        except Stop:
            print("\nstopping", flush=True)
            return 0
        finally:
            _end(child)


def port_owner(port: int) -> str | None:
    """Who listens on a port of this machine: a process name, or 'another process'; None if nobody does."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return None
    with contextlib.suppress(psutil.AccessDenied):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another process"


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stop


def _serve_run(config: Path, log: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ray.serve.scripts", "run", str(config)],
        stdout=log,
        stderr=subprocess.STDOUT,
        env={"RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore", **haproxy.variable(), **os.environ},
        start_new_session=True,  # a Ctrl-C in the terminal reaches us alone, and we end the child in order
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def _watch(child: subprocess.Popen[bytes], report: Report, timeout_s: float) -> int:
    """Prints what becomes ready, until all is, or something failed."""
    started = time.monotonic()
    asked = started
    done: set[str] = set()
    while time.monotonic() - started < timeout_s:
        if child.poll() is not None:
            print(f"error: `serve run` ended with {child.returncode}; see {LOG}", file=sys.stderr)
            return 1
        answer = get_ready(report.http_port)
        states = {"gateway": "ready"} if answer is not None else {}
        states |= {f"{m['model']}@{m['version']}": m["state"] for m in (answer or {}).get("models", [])}
        for name, state in states.items():
            if state == "ready" and name not in done:
                done.add(name)
                print(f"  {name:<24} ready after {time.monotonic() - started:.0f} s", flush=True)
        if answer is not None and answer["ready"]:
            _announce(report, time.monotonic() - started)
            return 0
        if time.monotonic() - asked > _STATUS_EVERY_S:
            asked = time.monotonic()
            if (failure := _failure()) is not None:
                print(f"error: {failure}", file=sys.stderr)
                return 1
            waiting = [f"{m.name}@{m.version}" for m in report.models.values() if f"{m.name}@{m.version}" not in done]
            print(f"  … {asked - started:.0f} s, loading: {', '.join(waiting)}", flush=True)
        time.sleep(0.5)
    print(f"error: not ready after {timeout_s:.0f} s; see {LOG} and `serve status`", file=sys.stderr)
    return 1


def get_ready(port: int) -> dict[str, Any] | None:
    """The gateway's `/ready`, or None while there is no gateway."""
    answer = _get_json(port, "/ready", {})
    return answer if answer is not None and "models" in answer else None


def _failure() -> str | None:
    """The first application that failed, with Ray Serve's reason; None also while nothing is known."""
    # Ray takes the next port when 8265 belongs to another cluster; its log says which.
    found = _DASHBOARD.search(LOG.read_text(errors="replace"))
    details = _get_json(int(found[1]) if found else 8265, "/api/serve/applications/", token_header())
    for name, application in ((details or {}).get("applications") or {}).items():
        if application.get("status") in _FAILED:
            reasons = [application.get("message") or ""]
            reasons += [d.get("message") or "" for d in (application.get("deployments") or {}).values()]
            return f"{name}: {application['status']}\n" + "\n".join(filter(None, reasons))[-3000:]
    return None


def token_header() -> dict[str, str]:
    """Ray's token, which a cluster that `serve run` starts asks for; its file is the user's own."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    token = os.environ.get("RAY_AUTH_TOKEN") or (path.read_text().strip() if path.exists() else "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def key_header(gateway: GatewaySettings | None) -> dict[str, str]:
    """An API key that the configuration's gateway takes; none if it needs none, or its variable is not set here."""
    if gateway is None or not gateway.api_keys:
        return {}
    try:
        return {"Authorization": f"Bearer {key_of(gateway.api_keys[0])}"}
    except ValueError:
        return {}


def _get_json(port: int, path: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
    """A JSON object from a server of this machine; None if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = json.loads(connection.getresponse().read())
        return answer if isinstance(answer, dict) else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def slowest_starts(models: dict[str, Any] | None, count: int = 3) -> list[str]:
    """Lines with the phases of the engines that took longest to start, from `/v1/models`."""
    found = []
    for model in (models or {}).get("data", []):
        times = (model.get("start_seconds") or {}).get("pooling_engine") or {}
        if times:
            words = in_words({phase: s for phase, s in times.items() if s >= 0.05 and phase != "total"})
            found.append(
                (times.get("total", 0.0), f"{model['id']}@{model['version']}: {times['total']:.1f} s ({words})")
            )
    return [line for _, line in sorted(found, reverse=True)[:count]]


def _announce(report: Report, seconds: float) -> None:
    print(f"everything is ready after {seconds:.0f} s. Try:\n\n  {example(report)}\n")
    for line in slowest_starts(_get_json(report.http_port, "/v1/models", key_header(report.gateway))):
        print(f"  slowest engines: {line}")
    base = f"http://127.0.0.1:{report.http_port}"
    print(f"Routes and their fields: {base}/docs")
    for port in report.grpc_ports:
        print(f"gRPC: 127.0.0.1:{port}, service poolserve.v1.Poolserve (docs/grpc.md)")
    print("In a second terminal: RAY_AUTH_MODE=token serve status, RAY_AUTH_MODE=token serve deploy CONFIG")
    print("Ctrl-C ends everything.")
    sys.stdout.flush()


def example(report: Report) -> str:
    """A curl line that works with this configuration, from this shell; a reranker if there is one."""
    base = f"http://127.0.0.1:{report.http_port}"
    models = sorted(
        report.models.values(), key=lambda m: Operation.RERANK not in OPERATIONS[m.task] or m.task != "rerank"
    )
    body: dict[str, Any] = {"model": models[0].name}
    if Operation.RERANK in OPERATIONS[models[0].task]:
        route = "rerank"
        body["query"] = "waterproof hiking boots for winter"
        body["documents"] = [
            "Light mesh running shoes for summer roads.",
            "Insulated waterproof boots for winter hiking, with a warm lining.",
            "How to return an order within 30 days.",
        ]
    elif models[0].task is Task.ABSA:
        route, body["inputs"] = "absa", ["The pasta was great, the waiter rude."]
    else:
        route, body["input"] = "classify", ["where is my parcel"]
    key = _key_option(report.gateway)
    return f"curl -s {base}/v1/{route} -H 'Content-Type: application/json'{key} -d '{json.dumps(body)}'"


def _key_option(gateway: GatewaySettings | None) -> str:
    """curl's option for the key, by its variable's name; a key that stands in the configuration is not printed."""
    if gateway is None or not gateway.api_keys:
        return ""
    key = gateway.api_keys[0]
    value = f"${key.removeprefix('env:')}" if key.startswith("env:") else "YOUR_KEY"
    return f' -H "Authorization: Bearer {value}"'


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and all processes below it: first in order, then by force."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(child.pid).children(recursive=True)
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(_STOP_TIMEOUT_S)
        except (subprocess.TimeoutExpired, Stop):
            child.kill()
            child.wait()
    _, alive = psutil.wait_procs(family, timeout=5)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()

"""A running service: Ray's dashboard for applications, the gateway for tables, counters and probes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from cluster.rollout.judge import Answer, GatewayView
from cluster.rollout.runner import AppStatus, NotNow
from serve_app.up import token_header

_APPLICATIONS = "/api/serve/applications/"
_TRIES = 5


class RayCluster:
    """Talks to Ray's dashboard as `serve deploy` does, and to the gateway as a client does.

    Args:
        dashboard: base URL of Ray's dashboard.
        gateway: base URL of the gateway.
        key: Bearer key of the gateway; None: it asks for none.
        timeout_s: seconds for a request.
    """

    def __init__(self, dashboard: str, gateway: str, key: str | None = None, timeout_s: float = 30.0) -> None:
        self._dashboard = httpx.Client(base_url=dashboard, headers=token_header(), timeout=timeout_s)
        headers = {"X-Probe": "1", **({"Authorization": f"Bearer {key}"} if key else {})}
        # A connection of its own for each request: a kept one would always see the same gateway replica.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._gateway = httpx.Client(base_url=gateway, headers=headers, timeout=timeout_s, limits=limits)

    def apply(self, config: Mapping[str, Any]) -> None:
        """See `Cluster.apply`."""
        answer = self._ask_dashboard("PUT", dict(config))
        if answer.status_code != 200:
            raise NotNow(f"Ray refused the configuration: {answer.status_code} {_last_line(answer.text)}")

    def status(self, application: str) -> AppStatus:
        """See `Cluster.status`; the message has the deployments' own."""
        found = self._applications().get(application)
        if found is None:
            return AppStatus(None)
        deployments = (found.get("deployments") or {}).items()
        parts = [found.get("message") or "", *(f"{n}: {d['message']}" for n, d in deployments if d.get("message"))]
        return AppStatus(found.get("status"), "\n".join(filter(None, parts))[-2_000:])

    def gateways(self) -> tuple[dict[str, GatewayView], bool]:
        """See `Cluster.gateways`. Asks until every replica that Ray knows of has answered, or has had the chance."""
        names = self._gateway_replicas()
        views: dict[str, GatewayView] = {}
        for _ in range(4 * len(names) + 4):
            answer = self._ask_gateway("/v1/routing")
            if answer.status_code == 200:
                view = _view(answer.json())
                views[view.replica] = view
            if names and names <= views.keys():
                break
        return views, bool(names) and names <= views.keys()

    def check_gateway(self) -> None:
        """Raises NotNow, with status and message, unless the gateway shows its table."""
        for attempt in range(_TRIES):
            answer = self._ask_gateway("/v1/routing")
            if answer.status_code == 200:
                return
            if attempt + 1 < _TRIES:
                self.sleep(1.0)
        raise NotNow(f"the gateway at {self._gateway.base_url} {_refusal(answer)}")

    def ask(self, model: str, version: str, body: Mapping[str, Any]) -> Answer:
        """See `Cluster.ask`."""
        path = str(body.get("path", "/v1/rerank"))
        content = {key: value for key, value in body.items() if key != "path"} | {"model": f"{model}@{version}"}
        started = time.perf_counter()
        try:
            answer = self._gateway.post(path, json=content)
        except httpx.HTTPError as error:
            return Answer(0, (time.perf_counter() - started) * 1e3, text=str(error) or type(error).__name__)
        ms = (time.perf_counter() - started) * 1e3
        if answer.status_code != 200:
            return Answer(answer.status_code, ms, text=answer.text)
        return Answer(200, ms, scores_of(answer.json()))

    def now(self) -> float:
        """See `Cluster.now`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """See `Cluster.sleep`."""
        time.sleep(seconds)

    def models(self) -> list[dict[str, Any]]:
        """`data` of `GET /v1/models`."""
        answer = self._ask_gateway("/v1/models")
        if answer.status_code != 200:
            raise NotNow(f"the gateway at {self._gateway.base_url} {_refusal(answer)}")
        return list(answer.json()["data"])

    def _gateway_replicas(self) -> set[str]:
        found = [app for app in self._applications().values() if "Gateway" in (app.get("deployments") or {})]
        replicas = found[0]["deployments"]["Gateway"]["replicas"] if found else []
        return {replica["replica_id"] for replica in replicas if replica["state"] == "RUNNING"}

    def _applications(self) -> dict[str, Any]:
        answer = self._ask_dashboard("GET")
        if answer.status_code != 200:
            raise NotNow(f"Ray's dashboard: {answer.status_code} {_last_line(answer.text)}")
        return dict(answer.json().get("applications") or {})

    def _ask_gateway(self, path: str) -> httpx.Response:
        """Its answer; NotNow if there is none, or none without another key, which waiting does not change."""
        try:
            answer = self._gateway.get(path)
        except httpx.HTTPError as error:
            raise NotNow(f"the gateway at {self._gateway.base_url} does not answer: {error}") from error
        if answer.status_code in (401, 403):
            raise NotNow(f"the gateway at {self._gateway.base_url} {_refusal(answer)} (--api-key)")
        return answer

    def _ask_dashboard(self, method: str, body: Any = None) -> httpx.Response:
        for attempt in range(_TRIES):
            try:
                return self._dashboard.request(method, _APPLICATIONS, json=body)
            except httpx.TransportError as error:
                if attempt + 1 == _TRIES:
                    raise NotNow(f"Ray's dashboard at {self._dashboard.base_url} does not answer: {error}") from error
                time.sleep(1.0)
        raise AssertionError


def _view(page: Mapping[str, Any]) -> GatewayView:
    versions = {(row["model"], row["version"]): row for row in page["versions"]}
    return GatewayView(page["replica"], page["since"], page["table"], page["refused"], versions)


def scores_of(answer: Any) -> tuple[float, ...]:
    """The numbers of an answer of any route, in the order of the request's items."""
    if isinstance(answer, dict) and "results" in answer:
        rows = sorted(answer["results"], key=lambda row: row["index"])
        return tuple(float(row["relevance_score"]) for row in rows)
    rows = answer.get("data", []) if isinstance(answer, dict) else []
    numbers: list[float] = []
    for row in sorted(rows, key=lambda row: row.get("index", 0)):
        for name in ("score", "probs", "embedding"):
            value = row.get(name)
            numbers += [float(value)] if isinstance(value, (int, float)) else []
            numbers += [float(number) for number in value] if isinstance(value, list) else []
    return tuple(numbers)


def _refusal(answer: httpx.Response) -> str:
    """Status and message of an answer that is not what was asked for."""
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = _last_line(answer.text)
    return f"answers {answer.request.url.path} with {answer.status_code}: {message}".removesuffix(": ")


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][-500:] if lines else ""

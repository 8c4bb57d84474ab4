"""Configurations for `images-path`, derived from a base; and changing the running one by Ray Serve's REST interface."""

from __future__ import annotations

import copy
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.backends import UsageError
from benchmarks.processes import ServerFailed
from serve_app.up import token_header

GATEWAY, IMAGES, MODEL = "serve_app.app:gateway", "serve_app.app:images", "serve_app.app:model"
LOOPBACK = "127.0.0.0/8"
DASHBOARD = "http://127.0.0.1:8265"


@dataclass(frozen=True, slots=True)
class Served:
    """The model that a configuration serves: its name, number format, checkpoint, and window."""

    name: str
    dtype: str
    source: str
    task: str
    max_model_len: int


def only_model(base: Mapping[str, Any], name: str | None) -> tuple[dict[str, Any], Served]:
    """The base with one model that takes images, the images' application and the gateway.

    Args:
        base: a configuration of Poolserve.
        name: the model's; None: the only one that ranks images.

    Raises:
        UsageError: there is no such model, or no images' application.
    """
    config = copy.deepcopy(dict(base))
    by_builder: dict[str, list[dict[str, Any]]] = {}
    for application in config.get("applications", []):
        by_builder.setdefault(application["import_path"], []).append(application)
    models = [
        application
        for application in by_builder.get(MODEL, [])
        if (application["args"]["name"] == name if name else application["args"]["task"] == "image_rank")
    ]
    if len(models) != 1:
        known = ", ".join(application["args"]["name"] for application in by_builder.get(MODEL, []))
        raise UsageError(
            f"--model: {len(models)} models of the configuration fit {name or 'image_rank'}; it has {known}"
        )
    if not by_builder.get(IMAGES) or not by_builder.get(GATEWAY):
        raise UsageError(f"the configuration needs applications of {GATEWAY} and {IMAGES}")
    args = models[0]["args"]
    config["applications"] = [by_builder[GATEWAY][0], by_builder[IMAGES][0], models[0]]
    for deployment in by_builder[GATEWAY][0].get("deployments", []):
        if "user_config" in deployment:
            table = deployment["user_config"]["models"]
            deployment["user_config"]["models"] = {args["name"]: table[args["name"]]}
    served = Served(args["name"], args["dtype"], args["source"], args["task"], int(args["max_model_len"]))
    return config, served


def with_loaders(config: Mapping[str, Any], replicas: int, *, num_cpus: float | None = None) -> dict[str, Any]:
    """The configuration with so many ImageLoaders, which may fetch from this machine.

    Args:
        num_cpus: cores that each reserves, and its decoding threads; None: as the configuration says.
    """
    changed = copy.deepcopy(dict(config))
    for application in changed["applications"]:
        if application["import_path"] == IMAGES:
            args = application.setdefault("args", {})
            args["allow_networks"] = [*args.get("allow_networks", []), LOOPBACK]
            args["allow_ports"] = []
            # One host has all images here, and a replica's limits are not what is measured.
            args.setdefault("timeout_ms", 30_000)
            args["replicas"] = {**args.get("replicas", {}), "num_replicas": replicas}
            if num_cpus is not None:
                args["replicas"]["num_cpus"] = num_cpus
    return changed


def images_application(config: Mapping[str, Any]) -> str:
    """Name of the images' application."""
    return next(str(a["name"]) for a in config["applications"] if a["import_path"] == IMAGES)


class RunningServe:
    """The running Ray Serve, through the REST interface of Ray's dashboard.

    Args:
        address: the dashboard's.
    """

    def __init__(self, address: str = DASHBOARD) -> None:
        self._url = f"{address}/api/serve/applications/"

    def deploy(self, config: Mapping[str, Any]) -> None:
        """Makes a configuration the wanted one; applications that are equal stay untouched.

        Raises:
            ServerFailed: it was not taken.
        """
        self._ask("PUT", config)

    def await_loaders(self, application: str, replicas: int, limit_s: float = 120.0) -> float:
        """Waits until so many ImageLoaders run, and no more; returns the seconds that it took.

        Raises:
            ServerFailed: they do not.
        """
        began = time.monotonic()
        states: dict[str, Any] = {}
        while time.monotonic() - began < limit_s:
            states = (self._ask("GET").get("applications") or {}).get(application) or {}
            if states.get("status") == "RUNNING" and running_replicas(states) == replicas:
                return time.monotonic() - began
            if states.get("status") == "DEPLOY_FAILED":
                break
            time.sleep(0.5)
        raise ServerFailed(f"{application}: not {replicas} loaders after {limit_s:.0f} s: {states.get('status')}")

    def _ask(self, method: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self._url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **token_header()},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            raise ServerFailed(
                f"Ray Serve answered {error.code}: {error.read()[:500].decode(errors='replace')}"
            ) from error
        except OSError as error:
            raise ServerFailed(f"Ray's dashboard does not answer at {self._url}: {error}") from error
        found = json.loads(said) if method == "GET" else {}
        return found if isinstance(found, dict) else {}


def running_replicas(application: Mapping[str, Any]) -> int:
    """Replicas of the ImageLoader that run; -1 while others start or stop."""
    found = [
        replica.get("state")
        for deployment in (application.get("deployments") or {}).values()
        for replica in deployment.get("replicas") or []
    ]
    return len(found) if set(found) <= {"RUNNING"} else -1

"""The way of every replica's metrics to one page.

A named actor puts the snapshots together, not a deployment: handles choose a replica and cannot reach every one, so
the replicas report to it. Whoever comes first makes it. It outlives the gateway's redeployments, and so does what
replicas counted that are gone. When nobody reports any more it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY, RAY_SERVE_HAPROXY_METRICS_PORT

from serve_app import __version__
from serve_app.engine.vllm_options import platform_version
from serve_app.errors import ModelUnavailable, NotFound
from serve_app.observability.catalogue import BY_NAME
from serve_app.observability.collector import Collector, Push, Reporter
from serve_app.observability.exposition import gauge, render
from serve_app.observability.foreign import Cached, ForeignPages, Page
from serve_app.observability.gpu import Gpus
from serve_app.observability.registry import Reading, Registry
from serve_app.observability.reporter import ProcessSource, ReportingThread
from serve_app.settings import ObservabilitySettings

logger = logging.getLogger("ray.serve")

NAME = f"poolserve-metrics-{__version__}"
"""With the version: after an update in a running cluster the new replicas must not report to old code."""
NAMESPACE = "poolserve"
CACHED_S = 1.0
NODES_S = 10.0
IDLE_S = 120.0
"""Seconds without any report after which the actor ends."""
CALL_S = 5.0


class MetricsCollector:
    """Adds to the collector what an actor needs: calls, the foreign pages' addresses, an end."""

    async def __init__(self) -> None:  # type: ignore[misc]  # Ray awaits it
        self._collector = Collector()
        self._nodes = _Nodes()
        self._foreign = ForeignPages(self._nodes.pages)
        self._page = Cached(self._make, CACHED_S)
        self._reported = time.monotonic()
        self._myself = ray.get_runtime_context().current_actor
        self._end_if_idle()

    async def push(self, reporter: Reporter, push: Push) -> bool:
        """See `Collector.push`."""
        self._reported = time.monotonic()
        return self._collector.push(reporter, push)

    async def leave(self, reporter: Reporter) -> None:
        """A replica ends: its own series go at once, what it counted stays."""
        self._collector.remove(reporter)

    async def page(self) -> bytes:
        """The whole page, at most a second old."""
        return await self._page.get()

    async def _make(self) -> bytes:
        started = time.perf_counter()
        self._collector.expire()
        replicas = self._collector.replicas
        try:
            foreign = await self._foreign.blocks(replicas)
        except Exception:  # our own page must not fail with Ray's
            logger.exception("the pages of Ray and the proxy could not be read")
            foreign = {}
        blocks = {**foreign, **self._collector.blocks()}
        for name, value in (
            ("poolserve_metrics_replicas", float(len(replicas))),
            ("poolserve_metrics_build_seconds", time.perf_counter() - started),
        ):
            blocks[name] = gauge(name, value, BY_NAME[name].help)
        return render(blocks)

    def _end_if_idle(self) -> None:
        left = self._reported + IDLE_S - time.monotonic()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._end_if_idle)
        else:
            ray.kill(self._myself, no_restart=True)


class _Nodes:
    """The foreign pages of the cluster's nodes, looked up now and then."""

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self._looked = -NODES_S

    async def pages(self) -> Sequence[Page]:
        if time.monotonic() - self._looked >= NODES_S:
            nodes = await asyncio.to_thread(ray.nodes)
            self._pages = [page for node in nodes if node["Alive"] for page in _pages(node)]
            self._looked = time.monotonic()
        return self._pages


def _pages(node: dict[str, Any]) -> list[Page]:
    address = node["NodeManagerAddress"]
    host = f"[{address}]" if ":" in address else address
    pages = [Page("ray", address, f"http://{host}:{node['MetricsExportPort']}/metrics")]
    if RAY_SERVE_ENABLE_HA_PROXY:
        pages.append(Page("haproxy", address, f"http://{host}:{RAY_SERVE_HAPROXY_METRICS_PORT}/metrics"))
    return pages


def collector() -> Any:
    """The actor, made if there is none."""
    actor = ray.remote(MetricsCollector)
    return actor.options(
        name=NAME, namespace=NAMESPACE, get_if_exists=True, lifetime="detached", num_cpus=0, max_restarts=-1
    ).remote()


class Reporting:
    """A replica's registry, on its way to the page.

    Args:
        settings: the application's.
        deployment: its name.
        model, version: "" for what serves all models.
    """

    def __init__(self, settings: ObservabilitySettings, deployment: str, model: str = "", version: str = "") -> None:
        self.registry = Registry()
        self.replica = serve.get_replica_context().replica_id.unique_id
        self._reporter = Reporter(deployment, model, version, self.replica, time.time())
        self._actor: Any = None
        self._thread: ReportingThread | None = None
        if settings.metrics.enabled:
            self.registry.add_source(ProcessSource())
            self._thread = ReportingThread(self.registry, self._reporter, self._send, settings.metrics.interval_s)
            self._thread.start()

    def add_gpus(self) -> None:
        """Reads the node's GPUs as well."""
        self.registry.add_source(Gpus(ray.util.get_node_ip_address()).read)

    def add_build(self) -> None:
        """Says which versions run."""
        labels = (__version__, ray.__version__, platform_version())
        self.registry.add_source(lambda: [Reading("poolserve_build_info", 1.0, labels)])

    async def page(self) -> bytes:
        """The whole application's page.

        Raises:
            ModelUnavailable: it cannot be had now.
            NotFound: metrics are off.
        """
        if self._thread is None:
            raise NotFound("metrics are switched off")
        try:
            if self._actor is None:
                self._actor = await asyncio.to_thread(collector)
            async with asyncio.timeout(CALL_S):
                page: bytes = await self._actor.page.remote()
        except (RayError, ValueError, TimeoutError) as error:
            self._actor = None
            raise ModelUnavailable("the metrics' collector does not answer") from error
        return page

    def close(self) -> None:
        """Reports once more, and leaves."""
        if self._thread is not None:
            self._thread.stop()
            if self._actor is not None:
                self._actor.leave.remote(self._reporter)

    def _send(self, reporter: Reporter, push: Push) -> bool:
        try:
            if self._actor is None:
                self._actor = collector()
            taken: bool = ray.get(self._actor.push.remote(reporter, push), timeout=CALL_S)
        except Exception:
            self._actor = None  # it may have ended for good
            raise
        return taken

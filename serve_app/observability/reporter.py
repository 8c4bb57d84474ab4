"""Reports a process's metrics, from a thread of its own: neither the event loop nor a request waits for it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

import psutil

from serve_app.observability.collector import Key, Push, Reporter
from serve_app.observability.registry import Reading, Registry, Schema, Snapshot

logger = logging.getLogger(__name__)

Send = Callable[[Reporter, Push], bool]
"""Hands a push to the collector; False: it wants the schema. May raise anything."""
MEMORY_EVERY_S = 10.0
"""Looking for a process's children reads all of /proc: about 10 ms."""
STOP_S = 2.0


class ReportingThread:
    """Sends a snapshot every `interval_s`, and a last one when it is stopped.

    Args:
        registry: the process's metrics.
        reporter: who reports.
        send: the way to the collector.
        interval_s: seconds.
    """

    def __init__(self, registry: Registry, reporter: Reporter, send: Send, interval_s: float) -> None:
        self._registry = registry
        self._reporter = reporter
        self._send = send
        self._interval_s = interval_s
        self._schema: Schema | None = None
        self._schema_id = 0
        self._acknowledged: Snapshot | None = None
        self._failing = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begins to report."""
        self._thread.start()

    def stop(self) -> None:
        """Reports once more and ends; waits for that a moment at most."""
        self._stopped.set()
        self._thread.join(STOP_S)

    def report(self) -> None:
        """One snapshot. An error costs this one only: totals travel, not differences."""
        snapshot = self._registry.snapshot()
        is_known = snapshot.schema is self._schema
        if not is_known:
            self._schema, self._schema_id = snapshot.schema, self._schema_id + 1
        if is_known and self._send(self._reporter, Push(snapshot.values, self._schema_id)):
            self._acknowledged = snapshot
            return
        push = Push(snapshot.values, self._schema_id, snapshot.schema, _totals(self._acknowledged))
        if self._send(self._reporter, push):
            self._acknowledged = snapshot

    def _run(self) -> None:
        while True:
            stopped = self._stopped.wait(self._interval_s)
            try:
                self.report()
                self._failing = False
            except Exception as error:  # whatever the way to the collector has
                self._schema = None  # it may be another collector next time
                if not self._failing and not stopped:
                    logger.warning("metrics could not be reported, and will be again: %s", type(error).__name__)
                self._failing = True
            if stopped:
                return


def _totals(snapshot: Snapshot | None) -> dict[Key, float] | None:
    if snapshot is None:
        return None
    return {
        (series.sample, series.labels): value
        for series, value in zip(snapshot.schema.series, snapshot.values.tolist(), strict=True)
    }


class ProcessSource:
    """What every replica says of itself."""

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())
        self._memory = 0.0
        self._looked = -MEMORY_EVERY_S

    def __call__(self) -> Sequence[Reading]:
        now = time.monotonic()
        if now - self._looked >= MEMORY_EVERY_S:
            self._looked, self._memory = now, self._resident()
        times = self._process.cpu_times()
        return [
            Reading("poolserve_replica_up", 1.0),
            Reading("poolserve_replica_start_time_seconds", self._process.create_time()),
            Reading("poolserve_replica_memory_bytes", self._memory),
            Reading("poolserve_replica_cpu_seconds_total", times.user + times.system),
        ]

    def _resident(self) -> float:
        total = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total

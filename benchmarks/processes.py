"""Starting a server in a session of its own and ending all of it, whatever happens. Linux only (`/proc`)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

Say = Callable[[str], None]


class ServerFailed(Exception):
    """A launched server did not become ready; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    session: int
    started: int
    """Clock ticks since boot; tells a process from a later one with the same id."""


def _running() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # Fields after the command name, which is in brackets and may hold spaces: state, ppid, pgrp, session…
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    found[int(entry.name)] = _Process(int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def family(leader: int, known: Mapping[int, int] | None = None) -> dict[int, int]:
    """pid → start time of every process in the leader's session or descended from it, and of those `known` that run.

    All three, because Ray and vLLM put some processes into groups or sessions of their own, and orphans lose their
    parent: what was seen once in the family is remembered by the caller.
    """
    running = _running()
    found = {pid for pid, p in running.items() if p.session == leader or pid == leader}
    found |= {pid for pid, start in (known or {}).items() if pid in running and running[pid].started == start}
    while grown := {pid for pid, p in running.items() if p.parent in found} - found:
        found |= grown
    return {pid: running[pid].started for pid in found}


def port_is_free(url: str) -> bool:
    """False when something accepts connections at the URL's host and port."""
    parts = urlsplit(url)
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname, parts.port or 80), timeout=1):
        return False
    return True


class Server:
    """A server process with everything it starts. A context manager: ready inside, gone outside.

    Args:
        name: for messages.
        command: its command line.
        ready_url: answers 200 once requests are served.
        env: added to the environment.
        log: file for its output, appended to.
        stop_signal: what ends it in good order.
        start_limit_s, stop_limit_s: seconds it may take to become ready, and to end before it is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        ready_url: str,
        env: Mapping[str, str],
        log: Path,
        *,
        stop_signal: signal.Signals,
        start_limit_s: float = 600,
        stop_limit_s: float = 60,
        say: Say = print,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.ready_url = ready_url
        self.env = dict(env)
        self.log = log
        self.start_seconds: list[float] = []
        self._stop_signal = stop_signal
        self._start_limit_s = start_limit_s
        self._stop_limit_s = stop_limit_s
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._known: dict[int, int] = {}

    def limit_start(self, seconds: float) -> None:
        """Leaves it no more than this to become ready."""
        self._start_limit_s = min(self._start_limit_s, max(1.0, seconds))

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until ready. Does nothing while it runs.

        Raises:
            ServerFailed: the port is taken, the process ended, or the time limit passed.
        """
        if self._process is not None:
            return
        if not port_is_free(self.ready_url):
            raise ServerFailed(f"{self.name}: something answers at {self.ready_url} already")
        self._say(f"{self.name}: starting, log in {self.log}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        try:
            with self.log.open("ab") as out:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **self.env},
                )
            self._leader = self._process.pid
            self._wait_ready(began + self._start_limit_s)
        except BaseException:  # Ctrl-C while it starts must not leave an engine behind
            self.stop()
            raise
        self.start_seconds.append(round(time.perf_counter() - began, 1))
        self._say(f"{self.name}: ready after {self.start_seconds[-1]} s")

    def _wait_ready(self, deadline: float) -> None:
        process = self._process  # `stop`, of another thread, forgets it
        assert process is not None
        while not _answers(self.ready_url):
            if (code := process.poll()) is not None:
                raise ServerFailed(f"{self.name}: ended with exit code {code} before it was ready\n{self._tail()}")
            if time.perf_counter() > deadline:
                raise ServerFailed(f"{self.name}: not ready after {self._start_limit_s:.0f} s\n{self._tail()}")
            self._known |= family(process.pid)
            time.sleep(0.5)
        self._known |= family(process.pid)

    def stop(self) -> None:
        """End the process and all it started: politely, then by SIGKILL. Safe to call again, also when interrupted."""
        process = self._process
        if process is None:
            return
        try:
            self._known |= family(process.pid)
            if process.poll() is None:
                process.send_signal(self._stop_signal)
            self._wait_gone(process, self._stop_limit_s)
        finally:
            for pid in family(process.pid, self._known):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(10)
            self._wait_none(10)  # only then are ports and GPU memory free
        self._known.clear()
        self._process = None
        self._say(f"{self.name}: stopped")

    def _wait_gone(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait for the process, then five seconds for what it leaves behind."""
        deadline = time.perf_counter() + seconds
        while process.poll() is None and time.perf_counter() < deadline:
            time.sleep(0.2)
        if left := self._wait_none(5):
            self._say(f"{self.name}: {left} processes outlived the stop signal and are killed")

    def _wait_none(self, seconds: float) -> int:
        """Wait until nothing of the family runs; returns how many still do."""
        deadline = time.perf_counter() + seconds
        while (left := len(family(self._leader, self._known))) and time.perf_counter() < deadline:
            time.sleep(0.2)
        return left

    def _tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start_together(servers: Sequence[Server]) -> None:
    """Starts servers at the same time and waits until all are ready.

    Raises:
        ServerFailed: of the first that failed; all are stopped then, as when the wait is interrupted.
    """
    with ThreadPoolExecutor(max(1, len(servers))) as threads:
        starts = [threads.submit(server.start) for server in servers]
        try:
            for start in as_completed(starts):
                start.result()
        except BaseException:
            for server in servers:
                server.stop()
            raise


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False

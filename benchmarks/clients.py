"""The load generator's processes. Spread over several, so that the client's one core is not what is measured."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from benchmarks.load import Check, Outcome, closed_loop, connect, open_loop
from benchmarks.wire import scores

READY = "ready"


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one backend.

    Attributes:
        url: the route.
        warmup: payloads sent first on the same connections; their outcomes are dropped, unless they fail.
        payloads: what is measured.
        concurrency: requests in flight, over all processes.
        documents: documents, or inputs, of each payload.
        check: reads the answers; a function that can be pickled.
        seconds: no request is begun later than this after the start; None: all payloads are sent.
        rate: an open loop with so many requests a second over all processes; None: a closed loop.
    """

    url: str
    warmup: Sequence[bytes]
    payloads: Sequence[bytes]
    concurrency: int
    documents: int
    timeout_s: float
    check: Check = scores
    seconds: float | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What a turn gave, over all processes.

    Attributes:
        outcomes: of the measured requests.
        cpu_shares: how busy each process' core was (1.0 = saturated).
        warmup_failures: failed requests of the warm-up.
    """

    outcomes: list[Outcome]
    cpu_shares: list[float]
    warmup_failures: list[Outcome] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        """From the first request sent to the last answer."""
        if not self.outcomes:
            return 0.0
        return max(o.ended for o in self.outcomes) - min(o.started for o in self.outcomes)


async def _play(turn: Turn, connection: Connection, take: Callable[[], int]) -> None:
    async with connect(turn.timeout_s) as session:
        warm = await closed_loop(
            session, turn.url, turn.warmup, turn.concurrency, turn.documents, check=turn.check, seconds=turn.seconds
        )
        connection.send(READY)
        await asyncio.to_thread(connection.recv)
        cpu, began = time.process_time(), time.perf_counter()
        rest = (turn.documents, take, turn.check, turn.seconds)
        if turn.rate is None:
            outcomes = await closed_loop(session, turn.url, turn.payloads, turn.concurrency, *rest)
        else:
            outcomes = await open_loop(session, turn.url, turn.payloads, turn.rate, *rest)
        share = (time.process_time() - cpu) / max(time.perf_counter() - began, 1e-9)
    connection.send(Load(outcomes, [share], [o for o in warm if o.error is not None]))


def _client(connection: Connection, counter: Any) -> None:
    """A process' main: plays turns until the parent closes the pipe. `counter`: index of the next payload, shared."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides

    def take() -> int:
        with counter.get_lock():
            index = counter.value
            counter.value += 1
        return int(index)

    while True:
        try:
            turn = connection.recv()
        except EOFError:
            return
        asyncio.run(_play(turn, connection, take))


class ClientPool:
    """A context manager around `size` load processes that live as long as the run."""

    def __init__(self, size: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._counter = spawn.Value("q", 0)
        self._clients: list[tuple[Any, Connection]] = []
        for _ in range(size):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_client, args=(theirs, self._counter), daemon=True)
            process.start()
            theirs.close()
            self._clients.append((process, ours))

    def __enter__(self) -> ClientPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process, connection in self._clients:
            connection.close()
            process.terminate()  # idle, or in a turn that Ctrl-C ended
        for process, _ in self._clients:
            process.join(5)
            if process.is_alive():
                process.kill()

    def play(self, turn: Turn) -> Load:
        """Run one turn. Processes warm up on their own, then start together and share one row of payloads, so that
        none of them runs dry before the others."""
        clients = self._clients[: turn.concurrency]
        count = len(clients)
        self._counter.value = 0
        for i, (_, connection) in enumerate(clients):
            share = turn.concurrency // count + (i < turn.concurrency % count)
            rate = None if turn.rate is None else turn.rate / count
            connection.send(replace(turn, warmup=turn.warmup[i::count], concurrency=share, rate=rate))
        for process, connection in clients:
            _receive(process, connection)
        for _, connection in clients:
            connection.send(READY)
        reports: list[Load] = [_receive(process, connection) for process, connection in clients]
        return Load(
            [o for r in reports for o in r.outcomes],
            [share for r in reports for share in r.cpu_shares],
            [o for r in reports for o in r.warmup_failures],
        )


def _receive(process: Any, connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise RuntimeError(f"load process {process.pid} of {os.getpid()} ended: exit code {process.exitcode}") from None

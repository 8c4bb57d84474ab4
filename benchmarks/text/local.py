"""A library in a process of its own: it loads while servers start, and answers when it is asked."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.load import Outcome
from benchmarks.text.computing import Method, load
from benchmarks.text.wire import Answer


class LibraryFailed(Exception):
    """The library's process could not do what it was asked; the message holds its error."""


@dataclass(frozen=True, slots=True)
class Loading:
    """What the process loads.

    Attributes:
        dtype: of the measured side; the reference is asked for by its own.
    """

    task: str
    folder: Path
    dtype: str
    device: str
    max_model_len: int


class LocalLibrary:
    """A context manager around the process."""

    def __init__(self, loading: Loading) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process: Any = spawn.Process(target=_serve, args=(theirs, loading), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> LocalLibrary:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()

    def wait(self) -> None:
        """Until the model is loaded.

        Raises:
            LibraryFailed: it could not be.
        """
        self._ask("wait")

    def answers(self, texts: Sequence[str], dtype: str) -> list[Answer]:
        """See `computing.Library.answers`; in another number format the model is loaded once more."""
        return list(self._ask("answers", list(texts), dtype))

    def turn(self, method: Method, texts: Sequence[str], seconds: float, warmup: int = 1) -> list[Outcome]:
        """One measurement: jobs of `method.texts` texts until the time is up, at least one.

        Args:
            texts: used over and over where they do not suffice; a library has no cache of them.
            warmup: jobs before, which are not measured.
        """
        return [Outcome(*times) for times in self._ask("turn", method, list(texts), seconds, warmup)]

    def _ask(self, *question: Any) -> Any:
        try:
            self._connection.send(question)
            good, answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise LibraryFailed(f"the library's process ended: exit code {self._process.exitcode}") from None
        if not good:
            raise LibraryFailed(answer)
        return answer


def _serve(connection: Connection, loading: Loading) -> None:
    """The process' main: loads, then answers until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    options: dict[str, Any] = {"device": loading.device, "max_model_len": loading.max_model_len}
    library: Any = None
    failed = None
    try:
        library = load(loading.task, loading.folder, dtype=loading.dtype, **options)
    except Exception:
        failed = traceback.format_exc(limit=-3)
    while True:
        try:
            name, *rest = connection.recv()
        except EOFError:
            return
        if failed is not None:
            connection.send((False, failed))
            continue
        try:
            if name == "answers":
                texts, dtype = rest
                own = dtype == loading.dtype
                using = library if own else load(loading.task, loading.folder, dtype=dtype, **options)
                answer: Any = using.answers(texts)
            else:
                answer = _turn(library, *rest) if name == "turn" else None
            connection.send((True, answer))
        except Exception:
            connection.send((False, traceback.format_exc(limit=-3)))


def _turn(library: Any, method: Method, texts: Sequence[str], seconds: float, warmup: int) -> list[tuple[float, float]]:
    size = method.texts
    jobs = [texts[start : start + size] for start in range(0, max(1, len(texts) - size + 1), size)]
    for i in range(warmup):
        library.run(method, jobs[-1 - i % len(jobs)])
    times: list[tuple[float, float]] = []
    ends = time.perf_counter() + seconds
    while not times or time.perf_counter() < ends:
        began = time.perf_counter()
        library.run(method, jobs[len(times) % len(jobs)])
        times.append((began, time.perf_counter()))
    return times

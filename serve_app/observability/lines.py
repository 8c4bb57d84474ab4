"""Files of JSON lines, written by a thread behind a bounded queue. A slow or full disk costs records, not requests."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from serve_app.settings import LogFileSettings

logger = logging.getLogger(__name__)

BATCH = 500
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
GATHER_S = 0.2
"""Seconds for which records gather. A thread that wakes for each of them takes the interpreter from the event loop as
often: 0.6 ms of CPU and 3.8 ms of p95 a request."""
PAUSE_S = 1.0
"""Seconds for which nothing is tried after an error; what is full then stays full."""
STOP_S = 2.0
SILENT_S = 86_400.0
"""A replica's files stay for as long after its last record, or for `keep_files` × `rotate_s` if that is longer."""
_NAME = re.compile(r"(?P<writer>(?P<kind>[a-z]+)-.+)-\d{8}T\d{6}-\d{6,}\.jsonl")


class LineFile:
    """Files `NAME-TIME-NUMBER.jsonl` in a folder, a new one after so many bytes or seconds.

    The folder may be shared and outlive its writers. Each new file removes the oldest of this writer's, and the files
    of writers of the same kind that are gone.

    Args:
        folder: made if it is missing.
        name: begins the files' names: `KIND-REPLICA`, unique per process. Without a hyphen others' files stay.
        settings: limits.
        clock: seconds, for the age of a file.
    """

    def __init__(
        self, folder: Path, name: str, settings: LogFileSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._name, self._settings, self._clock = folder, name, settings, clock
        self._file: FileIO | None = None
        self._number = 0
        self._bytes = 0
        self._begun = 0.0

    def write(self, lines: bytes) -> None:
        """Appends lines. Raises OSError; the next call then begins a new file."""
        rest = memoryview(lines)
        try:
            file = self._open()
            while rest:  # a disk that fills up takes a part
                rest = rest[file.write(rest) :]
        except OSError:
            self.close()
            raise
        self._bytes += len(lines)

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                file.close()

    def _open(self) -> FileIO:
        old = self._bytes >= self._settings.rotate_mib * 2**20 or self._clock() - self._begun >= self._settings.rotate_s
        if self._file is not None and (old or os.fstat(self._file.fileno()).st_nlink == 0):  # somebody removed it
            self.close()
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._number += 1
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            # Unbuffered: what a full disk refused must not be tried again by close().
            self._file = (self._folder / f"{self._name}-{stamp}-{self._number:06d}.jsonl").open("ab", buffering=0)
            self._bytes, self._begun = 0, self._clock()
            self._remove_oldest()
            self._remove_gone()
        return self._file

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.glob(f"{self._name}-*.jsonl"), key=lambda path: path.name)
        for path in files[: -self._settings.keep_files]:
            path.unlink(missing_ok=True)

    def _remove_gone(self) -> None:
        """Removes the files of writers of this kind that have been silent for long.

        A writer begins a new file where it finds its own removed, so one that lives and was silent loses old records
        and no new ones.
        """
        kind = self._name.partition("-")[0]
        writers: dict[str, list[tuple[Path, float]]] = {}
        for path in self._folder.glob(f"{kind}-*.jsonl"):
            name = _NAME.fullmatch(path.name)
            if name is not None and name["kind"] == kind and name["writer"] != self._name:
                with contextlib.suppress(OSError):  # another replica removes them as well
                    written = path.stat().st_mtime
                    writers.setdefault(name["writer"], []).append((path, written))
        silent_since = time.time() - max(SILENT_S, self._settings.keep_files * self._settings.rotate_s)
        for writer, files in writers.items():
            if max(written for _, written in files) >= silent_since:
                continue
            for path, _ in files:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            logger.warning("removed %d files of %s, which has written nothing for long", len(files), writer)


class LineWriter:
    """The queue and its thread.

    Args:
        file: where lines go; `write` may raise OSError, or take its time.
        settings: limits of the queue.
        name: of the thread, and in the log.

    Attributes:
        written, dropped, failed: records in the file; refused by a full queue; lost to an error of the file.
    """

    def __init__(self, file: LineFile, settings: LogFileSettings, name: str) -> None:
        self._file, self._name = file, name
        self._max_records = settings.max_queue
        self._max_bytes = int(settings.max_queue_mib * 2**20)
        self._queue: deque[tuple[Callable[[], Any], int]] = deque()
        self._queued_bytes = 0
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._logged = 0.0
        self.written = self.dropped = self.failed = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Records that wait."""
        return len(self._queue)

    def put(self, record: Callable[[], Any], size: int) -> bool:
        """Takes a record, to be made and written later. False: the queue is full, it was dropped and counted.

        Args:
            record: makes an object for orjson; called in the writing thread.
            size: bytes that it holds until then, about.
        """
        with self._lock:
            if len(self._queue) >= self._max_records or self._queued_bytes + size > self._max_bytes:
                self.dropped += 1
                return False
            self._queue.append((record, size))
            self._queued_bytes += size
            filling = len(self._queue) > self._max_records // 2 or self._queued_bytes > self._max_bytes // 2
        if filling:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()
        return True

    def close(self) -> None:
        """Writes what waits, as far as that takes a moment, and ends."""
        self._stopping = True
        self._hurry.set()
        self._wake.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(GATHER_S)
            self._hurry.clear()
            self._wake.clear()
            while batch := self._take():
                self._write(batch)
            if self._stopping:
                self._file.close()
                return

    def _take(self) -> list[Callable[[], Any]]:
        with self._lock:
            taken = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            self._queued_bytes -= sum(size for _, size in taken)
        return [record for record, _ in taken]

    def _write(self, batch: list[Callable[[], Any]]) -> None:
        lines = []
        for record in batch:
            try:
                lines.append(orjson.dumps(record(), option=_OPTIONS))
            except Exception as error:  # text with a lone surrogate, or our fault: this record's alone
                self._lost(1, error)
        try:
            self._file.write(b"".join(lines))
            self.written += len(lines)
        except OSError as error:
            self._lost(len(lines), error)
            if not self._stopping:
                time.sleep(PAUSE_S)

    def _lost(self, records: int, error: Exception) -> None:
        self.failed += records
        if not self._logged or time.monotonic() - self._logged > 60:
            self._logged = time.monotonic()
            logger.warning("%s: records are lost: %s", self._name, type(error).__name__)

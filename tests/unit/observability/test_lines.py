"""Log files: rotation, and a disk that is slow, full or away."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from serve_app.observability import lines as module
from serve_app.observability.lines import LineFile, LineWriter
from serve_app.settings import LogFileSettings


def settings(**changes: Any) -> LogFileSettings:
    return LogFileSettings.model_validate(changes)


def put(writer: LineWriter, count: int, size: int = 100) -> int:
    """Puts numbered records; returns how many were taken."""
    return sum(writer.put(lambda i=i: {"number": i}, size) for i in range(count))


def numbers(folder: Path) -> list[int]:
    content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))
    return [orjson.loads(line)["number"] for line in content.splitlines()]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Broken(LineFile):
    """A file whose disk is full until `full` is cleared, or takes `pause` seconds per write."""

    def __init__(self, folder: Path, full: bool = False) -> None:
        super().__init__(folder, "log", settings())
        self.full = full
        self.go = threading.Event()
        if full:
            self.go.set()

    def write(self, lines: bytes) -> None:
        assert self.go.wait(30)
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(lines)


def test_records_are_written_in_order_and_on_the_way_out(tmp_path: Path) -> None:
    writer = LineWriter(LineFile(tmp_path / "new" / "folder", "log", settings()), settings(), "log")
    assert put(writer, 1_200) == 1_200
    writer.close()
    assert numbers(tmp_path / "new" / "folder") == list(range(1_200))
    assert (writer.written, writer.dropped, writer.failed, writer.queued) == (1_200, 0, 0, 0)


def test_a_slow_disk_drops_and_counts_and_nobody_waits(tmp_path: Path) -> None:
    file = Broken(tmp_path)  # stands still until it is told to go
    limits = settings(max_queue=100)
    writer = LineWriter(file, limits, "log")
    taken = put(writer, 1_000)
    assert 100 <= taken <= 100 + module.BATCH
    assert writer.dropped == 1_000 - taken
    file.go.set()
    writer.close()
    assert len(numbers(tmp_path)) == writer.written == taken


def test_the_queue_is_bounded_by_bytes_as_well(tmp_path: Path) -> None:
    file = Broken(tmp_path)
    writer = LineWriter(file, settings(max_queue_mib=1), "log")
    put(writer, 1)
    wait_for(lambda: writer.queued == 0)  # the thread stands in its write
    assert put(writer, 50, size=100 * 1024) == 10
    assert writer.dropped == 40
    file.go.set()
    writer.close()


def test_a_full_disk_costs_records_only_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    file = Broken(tmp_path, full=True)
    writer = LineWriter(file, settings(), "log")
    put(writer, 100)
    wait_for(lambda: writer.failed == 100)
    file.full = False
    put(writer, 5)
    writer.close()
    assert writer.written == 5
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_a_real_full_device(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")

    class FullDevice(LineFile):
        def _open(self) -> Any:
            if self._file is None:
                self._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
            return self._file

    writer = LineWriter(FullDevice(tmp_path, "log", settings()), settings(), "log")
    put(writer, 10)
    wait_for(lambda: writer.failed == 10)
    writer.close()
    assert writer.written == 0


def test_a_folder_that_cannot_be_made_costs_records_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    writer = LineWriter(LineFile(tmp_path / "file" / "below", "log", settings()), settings(), "log")
    put(writer, 3)
    wait_for(lambda: writer.failed == 3)
    writer.close()


def test_a_record_that_is_no_json_costs_itself_only(tmp_path: Path) -> None:
    writer = LineWriter(LineFile(tmp_path, "log", settings()), settings(), "log")
    writer.put(lambda: {"number": 1}, 1)
    writer.put(lambda: {"number": "\ud800"}, 1)
    writer.put(lambda: {"number": object()}, 1)
    writer.put(lambda: {"number": 2}, 1)
    writer.close()
    assert numbers(tmp_path) == [1, 2]
    assert (writer.written, writer.failed) == (2, 2)


def test_files_rotate_by_size_and_the_oldest_go(tmp_path: Path) -> None:
    file = LineFile(tmp_path, "log", settings(rotate_mib=0.001, keep_files=3))
    for i in range(10):
        file.write(orjson.dumps({"number": i, "filler": "x" * 1_100}) + b"\n")
    assert numbers(tmp_path) == [7, 8, 9]
    other = LineFile(tmp_path, "other", settings(keep_files=1))
    other.write(b'{"number": 99}\n')
    assert len(list(tmp_path.iterdir())) == 4  # another replica's files are its own


def test_files_rotate_by_time(tmp_path: Path) -> None:
    now = [0.0]
    file = LineFile(tmp_path, "log", settings(rotate_s=60), clock=lambda: now[0])
    for second in (0, 30, 59, 61, 100, 130):
        now[0] = float(second)
        file.write(orjson.dumps({"number": second}) + b"\n")
    assert [path.read_bytes().count(b"\n") for path in sorted(tmp_path.iterdir())] == [3, 2, 1]


def _age(folder: Path, pattern: str, seconds: float) -> None:
    """Makes files as if they had last been written to so long ago."""
    for path in folder.glob(pattern):
        os.utime(path, (time.time() - seconds,) * 2)


def _begin(folder: Path, name: str, **changes: Any) -> LineFile:
    file = LineFile(folder, name, settings(**changes))
    file.write(b'{"number": 0}\n')
    return file


def _writers(folder: Path) -> set[str]:
    return {path.name.rsplit("-", 2)[0] for path in folder.iterdir()}


def test_files_of_replicas_that_are_gone_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(50):
        _begin(tmp_path, f"access-gone-{number}").close()
    _age(tmp_path, "access-gone-*", module.SILENT_S + 60)
    _begin(tmp_path, "access-late").close()
    _age(tmp_path, "access-late-*", module.SILENT_S - 60)
    _begin(tmp_path, "access-new")
    assert _writers(tmp_path) == {"access-late", "access-new"}
    assert caplog.text.count("removed 1 files of access-gone-") == 50


def test_a_replica_that_writes_keeps_its_old_files(tmp_path: Path) -> None:
    busy = _begin(tmp_path, "access-busy", rotate_mib=1e-9)
    _age(tmp_path, "*", 10 * module.SILENT_S)
    busy.write(b'{"number": 1}\n')  # a second file
    _begin(tmp_path, "access-new")
    assert [path.name.rsplit("-", 2)[0] for path in sorted(tmp_path.iterdir())] == ["access-busy"] * 2 + ["access-new"]


def test_slow_rotation_keeps_them_longer(tmp_path: Path) -> None:
    _begin(tmp_path, "features-gone").close()
    _age(tmp_path, "*", 9 * module.SILENT_S)
    _begin(tmp_path, "features-slow", rotate_s=module.SILENT_S, keep_files=10).close()
    assert _writers(tmp_path) == {"features-gone", "features-slow"}
    _age(tmp_path, "features-gone-*", 11 * module.SILENT_S)
    _begin(tmp_path, "features-slower", rotate_s=module.SILENT_S, keep_files=10)
    assert _writers(tmp_path) == {"features-slow", "features-slower"}


def test_other_files_of_the_folder_stay(tmp_path: Path) -> None:
    names = ["access-mine.jsonl", "access-r-20260101T000000-000001.log", "accesses-r-20260101T000000-000001.jsonl"]
    for name in names:
        (tmp_path / name).write_text("{}")
    _begin(tmp_path, "features-r").close()
    _age(tmp_path, "*", 10 * module.SILENT_S)
    _begin(tmp_path, "access-new").close()
    assert {path.name for path in tmp_path.iterdir()} > set(names)
    assert _writers(tmp_path) > {"features-r", "access-new"}


def test_a_file_that_was_removed_is_begun_again(tmp_path: Path) -> None:
    quiet = _begin(tmp_path, "access-quiet", rotate_s=1e9)
    _age(tmp_path, "*", 10 * module.SILENT_S)
    _begin(tmp_path, "access-new")
    assert _writers(tmp_path) == {"access-new"}
    quiet.write(b'{"number": 7}\n')
    assert _writers(tmp_path) == {"access-new", "access-quiet"}
    assert 7 in numbers(tmp_path)


def test_a_file_that_another_replica_removes_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "access-gone-20260101T000000-000001.jsonl").symlink_to(tmp_path / "nowhere")
    _begin(tmp_path, "access-new").close()
    assert [path.read_bytes() for path in tmp_path.glob("access-new-*")] == [b'{"number": 0}\n']

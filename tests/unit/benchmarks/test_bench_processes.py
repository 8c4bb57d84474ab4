"""Launched servers: real processes, small ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.environment import REPOSITORY
from benchmarks.processes import Server, ServerFailed, family, port_is_free, start_together

SERVER = """
import http.server, os, pathlib, signal, subprocess, sys
port, folder, stubborn = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "stubborn"
# Said outright: what a shell starts with & has SIGINT ignored, and so have all its children.
signal.signal(signal.SIGINT, signal.SIG_IGN if stubborn else signal.default_int_handler)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
children = [subprocess.Popen([sys.executable, "-c", child], start_new_session=own) for own in (False, True)]
(folder / "pids").write_text(" ".join(str(p.pid) for p in children))
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        (folder / "asked").touch()
        import time; time.sleep(600)
try:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Ready).serve_forever()
except KeyboardInterrupt:
    (folder / "polite").touch()
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def server(folder: Path, code: str = SERVER, mode: str = "", stop_limit_s: float = 30) -> Server:
    port = free_port()
    return Server(
        "small",
        [sys.executable, "-c", code, str(port), str(folder), mode],
        f"http://127.0.0.1:{port}/ready",
        {},
        folder / "log",
        stop_signal=signal.SIGINT,
        start_limit_s=60,
        stop_limit_s=stop_limit_s,
    )


def running(folder: Path) -> list[int]:
    return [pid for pid in map(int, (folder / "pids").read_text().split()) if Path(f"/proc/{pid}/exe").exists()]


@pytest.mark.parametrize(("mode", "polite"), [("", True), ("stubborn", False)])
def test_nothing_outlives_the_context(tmp_path: Path, mode: str, polite: bool) -> None:
    small = server(tmp_path, mode=mode, stop_limit_s=30 if polite else 0.2)

    def interrupted() -> None:
        with small:
            assert len(running(tmp_path)) == 2
            assert not port_is_free(small.ready_url)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "polite").exists() == polite
    assert port_is_free(small.ready_url)
    assert not running(tmp_path)
    small.stop()


@pytest.mark.parametrize("exclusive", [[], ["--exclusive"]])
def test_a_run_that_is_ended_twice_leaves_nothing(tmp_path: Path, exclusive: list[str]) -> None:
    """`timeout` sends SIGTERM to the process and to its group: the second one must not interrupt the stopping."""
    port = free_port()
    (tmp_path / "server.py").write_text(SERVER)
    config = tmp_path / "config.yaml"
    config.write_text("dtype: float32")
    command = f"{sys.executable} {tmp_path / 'server.py'} {port} {tmp_path} polite"
    words = ["--launch-poolserve", str(config), "--poolserve-command", command, "--logs-dir", str(tmp_path / "logs")]
    words += ["--poolserve-url", f"http://127.0.0.1:{port}", "--results-dir", str(tmp_path / "results"), *exclusive]
    with subprocess.Popen([sys.executable, "-m", "benchmarks", "rerank", *words], cwd=REPOSITORY) as run:
        while not (tmp_path / "asked").exists():
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 130
    assert not running(tmp_path)
    assert port_is_free(f"http://127.0.0.1:{port}")
    assert "interrupted" in next((tmp_path / "results").glob("*.md")).read_text()


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match=r"(?s)exit code 3.*the reason"),
        server(tmp_path, "print('the reason', flush=True); raise SystemExit(3)"),
    ):
        pass


def test_servers_that_start_together_are_all_there_and_start_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    servers = [server(folder) for folder in folders]
    start_together(servers)
    with servers[0], servers[1]:
        assert [len(running(folder)) for folder in folders] == [2, 2]
        assert [len(each.start_seconds) for each in servers] == [1, 1]
    assert not any(running(folder) for folder in folders)


def test_one_that_fails_ends_those_that_started_beside_it(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    good, bad = server(folders[0]), server(folders[1], "import time; time.sleep(1); raise SystemExit(3)")
    with pytest.raises(ServerFailed, match="exit code 3"):
        start_together([good, bad])
    assert not running(folders[0])
    assert port_is_free(good.ready_url)


def test_a_taken_port_is_refused_before_the_start(tmp_path: Path) -> None:
    small = server(tmp_path)
    port = int(small.ready_url.split(":")[2].split("/")[0])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ServerFailed, match="answers at"):
        small.start()
    assert not (tmp_path / "log").exists()


def test_the_family_holds_this_process() -> None:
    assert os.getpid() in family(os.getpid())

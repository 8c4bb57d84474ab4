"""A real server for tests: `python -m serve_app up` on a configuration, ended with everything it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: its base URL.
        grpc: address of its gRPC server; "": it has none.
        process: the `up` command.
        output: what it has printed.
    """

    url: str
    process: subprocess.Popen[bytes]
    output: Path
    grpc: str = ""

    def post(self, path: str, body: Any, timeout: float = 60.0, **headers: str) -> httpx.Response:
        """POST as JSON; header names with underscores for dashes."""
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        return httpx.post(self.url + path, json=body, timeout=timeout, headers=names)

    def processes(self, name: str) -> list[psutil.Process]:
        """Processes below the server whose title contains `name`, such as `EngineCore` or `HAProxy`."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if name in " ".join(process.cmdline()) or name in process.name():
                    found.append(process)
        return found


def run_in_cluster(server: Server, script: str, *arguments: str, timeout: float = 120.0) -> Any:
    """Runs a module of the tests in a process that is connected to the server's cluster; what it prints, as JSON.

    The module connects with `ray.init()`, which reads the address from its environment.
    """
    (raylet,) = server.processes("raylet/raylet")
    (address,) = {word.partition("=")[2] for word in raylet.cmdline() if word.startswith("--gcs-address=")}
    env = {**os.environ, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", script, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def default_config() -> dict[str, Any]:
    """`serve_config.yaml` as a mapping."""
    content: dict[str, Any] = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
    return content


@contextlib.contextmanager
def running(config: dict[str, Any], folder: Path, timeout: float = 600.0) -> Iterator[Server]:
    """Starts `config` on a free port, waits until it is ready, and ends it."""
    port = free_port()
    config["http_options"]["port"] = port
    grpc = ""
    for application in config["applications"]:
        if (settings := application["args"].get("grpc")) is not None:
            settings["port"] = free_port()
            grpc = f"127.0.0.1:{settings['port']}"
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    output = folder / "output.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "serve_app", "up", str(path)],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        _wait(process, output, timeout)
        yield Server(f"http://127.0.0.1:{port}", process, output, grpc)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(process: subprocess.Popen[bytes], output: Path, timeout: float) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if b"everything is ready" in output.read_bytes():
            return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    serve_log = output.parent / ".run" / "serve.log"
    tail = serve_log.read_text(errors="replace")[-4_000:] if serve_log.exists() else ""
    raise AssertionError(f"the server did not start:\n{output.read_text(errors='replace')[-4_000:]}\n{tail}")

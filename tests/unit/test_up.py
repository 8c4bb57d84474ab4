"""What `serve_app up` does when it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app import up
from serve_app.check import Report, check_file

REPOSITORY = Path(__file__).parents[2]
CHILD = """
import signal, sys, time
from pathlib import Path
def stop(number, frame):
    Path("ended").write_text(signal.Signals(number).name)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
Path("started").touch()
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_ends_a_container_ends_serve_run_in_order(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker stop` sends SIGTERM, and `serve run`, which aborts on that, gets SIGINT."""
    monkeypatch.chdir(tmp_path)
    Path(".run").mkdir()

    def watch(child: Any, report: Report, timeout_s: float) -> int:
        until = time.monotonic() + 30
        while not Path("started").exists() and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), number)
        time.sleep(30)
        raise AssertionError("not interrupted")

    monkeypatch.setattr(up, "check_file", lambda config: Report())
    monkeypatch.setattr(up, "port_owner", lambda port: None)
    monkeypatch.setattr(up, "_serve_run", lambda config, log: subprocess.Popen([sys.executable, "-c", CHILD]))
    monkeypatch.setattr(up, "_watch", watch)
    assert up.bring_up(Path("config.yaml"), 60) == 0
    assert Path("ended").read_text() == "SIGINT"


@pytest.mark.parametrize(
    ("keys", "option"),
    [
        ((), ""),
        (("env:RANKING_KEY",), ' -H "Authorization: Bearer $RANKING_KEY"'),
        (("secret",), ' -H "Authorization: Bearer YOUR_KEY"'),
    ],
)
def test_the_example_has_the_key_by_its_variable_and_never_prints_one(keys: tuple[str, ...], option: str) -> None:
    report = check_file(REPOSITORY / "serve_config.yaml")
    assert not report.problems
    report.gateway = report.gateway.model_copy(update={"api_keys": keys})
    line = up.example(report)
    before, _, body = line.partition(f"{option} -d '")
    assert before.endswith("'Content-Type: application/json'")
    assert json.loads(body.removesuffix("'"))["model"] == "ce-mini"
    assert "secret" not in line

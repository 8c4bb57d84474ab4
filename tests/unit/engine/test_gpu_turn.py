"""Engines on one GPU start one after the other; those on different GPUs do not wait."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from serve_app.engine.gpu_turn import gpu_turn

HOLDER = """
import asyncio, sys, time
from pathlib import Path
from serve_app.engine.gpu_turn import gpu_turn

async def main():
    async with gpu_turn(Path(sys.argv[1])):
        print("mine", flush=True)
        time.sleep(60)  # an engine's start blocks the event loop

asyncio.run(main())
"""


async def _start(folder: Path, order: list[str], name: str) -> None:
    async with gpu_turn(folder, poll_s=0.01):
        order.append(f"{name} begins")
        await asyncio.sleep(0.1)
        order.append(f"{name} is there")


async def test_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    order: list[str] = []
    await asyncio.gather(*(_start(tmp_path, order, name) for name in "abc"))
    assert len(order) == 6
    assert all(order[i].split()[0] == order[i + 1].split()[0] for i in (0, 2, 4)), order
    assert os.listdir(tmp_path) == ["gpu-3.lock"]


async def test_gpus_of_their_own_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    async with gpu_turn(tmp_path):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        async with asyncio.timeout(5), gpu_turn(tmp_path):
            pass


async def test_a_start_that_fails_lets_the_next_one(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no memory"):
        async with gpu_turn(tmp_path):
            raise RuntimeError("no memory")
    async with asyncio.timeout(5), gpu_turn(tmp_path):
        pass


async def test_a_process_that_is_killed_lets_the_next_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(tmp_path), stdout=PIPE)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"mine\n"
    order: list[str] = []
    with caplog.at_level(logging.INFO):
        waiting = asyncio.create_task(_wait(tmp_path, order))
        await asyncio.sleep(0.5)
        assert order == []
        holder.kill()
        async with asyncio.timeout(10):
            await waiting
    await holder.wait()
    assert order == ["mine"]
    assert "another engine is starting on GPU" in caplog.text


async def _wait(folder: Path, order: list[str]) -> None:
    async with gpu_turn(folder, poll_s=0.01, tell_every_s=0.1):
        order.append("mine")

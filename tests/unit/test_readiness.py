"""Canaries: a table that changes under a round, and failures that are nobody's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from serve_app.errors import ModelUnavailable
from serve_app.readiness import Readiness, State
from serve_app.routing import Target
from serve_app.startup import StartTimes
from serve_app.vocabulary import Task


def target(version: str) -> Target:
    return Target("m", version, f"m-{version}", Task.RERANK, 1.0)


ONE, TWO, THREE = (target(version) for version in "123")


class Canaries:
    """Answers at once, or once it may; `asked` has the versions in order."""

    def __init__(self, **failures: BaseException) -> None:
        self.asked: list[str] = []
        self.failures = failures
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, target: Target, deadline: float) -> Mapping[str, StartTimes] | None:
        self.asked.append(target.version)
        await self.may_answer.wait()
        if f"v{target.version}" in self.failures:
            raise self.failures[f"v{target.version}"]
        return None


async def _until_asked(canaries: Canaries, count: int) -> None:
    while len(canaries.asked) < count:
        await asyncio.sleep(0)


async def test_a_table_that_changes_during_a_round_is_asked_in_the_next() -> None:
    canaries = Canaries()
    canaries.may_answer.clear()
    readiness = Readiness(canaries)
    readiness.watch([ONE, THREE])
    await _until_asked(canaries, 2)
    readiness.watch([ONE, TWO])
    readiness.watch([ONE, TWO])
    assert readiness.state(TWO) is State.UNKNOWN
    canaries.may_answer.set()
    await readiness.refresh()
    assert canaries.asked == ["1", "3", "1", "2"]  # one more round for both changes
    assert readiness.all_ready()
    assert readiness.state(THREE) is State.UNKNOWN
    await readiness.refresh()
    assert len(canaries.asked) == 4  # that was a moment ago


async def test_who_began_the_round_learns_of_the_new_table_as_well() -> None:
    canaries = Canaries()
    readiness = Readiness(canaries)
    readiness.watch([ONE])
    await readiness.refresh()
    canaries.may_answer.clear()
    readiness.watch([ONE, TWO])
    first = asyncio.create_task(readiness.refresh())
    await _until_asked(canaries, 3)
    readiness.watch([ONE, TWO, THREE])
    canaries.may_answer.set()
    await first
    assert readiness.known_ready(THREE)


@pytest.mark.parametrize(
    "failure", [RuntimeError("odd"), TimeoutError(), ModelUnavailable("gone"), asyncio.CancelledError()], ids=repr
)
async def test_one_versions_failure_is_its_own(failure: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    canaries = Canaries(v2=failure)
    readiness = Readiness(canaries)
    readiness.watch([ONE, TWO, THREE])
    with caplog.at_level(logging.ERROR):
        await readiness.refresh()
        assert [readiness.state(of) for of in (ONE, TWO, THREE)] == [State.READY, State.NOT_READY, State.READY]
        readiness.watch([ONE, TWO, THREE])
        await readiness.refresh()
    ours = isinstance(failure, RuntimeError | TimeoutError)
    assert caplog.text.count("the canary of m-2 failed") == ours  # once, not with every round
    canaries.failures.clear()
    readiness.watch([ONE, TWO, THREE])
    await readiness.refresh()
    assert readiness.all_ready()

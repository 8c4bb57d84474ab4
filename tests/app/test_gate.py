"""The gate on the path's own Python, and proof that it catches what it is for."""

from __future__ import annotations

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchmarks.gate import LIMITS, check

pytestmark = pytest.mark.gate


def handled_twice(app: ASGIApp) -> ASGIApp:
    """A regression by a factor of two: everything that a request needs is done once more."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def drop(message: Message) -> None:
            return None

        await app(scope, receive, drop)
        await app(scope, receive, send)

    return call


@pytest.mark.parametrize("path", LIMITS)
def test_the_paths_own_python_is_within_its_limit(path: str) -> None:
    found = check(path)
    assert found.passed, f"{found}; see `python -m benchmarks gate`"


@pytest.mark.parametrize("path", LIMITS)
def test_a_planted_regression_by_two_is_caught(path: str) -> None:
    assert not check(path, attempts=2, wrap=handled_twice).passed

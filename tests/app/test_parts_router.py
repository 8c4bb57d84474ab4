"""Which replica a part of a request goes to; Ray Serve's router stands behind it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter

from deployments.parts_router import PartsRouter
from serve_app.splitting import split
from tests.unit.test_splitting import batch_of


@dataclass(frozen=True)
class Replica:
    """As much of Ray's `RunningReplica` as is looked at."""

    name: str

    @property
    def replica_id(self) -> Any:
        return SimpleNamespace(unique_id=self.name)


REPLICAS = [Replica(name) for name in "dbca"]


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> PartsRouter:
    async def two(self: Any, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        return [candidate_replicas[:2]]

    monkeypatch.setattr(PowerOfTwoChoicesRequestRouter, "choose_replicas", two)
    return object.__new__(PartsRouter)


def _pending(*args: Any) -> Any:
    return SimpleNamespace(args=list(args))


async def test_parts_meet_every_replica_once(router: PartsRouter) -> None:
    for _ in range(20):
        parts = split(batch_of([2] * 500), 4)
        ranks = await asyncio.gather(*(router.choose_replicas(REPLICAS, _pending(part)) for part in parts))
        assert Counter(rank[0][0].name for rank in ranks) == Counter("abcd")


async def test_more_parts_than_replicas_are_spread_evenly(router: PartsRouter) -> None:
    parts = split(batch_of([2] * 500), 8)
    ranks = [await router.choose_replicas(REPLICAS[:3], _pending(part)) for part in parts]
    assert sorted(Counter(rank[0][0].name for rank in ranks).values()) == [2, 3, 3]


async def test_every_handle_has_the_same_order(router: PartsRouter) -> None:
    batch = replace(batch_of([2]), lane=2)
    for order in (REPLICAS, REPLICAS[::-1]):
        assert (await router.choose_replicas(order, _pending(batch)))[0][0].name == "c"


async def test_a_part_has_other_replicas_to_go_to(router: PartsRouter) -> None:
    batch = replace(batch_of([2]), lane=0)
    assert await router.choose_replicas(REPLICAS, _pending(batch)) == [[Replica("a")], REPLICAS[:2]]


@pytest.mark.parametrize("pending", [None, _pending(), _pending(batch_of([2])), _pending("canary")])
async def test_what_is_no_part_goes_rays_way(router: PartsRouter, pending: Any) -> None:
    assert await router.choose_replicas(REPLICAS, pending) == [REPLICAS[:2]]


async def test_no_replicas_are_waited_for_as_ever(router: PartsRouter) -> None:
    assert await router.choose_replicas([], _pending(replace(batch_of([2]), lane=1))) == [[]]

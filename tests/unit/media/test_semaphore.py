"""Weighted admission: bounded, in order, without starvation, and nothing is lost by cancellation."""

from __future__ import annotations

import asyncio
import random

from serve_app.media.semaphore import Lease, WeightedSemaphore


async def test_a_heavy_one_is_not_overtaken() -> None:
    semaphore = WeightedSemaphore(10)
    order: list[str] = []

    async def take(name: str, weight: int) -> Lease:
        lease = await semaphore.acquire(weight)
        order.append(name)
        return lease

    first = await take("first", 6)
    heavy = asyncio.create_task(take("heavy", 9))
    light = asyncio.create_task(take("light", 1))
    await asyncio.sleep(0.01)
    assert order == ["first"]  # the light one would fit
    first.release()
    first.release()
    await asyncio.gather(heavy, light)
    assert order == ["first", "heavy", "light"]
    assert semaphore.used == 10


async def test_more_than_the_capacity_has_it_to_itself() -> None:
    semaphore = WeightedSemaphore(10)
    small = await semaphore.acquire(1)
    giant = asyncio.create_task(semaphore.acquire(1_000))
    await asyncio.sleep(0.01)
    assert not giant.done()
    small.release()
    (await giant).release()
    assert semaphore.used == 0


async def test_what_is_shrunk_goes_to_those_who_wait() -> None:
    semaphore = WeightedSemaphore(10)
    first = await semaphore.acquire(10)
    second = asyncio.create_task(semaphore.acquire(4))
    await asyncio.sleep(0.01)
    assert not second.done()
    first.shrink(6)
    await second
    assert semaphore.used == 10


async def test_a_cancelled_head_makes_way() -> None:
    semaphore = WeightedSemaphore(10)
    held = await semaphore.acquire(5)
    heavy = asyncio.create_task(semaphore.acquire(8))
    light = asyncio.create_task(semaphore.acquire(5))
    await asyncio.sleep(0.01)
    heavy.cancel()
    await asyncio.wait_for(light, 1)
    held.release()
    assert semaphore.used == 5


async def test_cancelled_in_the_turn_in_which_it_was_granted() -> None:
    semaphore = WeightedSemaphore(1)
    held = await semaphore.acquire(1)
    waiter = asyncio.create_task(semaphore.acquire(1))
    await asyncio.sleep(0.01)
    held.release()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert waiter.cancelled()
    assert semaphore.used == 0


async def test_nothing_is_lost_in_a_crowd() -> None:
    semaphore, rng, peak = WeightedSemaphore(100), random.Random(0), 0

    async def work() -> None:
        nonlocal peak
        lease = await semaphore.acquire(rng.randint(1, 100))
        peak = max(peak, semaphore.used)
        try:
            await asyncio.sleep(rng.random() / 500)
        finally:
            lease.release()

    tasks = [asyncio.create_task(work()) for _ in range(300)]
    await asyncio.sleep(0.01)
    for task in rng.sample(tasks, 100):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert semaphore.used == 0
    assert 50 < peak <= 100

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web

from benchmarks.clients import ClientPool, Turn
from benchmarks.corpus import FALLBACK_WORDS, Corpus
from benchmarks.load import ERROR_LIMIT, Outcome, closed_loop, connect
from benchmarks.wire import body


def payloads(count: int, seed: str = "s") -> list[bytes]:
    return [body(case, "m") for case in Corpus(FALLBACK_WORDS, seed).cases(count, 3)]


def drive(url: str, count: int, concurrency: int, timeout_s: float = 30) -> list[Outcome]:
    async def run() -> list[Outcome]:
        async with connect(timeout_s) as session:
            return await closed_loop(session, f"{url}/rerank", payloads(count), concurrency, 3)

    return asyncio.run(run())


def test_every_request_is_sent_once_with_a_fixed_number_in_flight(fake: Any) -> None:
    outcomes = drive(fake.url, 40, concurrency=4)
    assert [o.error for o in outcomes] == [None] * 40
    assert fake.most_in_flight == 4
    assert len({b["query"] for b in fake.bodies}) == 40
    assert len(fake.connections) == 4, "connections are kept alive"
    assert outcomes[0].stages == {"tokenize": 0.25, "engine": 1.5, "total": 2.0}
    assert all(o.answer_bytes > 0 and o.seconds > 0 for o in outcomes)


def test_errors_are_counted_by_kind(fake: Any) -> None:
    answers = {
        0: web.Response(status=503, text="busy"),
        1: web.Response(text="not json"),
        2: web.json_response({"results": [{"index": 0, "relevance_score": 0.5}]}),
        3: web.Response(status=429),
    }
    fake.respond = answers.get
    kinds = Counter(o.error for o in drive(fake.url, 10, concurrency=1))
    assert kinds == {None: 6, "http 503": 1, "http 429": 1, "malformed": 2}


def test_a_request_that_takes_too_long_is_a_timeout(fake: Any) -> None:
    fake.delay_s = 30
    assert [o.error for o in drive(fake.url, 1, concurrency=1, timeout_s=0.05)] == ["timeout"]


def test_a_dead_server_ends_the_turn_early() -> None:
    outcomes = drive("http://127.0.0.1:9", 10 * ERROR_LIMIT, concurrency=2)
    assert ERROR_LIMIT <= len(outcomes) <= ERROR_LIMIT + 2
    assert {o.error for o in outcomes} == {"ClientConnectorError"}


def test_processes_share_the_load(fake: Any) -> None:
    turn = Turn(f"{fake.url}/rerank", payloads(5, "warm"), payloads(30), 5, 3, 30)
    with ClientPool(2) as clients:
        first = clients.play(turn)
        second = clients.play(Turn(turn.url, [], payloads(7, "again"), 1, 3, 30))
    assert len(first.outcomes) == 30
    assert not first.warmup_failures
    assert len(first.cpu_shares) == 2
    assert first.wall_s > 0
    assert len(second.outcomes) == 7
    assert len(second.cpu_shares) == 1, "one in flight needs one process"
    assert len(fake.bodies) == 42
    assert len({b["query"] for b in fake.bodies}) == 42


def test_failures_of_the_warm_up_are_kept_apart(fake: Any) -> None:
    fake.respond = {0: web.Response(status=500)}.get
    with ClientPool(1) as clients:
        load = clients.play(Turn(f"{fake.url}/rerank", payloads(2, "warm"), payloads(4), 1, 3, 30))
    assert [o.error for o in load.warmup_failures] == ["http 500"]
    assert [o.error for o in load.outcomes] == [None] * 4

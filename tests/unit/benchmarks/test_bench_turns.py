"""Turns bound by time, what rounds come to, and results that grow."""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path
from typing import Any

from benchmarks.image_results import UNFINISHED, ImageResult, Section, busy
from benchmarks.load import ERROR_LIMIT, Outcome
from benchmarks.parity import compare
from benchmarks.timed import timed_loop, wall_s
from benchmarks.turns import Measurement, alternating, measurement, summaries


def outcome(started: float, seconds: float, error: str | None = None, **stages: float) -> Outcome:
    return Outcome(started, started + seconds, error, stages)


async def test_a_turn_ends_by_time_and_awaits_what_it_sent() -> None:
    in_flight, most = 0, 0

    async def send(_: int) -> Outcome:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        started = time.perf_counter()
        await asyncio.sleep(0.02)
        in_flight -= 1
        return Outcome(started, time.perf_counter())

    outcomes = await timed_loop(send, concurrency=3, seconds=0.1)
    assert most == 3
    assert in_flight == 0
    assert len(outcomes) >= 3
    assert len(await timed_loop(send, concurrency=2, seconds=0.0, minimum=5)) >= 5
    assert await timed_loop(send, concurrency=2, seconds=0.0, minimum=0) == []


async def test_a_turn_gives_up_after_many_errors() -> None:
    async def send(number: int) -> Outcome:
        await asyncio.sleep(0)
        return outcome(number, 1.0, "timeout")

    outcomes = await timed_loop(send, concurrency=4, seconds=60.0)
    assert ERROR_LIMIT <= len(outcomes) < ERROR_LIMIT + 4


def turn(side: str, number: int, seconds: float, c: int = 1, error: str | None = None) -> Measurement:
    outcomes = [outcome(0.0, seconds, fetch=3.0), outcome(seconds, seconds, error, fetch=5.0)]
    return measurement(side, {"c": c, "images": "cold"}, (number, 0), 20, outcomes, extra={"x": float(number)})


def test_a_turn_counts_answered_requests_over_all_its_time() -> None:
    measured = turn("a", 0, 0.5, error="http 503")
    assert measured.requests == 1
    assert measured.errors == {"http 503": 1}
    assert measured.items_per_s == 20.0
    assert measured.p50_ms == 500.0
    assert measured.stages["fetch"]["p50_ms"] == 3.0
    assert wall_s([]) == 0.0


def test_warm_up_errors_count() -> None:
    measured = measurement("a", {}, (0, 0), 1, [outcome(0, 1)], also_failed=[outcome(0, 1, "timeout")])
    assert measured.failed == 1


def test_rounds_alternate() -> None:
    assert list(alternating(["a", "b", "c"], 3)) == [(0, ["a", "b", "c"]), (1, ["c", "b", "a"]), (2, ["a", "b", "c"])]


def test_ratios_are_taken_within_a_round() -> None:
    # The machine is ten times slower in the second round; b is twice as fast as a in both.
    turns = [turn("a", 0, 0.2), turn("b", 0, 0.1), turn("b", 1, 1.0), turn("a", 1, 2.0), turn("b", 0, 9.0, c=4)]
    found = {(s.condition["c"], s.side): s for s in summaries(turns, "a")}
    assert list(found) == [(1, "a"), (1, "b"), (4, "b")]
    ratio = found[1, "b"].speedup
    assert math.isclose(ratio.median, 2.0)
    assert math.isclose(ratio.high - ratio.low, 0.0, abs_tol=1e-9)
    assert math.isnan(found[4, "b"].speedup.median), "no baseline under that condition"
    assert found[1, "b"].extra == {"x": 0.5}
    assert found[1, "b"].stages["fetch"]["p50_ms"] == 4.0


def result(folder: Path) -> ImageResult:
    return ImageResult("growing", "How.", "images", ["python"], folder, {"rounds": 2}, baseline="a", commit="abc")


def read(folder: Path) -> tuple[dict[str, Any], str]:
    (data,) = folder.glob("*.json")
    return json.loads(data.read_text()), data.with_suffix(".md").read_text()


def test_a_result_grows_in_its_own_files_and_is_valid_only_at_its_end(tmp_path: Path) -> None:
    growing = result(tmp_path)
    growing.turns += [turn("a", 0, 0.2)]
    growing.write()
    data, page = read(tmp_path)
    assert not data["valid"]
    assert data["problems"] == [UNFINISHED]
    growing.turns += [turn("b", 0, 0.1)]
    growing.sections.append(Section("More", "Text.", ["name"], [["value"]]))
    growing.finished = True
    growing.write()
    data, page = read(tmp_path)
    assert data["valid"]
    assert [row["side"] for row in data["rows"]] == ["a", "b"]
    assert data["code"]["commit"] == "abc"
    for piece in ("valid: yes", "images/s ÷ a", "| 1 | cold | b |", "## Stages", "## More", "| value |", "commit abc"):
        assert piece in page
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md"]


def test_another_run_of_the_day_has_files_of_its_own(tmp_path: Path) -> None:
    assert result(tmp_path).write() != result(tmp_path).write()


def test_failed_requests_parity_and_no_turns_at_all_make_a_result_invalid(tmp_path: Path) -> None:
    nothing, failed, wrong = result(tmp_path), result(tmp_path), result(tmp_path)
    for each in (nothing, failed, wrong):
        each.finished = True
    failed.turns.append(turn("a", 0, 0.1, error="timeout"))
    wrong.turns.append(turn("a", 0, 0.1))
    assert wrong.valid()
    wrong.agreements.append(compare("a", [[0.1, 0.9]], "b", [[0.1, 0.8]], 1e-3))
    assert not any(each.valid() for each in (nothing, failed, wrong))
    assert "parity: FAILED" in wrong.write().read_text()


def test_a_run_whose_time_is_up_keeps_its_whole_rounds(tmp_path: Path) -> None:
    two, none = result(tmp_path), result(tmp_path)
    for each in (two, none):
        each.turns += [turn("a", 0, 0.1), turn("b", 0, 0.1), turn("b", 1, 0.1)]
        each.finished = True
    two.out_of_time(1, 60)
    none.out_of_time(0, 60)
    assert [(t.side, t.round) for t in two.turns] == [("a", 0), ("b", 0)]
    assert two.valid()
    assert not none.valid()
    assert "1 rounds: after 60 s the time was up" in two.write().read_text()


def test_a_busy_machine_is_noted() -> None:
    assert busy({"load_before": 0.4, "cpus": 2}) == []
    (note,) = busy({"load_before": 14.85, "cpus": 2})
    assert "load 14.85 on 2 CPUs" in note

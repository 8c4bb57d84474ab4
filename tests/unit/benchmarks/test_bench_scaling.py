"""The simulated day: arrivals, replicas, policies, files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.backends import UsageError
from benchmarks.cli import main
from benchmarks.scaling.day import summary
from benchmarks.scaling.policies import Fixed
from benchmarks.scaling.simulate import Figures, Service, simulate
from benchmarks.scaling.split import SplitOptions, configuration
from benchmarks.scaling.traffic import Arrivals, read, synthetic

SERVICE = Service(tokens_per_s=100.0, floor_s=0.0, start_s=10.0)


def arrivals(*pairs: tuple[float, int]) -> Arrivals:
    times, tokens = zip(*pairs, strict=True)
    return Arrivals(np.array(times, dtype=np.float64), np.array(tokens, dtype=np.int64), "test")


class Script:
    """Asks for what it is told, by second; keeps what it saw."""

    def __init__(self, wanted: dict[int, int]) -> None:
        self.wanted = wanted
        self.seen: list[Figures] = []

    def replicas(self, figures: Figures) -> int:
        self.seen.append(figures)
        return self.wanted.get(int(figures.now), figures.current)


def test_requests_wait_for_each_other() -> None:
    day = simulate(arrivals((0.0, 100), (0.5, 100), (5.0, 50)), SERVICE, Fixed(1), 1)
    assert day.latencies.tolist() == [1.0, 1.5, 0.5]
    assert day.gpu_hours == pytest.approx(60 / 3600)


def test_a_replica_is_paid_from_being_asked_for_and_serves_once_started() -> None:
    script = Script({5: 2, 30: 1})
    day = simulate(arrivals((0.0, 4_000), (20.0, 100), (50.0, 1)), SERVICE, script, 1)
    running = [figures.running for figures in script.seen]
    assert running[4:16] == [1] * 11 + [2]
    assert day.paid[5:16].tolist() == [2] * 11
    assert day.latencies[1] == 1.0  # by the second one
    assert running[30] == 1
    assert script.seen[2].tokens == 4_000
    assert script.seen[0].busy == 1.0


def test_a_replica_that_goes_finishes_first_and_loses_nothing() -> None:
    script = Script({2: 1})
    day = simulate(arrivals((0.0, 2_000), (0.1, 2_000), (3.0, 100)), SERVICE, script, 2)
    assert sorted(day.latencies.tolist()[:2]) == [20.0, 20.0]
    assert day.paid[3:18].tolist() == [2] * 15  # one serves, one drains
    assert day.paid[25] == 1


def test_the_made_up_day_has_its_shape() -> None:
    made = synthetic(seed=3, peak=20.0, tokens_per_document=10)
    rate = np.bincount((made.times // 3600).astype(int), minlength=24) / 3600
    assert rate[20] == pytest.approx(20.0, rel=0.08)
    assert rate[4] < 0.2 * rate[20]
    burst = ((made.times >= 15 * 3600) & (made.times < 15 * 3600 + 600)).sum() / 600
    assert burst == pytest.approx(2.5 * 12.0, rel=0.15)
    assert set(np.unique(made.tokens)) == {200, 1_000, 5_000}
    assert (np.diff(made.times) >= 0).all()
    again = synthetic(seed=3, peak=20.0, tokens_per_document=10)
    assert (made.times == again.times).all()


def test_arrivals_of_a_file(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("time,documents,tokens\n100.5,20,\n99,3,7\n")
    found = read(table, tokens_per_document=10)
    assert (found.times.tolist(), found.tokens.tolist()) == ([0.0, 1.5], [7, 200])
    lines = tmp_path / "a.jsonl"
    lines.write_text(
        '{"time": "2026-11-01T10:00:00+00:00", "documents": 2}\n\n{"time": "2026-11-01T10:00:01+00:00", "tokens": 5}\n'
    )
    found = read(lines, tokens_per_document=10)
    assert (found.times.tolist(), found.tokens.tolist()) == ([0.0, 1.0], [20, 5])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("time,documents\n", "no arrivals"),
        ("time,documents\n1,2\nx,1\n", "record 2"),
        ("when,tokens\n1,2\n", "record 1"),
    ],
)
def test_a_file_that_says_too_little(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read(path, 10)


def test_steps_that_are_taken_back_are_counted() -> None:
    day = simulate(arrivals((0.0, 1), (4_000.0, 1)), SERVICE, Script({100: 3, 200: 1, 3_000: 2}), 1)
    row = summary(day, slow_s=1.0)
    assert (row["steps"], row["reversals"]) == (3, 1)
    assert (row["replicas_min"], row["replicas_max"]) == (1, 3)
    assert math.isclose(row["slow"], 0.0)


def test_the_command_writes_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["autoscaling", "--hours", "0.5", "--peak", "20", "--results-dir", str(tmp_path), "--name", "half-hour"]
    assert main(words) == 0
    (data,) = tmp_path.glob("*half-hour.json")
    result = json.loads(data.read_text())
    assert set(result["policies"]) > {"work in flight", "Ray's default"}
    assert all(len(side["replicas"]) == 6 for side in result["series"].values())
    page = data.with_suffix(".md").read_text()
    assert all(f"| {name} |" in page for name in result["policies"])
    assert data.with_suffix(".svg").name in page
    assert data.with_suffix(".svg").read_text().startswith("<?xml")
    assert page in capsys.readouterr().out


def test_options_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["autoscaling", "--min-replicas", "5", "--max-replicas", "2"]) == 2
    assert "max_replicas" in capsys.readouterr().err
    assert main(["autoscaling", "--peak", "0"]) == 2
    assert main(["split", "--replicas", "2", "2"]) == 2


def test_the_split_benchmark_differs_in_replicas_only(tmp_path: Path) -> None:
    options = SplitOptions("s", tmp_path, tmp_path, 500, 60, [1, 4], 1e4, 3, 1, 60.0, [])
    gateway, one, four = configuration(options)["applications"]

    def without(application: dict[str, Any]) -> dict[str, Any]:
        args = {key: value for key, value in application["args"].items() if key not in {"name", "pooling_engine"}}
        return {**application, "name": None, "args": args}

    assert without(one) == without(four)
    assert [a["args"]["pooling_engine"]["num_replicas"] for a in (one, four)] == [1, 4]
    routed = gateway["deployments"][0]["user_config"]["models"]
    assert [route["versions"]["1"]["application"] for route in routed.values()] == [one["name"], four["name"]]

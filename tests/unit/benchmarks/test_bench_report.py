from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import environment, report, results_files
from benchmarks.pages import table
from benchmarks.parity import compare
from benchmarks.rounds import Row


def row(backend: str, number: int, pairs_per_s: float, p50: float = 10.0, errors: dict[str, int] | None = None) -> Row:
    return Row(
        backend=backend,
        concurrency=16,
        round=number,
        position=0,
        requests=10,
        documents=20,
        errors=errors or {},
        p50_ms=p50,
        p95_ms=p50 * 2,
        p99_ms=p50 * 3,
        mean_ms=p50,
        requests_per_s=pairs_per_s / 20,
        pairs_per_s=pairs_per_s,
        wall_s=1.0,
        answer_bytes=900.0,
        client_cpu=0.1,
        stages={"engine": {"p50_ms": p50 / 2, "p95_ms": p50, "requests": 10}} if backend == "ours" else {},
    )


def test_what_a_server_says_is_one_line_and_no_markup() -> None:
    lines = list(table(["side", "said"], [["a|b", 'no <img src=x onerror="alert(1)">\n\nvalid: yes\n# forged `x`']]))
    assert lines[2] == r"""| a\|b | no &lt;img src=x onerror="alert(1)"> valid: yes # forged `x` |"""
    found = report.markdown(
        result({"problems": ["500\n# forged <b>"], "valid": False, "parity": {"verdict": "-"}}), [], []
    )
    assert "* 500 # forged &lt;b>" in found.splitlines()


ROWS = [
    row("ours", 0, 200, 5),
    row("vllm", 0, 100),
    row("ours", 1, 330, 6),
    row("vllm", 1, 110),
    row("ours", 2, 100, 9),
]


def result(parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "a name/with: signs",
        "date": "2026-01-02T03:04:05+00:00",
        "command": ["python", "-m", "benchmarks"],
        "code": {"commit": "abc", "dirty": True},
        "versions": {"python": "3.11"},
        "hardware": {"cpu": "x", "cpus": 2, "memory_gib": 4, "gpus": [{"name": "G"}], "load_before": 0.1},
        "model": {"hidden_size": 128},
        "settings": {"baseline": "vllm", "rounds": 3, "documents": 20, "clients": 1},
        "reference": {"device": "cpu", "dtype": "float32", "truncated": 0},
        "pair_lengths": {"unit": "tokens", "mean": 96},
        "backends": [{"name": "ours", "dtype": "float32", "command": None}],
    } | parts


def test_ratios_are_taken_within_a_round() -> None:
    ours, vllm = report.summarise(ROWS, "vllm")
    assert ours.per_round_speedup == [2.0, 3.0], "round 2 has no baseline"
    assert (ours.speedup.median, ours.speedup.low, ours.speedup.high) == (2.5, 2.0, 3.0)
    assert ours.latency_ratio.median == pytest.approx(0.55)
    assert ours.metrics["pairs_per_s"].median == 200
    assert vllm.speedup.median == 1.0
    assert ours.stages == {"engine": {"p50_ms": 3.0, "p95_ms": 6.0}}


def test_the_baseline_is_vllm_where_there_is_one() -> None:
    assert report.baseline_name(["ours", "vllm"]) == "vllm"
    assert report.baseline_name(["ours", "theirs"]) == "ours"
    assert report.baseline_name(["ours", "vllm"], "ours") == "ours"


def test_the_table_shows_medians_ranges_and_ratios() -> None:
    summaries = report.summarise(ROWS, "vllm")
    agreement = compare("ours", [[0.1, 0.2]], "vllm", [[0.1, 0.2]], 1e-3)
    text = report.markdown(result(report.result_parts(ROWS, summaries, [agreement])), summaries, [agreement])
    assert "valid: yes" in text
    assert "parity: passed" in text
    ours = next(line for line in text.splitlines() if line.startswith("| 16 | ours | 6.00 (5.00-9.00)"))
    assert "| 200 (100-330) | 2.50 (2.00-3.00) | 0.55 (0.50-0.60) | 0 |" in ours
    assert "| 16 | ours | engine | 3.00 | 6.00 |" in text
    assert "reference: Transformers, device cpu, dtype float32, truncated 0 pairs" in text
    assert "commit abc, with local changes" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_errors_and_parity_make_a_run_invalid() -> None:
    bad = compare("ours", [[0.1, 0.2]], "vllm", [[0.2, 0.2]], 1e-3)
    rows = [row("ours", 0, 100, errors={"http 503": 2})]
    parts = report.result_parts(rows, report.summarise(rows, "vllm"), [bad])
    assert not parts["valid"]
    assert len(parts["problems"]) == 2
    text = report.markdown(result(parts), report.summarise(rows, "vllm"), [bad])
    assert "valid: NO" in text
    assert "parity: FAILED" in text
    assert "2 requests failed {'http 503': 2}" in text


def test_nothing_measured_is_not_valid() -> None:
    assert not report.result_parts([], [], [])["valid"]


def test_files_are_never_overwritten_and_nan_is_null(tmp_path: Path) -> None:
    first, page = results_files.write(result({"x": [math.nan, 1.0]}), "text", tmp_path)
    second, _ = results_files.write(result({}), "text", tmp_path)
    assert first.name == "2026-01-02-a-name-with-signs.json"
    assert second.name == "2026-01-02-a-name-with-signs-2.json"
    assert page.read_text() == "text"
    assert json.loads(first.read_text())["x"] == [None, 1.0]


def test_results_hold_no_folders_of_this_machine(tmp_path: Path) -> None:
    model = tmp_path / "deep" / "model"
    model.mkdir(parents=True)
    found = environment.shorten({"a": [f"serve {model} --x={model}", "/v1/rerank", 3, str(model / "new.json")]})
    assert found == {"a": ["serve …/model --x=…/model", "/v1/rerank", 3, "…/new.json"]}
    inside = environment.REPOSITORY / "benchmarks" / "README.md"
    assert environment.shorten(str(inside)) == "benchmarks/README.md"
    folders = os.pathsep.join(map(str, (model, environment.REPOSITORY, inside.parent)))
    assert environment.shorten({"PYTHONPATH": folders}) == {"PYTHONPATH": "…/model:.:benchmarks"}
    assert environment.shorten(f"--path={folders} a:b") == "--path=…/model:.:benchmarks a:b"


def test_the_environment_is_described() -> None:
    assert environment.hardware()["cpus"] >= 1
    assert environment.versions()["python"].startswith("3.")
    assert environment.commit("stated") == {"commit": "stated", "dirty": None}
    assert environment.served_version("http://127.0.0.1:9") == {}

"""Whole runs against fake servers: what is sent, what is written, what the exit code says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks.cli import main

SMALL = [
    "--concurrency",
    "1",
    "3",
    "--requests",
    "6",
    "--rounds",
    "2",
    "--documents",
    "3",
    "--warmup",
    "4",
    "--parity-requests",
    "5",
    "--seed",
    "s",
]


def run(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["rerank", *words, *SMALL, "--results-dir", str(folder), "--name", "small"])
    data = next(iter(folder.glob("*.json")))
    return code, json.loads(data.read_text()), data.with_suffix(".md").read_text()


def test_both_sides_get_the_same_texts_and_never_one_twice(start_fake: Callable[[], Any], tmp_path: Path) -> None:
    ours, vllm = start_fake(), start_fake()
    code, result, page = run(
        tmp_path,
        *("--backend", f"ours={ours.url},model=m,dtype=fp32", "--backend", f"vllm={vllm.url},dtype=fp32"),
        *("--return-documents", "ours"),
    )
    assert code == 0
    assert result["valid"]
    assert result["parity"]["verdict"] == "passed"
    assert result["parity"]["agreements"][0]["max_abs"] == 0
    order = [(r["concurrency"], r["round"], r["backend"]) for r in result["rows"]]
    assert order[:4] == [(1, 0, "ours"), (1, 0, "vllm"), (1, 1, "vllm"), (1, 1, "ours")]
    assert {r["requests"] for r in result["rows"]} == {6}
    assert result["summary"][0]["stages"]["client_overhead"]["p50_ms"] > 0
    assert result["backends"][0]["served_version"] == {"version": "fake"}
    assert "| 1 | vllm |" in page
    for server in (ours, vllm):
        texts = [(b["query"], tuple(b["documents"])) for b in server.bodies]
        assert len(set(texts)) == len(texts), "a text was sent twice: a cache could answer it"
    measured = [{b["query"] for b in s.bodies} for s in (ours, vllm)]
    assert len(measured[0] & measured[1]) >= 5 + 4 * 6
    assert all(b["model"] == "m" and b["return_documents"] for b in ours.bodies)
    assert not any("model" in b or "return_documents" in b for b in vllm.bodies)


def test_one_server_under_two_names_meets_no_text_twice(fake: Any, tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, "--backend", f"a={fake.url}", "--backend", f"b={fake.url}")
    assert code == 0
    parity = 5  # the only requests that both names get
    queries = [b["query"] for b in fake.bodies]
    assert len(queries) - len(set(queries)) == parity


def test_other_scores_fail_the_run_after_writing(start_fake: Callable[[], Any], tmp_path: Path) -> None:
    ours, vllm = start_fake(), start_fake()
    ours.offset = 0.01
    code, result, page = run(tmp_path, "--backend", f"ours={ours.url}", "--backend", f"vllm={vllm.url}")
    assert code == 1
    assert "parity: FAILED" in page
    assert result["parity"]["agreements"][0]["max_abs"] == pytest.approx(0.01)


def test_a_failed_request_fails_the_run(fake: Any, tmp_path: Path) -> None:
    fake.respond = lambda number: web.Response(status=503) if number == 25 else None
    code, result, page = run(tmp_path, "--backend", f"ours={fake.url}")
    assert code == 1
    assert not result["valid"]
    assert sum(sum(r["errors"].values()) for r in result["rows"]) == 1
    assert "valid: NO" in page


def test_a_server_that_refuses_the_parity_set_is_an_error(
    fake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.respond = lambda number: web.Response(status=404, text="no such model")
    assert main(["rerank", "--backend", f"ours={fake.url}", *SMALL, "--results-dir", str(tmp_path)]) == 2
    assert "no such model" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rerank", "--backend", "ours=http://127.0.0.1:9", *SMALL, "--results-dir", str(tmp_path)]) == 2
    assert "ours, parity request 0" in capsys.readouterr().err

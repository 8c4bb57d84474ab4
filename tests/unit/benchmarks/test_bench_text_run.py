"""Whole text runs against fake servers, and the libraries beside them on a model that ships with the package."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from benchmarks import wire
from benchmarks.cli import main
from benchmarks.text.agree import compare, limits
from benchmarks.text.computing import Classifiers, CrossEncoders, Method, load
from benchmarks.text.run import TextRun
from benchmarks.text.wire import Spans
from tests.unit.benchmarks.serving import Serving

ZOO = Path(__file__).parents[3] / "model_zoo"
QUICK = ["--concurrency", "1", "3", "--rounds", "2", "--seconds", "0.05", "--warmup", "4", "--parity-texts", "5"]


def vector(text: str) -> Any:
    """What the fake server says about a text."""
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(8).astype("<f4")


class Fake:
    """An embedder and a classifier that remember what they were asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.requests: list[int] = []
        self.fail_from: int | None = None

    async def embeddings(self, request: web.Request) -> web.Response:
        body = wire.loads(await request.read())
        if self.fail_from is not None and len(self.requests) >= self.fail_from:
            return web.Response(status=503)
        self.requests.append(len(body["input"]))
        self.texts += body["input"]
        data = [
            {"index": i, "embedding": base64.b64encode(vector(t).tobytes()).decode()}
            for i, t in enumerate(body["input"])
        ]
        headers = {"Server-Timing": "engine;dur=1.5, total;dur=2"}
        return web.Response(body=wire.dumps({"data": data[::-1]}), headers=headers)

    async def embed(self, request: web.Request) -> web.Response:
        return web.json_response([vector(text).tolist() for text in wire.loads(await request.read())["inputs"]])

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/embeddings", self.embeddings)
        app.router.add_post("/embed", self.embed)
        return app


@pytest.fixture
def serving() -> Iterator[Callable[[web.Application], str]]:
    """Starts applications on loopback ports; all end with the test."""
    running: list[Serving] = []

    def start(app: web.Application) -> str:
        running.append(Serving(app))
        return running[-1].url

    yield start
    for each in running:
        each.end()


def run(folder: Path, *words: str) -> tuple[int, dict[str, Any], Path]:
    code = main([*words, *QUICK, "--results-dir", str(folder), "--name", "small", "--seed", "s"])
    data = next(iter(folder.glob("*.json")))
    return code, json.loads(data.read_text()), data


def test_all_sides_are_measured_in_alternating_order(serving: Callable[[web.Application], str], tmp_path: Path) -> None:
    ours, other = Fake(), Fake()
    code, result, data = run(
        tmp_path,
        *("embed", "--no-library", "--inputs", "1", "4", "--rate", "50"),
        *("--backend", f"ours={serving(ours.application())},model=m,dtype=fp32"),
        *("--backend", f"vllm={serving(other.application())},dtype=fp32"),
    )
    assert code == 0, result["problems"]
    order = [(r["round"], r["condition"]["texts"], r["condition"]["load"], r["side"]) for r in result["rows"]]
    first = [entry[1:] for entry in order if entry[0] == 0]
    assert [entry[1:] for entry in order if entry[0] == 1] == first[::-1]
    assert {load for _, load, _ in first} == {"c=1", "c=3", "50/s"}
    assert len(first) == 12
    assert set(ours.requests) == {1, 4}
    assert len(set(ours.texts)) == len(ours.texts), "a text was sent twice"
    assert result["settings"]["baselines"] == ["vllm"]
    figures = {(s["side"], s["condition"]["texts"], s["condition"]["load"]): s for s in result["summary"]}
    assert figures["vllm", 4, "c=3"]["ratios"]["vllm"]["rate"]["median"] == 1
    assert figures["ours", 1, "c=1"]["stages"]["engine"]["p50_ms"] == 1.5
    page = data.with_suffix(".html").read_text()
    assert page.count("<svg") == 4
    assert not any(mark in page for mark in ("src=", "href=", "url(", "@import")), "the page is self-contained"


def test_failed_requests_make_the_run_invalid(serving: Callable[[web.Application], str], tmp_path: Path) -> None:
    fake = Fake()
    fake.fail_from = 12
    code, result, _ = run(tmp_path, "embed", "--no-library", "--backend", f"ours={serving(fake.application())}")
    assert code == 1
    assert not result["valid"]
    assert any("http 503" in problem or "failed" in problem for problem in result["problems"])


def test_a_side_that_does_not_answer_is_left_out_and_said(
    serving: Callable[[web.Application], str], tmp_path: Path
) -> None:
    good = serving(Fake().application())
    code, result, _ = run(
        tmp_path,
        *("embed", "--no-library", "--backend", f"ours={good},shape=tei", "--backend", f"dead={good}/nothing"),
    )
    assert code == 1
    assert {r["side"] for r in result["rows"]} == {"ours"}
    assert any(problem.startswith("dead is missing") and "404" in problem for problem in result["problems"])


def test_a_budget_keeps_whole_rounds(serving: Callable[[web.Application], str], tmp_path: Path) -> None:
    url = serving(Fake().application())
    code, result, _ = run(tmp_path, "embed", "--no-library", "--backend", f"ours={url}", "--budget", "0")
    assert code == 1
    assert result["rows"] == []
    assert "turns are missing" in result["problems"]
    assert any("time was up" in note for note in result["notes"])


def test_the_page_says_how_many_rounds_count(
    serving: Callable[[web.Application], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, original = serving(Fake().application()), TextRun._out_of_time

    def spent_after_a_round(self: TextRun, number: int) -> bool:
        self._began -= 1e6 * (number > 0)
        return original(self, number)

    monkeypatch.setattr(TextRun, "_out_of_time", spent_after_a_round)
    code, result, _ = run(tmp_path, "embed", "--no-library", "--backend", f"ours={url}")
    assert code == 0
    assert {row["round"] for row in result["rows"]} == {0}
    assert "medians over 1 round(s)" in result["method"]
    assert any(note.startswith("whole rounds: 1; ") for note in result["notes"])


def test_time_per_document_is_told_by_the_size_of_a_request(
    serving: Callable[[web.Application], str], tmp_path: Path
) -> None:
    async def rerank(request: web.Request) -> web.Response:
        body = wire.loads(await request.read())
        scored = [{"index": i, "relevance_score": 0.5} for i in range(len(body["documents"]))]
        return web.json_response({"results": scored})

    app = web.Application()
    app.router.add_post("/rerank", rerank)
    code, result, data = run(
        tmp_path, "documents", "--no-library", "--inputs", "2", "8", "--backend", f"ours={serving(app)}"
    )
    assert code == 0, result["problems"]
    assert {s["condition"]["documents"] for s in result["summary"]} == {2, 8}
    for s in result["summary"]:
        assert s["text_ms"]["low"] <= s["p50_ms"]["high"] / s["condition"]["documents"]
    page = data.with_suffix(".md").read_text()
    assert "## By documents of a request" in page
    assert "| c=1 | ours |" in page


@pytest.mark.parametrize("task", ["absa", "classify", "documents"])
def test_a_library_answers_the_same_whatever_the_padding(task: str) -> None:
    model = {"absa": "absa-mini", "classify": "intent-mini", "documents": "ce-mini"}[task]
    library = load(task, ZOO / model, dtype="float32", device="cpu", max_model_len=64)
    texts: list[Any] = ["The food was great, the service slow.", "cheap shoes", "Nice view, bad coffee and rude staff"]
    if task == "documents":
        texts = [("red shoes", text) for text in texts]
    alone = library.answers(texts)
    for padding, batch in (("fixed", 2), ("dynamic", 3), ("sorted", 2)):
        library.run(Method("m", padding, batch), texts)
    if isinstance(library, CrossEncoders):
        together: list[Any] = [float(score) for score in library._forward(texts, "longest")]
    else:
        assert isinstance(library, Classifiers)
        rows = list(library._forward(texts, "longest"))
        if task == "absa":
            together = [library._spans(text, *row) for text, row in zip(texts, rows, strict=True)]
        else:
            together = [dict(zip(alone[0], row.tolist(), strict=True)) for _, row, _ in rows]
    agreed = compare("together", together, "alone", alone, limits(task, ["float32"]))
    assert agreed.passed, agreed
    assert task != "absa" or any(spans.places for spans, _ in alone)


def test_another_answer_fails_parity() -> None:
    spans = Spans(((0, 4, "food", "positive"),), (0.9,))
    other = Spans(((0, 4, "food", "negative"),), (0.9,))
    rows = np.zeros((3, 2), dtype=np.float32)
    kept = limits("absa", ["float32"])
    assert compare("a", [spans], "b", [(spans, rows)], kept).passed
    assert not compare("a", [other], "b", [(spans, rows)], kept).passed
    assert not compare("a", [{"x": 0.1, "y": 0.9}], "b", [{"x": 0.9, "y": 0.1}], kept).passed
    assert not compare("a", [np.array([1.0, 0.0])], "b", [np.array([0.0, 1.0])], limits("embed", ["float32"])).passed
    assert not compare("a", [0.5], "b", [0.6], limits("documents", ["bfloat16"])).passed

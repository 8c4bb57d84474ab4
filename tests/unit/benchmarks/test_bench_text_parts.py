"""Workloads, shapes, sums and charts of the text benchmarks."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import charts
from benchmarks.backends import UsageError
from benchmarks.corpus import FALLBACK_WORDS
from benchmarks.stats import Spread
from benchmarks.text.agree import compare, limits
from benchmarks.text.cli import window
from benchmarks.text.summary import best, summaries
from benchmarks.text.wire import SHAPES
from benchmarks.text.workload import Drawn, DrawnPairs, FromFile, Lengths
from benchmarks.turns import Measurement
from benchmarks.wire import MalformedAnswer


def test_lengths_follow_what_is_stated() -> None:
    source = random.Random(1)
    assert {Lengths.parse("fixed:words=7").draw(source) for _ in range(20)} == {7}
    drawn = [Lengths.parse("uniform:min=38,max=58").draw(source) for _ in range(2000)]
    assert (min(drawn), max(drawn)) == (38, 58)
    drawn = sorted(Lengths.parse("lognormal:median=40,sigma=0.5,min=5,max=90").draw(source) for _ in range(4000))
    assert 38 <= drawn[2000] <= 42
    assert drawn[0] >= 5
    assert drawn[-1] == 90


@pytest.mark.parametrize("text", ["normal:mean=3", "fixed:50", "uniform:min=9,max=3", "fixed:words=0", "lognormal"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--lengths"):
        Lengths.parse(text)


def test_texts_are_decided_by_the_seed() -> None:
    work = Drawn(FALLBACK_WORDS, Lengths.parse("uniform:min=3,max=9"))
    assert work.texts("a", 20) == work.texts("a", 20)
    assert not set(work.texts("a", 20)) & set(work.texts("b", 20))
    pairs = DrawnPairs(FALLBACK_WORDS, Lengths.parse("fixed:words=6")).texts("a", 3)
    assert all(5 <= len(query.split()) <= 16 and len(document.split()) == 6 for query, document in pairs)


def test_a_file_gives_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('"one"\n{"text": "two"}\n\n{"inputs": ["three", "four"]}\n')
    texts = FromFile(path).texts("s", 10)
    assert len(texts) == 10
    assert set(texts) == {"one", "two", "three", "four"}
    path.write_text('{"query": "q", "documents": ["a", "b"]}\n{"query": "r", "document": "c"}\n')
    assert sorted(FromFile(path, pairs=True).texts("s", 3)) == [("q", "a"), ("q", "b"), ("r", "c")]


def test_a_request_has_one_query_and_its_documents(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    lines = [{"query": f"q{i}", "documents": [f"d{i}.{j}" for j in range(2 + 3 * i)]} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, lines)))
    texts = FromFile(path, pairs=True).texts("s", 40, together=4)
    requests = [texts[start : start + 4] for start in range(0, 40, 4)]
    assert {query for query, _ in texts} == {"q0", "q1", "q2"}
    for pairs in requests:
        number = pairs[0][0][1:]
        own = lines[int(number)]["documents"]
        assert pairs == [(f"q{number}", own[j % len(own)]) for j in range(4)]
        assert json.loads(SHAPES["documents"]["rerank"].body(pairs, None))["query"] == f"q{number}"
    drawn = DrawnPairs(FALLBACK_WORDS, Lengths.parse("fixed:words=6")).texts("a", 7, together=3)
    assert len(drawn) == 7
    assert [len({query for query, _ in drawn[start : start + 3]}) for start in (0, 3, 6)] == [1, 1, 1]
    assert len({query for query, _ in drawn}) == 3


@pytest.mark.parametrize(("ours", "theirs"), [(math.nan, 0.5), (0.5, math.nan), (math.nan, math.nan)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_no_number_agrees_with_nothing(ours: float, theirs: float, dtype: str) -> None:
    scores = compare("a", [0.5, ours, 0.5], "b", [0.5, theirs, 0.5], limits("documents", [dtype]))
    good, bad = np.ones(3, np.float32), np.full(3, math.nan, np.float32)
    pairs = [(good, bad), (bad, good), (bad, bad)]
    vectors = [compare("a", [good, a, good], "b", [good, b, good], limits("embed", [dtype])) for a, b in pairs]
    labels = compare("a", [[0.5, ours]], "b", [{"x": 0.5, "y": theirs}], limits("classify", [dtype]))
    assert not any(agreement.passed for agreement in (scores, *vectors, labels))


def test_a_body_of_two_queries_is_a_fault() -> None:
    with pytest.raises(ValueError, match="too many values"):
        SHAPES["documents"]["tei"].body([("a", "x"), ("b", "y")], None)


@pytest.mark.parametrize("line", ["{", "3", '{"title": "x"}', '{"text": " "}', "[]"])
def test_a_line_without_text_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(f'"fine"\n{line}\n')
    with pytest.raises(UsageError, match="line 2"):
        FromFile(path)


ANSWERS: dict[tuple[str, str], Any] = {
    ("absa", "poolserve"): {
        "data": [{"index": 0, "spans": [{"start": 0, "end": 2, "aspect": "a", "polarity": "p", "score": 0.5}]}]
    },
    ("absa", "vllm"): {"data": [{"index": 0, "data": [[0.1, 0.9], [0.5, 0.5]]}]},
    ("embed", "openai"): {"data": [{"index": 0, "embedding": [1.0, 2.0]}]},
    ("embed", "tei"): [[1.0, 2.0]],
    ("classify", "vllm"): {"data": [{"index": 0, "probs": [0.2, 0.8]}]},
    ("classify", "tei"): [[{"label": "x", "score": 0.8}]],
    ("classify", "infinity"): {"data": [[{"label": "x", "score": 0.8}]]},
    ("documents", "rerank"): {"results": [{"index": 0, "relevance_score": 0.5}]},
    ("documents", "tei"): [{"index": 0, "score": 0.5}],
}


@pytest.mark.parametrize(("task", "shape"), ANSWERS)
def test_every_shape_reads_its_answer_and_refuses_others(task: str, shape: str) -> None:
    read = SHAPES[task][shape].read
    text = json.dumps(ANSWERS[task, shape])
    assert len(read(text.encode(), 1)) == 1
    not_finite = re.sub(r"0\.\d|1\.0", "NaN", text)
    for wrong, count in ((text, 2), ("{}", 1), ("[{}]", 1), ("no", 1), (not_finite, 1)):
        with pytest.raises(MalformedAnswer):
            read(wrong.encode(), count)


def test_all_shapes_are_covered() -> None:
    assert set(ANSWERS) == {(task, shape) for task, shapes in SHAPES.items() for shape in shapes}


def turn(side: str, load: str, number: int, rate: float, p50: float) -> Measurement:
    return Measurement(side, {"texts": 2, "load": load}, number, 0, 9, 2, {}, p50, p50, p50, rate / 2, rate, 1.0)


def test_ratios_are_taken_within_a_round() -> None:
    turns = [
        *(turn("ours", "c=16", i, rate, 5) for i, rate in enumerate((100, 200, 900))),
        *(turn("library", "offline", i, rate, 50) for i, rate in enumerate((50, 50, 100))),
        *(turn("vllm", "c=16", i, 50, 20) for i in range(3)),
    ]
    found = {s.side: s for s in summaries(turns, ["library", "vllm"])}
    assert found["ours"].ratios["library"].rate == Spread(4, 2, 9)
    assert np.isnan(found["ours"].ratios["library"].latency.median), "another condition has another latency"
    assert found["ours"].ratios["vllm"].latency == Spread(0.25, 0.25, 0.25)
    assert found["ours"].text_ms.median == 2.5
    assert best(turns, ["library", "vllm"]) == "library"


def test_a_baseline_with_several_conditions_is_taken_under_the_same_one_only() -> None:
    turns = [turn("ours", "c=16", 0, 100, 5), turn("vllm", "c=1", 0, 10, 5), turn("vllm", "c=4", 0, 20, 5)]
    found = {s.side: s for s in summaries(turns, ["vllm"])}
    assert np.isnan(found["ours"].ratios["vllm"].rate.median)


def test_charts_hold_every_series_and_escape_names() -> None:
    drawn = charts.bars("t", [("a<b · x", Spread(2, 1, 3)), ("c · x", Spread(4, 4, 4))])
    assert drawn.count("<rect") == 2
    assert "a&lt;b" in drawn
    assert "a<b" not in drawn
    nothing: Sequence[tuple[str, Spread]] = [("a", Spread(*[float("nan")] * 3))]
    assert charts.bars("t", nothing) == ""
    lines = charts.lines("t", "x", "y", {"one": [(0, 1), (1, 2)], "two": [(0, float("nan"))]}, [(0.2, 0.4)])
    assert lines.count("<polyline") == 1
    assert lines.count("<circle") == 2


def test_the_window_fits_the_model(tmp_path: Path) -> None:
    """Fixed padding to more than a model's positions ended a run."""
    (tmp_path / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 256}')
    assert window(None, tmp_path) == 256
    assert window(128, tmp_path) == 128
    with pytest.raises(UsageError, match="512 is more than the model's 256 positions"):
        window(512, tmp_path)
    assert (window(None, None), window(1_024, None)) == (512, 1_024)

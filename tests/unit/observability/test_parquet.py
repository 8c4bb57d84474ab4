"""The feature log's lines as Parquet: every kind of record, files that are still written, lines that were cut off."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from pyarrow import parquet as pq

from serve_app.__main__ import main
from serve_app.messages import (
    AbsaItem,
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    EmbedRequest,
    EmbedResult,
    ImageRef,
    PipelineRequest,
    PipelineResult,
    ScoreRequest,
    ScoreResult,
    Span,
)
from serve_app.observability.feature_log import record
from serve_app.observability.note import Note
from serve_app.observability.parquet import finished

SERVED: Any = None
OLD = "features-abc-20261130T010203-000001.jsonl"
NEW = "features-abc-20261130T020203-000002.jsonl"


def line(request: PipelineRequest, result: PipelineResult, number: int = 0, *, texts: bool = True) -> bytes:
    """What the gateway writes."""
    note = Note(route="/v1/rerank", request_id=f"id-{number}", model="ce", version="1", routing="model")
    note.time, note.request, note.result = 1_796_000_000.25, request, result
    make, _ = record(note, texts=texts)
    return orjson.dumps(make(), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def ranked(number: int = 0) -> bytes:
    request = ScoreRequest(["boots"], ["a \ud83d", ImageRef(url="http://x/y.jpg"), ImageRef(data=b"jpeg")])
    return line(request, ScoreResult(np.array([0.9, np.nan, 0.25], np.float32), SERVED), number, texts=False)


def rows(path: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(path).to_pylist())


def test_every_kind_of_record_fits_one_schema(tmp_path: Path) -> None:
    classified = ClassifyResult(np.array([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]], np.float32), ["a", "b"], SERVED)
    span = Span(0, 4, "맛있다", "food", "positive", 0.5)
    lines = [
        ranked(),
        line(ClassifyRequest(["one", ("one", "two"), [1, 2]]), classified),
        line(
            AbsaRequest(["맛있다", ""]), AbsaResult([AbsaItem(("positive", 0.5), [span]), AbsaItem(None, [])], SERVED)
        ),
        line(EmbedRequest(["x"]), EmbedResult(np.zeros((1, 2), np.float32), SERVED)),
    ]
    (tmp_path / OLD).write_bytes(b"".join(lines))
    (tmp_path / NEW).write_bytes(b"")
    assert main(["parquet", str(tmp_path), str(tmp_path / "out")]) == 0
    scored, classes, spans, embedded = rows(tmp_path / "out" / OLD.replace("jsonl", "parquet"))
    assert (scored["id"], scored["model"], scored["routing"]) == ("id-0", "ce", "model")
    assert scored["time"] == datetime.datetime.fromtimestamp(1_796_000_000.25, datetime.UTC)
    assert scored["scores"] == [pytest.approx(0.9), None, 0.25]
    text, url, image = scored["documents"]
    assert len(text["text"]) == len(image["image"]) == 32
    assert url["url"] != "http://x/y.jpg"
    assert classes["scores"] is None
    assert classes["label_scores"] == [[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]
    assert classes["labels"] == ["a", "b"]
    assert [item["text"] for item in classes["inputs"]] == ["one", "one", None]
    assert classes["inputs"][1]["text_pair"] == "two"
    assert classes["inputs"][2]["tokens"] == [1, 2]
    assert spans["spans"] == [[{"start": 0, "end": 4, "aspect": "food", "polarity": "positive", "score": 0.5}], []]
    assert spans["sentiments"] == [{"label": "positive", "score": 0.5}, None]
    assert embedded["inputs"][0]["text"] == "x"


def test_a_line_that_a_killed_gateway_cut_off_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / OLD).write_bytes(ranked(1) + ranked(2)[:-20] + b"\n[1]\n" + ranked(3))
    (tmp_path / NEW).write_bytes(b"")
    assert main(["parquet", str(tmp_path), str(tmp_path)]) == 0
    assert [row["id"] for row in rows(tmp_path / OLD.replace("jsonl", "parquet"))] == ["id-1", "id-3"]
    assert "2 records, 2 broken lines left out" in capsys.readouterr().out


def test_what_is_still_written_waits(tmp_path: Path) -> None:
    for name in (OLD, NEW, "features-other-20261130T010203-000001.jsonl"):
        (tmp_path / name).write_bytes(ranked())
    assert [path.name for path in finished(tmp_path, 60)] == [OLD]
    long_ago = time.time() - 61
    os.utime(tmp_path / "features-other-20261130T010203-000001.jsonl", (long_ago, long_ago))
    assert [path.name for path in finished(tmp_path, 60)] == [OLD, "features-other-20261130T010203-000001.jsonl"]


def test_again_does_nothing_and_delete_removes_lines_that_are_parquet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for name in (OLD, NEW):
        (tmp_path / name).write_bytes(ranked())
    assert main(["parquet", str(tmp_path), str(out)]) == 0
    assert "1 records" in capsys.readouterr().out
    assert main(["parquet", str(tmp_path), str(out), "--delete"]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == [NEW]
    assert [path.name for path in out.iterdir()] == [OLD.replace("jsonl", "parquet")]


def test_a_file_that_cannot_be_written_leaves_nothing_and_keeps_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = orjson.loads(ranked())
    bad["labels"] = {"not": "a list"}
    (tmp_path / OLD).write_bytes(orjson.dumps(bad))
    (tmp_path / NEW).write_bytes(b"")
    assert main(["parquet", str(tmp_path), str(tmp_path / "out"), "--delete"]) == 1
    assert OLD in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []
    assert (tmp_path / OLD).exists()


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parquet", str(tmp_path / "no"), str(tmp_path)]) == 2
    assert "is not a folder" in capsys.readouterr().err

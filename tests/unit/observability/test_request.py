"""What a request leaves behind: counts, its access line, its feature record; nothing of its texts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest

from serve_app.errors import InternalError, Overloaded
from serve_app.messages import (
    AbsaItem,
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    EmbedRequest,
    EmbedResult,
    ImageRef,
    ItemError,
    PipelineRequest,
    PipelineResult,
    ScoreRequest,
    ScoreResult,
    Served,
    Span,
)
from serve_app.observability import feature_log
from serve_app.observability.note import Note, noting
from serve_app.observability.registry import Registry
from serve_app.observability.request import GATHERED, Observer
from serve_app.vocabulary import MediaErrorCode

SECRET = "my secret query"
URL = "https://shop.example/secret.jpg"
SERVED = Served("ce", "1", 64, (1,), {"tokenize": 1.0, "engine": 20.0}, (ItemError(2, MediaErrorCode.FORBIDDEN, "no"),))
REQUEST = ScoreRequest([SECRET], ["a", "b", ImageRef(url=URL), ImageRef(data=b"bytes")])
RESULT = ScoreResult(np.array([0.1, 0.9, np.nan, 0.2], np.float32), SERVED)


class Lines:
    """Takes records as a LineWriter does."""

    written = dropped = failed = queued = 0

    def __init__(self) -> None:
        self.records: list[Any] = []

    def put(self, record: Callable[[], Any], size: int) -> bool:
        assert size > 0
        self.records.append(record())
        return True


def observer(**options: Any) -> tuple[Observer, Lines, Lines]:
    access, features = Lines(), Lines()
    made = Observer(Registry(), access, features, **options)  # type: ignore[arg-type]
    return made, access, features


def values(registry: Registry) -> dict[str, float]:
    snapshot = registry.snapshot()
    names = [s.sample + "".join(f",{value}" for _, value in s.labels) for s in snapshot.schema.series]
    return dict(zip(names, snapshot.values.tolist(), strict=True))


def answer(watching: Observer, request: PipelineRequest = REQUEST, result: PipelineResult = RESULT) -> None:
    with watching.request("/v1/rerank", {}) as note:
        inner = noting()
        assert inner is note
        inner.routed("my-id", "ce", "1", "model", 4, request)
        with watching.under_way(inner):
            inner.answered(result)
        note.status = 200


def test_an_answer_is_counted_once_everywhere() -> None:
    watching, access, features = observer()
    answer(watching)
    found = values(watching.registry)
    assert found["poolserve_requests_total,/v1/rerank,ce,1,200"] == 1
    assert found["poolserve_request_seconds_count,/v1/rerank,ce,1,2xx"] == 1
    assert found["poolserve_documents_total,ce,1"] == 4
    assert found["poolserve_tokens_total,ce,1"] == 64
    assert found["poolserve_images_total,ce,1"] == 2
    assert found["poolserve_truncated_documents_total,ce,1"] == 1
    assert found["poolserve_item_errors_total,ce,1,media_forbidden"] == 1
    assert found["poolserve_routing_decisions_total,ce,1,model"] == 1
    assert found["poolserve_stage_seconds_sum,ce,1,engine"] == pytest.approx(0.02)
    assert found["poolserve_stage_seconds_count,ce,1,total"] == 1
    assert found["poolserve_requests_in_flight,ce,1"] == 0
    assert len(access.records) == len(features.records) == 1


def test_what_gathers_is_bounded_and_holds_no_request_or_answer() -> None:
    watching, _, _ = observer()
    most = 0
    for i in range(3 * GATHERED):
        answer(watching)
        over = [note for note, _ in watching._over]
        most = max(most, len(over))
        assert all(note.request is None and note.result is None for note in over), i
    assert most == GATHERED - 1
    assert values(watching.registry)["poolserve_documents_total,ce,1"] == 3 * GATHERED * 4


def test_each_is_counted_once_while_another_thread_takes_snapshots() -> None:
    watching, _, _ = observer()
    stop = threading.Event()
    seen: list[float] = []

    def snapshots() -> None:
        while not stop.is_set():
            seen.append(values(watching.registry).get("poolserve_tokens_total,ce,1", 0.0))

    threads = [threading.Thread(target=snapshots) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(2_000):
        answer(watching)
    stop.set()
    for thread in threads:
        thread.join()
    assert values(watching.registry)["poolserve_tokens_total,ce,1"] == 2_000 * 64
    assert max(seen) <= 2_000 * 64


def test_a_version_without_requests_shows_zeros() -> None:
    watching, _, _ = observer()
    watching.expect([("ce", "1"), ("ce", "2")])
    found = values(watching.registry)
    for name in ("cancelled_total,ce,2", "rejected_total,ce,1,engine", "retried_total,ce,1,replica_died"):
        assert found[f"poolserve_{name}"] == 0


def test_counting_can_be_switched_off_and_the_logs_stay() -> None:
    watching, access, _ = observer(counting=False)
    watching.expect([("ce", "1")])
    answer(watching)
    assert "poolserve_requests_total,/v1/rerank,ce,1,200" not in values(watching.registry)
    assert len(access.records) == 1


def test_no_answer_is_lost_to_what_is_written_about_it(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Lines):
        def put(self, record: Callable[[], Any], size: int) -> bool:
            raise RuntimeError("broken")

    watching = Observer(Registry(), Broken())  # type: ignore[arg-type]
    answer(watching)
    assert "could not be noted" in caplog.text
    assert values(watching.registry)["poolserve_documents_total,ce,1"] == 4


def test_the_access_line_holds_counts_and_no_text() -> None:
    watching, access, _ = observer()
    answer(watching)
    (line,) = access.records
    assert line["id"] == "my-id"
    assert (line["model"], line["version"], line["route"], line["status"]) == ("ce", "1", "/v1/rerank", 200)
    assert (line["documents"], line["tokens"], line["truncated"], line["images"]) == (4, 64, 1, 2)
    assert line["stages_ms"]["engine"] == 20.0
    assert orjson.dumps(line)
    assert line["stages_ms"]["total"] >= 0
    assert line["cancelled"] is False
    assert line["routing"] == "model"
    assert SECRET not in str(line)
    assert "secret" not in str(line)


@pytest.mark.parametrize("admitted", [True, False])
def test_a_refusal_says_who_refused(admitted: bool) -> None:
    watching, access, features = observer()
    with watching.request("/v1/rerank", {}) as note:
        note.routed("my-id", "ce", "1", "version", 3, REQUEST)
        if admitted:
            with watching.under_way(note):
                found = values(watching.registry)
                assert found["poolserve_documents_in_flight,ce,1"] == 3
                assert found["poolserve_requests_in_flight,ce,1"] == 1
        note.failed("my-id", Overloaded("no room"))
        note.status = 429
    found = values(watching.registry)
    assert found[f"poolserve_rejected_total,ce,1,{'engine' if admitted else 'gateway'}"] == 1
    assert found["poolserve_errors_total,/v1/rerank,ce,1,overloaded"] == 1
    assert found["poolserve_documents_in_flight,ce,1"] == 0 if admitted else True
    assert "poolserve_documents_total,ce,1" not in found
    assert access.records[0]["code"] == "overloaded"
    assert not features.records


def test_an_error_before_routing_has_no_model() -> None:
    watching, access, _ = observer()
    with watching.request("/v1/rerank", {}) as note:
        note.failed("my-id", InternalError("x"))
        note.status = 500
    found = values(watching.registry)
    assert found["poolserve_requests_total,/v1/rerank,,,500"] == 1
    assert found["poolserve_errors_total,/v1/rerank,,,internal_error"] == 1
    assert access.records[0]["id"] == "my-id"


async def test_a_client_that_leaves_is_counted_as_cancelled() -> None:
    watching, access, features = observer()

    async def work() -> None:
        with watching.request("/v1/rerank", {}) as note:
            note.routed("my-id", "ce", "1", "model", 4, REQUEST)
            with watching.under_way(note):
                await asyncio.sleep(30)

    tasks = [asyncio.create_task(work()) for _ in range(300)]
    await asyncio.sleep(0)
    assert values(watching.registry)["poolserve_requests_in_flight,ce,1"] == 300
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found = values(watching.registry)
    assert found["poolserve_cancelled_total,ce,1"] == 300
    assert found["poolserve_requests_total,/v1/rerank,ce,1,499"] == 300
    assert found["poolserve_requests_in_flight,ce,1"] == 0
    assert found["poolserve_documents_in_flight,ce,1"] == 0
    assert {record["cancelled"] for record in access.records} == {True}
    assert not features.records


def test_notes_of_concurrent_requests_do_not_mix() -> None:
    assert noting() is not noting()  # outside a request there is nobody to tell

    async def one(watching: Observer, number: int) -> None:
        with watching.request("/v1/rerank", {}) as note:
            await asyncio.sleep(0.001 * (number % 3))
            noting().routed(f"id-{number}", "ce", "1", "model", number, REQUEST)
            await asyncio.sleep(0.001)
            assert noting().request_id == f"id-{number}"
            assert noting() is note
            note.status = 400

    async def all_of_them() -> None:
        watching, access, _ = observer()
        await asyncio.gather(*(one(watching, i) for i in range(50)))
        assert sorted(r["documents"] for r in access.records) == list(range(50))

    asyncio.run(all_of_them())


def record(request: PipelineRequest, result: PipelineResult, *, texts: bool) -> dict[str, Any]:
    note = Note("/v1/rerank", "my-id", "ce", "1", "model", request=request, result=result)
    made, size = feature_log.record(note, texts=texts)
    assert size >= 1_000
    content = made()
    assert isinstance(content, dict)
    return content


def test_a_feature_record_holds_hashes_unless_texts_are_asked_for() -> None:
    hashed = record(REQUEST, RESULT, texts=False)
    assert SECRET not in str(hashed)
    assert "secret" not in str(hashed)
    assert [len(item) for item in hashed["queries"]] == [32]
    again = record(ScoreRequest([SECRET], ["a"]), RESULT, texts=False)
    assert again["queries"] == hashed["queries"]
    assert again["documents"] == hashed["documents"][:1]
    open_ = record(REQUEST, RESULT, texts=True)
    assert open_["queries"] == [SECRET]
    assert open_["documents"][2] == {"url": URL}
    assert open_["documents"][3] == hashed["documents"][3]  # an image's bytes are never written
    np.testing.assert_array_equal(open_["scores"], RESULT.scores)
    assert (open_["id"], open_["model"], open_["version"]) == ("my-id", "ce", "1")


def test_every_kind_of_answer_has_a_record() -> None:
    classified = record(
        ClassifyRequest(["a", ("b", "c"), [1, 2]]),
        ClassifyResult(np.zeros((3, 2), np.float32), ["x", "y"], SERVED),
        texts=True,
    )
    assert classified["inputs"] == ["a", ["b", "c"], [1, 2]]
    assert classified["labels"] == ["x", "y"]
    embedded = record(EmbedRequest(["a"]), EmbedResult(np.zeros((1, 384), np.float32), SERVED), texts=False)
    assert "vectors" not in embedded
    span = Span(0, 5, SECRET[:5], "service", "positive", 0.9)
    absa = record(AbsaRequest([SECRET]), AbsaResult([AbsaItem(("positive", 0.8), [span])], SERVED), texts=False)
    assert absa["spans"] == [[(0, 5, "service", "positive", 0.9)]]
    assert SECRET[:5] not in str(absa)

"""Requests through the pipeline with the fake engine, and the reference against Transformers' own pipeline."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from serve_app.engine.fake_engine import FakeEngine, fake_values
from serve_app.errors import ContextLengthExceeded, InternalError, InvalidRequest, TooLarge
from serve_app.messages import (
    AbsaItem,
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    Context,
    EngineBatch,
    EngineOutput,
    LoadedImages,
    Truncation,
)
from serve_app.pipeline import Pipeline, canary_request
from serve_app.tasks.absa.build_input import build_input
from serve_app.tasks.absa.postprocess import postprocess
from serve_app.tasks.absa.reference import TwoHeadTokenClassifier, reference_answers, reference_pair_answers
from serve_app.vocabulary import Aggregation, DType, PoolingTask, Task
from tests.absa_cases import LABELS, SENTIMENT, absa_cases
from tests.checkpoints import Checkpoints
from tests.unit.models import text_model

CASES = absa_cases()
SHORT = [text for text in CASES if len(text) < 400][:150]
PAIR_LABELS = {"0": "none", "1": "negative", "2": "positive"}
ODD = "e\u0301 👨\u200d👩\u200d👧 ① \u200b좋\u1100\u1161\u11a8  ok"


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def folders(checkpoints: Checkpoints) -> dict[str, Path]:
    made = {kind: checkpoints.token_classifier(kind, LABELS) for kind in ("bert", "xlm_roberta", "modernbert")}
    return made | {"two_heads": checkpoints.two_heads(LABELS, SENTIMENT)}


def pipeline(folder: Path, executor: ThreadPoolExecutor, **changes: Any) -> Pipeline:
    model = text_model(folder, "absa", **changes)
    return Pipeline(model, FakeEngine(model.settings, width=model.checkpoint.width), executor)


def pair_pipeline(checkpoints: Checkpoints, executor: ThreadPoolExecutor, **changes: Any) -> Pipeline:
    engine = {"enforce_eager": True, "hf_overrides": {"id2label": PAIR_LABELS}}
    return pipeline(checkpoints.bert(3), executor, engine=engine, **changes)


async def ask(served: Pipeline, *texts: str, **fields: Any) -> AbsaResult:
    result = await served.run(Context("r", time.time() + 60), AbsaRequest(list(texts), **fields))
    assert isinstance(result, AbsaResult)
    return result


@pytest.mark.parametrize("kind", ["bert", "xlm_roberta", "modernbert", "two_heads"])
@pytest.mark.parametrize("aggregation", ["none", "first"])
async def test_spans_are_the_callers_own_text(
    folders: dict[str, Path], executor: ThreadPoolExecutor, kind: str, aggregation: str
) -> None:
    served = pipeline(folders[kind], executor, absa={"aggregation": aggregation})
    result = await ask(served, *SHORT, ODD)
    found = 0
    for text, item in zip([*SHORT, ODD], result.items, strict=True):
        end = 0
        for span in item.spans:
            assert text[span.start : span.end] == span.text
            assert end <= span.start < span.end
            assert (span.aspect, span.polarity) in {(a, p) for a in ("food", "음식#맛") for p in ("positive", "NEG")}
            assert 0 < span.score <= 1
            end = span.end
            found += 1
        assert (item.sentiment is not None) == (kind == "two_heads")
        if not text.strip():
            assert not item.spans
    assert found > 100


@pytest.mark.parametrize("kind", ["bert", "xlm_roberta", "modernbert"])
async def test_windows_do_not_change_the_answer(
    folders: dict[str, Path], executor: ThreadPoolExecutor, kind: str
) -> None:
    """The fake's labels depend on the token alone, so a text in many windows has the spans that it has in one: none
    twice at a seam, none in two halves."""
    long = " ".join(CASES[20:60])
    whole = await ask(pipeline(folders[kind], executor, max_model_len=9000, max_num_batched_tokens=9000), long)
    for length, absa in ((64, {}), (40, {"stride": 20}), (16, {"stride": 0}), (64, {"stride": 1})):
        served = pipeline(folders[kind], executor, max_model_len=length, absa={"max_windows": 1_000, **absa})
        parts = await ask(served, long)
        assert parts.items[0].spans == whole.items[0].spans
        assert parts.served.truncated == ()
        assert parts.served.prompt_tokens > whole.served.prompt_tokens


def test_sequences_are_what_transformers_cuts(folders: dict[str, Path]) -> None:
    from transformers import AutoTokenizer

    for kind, folder in folders.items():
        model = text_model(folder, "absa", absa={"stride": 11})
        built = build_input(model, AbsaRequest(SHORT))
        want = AutoTokenizer.from_pretrained(folder)(
            SHORT, truncation=True, max_length=64, stride=11, return_overflowing_tokens=True
        )
        got = [part.tolist() for part in np.split(built.token_ids, built.offsets[1:-1])]
        assert got == want["input_ids"]
        assert len(got) > len(SHORT)
        assert (built.task, built.rows_before) == (PoolingTask.TOKEN_CLASSIFY, int(kind == "two_heads"))


async def test_a_text_with_too_many_windows_is_cut_or_refused(
    folders: dict[str, Path], executor: ThreadPoolExecutor
) -> None:
    served = pipeline(folders["bert"], executor, absa={"max_windows": 3, "stride": 2})
    room = (64 - 2) + 2 * (62 - 2)
    long = "the quick fox " * 200
    result = await ask(served, "fox", long)
    assert result.served.truncated == (1,)
    (ids,) = served.model.tokenizer.encode([long])
    places = served.model.tokenizer.encode_places([long])[0].offsets
    assert result.items[1].spans[-1].end <= places[room - 1][1]
    assert result.served.prompt_tokens == len(served.model.tokenizer.encode(["fox"])[0]) + 2 + 3 * 64
    with pytest.raises(ContextLengthExceeded, match=rf"^inputs\[1\]: {len(ids)} tokens; there is room for {room} and"):
        await ask(served, "fox", long, truncation=Truncation(enabled=False))
    with pytest.raises(ContextLengthExceeded, match=r"^inputs\[0\]: at least \d+ tokens"):
        await ask(served, "the fox " * 500_000, truncation=Truncation(enabled=False))
    few = await ask(served, long, truncation=Truncation(max_input_tokens=20))
    assert (few.served.prompt_tokens, few.served.truncated) == (20, (0,))


async def test_five_thousand_words_are_answered(folders: dict[str, Path], executor: ThreadPoolExecutor) -> None:
    text = CASES[-1]
    result = await ask(pipeline(folders["xlm_roberta"], executor, max_model_len=256), text)
    assert result.served.truncated == ()
    assert result.items[0].spans[-1].end > len(text) - 30


async def test_threshold_and_aspects_filter(folders: dict[str, Path], executor: ThreadPoolExecutor) -> None:
    served = pipeline(folders["two_heads"], executor)
    everything = (await ask(served, *SHORT)).items
    scores = sorted(span.score for item in everything for span in item.spans)
    middle = scores[len(scores) // 2]

    def only(keep: Any) -> list[AbsaItem]:
        return [AbsaItem(item.sentiment, [span for span in item.spans if keep(span)]) for item in everything]

    assert list((await ask(served, *SHORT, threshold=middle)).items) == only(lambda span: span.score >= middle)
    configured = pipeline(folders["two_heads"], executor, absa={"threshold": middle})
    assert list((await ask(configured, *SHORT)).items) == only(lambda span: span.score >= middle)
    assert list((await ask(configured, *SHORT, threshold=0.0)).items) == list(everything)
    food = (await ask(served, *SHORT, aspects=["Food"])).items
    assert list(food) == only(lambda span: span.aspect == "food")
    assert 0 < sum(len(item.spans) for item in food) < len(scores)
    decomposed = (await ask(served, *SHORT, aspects=["\u110b\u1173\u11b7식#맛"])).items
    assert list(decomposed) == only(lambda span: span.aspect == "음식#맛")
    with pytest.raises(
        InvalidRequest, match=r"^aspects\[1\]: this model does not know 'price'; it knows food, 음식#맛"
    ):
        await ask(served, "a", aspects=["food", "price"])


async def test_a_model_without_aspects_refuses_them(checkpoints: Checkpoints, executor: ThreadPoolExecutor) -> None:
    served = pipeline(checkpoints.token_classifier("bert", ("O", "B-POS", "I-POS", "B-NEG", "I-NEG")), executor)
    result = await ask(served, *SHORT)
    assert {span.aspect for item in result.items for span in item.spans} == {None}
    with pytest.raises(InvalidRequest, match=r"^aspects: this model finds opinions"):
        await ask(served, "a", aspects=["food"])


async def test_pairs_rate_the_aspects_that_they_are_given(
    checkpoints: Checkpoints, executor: ThreadPoolExecutor
) -> None:
    served = pair_pipeline(checkpoints, executor)
    texts = ["The Food was good", "", "음식이 좋아요", " \n"]
    aspects = ["food", "음식", "price", "service", "view", "room", "staff", "taste", "noise", "parking"]
    result = await ask(served, *texts, aspects=aspects)
    built = build_input(served.model, AbsaRequest(texts, aspects=aspects))
    assert (len(built.offsets) - 1, built.task) == (2 * len(aspects), PoolingTask.CLASSIFY)
    # The fake's own rows say which spans there must be.
    sequences = np.split(built.token_ids, built.offsets[1:-1])
    best = np.stack([fake_values(sequence, 3) for sequence in sequences]).argmax(axis=1).reshape(2, -1)
    assert set(best.ravel()) > {0}
    places = {(0, 0): (4, 8), (1, 1): (0, 2)}
    for row, index in ((0, 0), (1, 2)):
        want = [
            (aspect, PAIR_LABELS[str(best[row, j])], places.get((row, j), (0, 0)))
            for j, aspect in enumerate(aspects)
            if best[row, j] != 0
        ]
        got = [(span.aspect, span.polarity, (span.start, span.end)) for span in result.items[index].spans]
        assert got == want
    assert not result.items[1].spans
    assert not result.items[3].spans
    assert all(item.sentiment is None for item in result.items)


async def test_pairs_only_cut_the_text(checkpoints: Checkpoints, executor: ThreadPoolExecutor) -> None:
    from transformers import AutoTokenizer

    served = pair_pipeline(checkpoints, executor)
    reference = AutoTokenizer.from_pretrained(served.model.checkpoint.folder)
    long, aspects = "the quick fox " * 100, ["service", "a much longer aspect"]
    built = build_input(served.model, AbsaRequest(["a fox", long], aspects=aspects))
    sequences = [part.tolist() for part in np.split(built.token_ids, built.offsets[1:-1])]
    assert built.segment_starts is not None
    number = 0
    for text in ("a fox", long):
        for aspect in aspects:
            want = reference([text], [aspect], truncation="only_first", max_length=64)
            assert sequences[number] == want["input_ids"][0]
            assert want["token_type_ids"][0].index(1) == built.segment_starts[number]
            number += 1
    assert built.truncated == (1,)
    with pytest.raises(ContextLengthExceeded, match=r"^inputs\[1\]: "):
        await ask(served, "a", long, aspects=aspects, truncation=Truncation(enabled=False))
    with pytest.raises(ContextLengthExceeded, match=r"^aspects\[1\]: leaves no room"):
        await ask(served, "a", aspects=["a", "long " * 80])
    with pytest.raises(InvalidRequest, match=r"^aspects: is required"):
        await ask(served, "a")
    silent = await ask(served, "", aspects=["a"])
    assert (silent.items, silent.served.prompt_tokens) == ((AbsaItem(None, []),), 0)


async def test_sizes_are_bounded(
    folders: dict[str, Path], checkpoints: Checkpoints, executor: ThreadPoolExecutor
) -> None:
    tokens = pipeline(folders["bert"], executor, admission={"max_tokens_in_flight": 100})
    with pytest.raises(TooLarge, match=r"^inputs: \d+ tokens together; the model takes 100"):
        await ask(tokens, "the quick fox " * 30)
    pairs = pair_pipeline(checkpoints, executor, admission={"max_documents_in_flight": 5})
    with pytest.raises(TooLarge, match=r"^aspects: 3 texts with 2 aspects each are 6 pairs"):
        await ask(pairs, "a", "b", "c", aspects=["a", "b"])


def test_the_engines_numbers_must_fit(folders: dict[str, Path]) -> None:
    model = text_model(folders["two_heads"], "absa")
    request = AbsaRequest(["a fox", "b"])
    built = build_input(model, request)
    rows = len(built.token_ids) + 2
    good = np.zeros((rows, 9), np.float32)
    postprocess(model, request, built, EngineOutput(good, 0, 0))
    for values in (good[1:], good[:, 1:]):
        with pytest.raises(InternalError, match="the engine gave"):
            postprocess(model, request, built, EngineOutput(values, 0, 0))
    good[3, 2] = np.nan
    with pytest.raises(InternalError, match="not a number"):
        postprocess(model, request, built, EngineOutput(good, 0, 0))


def test_sentiment_of_several_windows_is_weighted_by_their_tokens(folders: dict[str, Path]) -> None:
    model = text_model(folders["two_heads"], "absa", max_model_len=12, absa={"stride": 0})
    request = AbsaRequest(["the fox " * 8])
    built = build_input(model, request)
    lengths = np.diff(built.offsets).tolist()
    assert len(lengths) == 2
    assert lengths[0] > lengths[1]
    values = np.zeros((sum(lengths) + 2, 9), np.float32)
    values[0, :3] = np.log([0.7, 0.2, 0.1])
    values[lengths[0] + 1, :3] = np.log([0.1, 0.2, 0.7])
    values[:, 3:] = 50  # what fills a row up says nothing
    (item,) = postprocess(model, request, built, EngineOutput(values, 0, 0))
    assert item.sentiment is not None
    assert item.sentiment[0] == "negative"
    assert item.sentiment[1] == pytest.approx((0.7 * lengths[0] + 0.1 * lengths[1]) / sum(lengths), rel=1e-5)


async def test_tasks_and_canaries(
    folders: dict[str, Path], checkpoints: Checkpoints, executor: ThreadPoolExecutor
) -> None:
    for served in (pipeline(folders["two_heads"], executor), pair_pipeline(checkpoints, executor)):
        request = canary_request(Task.ABSA, served.model.checkpoint.absa)
        assert isinstance(await served.run(Context("r", time.time() + 9), request), AbsaResult)
        with pytest.raises(InvalidRequest, match="cannot classify"):
            await served.run(Context("r", time.time() + 9), ClassifyRequest(["a"]))


# --- the reference itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["first", "average", "max"])
def test_the_reference_agrees_with_transformers_pipeline(folders: dict[str, Path], aggregation: str) -> None:
    """Where both mean the same: WordPiece, one window, ASCII. (The pipeline takes the first piece of a Hangul word for
    a later one, since BERT's normaliser decomposes it and the lengths differ.)"""
    from transformers import pipeline as transformers_pipeline

    texts = [text for text in CASES if text.isascii() and 10 < len(text) < 300][:60]
    classify = transformers_pipeline(
        "token-classification", model=str(folders["bert"]), aggregation_strategy=aggregation, device=-1
    )
    answers = reference_answers(
        folders["bert"], texts, dtype=DType.FLOAT32, max_length=512, aggregation=Aggregation(aggregation)
    )
    count = 0
    for text, answer in zip(texts, answers, strict=True):
        want = [(e["start"], e["end"], e["entity_group"]) for e in classify(text)]
        got = [(s.start, s.end, f"{s.aspect}-{s.polarity}") for s in answer.item.spans]
        assert got == want
        scores = [e["score"] for e in classify(text)]
        np.testing.assert_allclose([s.score for s in answer.item.spans], scores, atol=1e-5)
        count += len(got)
    assert count > 100


# --- the whole path but for vLLM, against the reference --------------------------------------------------------------


class TorchEngine:
    """Runs a batch's sequences one by one through a checkpoint in Transformers."""

    def __init__(self, folder: Path, kind: str) -> None:
        auto = {"pairs": AutoModelForSequenceClassification}.get(kind, AutoModelForTokenClassification)
        two_heads = kind == "two_heads"
        self._model: Any = TwoHeadTokenClassifier.load(folder) if two_heads else auto.from_pretrained(folder).eval()

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput:
        rows = []
        for i, tokens in enumerate(np.split(batch.token_ids, batch.offsets[1:-1])):
            inputs = {"input_ids": torch.tensor(tokens[None].astype(np.int64))}
            if batch.segment_starts is not None:
                inputs["token_type_ids"] = torch.tensor((np.arange(len(tokens)) >= batch.segment_starts[i])[None] * 1)
            with torch.inference_mode():
                output = self._model(**inputs)
            if isinstance(output, tuple):
                whole = np.zeros((1, output[0].shape[2]), np.float32)
                whole[0, : output[1].shape[1]] = output[1][0].numpy()
                rows.append(np.concatenate([whole, output[0][0].numpy()]))
            else:
                rows.append(output.logits.numpy().reshape(-1, output.logits.shape[-1]))
        return EngineOutput(np.concatenate(rows), 0.0, 0.0)


def assert_same(got: AbsaItem, want: AbsaItem) -> None:
    assert [(s.start, s.end, s.text, s.aspect, s.polarity) for s in got.spans] == [
        (s.start, s.end, s.text, s.aspect, s.polarity) for s in want.spans
    ]
    np.testing.assert_allclose([s.score for s in got.spans], [s.score for s in want.spans], atol=1e-5)
    assert (got.sentiment is None) == (want.sentiment is None)
    if got.sentiment is not None and want.sentiment is not None:
        assert got.sentiment[0] == want.sentiment[0]
        assert got.sentiment[1] == pytest.approx(want.sentiment[1], abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "aggregation"),
    [
        ("modernbert", "first"),
        ("modernbert", "none"),
        ("xlm_roberta", "max"),
        ("bert", "average"),
        ("two_heads", "none"),
    ],
)
async def test_answers_equal_the_reference(
    folders: dict[str, Path], executor: ThreadPoolExecutor, kind: str, aggregation: str
) -> None:
    texts = [*SHORT[:35], *CASES[320:335], CASES[385], *CASES[400:412], ODD]  # decomposed, long and odd ones among them
    model = text_model(folders[kind], "absa", absa={"aggregation": aggregation, "stride": 9, "threshold": 0.3})
    served = Pipeline(model, TorchEngine(folders[kind], kind), executor)
    items = (await ask(served, *texts)).items
    wanted = reference_answers(
        folders[kind],
        texts,
        dtype=DType.FLOAT32,
        max_length=64,
        stride=9,
        aggregation=Aggregation(aggregation),
        threshold=0.3,
    )
    for got, want in zip(items, wanted, strict=True):
        assert_same(got, want.item)
    assert sum(len(item.spans) for item in items) > 50


async def test_pairs_equal_the_reference(
    checkpoints: Checkpoints, tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    folder = tmp_path / "pairs"
    shutil.copytree(checkpoints.bert(3), folder)
    config = json.loads((folder / "config.json").read_text()) | {"id2label": PAIR_LABELS}
    (folder / "config.json").write_text(json.dumps(config))
    served = Pipeline(text_model(folder, "absa"), TorchEngine(folder, "pairs"), executor)
    texts, aspects = ["The Food was good", "", *CASES[20:40], *CASES[380:384]], ["food", "서비스가", "river view"]
    items = (await ask(served, *texts, aspects=aspects)).items
    wanted = reference_pair_answers(folder, texts, aspects, dtype=DType.FLOAT32, max_length=64)
    for got, want in zip(items, wanted, strict=True):
        assert_same(got, want.item)
    polarities = {span.polarity for item in items for span in item.spans}
    assert polarities
    assert any(span.end for item in items for span in item.spans)

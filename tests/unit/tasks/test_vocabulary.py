"""Tokens that the tokenizer knows and the model's embedding does not have."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import InvalidRequest, status_of
from serve_app.messages import AbsaRequest, ClassifyRequest, EmbedRequest, PoolRequest, ScoreRequest, Truncation
from serve_app.plugin_host.prompts import token_ids
from serve_app.tasks.absa.build_input import build_input as absa
from serve_app.tasks.classify.build_input import build_input as classify
from serve_app.tasks.embed.build_input import build_input as embed
from serve_app.tasks.embed.build_input import build_pair_input
from serve_app.tasks.model import TextModel
from serve_app.tasks.pooling.build_input import build_input as pooling
from serve_app.tasks.rerank.build_input import build_input as rerank
from serve_app.tokenization import TextTokenizer
from tests.checkpoints import Checkpoints
from tests.unit.models import text_model

BAD = "a fox <extra> and a dog"


def with_extra(checkpoints: Checkpoints, plain: Path, folder: Path, *, gap: int = 0) -> Path:
    """A copy whose tokenizer knows one token more, by an id beyond the others."""
    checkpoints.changed(plain, folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    added = TextTokenizer(plain).vocab_size + gap
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    content["added_tokens"].append({"id": added, "content": "<extra>", **flags})
    path.write_text(json.dumps(content))
    return folder


TASKS: dict[str, tuple[str, int, Callable[[TextModel], Any], str]] = {
    "query": ("rerank", 1, lambda m: rerank(m, ScoreRequest([BAD], ["b"])), "query"),
    "one query of several": ("rerank", 1, lambda m: rerank(m, ScoreRequest(["a", BAD], ["b", "c"])), "query[1]"),
    "document": ("rerank", 1, lambda m: rerank(m, ScoreRequest(["a"], ["b", BAD])), "documents[1]"),
    "text": ("embed", 0, lambda m: embed(m, EmbedRequest(["b", [5, 6], BAD])), "input[2]"),
    "pair of vectors": ("embed", 0, lambda m: build_pair_input(m, ScoreRequest(["a"], ["b", BAD])), "documents[1]"),
    "pooling": ("embed", 0, lambda m: pooling(m, PoolRequest(["b", BAD])), "input[1]"),
    "single": ("classify", 3, lambda m: classify(m, ClassifyRequest(["b", BAD])), "input[1]"),
    "pair": ("classify", 3, lambda m: classify(m, ClassifyRequest([("b", "c"), ("d", BAD)])), "input[1][1]"),
    "plugin": ("embed", 0, lambda m: token_ids(m, [[5], BAD], Truncation()), "data: prompt 1"),
}


@pytest.mark.parametrize("case", TASKS)
def test_a_text_with_such_a_token_is_refused_with_its_place(
    case: str, checkpoints: Checkpoints, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task, labels, build, field = TASKS[case]
    folder = with_extra(checkpoints, checkpoints.bert(labels), tmp_path / "c")
    with caplog.at_level(logging.WARNING):
        model = text_model(folder, task)
    assert [record.getMessage() for record in caplog.records if "embedding" in record.getMessage()]
    with pytest.raises(InvalidRequest) as caught:
        build(model)
    assert str(caught.value).startswith(f"{field}: has the token {model.vocab_size}, which the tokenizer knows")
    assert status_of(caught.value).http == 400


@pytest.mark.parametrize("pairs", [True, False])
def test_aspects_and_texts_too(pairs: bool, checkpoints: Checkpoints, tmp_path: Path) -> None:
    labels = ["negative", "positive"] if pairs else ["O", "B-positive", "I-positive"]
    plain = checkpoints.bert(2) if pairs else checkpoints.token_classifier("bert", labels)
    folder = with_extra(checkpoints, plain, tmp_path / "c")
    if pairs:
        content = json.loads((folder / "config.json").read_text())
        content["id2label"] = dict(enumerate(labels))
        (folder / "config.json").write_text(json.dumps(content))
    model = text_model(folder, "absa")
    aspects = ["food"] if pairs else None
    with pytest.raises(InvalidRequest, match=r"inputs\[1\]: has the token"):
        absa(model, AbsaRequest(["a", BAD], aspects=aspects))
    if pairs:
        with pytest.raises(InvalidRequest, match=r"aspects\[1\]: has the token"):
            absa(model, AbsaRequest(["a"], aspects=["food", BAD]))


def test_ready_ids_end_where_the_embedding_does(checkpoints: Checkpoints, tmp_path: Path) -> None:
    model = text_model(with_extra(checkpoints, checkpoints.bert(0), tmp_path / "c"), "embed")
    last = model.vocab_size - 1
    assert embed(model, EmbedRequest([[last]])).token_ids.tolist() == [last]
    with pytest.raises(InvalidRequest, match=rf"token id {last + 1} is outside the model's 0 to {last}"):
        embed(model, EmbedRequest([[last + 1]]))
    with pytest.raises(InvalidRequest, match=f"token id {last + 1} is outside"):
        token_ids(model, [[last + 1]], Truncation())


def test_ids_are_counted_to_the_highest_and_not_by_their_number(checkpoints: Checkpoints, tmp_path: Path) -> None:
    plain = checkpoints.bert(0)
    folder = with_extra(checkpoints, plain, tmp_path / "c")
    assert TextTokenizer(folder).vocab_size == TextTokenizer(plain).vocab_size + 1
    vocabulary = json.loads((plain / "tokenizer.json").read_text())["model"]["vocab"]
    gap = tmp_path / "gap"
    checkpoints.changed(plain, gap)
    content = json.loads((gap / "tokenizer.json").read_text())
    content["model"]["vocab"] = {token: i + 1000 * (token == "##a") for token, i in vocabulary.items()}
    (gap / "tokenizer.json").write_text(json.dumps(content))
    assert TextTokenizer(gap).vocab_size == 1 + max(content["model"]["vocab"].values())


def test_a_model_with_the_whole_vocabulary_is_asked_nothing(
    checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model = text_model(checkpoints.bert(0), "embed")
    assert model.vocab_size == model.tokenizer.vocab_size
    assert not [record for record in caplog.records if "embedding" in record.getMessage()]


def test_special_tokens_beyond_the_embedding_stop_the_start(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.changed(checkpoints.bert(1), tmp_path / "c", vocab_size=3)
    with pytest.raises(ValueError, match=r"source: the tokenizer puts token 3 around texts; .* has 3 rows"):
        text_model(folder, "rerank")

"""Verify agrees where nothing is wrong, and finds what is planted: template, token types, dtype, label order, more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from serve_app.settings import QWEN3_RERANKER
from tests.checkpoints import CORPUS, Checkpoints
from tests.unit.verify.conftest import Verify
from tests.unit.verify.stand_in import serving

LONG = "waterproof boots for winter " * 10
RERANK: list[dict[str, Any]] = [
    {"query": "waterproof boots for the lazy dog", "documents": [*CORPUS, "", "Hi", "좋아요", LONG]},
    {"query": "수도", "documents": CORPUS[2:6]},
]
TEXTS = [*CORPUS, "Hi", "", "좋아요", LONG]
FAILED = 1


@pytest.fixture
def classifier(checkpoints: Checkpoints, tmp_path: Path) -> Path:
    """A classifier with label names."""
    path = shutil.copytree(checkpoints.bert(3), tmp_path / "classifier")
    config = AutoConfig.from_pretrained(path)
    config.id2label = {0: "negative", 1: "neutral", 2: "positive"}
    config.label2id = {name: i for i, name in config.id2label.items()}
    config.save_pretrained(path)
    return path


# --- nothing is wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "xlm_roberta", "modernbert"])
def test_a_cross_encoder_agrees(checkpoints: Checkpoints, verify: Verify, kind: str) -> None:
    assert verify(getattr(checkpoints, kind)(), "rerank", RERANK) == 0
    assert verify.limit("largest difference")["value"] < 1e-5
    assert verify.result["agreement"]["ranking"]["top1"] == 1
    assert verify.result["agreement"]["ranking"]["groups"] == 2
    assert verify.result["inputs"] == {"lines": 2, "inputs": 16}


def test_pairs_agree(checkpoints: Checkpoints, verify: Verify) -> None:
    pairs = [{"text_1": "fox", "text_2": text} for text in TEXTS]
    assert verify(checkpoints.bert(), "rerank", pairs) == 0
    assert verify.result["agreement"]["ranking"]["spearman"] == pytest.approx(1)


def test_an_llm_reranker_agrees_when_its_template_is_named(checkpoints: Checkpoints, verify: Verify) -> None:
    lines = [*RERANK, {"query": "fox", "documents": CORPUS, "instruction": "Find animals"}]
    options = ("--template", "qwen3-reranker")
    assert verify(checkpoints.qwen3(), "rerank", lines, *options, template="qwen3-reranker", **_large()) == 0
    assert verify.limit("largest difference")["value"] < 1e-5


def test_a_classifier_agrees_on_texts_and_pairs(classifier: Path, verify: Verify) -> None:
    lines = [*({"text": text} for text in TEXTS), {"text": "the food", "text_pair": "is good"}]
    assert verify(classifier, "classify", lines) == 0
    assert verify.result["agreement"]["labels"] == {"agree": 13, "total": 13}


def test_an_embedder_agrees(checkpoints: Checkpoints, verify: Verify) -> None:
    folder = checkpoints.sentence_transformers(checkpoints.xlm_roberta(0), "CLS", normalize=True)
    assert verify(folder, "embed", [{"text": text} for text in TEXTS]) == 0
    assert verify.result["agreement"]["cosine"] == pytest.approx(1, abs=1e-5)
    assert verify.result["agreement"]["ranking"]["spearman"] > 0.99


def test_an_embedder_with_a_dense_module_agrees(checkpoints: Checkpoints, verify: Verify) -> None:
    folder = checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True, dense=32)
    lines = [{"text": text} for text in TEXTS]
    assert verify(folder, "embed", lines) == 0
    assert verify.result["agreement"]["cosine"] == pytest.approx(1, abs=1e-5)


ABSA = [
    *({"text": text} for text in TEXTS),
    {"text": CORPUS[3], "aspects": ["food"]},
    {"text": "a window and more " * 30},
]
SPANS = ["O", "B-food-positive", "I-food-positive", "B-service-negative", "I-service-negative"]


@pytest.mark.parametrize("heads", [1, 2])
def test_an_absa_model_agrees_and_its_swapped_labels_are_found(
    checkpoints: Checkpoints, verify: Verify, heads: int
) -> None:
    sentiment = ["negative", "neutral", "positive"]
    folder = checkpoints.token_classifier("bert", SPANS) if heads == 1 else checkpoints.two_heads(SPANS, sentiment)
    assert verify(folder, "absa", ABSA, max_model_len=48, absa={"aggregation": "average"}) == 0
    agreement = verify.result["agreement"]
    assert agreement["spans"] == {"agree": len(ABSA), "total": len(ABSA)}
    assert agreement["values"]["count"] > 10
    assert (agreement["labels"] or {}).get("total") == (None if heads == 1 else len(ABSA))
    turned = dict(enumerate([SPANS[0], *SPANS[3:], *SPANS[1:3]]))
    engine = {"enforce_eager": True, "hf_overrides": {"id2label": turned}}
    assert verify(folder, "absa", ABSA, max_model_len=48, engine=engine) == FAILED
    assert not verify.limit("span agreement")["passed"]


# --- the four planted differences ------------------------------------------------------------------------------------


def test_a_wrong_template_in_the_configuration_is_found(checkpoints: Checkpoints, verify: Verify) -> None:
    wrong = QWEN3_RERANKER.model_copy(update={"document_prefix": ""}).model_dump()  # one space is missing
    options = ("--template", "qwen3-reranker")
    assert verify(checkpoints.qwen3(), "rerank", RERANK, *options, template=wrong, **_large()) == FAILED
    assert not verify.limit("largest difference")["passed"]
    assert any(note.startswith("template: the reference reads 'qwen3-reranker'") for note in verify.result["notes"])


def test_missing_token_types_are_found(checkpoints: Checkpoints, verify: Verify) -> None:
    assert verify(checkpoints.bert(), "rerank", RERANK, start=serving(token_types=False)) == FAILED
    assert not verify.limit("largest difference")["passed"]


@pytest.mark.parametrize(("served", "name"), [(torch.float16, "float16"), (torch.bfloat16, "bfloat16")])
def test_sixteen_bits_in_place_of_fp32_are_found_and_named(
    checkpoints: Checkpoints, verify: Verify, served: torch.dtype, name: str
) -> None:
    assert verify(checkpoints.bert(), "rerank", RERANK, start=serving(dtype=served)) == FAILED
    assert not verify.limit("largest difference")["passed"]
    assert any(f"nearer to the reference in {name}" in note for note in verify.result["notes"])


def test_a_changed_label_order_is_found(classifier: Path, verify: Verify) -> None:
    turned = {"id2label": {"0": "positive", "1": "negative", "2": "neutral"}}
    engine = {"enforce_eager": True, "hf_overrides": turned}
    lines = [{"text": text} for text in TEXTS]
    assert verify(classifier, "classify", lines, engine=engine) == FAILED
    assert not verify.limit("label agreement")["passed"]
    assert verify.limit("labels that one side lacks")["passed"]
    assert any(note.startswith("labels: ") for note in verify.result["notes"])


# --- others ----------------------------------------------------------------------------------------------------------


def test_a_renamed_label_is_found(classifier: Path, verify: Verify) -> None:
    renamed = {"id2label": {"0": "negative", "1": "neutral", "2": "good"}}
    engine = {"enforce_eager": True, "hf_overrides": renamed}
    lines = [{"text": text} for text in TEXTS]
    assert verify(classifier, "classify", lines, engine=engine) == FAILED
    assert verify.limit("labels that one side lacks")["value"] == 2


def test_another_activation_is_found_though_the_logits_agree(checkpoints: Checkpoints, verify: Verify) -> None:
    assert verify(checkpoints.bert(), "rerank", RERANK, activation="none") == FAILED
    assert verify.limit("largest difference")["passed"]
    assert not verify.limit("largest difference of scores")["passed"]


def test_prompts_that_the_checkpoint_does_not_have_are_found(checkpoints: Checkpoints, verify: Verify) -> None:
    folder = checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True)
    lines: list[dict[str, Any]] = [{"settings": {"prompts": {"query": "find: "}}}]
    lines += [{"text": text, "prompt": "query"} for text in CORPUS]
    assert verify(folder, "embed", lines, prompts={"query": "find: "}) == 0
    assert verify(folder, "embed", lines, prompts={"query": "search: "}) == FAILED


def test_other_pooling_is_found(checkpoints: Checkpoints, verify: Verify) -> None:
    folder = checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True)
    lines = [{"text": text} for text in CORPUS]
    assert verify(folder, "embed", lines, pooling="CLS") == FAILED
    assert verify.result["agreement"]["cosine"] < 0.999


def test_a_window_shorter_than_the_checkpoints_is_found_unless_it_is_meant(
    checkpoints: Checkpoints, verify: Verify
) -> None:
    assert verify(checkpoints.bert(), "rerank", RERANK, max_model_len=24) == FAILED
    assert verify.result["agreement"]["truncated"] > 0
    assert verify(checkpoints.bert(), "rerank", RERANK, "--max-length", "24", max_model_len=24) == 0


def test_a_refused_line_is_a_missing_answer_and_the_others_are_compared(
    checkpoints: Checkpoints, verify: Verify
) -> None:
    lines = [*RERANK, {"query": LONG * 4, "documents": ["a"]}]
    assert verify(checkpoints.bert(), "rerank", lines, max_model_len=128) == FAILED
    assert [missing["line"] for missing in verify.result["agreement"]["missing"]] == [3]
    assert "leave no room for a document" in verify.result["agreement"]["missing"][0]["message"]
    assert verify.limit("largest difference")["passed"]


def _large() -> dict[str, int]:
    return {"max_model_len": 1024, "max_num_batched_tokens": 4096}

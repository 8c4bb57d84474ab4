"""Embedding inputs and vectors: prompts, token ids, Matryoshka, cosine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import EmbedRequest, EngineOutput, ScoreRequest, Truncation
from serve_app.tasks.embed.build_input import build_input, build_pair_input
from serve_app.tasks.embed.postprocess import pair_scores, postprocess
from tests.checkpoints import Checkpoints
from tests.unit.models import text_model

PROMPTS = {"query": "query: ", "document": "passage: "}
LONG = "the quick fox " * 60


def test_prompts_stand_before_their_texts(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", prompts=PROMPTS)
    plain = build_input(model, EmbedRequest(["query: fox"]))
    assert build_input(model, EmbedRequest(["fox"], prompt="query")).token_ids.tolist() == plain.token_ids.tolist()
    pair = build_pair_input(model, ScoreRequest(["fox"], ["dog"]))
    by_hand = build_input(model, EmbedRequest(["query: fox", "passage: dog"]))
    assert pair.token_ids.tolist() == by_hand.token_ids.tolist()
    with pytest.raises(InvalidRequest, match=r"^prompt_name: this model has no prompt 'nope'; it has: query, document"):
        build_input(model, EmbedRequest(["fox"], prompt="nope"))


OWN_PROMPTS: dict[str, tuple[dict[str, str | None], str | None]] = {
    "none": ({}, None),
    "qwen3-embedding": ({"query": "Instruct: find\nQuery:", "document": ""}, None),
    "mxbai": ({"query": "Represent this sentence: ", "passage": ""}, None),
    "arctic": ({"query": "Represent this sentence: "}, None),
    "both": ({"document": "d: ", "passage": "p: "}, None),
    "null": ({"query": "q: ", "document": None}, None),
    "task": ({"STS": "similar: "}, None),
    # Where `encode_document` takes the empty `document` that sentence-transformers itself fills in:
    "e5": ({"query": "query: ", "passage": "passage: "}, "passage"),
    "e5-saved-again": ({"query": "query: ", "document": "", "passage": "passage: "}, "passage"),
    "corpus": ({"query": "q: ", "corpus": "c: "}, "corpus"),
}


@pytest.mark.parametrize(("prompts", "name"), OWN_PROMPTS.values(), ids=OWN_PROMPTS)
def test_queries_and_documents_are_prompted_as_by_sentence_transformers(
    checkpoints: Checkpoints, tmp_path: Path, prompts: dict[str, str | None], name: str | None
) -> None:
    made = checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True)
    folder = shutil.copytree(made, tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    read: list[list[int]] = []

    class Official(SentenceTransformer):
        def forward(self, features: dict[str, torch.Tensor], **options: Any) -> dict[str, torch.Tensor]:
            read.append(features["input_ids"][0].tolist())
            return super().forward(features, **options)

    official = Official(str(folder), device="cpu")
    official.encode_query(["a quick fox"])
    official.encode_document(["a quick fox"], prompt_name=name)
    model = text_model(folder, "embed")
    for kind, want in zip(("query", "document"), read, strict=True):
        assert build_input(model, EmbedRequest(["a quick fox"], prompt=kind)).token_ids.tolist() == want
    pair = build_pair_input(model, ScoreRequest(["a quick fox"], ["a quick fox"]))
    assert pair.token_ids.tolist() == read[0] + read[1]
    if "passage" not in prompts:
        assert build_input(model, EmbedRequest(["a quick fox"], prompt="passage")).token_ids.tolist() == read[1]
    with pytest.raises(InvalidRequest, match="no prompt 'nope'"):
        build_input(model, EmbedRequest(["fox"], prompt="nope"))


def test_a_prompt_of_the_settings_has_both_of_a_documents_names(checkpoints: Checkpoints) -> None:
    for name, other in (("document", "passage"), ("passage", "document")):
        model = text_model(checkpoints.bert(0), "embed", prompts={"query": "query: ", name: "passage: "})
        want = build_input(model, EmbedRequest(["passage: dog"])).token_ids.tolist()
        for asked in (name, other):
            assert build_input(model, EmbedRequest(["dog"], prompt=asked)).token_ids.tolist() == want
        assert build_pair_input(model, ScoreRequest(["a"], ["dog"])).token_ids.tolist()[-len(want) :] == want


def test_the_callers_own_word_comes_first_where_the_model_has_it(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", prompts={"query": "q: ", "retrieval.query": "find: "})
    sent = EmbedRequest(["fox"], prompt="query", prompt_field="task", prompt_sent="retrieval.query")
    want = build_input(model, EmbedRequest(["find: fox"])).token_ids.tolist()
    assert build_input(model, sent).token_ids.tolist() == want


def test_an_unknown_prompt_is_refused_under_the_callers_field_and_word(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed")
    with pytest.raises(
        InvalidRequest, match=r"^task: this model has no prompt 'text-matching'; it has: none"
    ) as caught:
        build_input(
            model, EmbedRequest(["a"], prompt="text-matching", prompt_field="task", prompt_sent="text-matching")
        )
    assert caught.value.param == "task"


@pytest.mark.parametrize("kind", ["bert", "xlm_roberta", "qwen3"])
def test_every_piece_of_a_document_has_its_prompt(checkpoints: Checkpoints, kind: str) -> None:
    folder = getattr(checkpoints, kind)(0)
    model = text_model(folder, "embed", max_model_len=20, prompts=PROMPTS)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    document = "the quick brown fox jumps over the lazy dog near the river bank. " * 2
    special, (prompt,) = model.tokenizer.single, tokenizer(["passage: "], add_special_tokens=False)["input_ids"]
    joint = tokenizer("passage: " + document, add_special_tokens=False, return_offsets_mapping=True)
    shared = sum(end <= len("passage: ") for _, end in joint["offset_mapping"])
    own = joint["input_ids"][shared:]
    built = build_pair_input(model, ScoreRequest(["fox"], [document], truncation=Truncation(max_chunks=3)))
    _, *sequences = [part.tolist() for part in np.split(built.token_ids, built.offsets[1:-1])]
    pieces = [sequence[len(special.before) : len(sequence) - len(special.after)] for sequence in sequences]
    assert len(pieces) == 3
    assert pieces[0] == joint["input_ids"][: 20 - special.overhead(pair=False)]
    assert all(piece[: len(prompt)] == prompt for piece in pieces[1:])
    read = pieces[0][shared:] + [token for piece in pieces[1:] for token in piece[len(prompt) :]]
    assert read == own[: len(read)]
    assert max(map(len, sequences)) == 20


def test_max_tokens_per_doc_does_not_count_the_prompt(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", prompts=PROMPTS)
    (dog,) = model.tokenizer.encode(["lazy dog"])
    whole = build_pair_input(model, ScoreRequest(["fox"], ["lazy dog"]))
    truncation = Truncation(enabled=False, max_document_tokens=len(dog))
    built = build_pair_input(model, ScoreRequest(["fox"], ["lazy dog"], truncation=truncation))
    assert built.token_ids.tolist() == whole.token_ids.tolist()
    shorter = Truncation(max_document_tokens=len(dog) - 1)
    cut = build_pair_input(model, ScoreRequest(["fox"], ["lazy dog"], truncation=shorter))
    assert (cut.prompt_tokens, cut.truncated) == (whole.prompt_tokens - 1, (0,))
    with pytest.raises(ContextLengthExceeded, match=rf"documents\[0\]: {len(dog)} tokens; there is room for 1 "):
        build_pair_input(
            model, ScoreRequest(["a"], ["lazy dog"], truncation=Truncation(enabled=False, max_document_tokens=1))
        )


def test_a_limit_that_leaves_room_for_the_prompt_only_is_refused(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", prompts=PROMPTS)
    prompt = len(model.tokenizer.encode(["passage: "])[0])
    truncation = Truncation(max_input_tokens=prompt + 2)
    with pytest.raises(ContextLengthExceeded, match=rf"no room for a text behind the {prompt} tokens of the model's"):
        build_input(model, EmbedRequest(["dog"], prompt="document", truncation=truncation))
    ready = build_input(model, EmbedRequest([[2, 7, 3]], prompt="document", truncation=truncation))
    assert ready.token_ids.tolist() == [2, 7, 3]  # token ids have no prompt before them


def test_ready_token_ids(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed")
    built = build_input(model, EmbedRequest([[2, 7, 3], [5] * 100]))
    assert built.offsets.tolist() == [0, 3, 67]
    assert built.truncated == (1,)
    for bad in ([[1, 2], [10**9]], [[-1]]):
        with pytest.raises(InvalidRequest, match="outside the model's"):
            build_input(model, EmbedRequest(bad))
    with pytest.raises(InvalidRequest, match=r"input\[0\]: has no tokens"):
        build_input(model, EmbedRequest([[]]))
    with pytest.raises(ContextLengthExceeded, match=r"input\[0\]: 100 tokens; there is room for 64"):
        build_input(model, EmbedRequest([[5] * 100], truncation=Truncation(enabled=False)))


def test_empty_text_is_embedded_where_special_tokens_stand_and_refused_where_none_do(checkpoints: Checkpoints) -> None:
    assert build_input(text_model(checkpoints.bert(0), "embed"), EmbedRequest([""])).prompt_tokens == 2
    with pytest.raises(InvalidRequest, match=r"input\[1\]: has no tokens"):
        build_input(text_model(checkpoints.qwen3(0), "embed"), EmbedRequest(["fox", ""]))


def test_matryoshka_cuts_first_and_then_brings_to_unit_length(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", normalize=True)
    request = EmbedRequest(["a", "b"], dimensions=2)
    built = build_input(model, request)
    vectors = np.array([[3, 4, 12], [0, 0, 5]], dtype=np.float32)
    got = postprocess(model, request, built, EngineOutput(vectors, 0, 0))
    np.testing.assert_allclose(got, [[0.6, 0.8], [0, 0]], atol=1e-7)
    with pytest.raises(InvalidRequest, match="dimensions: 4 is more than the model's 3"):
        postprocess(model, EmbedRequest(["a"], dimensions=4), built, EngineOutput(vectors, 0, 0))


def test_the_request_decides_over_the_checkpoint_on_normalisation(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(0), "embed", normalize=True)
    vectors = np.array([[3, 4]], dtype=np.float32)
    built = build_input(model, EmbedRequest(["a"]))
    raw = postprocess(model, EmbedRequest(["a"], normalize=False), built, EngineOutput(vectors, 0, 0))
    assert raw.tolist() == [[3, 4]]


@pytest.mark.parametrize("queries", [1, 3])
def test_cosine_with_chunks(checkpoints: Checkpoints, queries: int) -> None:
    model = text_model(checkpoints.bert(0), "embed")
    request = ScoreRequest(["fox"] * queries, ["a", LONG, "b"], truncation=Truncation(max_chunks=2))
    built = build_pair_input(model, request)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(queries + 4, 8)).astype(np.float32)
    got = pair_scores(model, request, built, EngineOutput(vectors, 0, 0))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    query = [unit[i if queries > 1 else 0] for i in range(3)]
    documents = unit[queries:]
    want = [query[0] @ documents[0], max(query[1] @ documents[1], query[1] @ documents[2]), query[2] @ documents[3]]
    np.testing.assert_allclose(got, want, atol=1e-6)

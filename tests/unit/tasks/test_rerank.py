"""Reranker inputs: token types, truncation of the document only, templates, chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from serve_app.errors import ContextLengthExceeded, InternalError, InvalidRequest
from serve_app.messages import EngineOutput, ScoreRequest, Truncation
from serve_app.settings import QWEN3_RERANKER
from serve_app.tasks.model import ModelInput, TextModel
from serve_app.tasks.rerank.build_input import build_input, reads_instruction
from serve_app.tasks.rerank.postprocess import postprocess
from tests.checkpoints import Checkpoints
from tests.unit.models import text_model

LONG = "waterproof boots for winter " * 40


def _sequences(built: ModelInput) -> list[list[int]]:
    return [part.tolist() for part in np.split(built.token_ids, built.offsets[1:-1])]


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm_roberta", "modernbert"])
def test_pairs_equal_transformers_with_only_second_truncation(checkpoints: Checkpoints, kind: str) -> None:
    folder = getattr(checkpoints, kind)()
    model = text_model(folder, "rerank")
    reference = AutoTokenizer.from_pretrained(folder)
    documents = ["", "a fox", LONG, "卫生间在哪里？", "\u0000", "\ufeff", " "]
    built = build_input(model, ScoreRequest(["quick fox"], documents))
    for i, sequence in enumerate(_sequences(built)):
        want = reference(["quick fox"], [documents[i]], truncation="only_second", max_length=64)
        assert sequence == want["input_ids"][0]
        if built.segment_starts is not None:
            assert want["token_type_ids"][0].index(1) == built.segment_starts[i]
    assert built.truncated == (2,)
    assert (built.segment_starts is not None) == (kind == "bert")


def test_the_query_is_never_cut(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    with pytest.raises(ContextLengthExceeded, match=r"^query: \d+ tokens leave no room for a document in 64 tokens"):
        build_input(model, ScoreRequest([LONG], ["a"]))
    with pytest.raises(ContextLengthExceeded, match=r"^queries\[1\]: "):
        build_input(model, ScoreRequest(["a", LONG], ["a", "b"], query_field="queries"))


def test_a_long_document_is_refused_with_index_and_both_lengths_if_truncation_is_off(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    request = ScoreRequest(["fox"], ["a", LONG], truncation=Truncation(enabled=False))
    tokens = len(model.tokenizer.encode([LONG])[0])
    query = len(model.tokenizer.encode(["fox"])[0])
    with pytest.raises(ContextLengthExceeded) as caught:
        build_input(model, request)
    assert caught.value.param == "documents[1]"
    assert f"{tokens} tokens; there is room for {64 - 3 - query}" in caught.value.message


def test_one_long_document_leaves_the_others_alone(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    documents = [f"fox number {i}" for i in range(49)]
    alone = _sequences(build_input(model, ScoreRequest(["fox"], documents)))
    mixed = _sequences(build_input(model, ScoreRequest(["fox"], [*documents, "word " * 20_000])))
    assert mixed[:49] == alone
    assert len(mixed[49]) == 64


@pytest.mark.parametrize(("field", "value"), [("max_document_tokens", 5), ("max_input_tokens", 20)])
def test_the_callers_own_limits(checkpoints: Checkpoints, field: str, value: int) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    built = build_input(model, ScoreRequest(["fox"], [LONG, "a"], truncation=Truncation(**{field: value})))  # type: ignore[arg-type]
    query = len(model.tokenizer.encode(["fox"])[0])
    want = query + 3 + 5 if field == "max_document_tokens" else 20
    assert len(_sequences(built)[0]) == want
    assert built.truncated == (0,)


@pytest.mark.parametrize("length", [-1, 0, 1])
def test_at_the_limit_and_one_beside_it(checkpoints: Checkpoints, length: int) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    (query,) = model.tokenizer.encode(["fox"])
    document = "a " * (64 - 3 - len(query) + length)
    built = build_input(model, ScoreRequest(["fox"], [document]))
    assert len(_sequences(built)[0]) == 64 + min(0, length)
    assert built.truncated == ((0,) if length > 0 else ())


def test_chunks_cover_the_document_and_the_best_counts(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    request = ScoreRequest(["fox"], ["a", LONG], raw_scores=True, truncation=Truncation(max_chunks=3))
    built = build_input(model, request)
    assert built.owners is not None
    assert built.owners.tolist() == [0, 1, 1, 1]
    values = np.array([[1.0], [5.0], [9.0], [-3.0]], dtype=np.float32)
    assert postprocess(model, request, built, EngineOutput(values, 0, 0)).tolist() == [1.0, 9.0]


def _own_tokens(model: TextModel, prefix: str, document: str) -> tuple[list[int], list[int]]:
    """Tokens of prefix and document together, split by where their characters are: (the prefix's, the document's)."""
    encoding = AutoTokenizer.from_pretrained(model.checkpoint.folder)(
        prefix + document, add_special_tokens=False, return_offsets_mapping=True
    )
    ids, ends = encoding["input_ids"], [end for _, end in encoding["offset_mapping"]]
    shared = sum(end <= len(prefix) for end in ends)
    return ids[:shared], ids[shared:]


PREFIXES = {"space": " ", "words": "\n<Document>: ", "grows": "\n<Document>: pass", "none": ""}


def _template_model(checkpoints: Checkpoints, prefix: str, **changes: Any) -> TextModel:
    template = {"prefix": "P:", "head": "I {instruction} Q {query}", "suffix": "S", "instruction": "x"}
    values = {"max_model_len": 48, "template": {**template, "document_prefix": prefix}}
    return text_model(checkpoints.qwen3(), "rerank", **(values | changes))


@pytest.mark.parametrize(
    "document", [LONG[:200], "age of boots " * 20, " leading" * 20, "\nnew\nlines" * 20, ".dot" * 60]
)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_piece_has_the_documents_prefix(checkpoints: Checkpoints, prefix: str, document: str) -> None:
    model = _template_model(checkpoints, PREFIXES[prefix])
    tokenizer = AutoTokenizer.from_pretrained(model.checkpoint.folder)
    head, before, suffix = (tokenizer.encode(text, add_special_tokens=False) for text in ("P:", PREFIXES[prefix], "S"))
    head += tokenizer.encode("I x Q fox", add_special_tokens=False)
    shared, own = _own_tokens(model, PREFIXES[prefix], document)
    room = 48 - len(head) - len(suffix)
    request = ScoreRequest(["fox"], [document], truncation=Truncation(max_chunks=3))
    built = build_input(model, request)
    pieces = [sequence[len(head) : -len(suffix)] for sequence in _sequences(built)]
    assert len(pieces) > 1
    assert all(sequence[: len(head)] == head for sequence in _sequences(built))
    # The first piece is the official prompt's, which tokenizes both together.
    assert pieces[0] == (shared + own)[:room]
    assert all(piece[: len(before)] == before for piece in pieces[1:])
    rest = [token for piece in pieces[1:] for token in piece[len(before) :]]
    read = [*pieces[0][len(shared) :], *rest]
    assert read == own[: len(read)]
    assert bool(built.truncated) == (len(read) < len(own))
    assert max(map(len, pieces)) <= room


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("limit", [1, 5])
def test_max_tokens_per_doc_counts_the_documents_own(checkpoints: Checkpoints, prefix: str, limit: int) -> None:
    model = _template_model(checkpoints, PREFIXES[prefix], max_model_len=64)
    documents = ["fox", "a fox of waterproof winter boots", ""]
    truncation = Truncation(max_document_tokens=limit)
    built = build_input(model, ScoreRequest(["fox"], documents, truncation=truncation))
    (around,) = model.tokenizer.encode(["S"])
    empty = len(_sequences(built)[2]) - len(model.tokenizer.encode([PREFIXES[prefix]])[0])
    cut = []
    for i, (document, sequence) in enumerate(zip(documents, _sequences(built), strict=True)):
        shared, own = _own_tokens(model, PREFIXES[prefix], document)
        assert sequence[empty - len(around) : -len(around)] == shared + own[:limit]
        cut += [i] if len(own) > limit else []
    assert built.truncated == tuple(cut)
    refused = ScoreRequest(["fox"], documents[1:], truncation=Truncation(enabled=False, max_document_tokens=limit))
    count = len(_own_tokens(model, PREFIXES[prefix], documents[1])[1])
    with pytest.raises(ContextLengthExceeded, match=rf"{count} tokens; there is room for {limit} "):
        build_input(model, refused)


def test_a_query_that_leaves_room_for_the_prefix_only_is_refused(checkpoints: Checkpoints) -> None:
    prefix = PREFIXES["words"]
    sizes = [
        len(ids) for ids in _template_model(checkpoints, prefix).tokenizer.encode(["P:", "I x Q fox", prefix, "S"])
    ]
    just = _template_model(checkpoints, prefix, max_model_len=sum(sizes) + 1)
    assert len(_sequences(build_input(just, ScoreRequest(["fox"], ["boots of a fox"])))[0]) == sum(sizes) + 1
    for length in (sum(sizes), sum(sizes) - 1):
        model = _template_model(checkpoints, prefix, max_model_len=length)
        with pytest.raises(ContextLengthExceeded, match=rf"{sum(sizes) - sizes[1]} are the model's own"):
            build_input(model, ScoreRequest(["fox"], ["boots"]))


def test_whether_an_instruction_reaches_the_model(checkpoints: Checkpoints) -> None:
    assert reads_instruction(_template_model(checkpoints, ""))
    assert not reads_instruction(text_model(checkpoints.bert(), "rerank"))
    template = {"prefix": "", "head": "{query}", "suffix": "", "instruction": ""}
    assert not reads_instruction(text_model(checkpoints.qwen3(), "rerank", template=template))


def test_qwen3_prompt_is_the_official_one_and_the_instruction_is_applied(checkpoints: Checkpoints) -> None:
    folder = checkpoints.qwen3()
    model = text_model(folder, "rerank", template="qwen3-reranker", max_model_len=1024)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    official = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: {}\n<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    documents = [
        "Paris is it.",
        "",
        " leading",
        "\nnewline",
        ".dot",
        "42",
        "한국어",
        "e\u0301",
        "{query} {instruction}",
    ]
    for instruction in (None, "Find the capital", "uses {query} oddly"):
        request = ScoreRequest(["capital of {instruction} France"], documents, instruction=instruction)
        sequences = _sequences(build_input(model, request))
        for document, sequence in zip(documents, sequences, strict=True):
            text = official.format(instruction or QWEN3_RERANKER.instruction, request.queries[0], document)
            assert tokenizer.decode(sequence) == tokenizer.decode(tokenizer.encode(text))
            assert sequence == tokenizer.encode(text, add_special_tokens=False)


def test_a_template_keeps_its_suffix_when_the_document_is_cut(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.qwen3(), "rerank", template="qwen3-reranker", max_model_len=512)
    (suffix,) = model.tokenizer.encode([QWEN3_RERANKER.suffix])
    built = build_input(model, ScoreRequest(["fox"], [LONG * 20]))
    (sequence,) = _sequences(built)
    assert len(sequence) == 512
    assert sequence[-len(suffix) :] == suffix


def test_an_input_without_tokens_is_refused(checkpoints: Checkpoints) -> None:
    template = {"prefix": "", "head": "{query}", "suffix": "", "instruction": ""}
    model = text_model(checkpoints.qwen3(), "rerank", template=template)  # nothing of its own around a pair
    with pytest.raises(InvalidRequest, match=r"documents\[0\]: has no tokens"):
        build_input(model, ScoreRequest([""], [""]))


def test_not_a_number_is_never_a_score(checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.bert(), "rerank")
    request = ScoreRequest(["fox"], ["a", "b"])
    built = build_input(model, request)
    values = np.array([[1.0], [np.nan]], dtype=np.float32)
    with pytest.raises(InternalError, match="input 1"):
        postprocess(model, request, built, EngineOutput(values, 0, 0))

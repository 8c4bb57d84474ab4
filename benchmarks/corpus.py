"""Synthetic rerank requests with realistic lengths, fresh for every measurement.

Queries have 5-16 words; documents a log-normal number of words (median 75, sigma 0.45, clipped to 15..380). With a
tokenizer at hand the words are drawn from its own whole-word vocabulary, so that a word is one token and a pair has 96
tokens on average (5 % below 49, 5 % above 166). Random weights or not, the engine's work depends on lengths only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.backends import UsageError
from benchmarks.stats import describe
from benchmarks.wire import RerankCase

FALLBACK_WORDS = tuple(
    """
    about above account action after again against almost always amount animal answer appear area around arrive
    autumn balance basket battery beautiful before behind believe better between bicycle bottle bridge bright
    bring brother building business camera careful carry castle center chair change charge cheap choose circle
    clean clear close cloud coffee color comfort common company compare complete corner cotton country course
    cover create cross culture current customer damage danger delivery depend design detail different direct
    discover distance doctor double driver during early earth easily education effect either electric empty energy
    engine enough evening every example expect expensive explain family famous farmer feature figure finish fire
    flower follow foreign forest forward friend front garden general gentle glass green ground group happen harbor
    health heavy history holiday hotel house however hundred important include increase industry inside instead
    interest island journey kitchen language large later leather letter level light listen little machine manage
    market material matter measure message middle minute modern moment money morning mountain museum music narrow
    nature nearly never number object ocean office often open order other outside package paper people perfect
    period person phone picture place plant plastic please point position possible power present price problem
    product program provide purpose quality question quick quiet radio rather reach ready reason receive record
    remember repair report result return river round sample school science screen season second service several
    shape short silver similar simple single sister small special spring square station steel still stone street
    strong student summer support surface system table travel trouble under unit useful usual valley value village
    visit voice water weather weight window winter wonder wooden world write yellow young
    """.split()
)
"""Used when no tokenizer is given: words that common vocabularies hold whole."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """The checkpoint's fast tokenizer, without truncation and padding.

    Raises:
        UsageError: the folder has none.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UsageError(
            f"{folder}: no tokenizer.json there; the benchmarks need a checkpoint's local folder, no hub id"
        )
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def whole_words(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Lower-case words of three letters or more that are one token, shuffled so that frequency follows no alphabet.

    Byte-level and SentencePiece vocabularies mark the start of a word; WordPiece marks the continuation instead.
    """
    vocabulary = tokenizer.get_vocab()
    marked = [token[1:] for token in vocabulary if token[:1] in ("Ġ", "▁")]
    words = sorted({w for w in marked or vocabulary if w.isascii() and w.isalpha() and w.islower() and len(w) >= 3})
    random.Random(7).shuffle(words)
    return tuple(words) or FALLBACK_WORDS


class Corpus:
    """A stream of texts determined by its seed alone.

    Args:
        words: the vocabulary, most frequent first.
        seed: anything; two streams with different seeds share no request.
    """

    def __init__(self, words: Sequence[str], seed: str) -> None:
        self._words = words
        self._random = random.Random(seed)

    def text(self, count: int) -> str:
        """A text of so many words."""
        # An inverse-power draw: few words are frequent, most are rare.
        return " ".join(self._words[int(len(self._words) * self._random.random() ** 3)] for _ in range(count))

    def query(self) -> str:
        return self.text(self._random.randint(5, 16))

    def document(self) -> str:
        return self.text(max(15, min(380, int(self._random.lognormvariate(4.3175, 0.45)))))

    def case(self, documents: int) -> RerankCase:
        return RerankCase(self.query(), tuple(self.document() for _ in range(documents)))

    def cases(self, count: int, documents: int) -> list[RerankCase]:
        return [self.case(documents) for _ in range(count)]


def lengths(cases: Sequence[RerankCase], tokenizer: Tokenizer | None) -> dict[str, float | str]:
    """Tokens of a pair, special tokens included; words, where there is no tokenizer to count tokens."""
    pairs = [(case.query, document) for case in cases for document in case.documents]
    if tokenizer is None:
        return {"unit": "words", **describe([len(q.split()) + len(d.split()) for q, d in pairs])}
    return {"unit": "tokens", **describe([len(e.ids) for e in tokenizer.encode_batch(pairs)])}

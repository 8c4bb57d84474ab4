"""The vocabulary of the two-head model, counted so that it is the same on every run."""

from __future__ import annotations

import random
import re
import string
from collections import Counter

from model_zoo.absa_korean import SYLLABLES
from model_zoo.absa_modelling import SPECIAL
from model_zoo.absa_reviews import vocabulary_texts
from model_zoo.absa_words import EMOJI
from model_zoo.words import CONTENT_WORDS, STOP_WORDS

SIZE = 5600
REVIEWS = 20_000  # enough for every word of the tables to occur
SEED = 23
MIN_COUNT = 5  # a rarer word is most likely an invented or a mistyped one and is better spelled in pieces
LONGEST_PIECE = 5
_JAMO = "".join(chr(code) for code in range(ord("ㄱ"), ord("ㅣ") + 1))
_OTHER = "…–—‘’“”·•♥♡★☆€£₩°×"


def build_vocabulary() -> list[str]:
    """Pieces in the order of their ids: special tokens, characters, Hangul syllables, emoji, words, and parts of words.

    Every printable ASCII character and every common syllable is a piece, so neither English nor Korean becomes [UNK].
    """
    texts = list(vocabulary_texts(random.Random(SEED), REVIEWS))
    counts = Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
    characters = [c for c in string.printable.lower() if not c.isspace()]
    pieces = dict.fromkeys(SPECIAL)
    pieces.update(dict.fromkeys(characters))
    pieces.update(dict.fromkeys("##" + c for c in string.ascii_lowercase + string.digits))
    pieces.update(dict.fromkeys(SYLLABLES))
    pieces.update(dict.fromkeys(sorted({c for text in texts for c in text if "가" <= c <= "힣"})))
    pieces.update(dict.fromkeys([*_JAMO, *_OTHER, *(emoji for kind in EMOJI.values() for emoji in kind)]))
    pieces.update(dict.fromkeys(sorted({*STOP_WORDS, *CONTENT_WORDS})))
    pieces.update(dict.fromkeys(sorted(word for word, count in counts.items() if count >= MIN_COUNT)))
    parts: Counter[str] = Counter()
    for word in counts:  # each distinct word once, or frequent words would crowd out all others
        for size in range(2, min(LONGEST_PIECE, len(word)) + 1):
            parts[word[:size]] += size - 1
            for start in range(1, len(word) - size + 1):
                parts["##" + word[start : start + size]] += size - 1
    for piece, _ in sorted(parts.items(), key=lambda item: (-item[1], item[0])):
        if len(pieces) >= SIZE:
            break
        pieces.setdefault(piece)
    return list(pieces)

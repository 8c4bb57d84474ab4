"""The lower-case WordPiece tokenizer that both models share, built from the training texts.

The vocabulary is counted here rather than with a trainer: the result must be the same on every run, and two small
models need no more than whole words plus common beginnings and endings.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from model_zoo.data import training_texts
from model_zoo.words import CONTENT_WORDS, STOP_WORDS

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZE = 4096
MAX_TOKENS = 512  # equals max_position_embeddings of the models
CORPUS_LISTS = 3000  # enough for every surface form of the catalogue to occur
SEED = 11
MIN_COUNT = 5  # a rarer word is most likely an invented one and is better spelled in pieces
LONGEST_PIECE = 5


def build_vocabulary() -> list[str]:
    """Return the pieces in id order: special tokens, single characters, whole words, then frequent word parts.

    Every printable ASCII character is a piece both at the start of and inside a word, so no English text becomes
    ``[UNK]``; the parts make unseen words a matter of two to four pieces.
    """
    counts = Counter(
        word for text in training_texts(SEED, CORPUS_LISTS) for word in re.findall(r"[a-z]+", text.lower())
    )
    characters = [c for c in string.printable.lower() if not c.isspace()]
    pieces = dict.fromkeys(SPECIAL)
    pieces.update(dict.fromkeys(characters))
    pieces.update(dict.fromkeys("##" + c for c in characters))
    pieces.update(dict.fromkeys(sorted({*STOP_WORDS, *CONTENT_WORDS})))
    pieces.update(dict.fromkeys(sorted(word for word, count in counts.items() if count >= MIN_COUNT)))
    parts: Counter[str] = Counter()
    for word in counts:  # each distinct word once, or the few hundred words of the shop would crowd out all others
        for size in range(2, min(LONGEST_PIECE, len(word)) + 1):
            parts[word[:size]] += size - 1
            for start in range(1, len(word) - size + 1):
                parts["##" + word[start : start + size]] += size - 1
    for piece, _ in sorted(parts.items(), key=lambda item: (-item[1], item[0])):
        if len(pieces) == SIZE:
            break
        pieces.setdefault(piece)
    return list(pieces)


def build_tokenizer() -> Tokenizer:
    """Return the tokenizer with BERT's normalisation, splitting and ``[CLS] A [SEP] B [SEP]`` layout."""
    vocabulary = {piece: index for index, piece in enumerate(build_vocabulary())}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` that ``AutoTokenizer`` understands."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": True,
        "model_max_length": MAX_TOKENS,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

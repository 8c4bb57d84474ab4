"""Text to token ids: one batch call of the fast tokenizer per request, special tokens added by copying.

The tokenizer's own template (`[CLS] query [SEP] document [SEP]`) is read once at start from an encoded probe. After
that every text is encoded alone and without special tokens, the query once per request, and inputs are put together
from the pieces. That equals what Transformers does, which encodes the parts of a pair apart as well, and leaves
truncation of the document to a slice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

CHARS_PER_TOKEN = 8
"""First guess of the characters that fill one token; English has 4 to 5."""
MAX_CHARS_PER_TOKEN = 64
"""A text whose tokens are longer than this on average is cut here; natural text never is."""
MARGIN_TOKENS = 16
"""Tokens at the end of a cut text that the cut may have changed, and that are therefore not used."""

_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
_PLAIN_CLASSES = {"PreTrainedTokenizerFast", "TokenizersBackend"}
"""Classes that add nothing to `tokenizer.json`."""
_BERT_CLASSES = {"BertTokenizer", "BertTokenizerFast"}
_BERT_SPECIAL = (("unk", "[UNK]"), ("sep", "[SEP]"), ("pad", "[PAD]"), ("cls", "[CLS]"), ("mask", "[MASK]"))

TokenIds = list[int]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text's tokens and where they come from, without special tokens.

    Attributes:
        ids: their ids.
        offsets: int32 [tokens, 2], the code points of the text that each one stands for. A token may stand for a part
            of a character, and then has the whole; of decomposed characters it may have the first code point only; it
            may have whitespace in front of it.
        words: int32 [tokens], number of the word that each one is a part of, as the pre-tokenizer makes words.
    """

    ids: TokenIds
    offsets: npt.NDArray[np.int32]
    words: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def head(self, tokens: int) -> EncodedText:
        """The first tokens of it."""
        return EncodedText(self.ids[:tokens], self.offsets[:tokens], self.words[:tokens])


_Sized = TypeVar("_Sized", TokenIds, EncodedText)


@dataclass(frozen=True, slots=True)
class Template:
    """Special tokens around the texts of one input.

    `single` is before + a + after; `pair` is before + a + between + b + after.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    typed: bool
    """Whether the second text has token type 1."""

    def overhead(self, *, pair: bool) -> int:
        """Special tokens of one input."""
        return len(self.before) + (len(self.between) if pair else 0) + len(self.after)


class TextTokenizer:
    """A checkpoint's fast tokenizer.

    Args:
        folder: the checkpoint's folder.
        trust_remote_code: whether its Python code may run.

    Raises:
        ValueError: the checkpoint has no fast tokenizer.
    """

    def __init__(self, folder: Path, *, trust_remote_code: bool = False) -> None:
        if not has_tokenizer(folder):
            # Transformers 5 would make one up from the config, with a vocabulary of special tokens only.
            raise ValueError("source: the checkpoint has no tokenizer")
        backend = _plain_backend(folder) or _transformers_backend(folder, trust_remote_code)
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._folder = folder
        self.vocab_size: int = 1 + max(backend.get_vocab(with_added_tokens=True).values())
        """All token ids are below it. Not how many there are: a vocabulary may have gaps."""
        self.single = self._probe_single()
        self.pair = self._probe_pair()

    def encode(self, texts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each text, without special tokens. One call into Rust, GIL released."""
        return [e.ids for e in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_capped(self, texts: Sequence[str], window: int) -> tuple[list[TokenIds], frozenset[int]]:
        """As `encode`, but exact only for the first `window` tokens of each text.

        Work is bounded by the window, not by the text: only a first piece is read, and a longer one only if that did
        not fill the window.

        Returns:
            The ids, and the indexes of the texts that were not read to their end.
        """
        return self._capped(texts, window, self.encode)

    def encode_places(self, texts: Sequence[str]) -> list[EncodedText]:
        """As `encode`, with the places of the tokens; takes about twice as long."""
        return [_encoded(encoding) for encoding in self._backend.encode_batch(list(texts), add_special_tokens=False)]

    def encode_places_capped(self, texts: Sequence[str], window: int) -> tuple[list[EncodedText], frozenset[int]]:
        """As `encode_capped`, with the places of the tokens."""
        return self._capped(texts, window, self.encode_places)

    def _capped(
        self, texts: Sequence[str], window: int, encode: Callable[[Sequence[str]], list[_Sized]]
    ) -> tuple[list[_Sized], frozenset[int]]:
        chars = window * CHARS_PER_TOKEN + 64
        limit = window * MAX_CHARS_PER_TOKEN + 64
        long = [i for i, text in enumerate(texts) if len(text) > chars]
        if not long:
            return encode(texts), frozenset()
        result = encode([_head(text, chars) for text in texts])
        # A piece whose tokens do not reach past the window by the margin says too little about the window.
        while chars < limit and (short := [i for i in long if len(result[i]) < window + MARGIN_TOKENS]):
            chars = min(chars * 4, limit)
            for i, ids in zip(short, encode([_head(texts[i], chars) for i in short]), strict=True):
                result[i] = ids
            long = [i for i in long if i not in short or len(texts[i]) > chars]
        return result, frozenset(long)

    def pad_id(self) -> int:
        """Token id that fills a text up, for models that want texts of one length.

        Raises:
            ValueError: the tokenizer has none.
        """
        path = self._folder / "tokenizer_config.json"
        token = json.loads(path.read_text(encoding="utf-8")).get("pad_token") if path.exists() else None
        content = token["content"] if isinstance(token, dict) else token
        found = self._backend.token_to_id(content) if content is not None else None
        if found is None:
            raise ValueError("source: the tokenizer has no padding token")
        return int(found)

    def count(self, text: str, max_chars: int = 100_000) -> tuple[int, bool]:
        """(tokens of `text`, whether that is exact); beyond `max_chars` characters only a lower bound."""
        return len(self.encode([text[:max_chars]])[0]), len(text) <= max_chars

    def _probe_single(self) -> Template:
        before, _, after, _ = self._probe("a", None)
        return Template(before, (), after, typed=False)

    def _probe_pair(self) -> Template:
        before, between, after, typed = self._probe("a", "a")
        return Template(before, between, after, typed)

    def _probe(self, first: str, second: str | None) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
        encoding = (
            self._backend.encode(first, add_special_tokens=True)
            if second is None
            else self._backend.encode(first, second, add_special_tokens=True)
        )
        ids, special = list(encoding.ids), list(encoding.special_tokens_mask)
        text = [i for i, flag in enumerate(special) if not flag]
        if not text:
            raise ValueError("source: the tokenizer gives no tokens for the letter a")
        one = len(self.encode([first])[0])
        start, end = text[0], text[-1] + 1
        if second is None:
            return tuple(ids[:start]), (), tuple(ids[end:]), False
        second_start = end - len(self.encode([second])[0])
        between = tuple(ids[start + one : second_start])
        typed = bool(encoding.type_ids[second_start])
        return tuple(ids[:start]), between, tuple(ids[end:]), typed


def _encoded(encoding: Any) -> EncodedText:
    # A token that belongs to no word is one of its own.
    words = [-1 - i if word is None else word for i, word in enumerate(encoding.word_ids)]
    offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    return EncodedText(encoding.ids, offsets, np.array(words, dtype=np.int32))


def _plain_backend(folder: Path) -> Any:
    """`tokenizer.json` itself, where that is all that Transformers would load; None where it does more.

    Saves importing Transformers and torch, about ten seconds of a core and 400 MB. A tokenizer of a class of its own
    is rebuilt by Transformers, and one with special tokens or switches beside `tokenizer.json` is changed. BERT's is
    taken where the rebuilt one would be the same.
    """
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not path.exists() or not config_path.exists():
        return None
    config = json.loads(config_path.read_text(encoding="utf-8"))
    switches = {"add_bos_token", "add_eos_token", "add_prefix_space", "auto_map", "extra_special_tokens"}
    if switches & config.keys():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if config.get("tokenizer_class") not in _PLAIN_CLASSES and not _is_plain_bert(folder, config, content):
        return None
    known = {token["content"] for token in content.get("added_tokens", [])}
    named = [_content(value) for key, value in config.items() if key.endswith("_token") and value is not None]
    if not all(value in known for value in named):
        return None
    return Tokenizer.from_file(str(path))


def _content(token: Any) -> Any:
    return token["content"] if isinstance(token, dict) else token


def _is_plain_bert(folder: Path, config: dict[str, Any], content: dict[str, Any]) -> bool:
    """Whether `tokenizer.json` is what Transformers' BertTokenizer makes of its vocabulary and of the config.

    The parts are those of its constructor (transformers/models/bert/tokenization_bert.py, 5.19).
    """
    model_config = folder / "config.json"
    if (
        config.get("tokenizer_class") not in _BERT_CLASSES
        or not model_config.exists()
        or json.loads(model_config.read_text(encoding="utf-8")).get("model_type") != "bert"
        or (folder / "added_tokens.json").exists()
    ):
        return False
    special = {f"{name}_token": _content(config.get(f"{name}_token", default)) for name, default in _BERT_SPECIAL}
    tokens = [value for key in special if isinstance(value := config.get(key), dict)]
    tokens += config.get("added_tokens_decoder", {}).values()
    legacy = folder / "special_tokens_map.json"
    if legacy.exists():
        stated = json.loads(legacy.read_text(encoding="utf-8"))
        if any(key not in special or _content(value) != special[key] for key, value in stated.items()):
            return False
        tokens += [value for value in stated.values() if isinstance(value, dict)]
    model = content["model"]
    vocabulary = model.get("vocab", {})
    start, end = special["cls_token"], special["sep_token"]
    if not set(special.values()) <= vocabulary.keys():
        return False
    wanted = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
            "strip_accents": config.get("strip_accents"),
            "lowercase": config.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(start, 0), _sequence("A", 0), _special(end, 0)],
            "pair": [
                *(_special(start, 0), _sequence("A", 0), _special(end, 0)),
                *(_sequence("B", 1), _special(end, 1)),
            ],
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in (start, end)
            },
        },
    }
    fields = {key: value for key, value in model.items() if key != "vocab"}
    added = content.get("added_tokens", [])
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return (
        all(content.get(key) == value for key, value in wanted.items())
        and {"type": "WordPiece", **fields}
        == {
            "type": "WordPiece",
            "unk_token": special["unk_token"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        }
        and {token["content"] for token in added} == set(special.values())
        and all(token == {"id": vocabulary[token["content"]], "content": token["content"], **flags} for token in added)
        and all(
            token["content"] in special.values() and all(token.get(name, flag) == flag for name, flag in flags.items())
            for token in tokens
        )
    )


def _special(token: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": type_id}}


def _sequence(name: str, type_id: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": type_id}}


def _transformers_backend(folder: Path, trust_remote_code: bool) -> Any:
    """The tokenizer as Transformers loads it."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        if type(tokenizer).__name__ == "SiglipTokenizer":  # public SigLIP checkpoints have nothing faster
            return _PythonBackend(tokenizer)
        raise ValueError("source: the checkpoint has no fast tokenizer (tokenizer.json)")
    return backend


@dataclass(frozen=True, slots=True)
class _Encoding:
    ids: TokenIds
    special_tokens_mask: list[int]
    type_ids: list[int]


class _PythonBackend:
    """A tokenizer of Transformers that is written in Python, as the part of the fast ones' interface that is used."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def no_truncation(self) -> None:
        """Encodes whole texts as it is."""

    def no_padding(self) -> None:
        """Does not pad as it is."""

    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
        """All tokens and their ids."""
        return dict(self._tokenizer.get_vocab())

    def token_to_id(self, token: str) -> int:
        """Id of a token."""
        return int(self._tokenizer.convert_tokens_to_ids(token))

    def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool) -> _Encoding:
        """One text, or a pair of them."""
        inputs = self._tokenizer(text, pair, add_special_tokens=add_special_tokens)
        ids = list(inputs["input_ids"])
        special = set(self._tokenizer.all_special_ids)
        return _Encoding(ids, [int(i in special) for i in ids], list(inputs.get("token_type_ids") or [0] * len(ids)))

    def encode_batch_fast(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[_Encoding]:
        """Texts one after the other."""
        return [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]


def has_tokenizer(folder: Path) -> bool:
    """Whether a checkpoint brings a tokenizer."""
    return any((folder / name).exists() for name in _FILES)


def _head(text: str, chars: int) -> str:
    """The first `chars` characters, cut back to the last space if there is one near the end."""
    if len(text) <= chars:
        return text
    space = text.rfind(" ", chars - 64, chars)
    return text[:space] if space > 0 else text[:chars]

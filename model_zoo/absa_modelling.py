"""The two-head model: its tokenizer, its shape, what it is given and what it answers."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Encoding, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from serve_app.tasks.absa.reference import TwoHeadTokenClassifier

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ASPECTS = ("food", "service", "price", "view", "location", "cleanliness", "atmosphere")
POLARITIES = ("negative", "neutral", "positive")  # also the sentiments of a whole text, in the order of their columns
LABELS = ("O", *(f"{tag}-{aspect}-{polarity}" for aspect in ASPECTS for polarity in POLARITIES for tag in "BI"))
MAX_TOKENS = 256
HIDDEN = 128
HEADS = 4  # 32 values a head, the smallest size that common CPU attention kernels support
LAYERS = 3
# Starting size of random weights. BERT's 0.02 suits 768 dimensions; with 128 it makes every layer start almost idle.
LAYER_STD = 0.06
# Dimensions in which positions start, as waves; words start in the others. As many as a head has values.
WAVE_DIMENSIONS = HIDDEN // HEADS
# Tokens of the shortest and the longest wave: neighbours differ, and no two places are alike.
WAVE_LENGTHS = (2.1, 300.0)
SHARPNESS = 3.0
# By layer and head: how far from its own place a head starts to look; None: anywhere, by content.
REACH: tuple[tuple[int | None, ...], ...] = ((-1, 1, 2, None), (-1, 1, -2, None), (-1, 1, None, None))
# Rows are sorted by length and cut into groups of about this many tokens: little padding, and buffers stay in cache.
GROUP_TOKENS = 640


@dataclass(frozen=True)
class Span:
    """A target and what is said of it; ``start`` and ``end`` count code points."""

    start: int
    end: int
    aspect: str
    polarity: str


@dataclass(frozen=True)
class Answer:
    """What the model says of one text; ``probability`` is the sentiment's."""

    sentiment: str
    probability: float
    spans: tuple[Span, ...]


def build_tokenizer(vocabulary: Sequence[str]) -> Tokenizer:
    """A lower-case WordPiece tokenizer that takes every Hangul syllable and every symbol for a word of its own.

    Korean targets are followed by particles without a space, and reviews often leave spaces out altogether. A label
    belongs to a word, so a target can only end in front of its particle where syllables are words. Accents are taken
    off Latin letters; decomposed Hangul is composed.
    """
    ids = {piece: index for index, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.NFC(),
            # BERT's own stripping of accents would leave Hangul decomposed.
            normalizers.BertNormalizer(lowercase=True, strip_accents=False),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Split(Regex(r"[가-힣ㄱ-ㅣ]|\p{S}"), "isolated")]
    )
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def new_model(vocabulary_size: int) -> TwoHeadTokenClassifier:
    """An untrained model."""
    model = TwoHeadTokenClassifier(config(vocabulary_size))
    for head in (model.classifier, model.sentiment_classifier):
        torch.nn.init.normal_(head.weight, std=LAYER_STD)
        torch.nn.init.zeros_(head.bias)
    _favour_neighbours(model)
    return model


def _favour_neighbours(model: TwoHeadTokenClassifier) -> None:
    """Let heads look at the words next to their own from the start.

    Where a target begins and ends, and what a word of several tokens means, depends on its neighbours, and to find them
    by learned positions costs a small BERT a good part of its training. Positions start as waves in dimensions of their
    own. A query that is its position turned by ``n`` steps agrees best with the key ``n`` places further on.
    """
    rates = torch.logspace(*(math.log10(2 * math.pi / length) for length in WAVE_LENGTHS), WAVE_DIMENSIONS // 2)
    angles = torch.arange(MAX_TOKENS)[:, None] * rates
    embeddings = model.bert.embeddings
    with torch.no_grad():
        for table in (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings):
            table.weight.normal_(0.0, LAYER_STD)[:, :WAVE_DIMENSIONS] = 0
        embeddings.token_type_embeddings.weight.mul_(0.1)
        embeddings.position_embeddings.weight.zero_()
        waves = torch.cat([angles.sin(), angles.cos()], dim=1)
        embeddings.position_embeddings.weight[:, :WAVE_DIMENSIONS] = waves * math.sqrt(2) * LAYER_STD
        for layer, reaches in zip(model.bert.encoder.layer, REACH, strict=True):
            attention = layer.attention.self
            for head, reach in enumerate(reaches):
                if reach is None:
                    continue
                rows = slice(head * WAVE_DIMENSIONS, (head + 1) * WAVE_DIMENSIONS)
                sine, cosine = (reach * rates).sin().diag(), (reach * rates).cos().diag()
                turn = torch.cat([torch.cat([cosine, sine], dim=1), torch.cat([-sine, cosine], dim=1)])
                for weight, matrix in (
                    (attention.query.weight, turn),
                    (attention.key.weight, torch.eye(WAVE_DIMENSIONS)),
                ):
                    weight[rows] *= 0.3
                    weight[rows, :WAVE_DIMENSIONS] = matrix * math.sqrt(SHARPNESS)


def config(vocabulary_size: int) -> dict[str, Any]:
    """``config.json``."""
    return {
        "architectures": ["TwoHeadTokenClassifier"],
        "model_type": "two_head_bert",
        "vocab_size": vocabulary_size,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * HIDDEN,
        "hidden_act": "gelu",
        # The generated data never repeats, so there is nothing to overfit and dropout would only slow learning.
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": MAX_TOKENS,
        "type_vocab_size": 2,
        "initializer_range": LAYER_STD,
        "layer_norm_eps": 1e-12,
        "pad_token_id": SPECIAL.index("[PAD]"),
        "dtype": "float32",
        "id2label": {str(index): label for index, label in enumerate(LABELS)},
        "label2id": {label: index for index, label in enumerate(LABELS)},
        "sentiment_labels": {str(index): label for index, label in enumerate(POLARITIES)},
    }


def save(model: TwoHeadTokenClassifier, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, float32 safetensors and tokenizer files."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config(tokenizer.get_vocab_size()))
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner only
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "do_lower_case": True,
            "model_max_length": MAX_TOKENS,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
        },
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(folder: Path) -> tuple[TwoHeadTokenClassifier, Tokenizer]:
    """The saved model and its tokenizer."""
    return TwoHeadTokenClassifier.load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))


OPINIONS = ("O", *(f"{aspect}-{polarity}" for aspect in (*ASPECTS, "any") for polarity in POLARITIES))
"""What a token says, for the training only."""


def opinion_labels(row: Encoding, opinions: Sequence[Span]) -> list[int]:
    """The column in ``OPINIONS`` of each token of a tokenized text."""
    columns = [0] * len(row.ids)
    for opinion in opinions:
        for index, (start, end) in enumerate(row.offsets):
            if start < end and opinion.start <= start < opinion.end:
                columns[index] = OPINIONS.index(f"{opinion.aspect}-{opinion.polarity}")
    return columns


def token_labels(row: Encoding, spans: Sequence[Span]) -> list[int]:
    """The label column of each token of a tokenized text; special tokens are outside."""
    columns = [0] * len(row.ids)
    for span in spans:
        tag = "B"
        for index, (start, end) in enumerate(row.offsets):
            if start < end and span.start <= start < span.end:
                columns[index] = LABELS.index(f"{tag}-{span.aspect}-{span.polarity}")
                tag = "I"
    return columns


def groups(rows: Sequence[Encoding]) -> Iterator[list[int]]:
    """Places of rows of similar length, so that a group has about ``GROUP_TOKENS`` tokens with its padding."""
    group: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: (len(rows[index].ids), index)):
        if group and (len(group) + 1) * len(rows[index].ids) > GROUP_TOKENS:
            yield group
            group = []
        group.append(index)
    yield group


def logits(
    model: TwoHeadTokenClassifier, rows: Sequence[Encoding], chance: random.Random | None = None, hide: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Raw outputs of both heads for tokenized texts, padded to the longest, and the states in front of the last layer.

    With ``chance``, in training, a text sometimes starts at a later position: this trains the position embeddings up to
    the last one although nearly all texts are short. [CLS] stays where it is. A share of tokens, ``hide``, is unknown.
    """
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = torch.tensor(row.ids)
        mask[index, : len(row.ids)] = 1
    positions = torch.arange(width).repeat(len(rows), 1)
    for index in range(len(rows) if chance is not None else 0):
        if chance.random() < 0.25:
            positions[index, 1:] += chance.randint(0, MAX_TOKENS - width)
        for place in range(1, len(rows[index].ids) - 1):
            if chance.random() < hide:
                ids[index, place] = SPECIAL.index("[UNK]")
    states = model.bert(ids, attention_mask=mask, position_ids=positions, output_hidden_states=True).hidden_states
    return model.classifier(states[-1]), model.sentiment_classifier(states[-1][:, 0]), states[-2]


def answers(model: TwoHeadTokenClassifier, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Answer]:
    """What the model says of texts; each must fit one window. A word has the label of its first token."""
    rows = tokenizer.encode_batch(list(texts))
    found: dict[int, Answer] = {}
    with torch.inference_mode():
        for group in groups(rows):
            tokens, whole, _ = logits(model, [rows[index] for index in group])
            best = torch.softmax(whole, dim=1).max(dim=1)
            for place, index in enumerate(group):
                columns = tokens[place].argmax(dim=1).tolist()
                spans = tuple(_spans(rows[index], columns))
                found[index] = Answer(POLARITIES[int(best.indices[place])], float(best.values[place]), spans)
    return [found[index] for index in range(len(texts))]


def _spans(row: Encoding, columns: Sequence[int]) -> Iterator[Span]:
    """Spans of labelled tokens: an I goes on with a span of its own meaning and begins one anywhere else."""
    words: dict[int, tuple[str, int, int]] = {}
    for column, word, (start, end) in zip(columns, row.word_ids, row.offsets, strict=False):
        if word is not None:
            label, begin, _ = words.get(word, (LABELS[column], start, end))
            words[word] = (label, begin, end)
    current: tuple[str, int, int] | None = None
    for label, start, end in words.values():
        if current is not None and label[:1] == "I" and label[2:] == current[0]:
            current = (current[0], current[1], end)
            continue
        if current is not None:
            yield _span(*current)
        current = None if label == "O" else (label[2:], start, end)
    if current is not None:
        yield _span(*current)


def _span(meaning: str, start: int, end: int) -> Span:
    aspect, polarity = meaning.split("-")
    return Span(start, end, aspect, polarity)

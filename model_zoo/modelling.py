"""The model shape, its starting weights, and batched scoring; shared by both trainings and by the check."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from model_zoo.vocabulary import MAX_TOKENS, save_tokenizer

HIDDEN = 128
HEADS = 4  # 32 values a head, the smallest size that common CPU attention kernels support
THREADS = 2
# Rows are sorted by length and cut into groups of about this many tokens: little padding, and buffers stay in cache.
GROUP_TOKENS = 1024
# Starting sizes of random weights. BERT's 0.02 suits 768 dimensions; with 128 it makes every layer start almost idle.
LAYER_STD = 0.06
FIRST_LAYER_STD = 0.12
WORD_STD = 0.06
POSITION_STD = 0.01  # quieter than words: what is said matters more here than where
SIDE_DIMENSIONS = 16
SIDE_SIZE = 0.12


def prepare(seed: int, threads: int = THREADS) -> None:
    """Fix every source of chance and the number of threads."""
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time


def new_model(vocabulary_size: int, layers: int, labels: Sequence[str] | None = None) -> BertForSequenceClassification:
    """Return an untrained model: a reranker of pairs without ``labels``, else a classifier over them."""
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        initializer_range=LAYER_STD,
        hidden_act="gelu",
        max_position_embeddings=MAX_TOKENS,
        type_vocab_size=2,
        # The generated data never repeats, so there is nothing to overfit and dropout would only slow learning.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=1 if labels is None else len(labels),
    )
    if labels is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
    model = BertForSequenceClassification(config)
    if labels is None:
        _favour_equal_words(model)
    return model


def _favour_equal_words(model: BertForSequenceClassification) -> None:
    """Let every word of one text look for the same word in the other text, and cancel out when it is found.

    Comparing the two texts word by word is what a reranker has to discover; starting from it saves most of the
    training. The first layer's queries start equal to its keys, so equal words attend to each other. The side a word
    is on starts in dimensions of its own, where queries are the negative of keys, so words look at the other side.
    Values and output start as each other's negative transpose: a word that is found subtracts itself and leaves only
    its side, a word that is missing stays. From there training learns synonyms and which words matter.
    """
    with torch.no_grad():
        embeddings, first = model.bert.embeddings, model.bert.encoder.layer[0].attention
        words, sides = embeddings.word_embeddings.weight, embeddings.token_type_embeddings.weight
        words.normal_(0.0, WORD_STD)
        words[0].zero_()  # padding
        words[:, :SIDE_DIMENSIONS].zero_()
        embeddings.position_embeddings.weight.normal_(0.0, POSITION_STD)
        sides.zero_()
        sides[0, :SIDE_DIMENSIONS] = SIDE_SIZE
        sides[1, :SIDE_DIMENSIONS] = -SIDE_SIZE
        first.self.query.weight.normal_(0.0, FIRST_LAYER_STD)
        first.self.key.weight.copy_(first.self.query.weight)
        first.self.query.weight[:, :SIDE_DIMENSIONS].neg_()
        torch.nn.init.orthogonal_(first.self.value.weight)
        first.output.dense.weight.copy_(-first.self.value.weight.T)


def scores(
    model: BertForSequenceClassification, rows: Sequence[Encoding], shift: random.Random | None = None
) -> Tensor:
    """Return the raw outputs for tokenized rows, in the order given.

    With ``shift`` the second text of a row sometimes starts at a random later position: this trains the position
    embeddings up to 512 although nearly all texts are short.
    """
    order = sorted(range(len(rows)), key=lambda index: (len(rows[index].ids), index))
    outputs, start = [], 0
    while start < len(order):
        longest = [len(rows[index].ids) for index in order[start : start + GROUP_TOKENS]]
        count = max(1, max(n for n in range(1, len(longest) + 1) if n == 1 or n * longest[n - 1] <= GROUP_TOKENS))
        group = [rows[index] for index in order[start : start + count]]
        outputs.append(_forward(model, group, shift))
        start += count
    inverse = torch.empty(len(order), dtype=torch.long)
    inverse[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(outputs)[inverse]


def _forward(model: BertForSequenceClassification, rows: Sequence[Encoding], shift: random.Random | None) -> Tensor:
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    types, mask = torch.zeros_like(ids), torch.zeros_like(ids)
    for index, row in enumerate(rows):
        size = len(row.ids)
        ids[index, :size] = torch.tensor(row.ids)
        types[index, :size] = torch.tensor(row.type_ids)
        mask[index, :size] = 1
    positions = torch.arange(width).repeat(len(rows), 1)
    if shift is not None:
        for index in range(len(rows)):
            if shift.random() < 0.25:
                positions[index] += types[index] * shift.randint(0, MAX_TOKENS - width)
    logits: Tensor = model(input_ids=ids, token_type_ids=types, attention_mask=mask, position_ids=positions).logits
    return logits


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Return a short linear warm-up followed by half a cosine down to two percent of the peak."""
    warm_up = max(1, steps // 25)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def optimizer_for(model: BertForSequenceClassification) -> torch.optim.AdamW:
    """Return AdamW with a light weight decay."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, betas=(0.9, 0.98))


def save_model(model: BertForSequenceClassification, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, float32 safetensors and tokenizer files."""
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder)
    save_tokenizer(tokenizer, folder)

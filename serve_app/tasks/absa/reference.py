"""Sentiment and spans from Transformers, one text and one window at a time and without padding.

Written to be read next to the served path and not to share its code: windows are those of Transformers' tokenizers, and
what follows are plain loops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import regex
import torch
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
)

from serve_app.messages import AbsaItem, FloatArray, Span
from serve_app.tasks.absa.labels import TWO_HEAD, AbsaScheme, TokenLabel, read_scheme
from serve_app.vocabulary import Aggregation, DType


class TwoHeadTokenClassifier(nn.Module):
    """A BERT with two heads: token labels, and the sentiment of the whole text from the last state of [CLS], with no
    pooler in between.

    Weights are `bert.*`, `classifier.*` (tokens) and `sentiment_classifier.*` (whole text).

    Args:
        config: `config.json`: fields of BertConfig, `id2label` (tokens) and `sentiment_labels` (whole text).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        # model_type would be refused; the rest of ours BertConfig keeps as it is.
        self.config = BertConfig(**{key: value for key, value in config.items() if key != "model_type"})
        self.bert = BertModel(self.config, add_pooling_layer=False)
        self.classifier = nn.Linear(self.config.hidden_size, len(config["id2label"]))
        self.sentiment_classifier = nn.Linear(self.config.hidden_size, len(config["sentiment_labels"]))

    @classmethod
    def load(cls, folder: Path, dtype: DType = DType.FLOAT32) -> TwoHeadTokenClassifier:
        """The checkpoint in `folder`, for inference."""
        from safetensors.torch import load_file

        model = cls(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        model.load_state_dict(load_file(str(folder / "model.safetensors")))
        return model.to(getattr(torch, dtype.value)).eval()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of tokens [batch, tokens, labels] and of whole texts [batch, sentiment labels]."""
        states = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state
        return self.classifier(states), self.sentiment_classifier(states[:, 0])


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """One text's answer, and the numbers that it was made of.

    Attributes:
        item: sentiment and spans.
        logits: float32 [tokens of all windows, labels], special tokens included, windows one behind the other; of a
            pair classifier [aspects, labels].
        sentiment_logits: float32 [windows, sentiment labels]; None without a second head.
    """

    item: AbsaItem
    logits: FloatArray
    sentiment_logits: FloatArray | None = None


def reference_answers(
    folder: Path,
    texts: Sequence[str],
    *,
    dtype: DType,
    max_length: int,
    stride: int | None = None,
    aggregation: Aggregation = Aggregation.FIRST,
    threshold: float = 0.0,
    id2label: Mapping[str, str] | None = None,
) -> list[ReferenceAnswer]:
    """Answers of a token classifier, with or without a second head.

    Args:
        folder: the checkpoint.
        texts: any strings.
        dtype: what Transformers computes in.
        max_length: tokens of a window, special tokens included.
        stride: tokens that neighbouring windows share; None: a quarter of a window's own.
        aggregation: how a word gets its label.
        threshold: score below which spans are left out.
        id2label: replaces the checkpoint's labels.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = id2label or config["id2label"]
    scheme = read_scheme(config, [names[key] for key in sorted(names, key=int)])
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    if config["architectures"][0] == TWO_HEAD:
        model: Any = TwoHeadTokenClassifier.load(folder, dtype)
    else:
        model = AutoModelForTokenClassification.from_pretrained(folder, dtype=getattr(torch, dtype.value)).eval()
    room = max_length - tokenizer.num_special_tokens_to_add()
    shared = room // 4 if stride is None else stride
    with torch.inference_mode():
        return [_answer(tokenizer, model, scheme, text, max_length, shared, aggregation, threshold) for text in texts]


def _answer(
    tokenizer: Any,
    model: Any,
    scheme: AbsaScheme,
    text: str,
    max_length: int,
    stride: int,
    aggregation: Aggregation,
    threshold: float,
) -> ReferenceAnswer:
    windows = tokenizer(
        text,
        truncation=True,
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    logits, sentiments, lengths = [], [], []
    read: dict[int, tuple[int, Any]] = {}  # token of the text → (its context, its row, place, word)
    at, total = 0, _count(tokenizer, text)
    for window, ids in enumerate(windows["input_ids"]):
        inputs = {"input_ids": torch.tensor([ids])}
        if "token_type_ids" in windows:
            inputs["token_type_ids"] = torch.tensor([windows["token_type_ids"][window]])
        output = model(**inputs)
        rows = (output[0] if isinstance(output, tuple) else output.logits)[0].float()
        if isinstance(output, tuple):
            sentiments.append(output[1][0].float())
        logits.append(rows)
        lengths.append(len(ids))
        own = _own_tokens(tokenizer, ids)
        words, offsets = windows.word_ids(window), windows["offset_mapping"][window]
        for position, place in enumerate(own):
            number = at + position
            left = position if at > 0 else total
            right = len(own) - 1 - position if at + len(own) < total else total
            context = min(left, right)
            if number not in read or context > read[number][0]:
                row = torch.softmax(rows[place], dim=0).numpy()
                read[number] = (context, (row, offsets[place], words[place]))
        at += len(own) - stride
    tokens = [read[number][1] for number in sorted(read)]
    spans = _spans(text, _labelled(tokens, scheme.tokens, aggregation))
    item = AbsaItem(
        _whole(sentiments, lengths, scheme.sentiment) if sentiments else None,
        [span for span in spans if span.score >= threshold],
    )
    return ReferenceAnswer(item, torch.cat(logits).numpy(), torch.stack(sentiments).numpy() if sentiments else None)


def _count(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _own_tokens(tokenizer: Any, ids: Sequence[int]) -> range:
    """Positions between the special tokens that the tokenizer put around the text."""
    around = tokenizer("")["input_ids"]
    probe = tokenizer("a")["input_ids"]
    before = 0
    while before < len(around) and probe[before] == around[before]:
        before += 1
    return range(before, len(ids) - (len(around) - before))


Word = tuple[int, int, TokenLabel, float]
"""(start, end, label, score)"""


def _labelled(
    tokens: Sequence[tuple[FloatArray, tuple[int, int], int | None]],
    labels: Sequence[TokenLabel],
    aggregation: Aggregation,
) -> list[Word]:
    """Words with their labels."""
    words: list[list[tuple[FloatArray, tuple[int, int], int | None]]] = []
    for token in tokens:
        same = bool(words) and token[2] is not None and words[-1][-1][2] == token[2]
        if same and aggregation is not Aggregation.NONE:
            words[-1].append(token)
        else:
            words.append([token])
    found = []
    for members in words:
        rows = [row for row, _, _ in members]
        if aggregation is Aggregation.AVERAGE:
            row = np.mean(rows, axis=0)
        elif aggregation is Aggregation.MAX:
            row = max(rows, key=lambda candidate: float(candidate.max()))
        else:
            row = rows[0]
        best = int(row.argmax())
        start = min(place[0] for _, place, _ in members)
        end = max(place[1] for _, place, _ in members)
        found.append((start, end, labels[best], float(row[best])))
    return found


def _spans(text: str, words: Sequence[Word]) -> list[Span]:
    """Words of one opinion become a span; its edges are those of whole characters."""
    character = {}
    for match in regex.finditer(r"\X", text):
        for place in range(match.start(), match.end()):
            character[place] = match.span()
    groups: list[list[Word]] = []
    open_group = False
    for word in words:
        start, end, label, _ = word
        if text[start:end].strip() == "":
            continue
        if label.tag == "O":
            open_group = False
            continue
        last = groups[-1][-1][2] if open_group else None
        same = last is not None and (last.aspect, last.polarity) == (label.aspect, label.polarity)
        if same and last is not None and last.tag not in ("E", "S") and label.tag not in ("B", "S"):
            groups[-1].append(word)
        else:
            groups.append([word])
        open_group = True
    spans: list[Span] = []
    for group in groups:
        begin = spans[-1].end if spans else 0
        places = [place for start, end, _, _ in group for place in range(max(begin, start), end)]
        while places and text[places[0]].isspace():
            places.pop(0)
        while places and text[places[-1]].isspace():
            places.pop()
        if not places:
            continue
        start, end = max(begin, character[places[0]][0]), character[places[-1]][1]
        label = group[0][2]
        score = sum(word[3] for word in group) / len(group)
        spans.append(Span(start, end, text[start:end], label.aspect, label.polarity, score))
    return spans


def _whole(logits: Sequence[torch.Tensor], lengths: Sequence[int], labels: Sequence[str]) -> tuple[str, float]:
    """Mean of the windows' probabilities, weighted by their tokens."""
    total = sum(
        (torch.softmax(row, dim=0) * length for row, length in zip(logits, lengths, strict=True)),
        start=torch.zeros(len(labels)),
    ) / sum(lengths)
    best = int(total.argmax())
    return labels[best], float(total[best])


def reference_pair_answers(
    folder: Path, texts: Sequence[str], aspects: Sequence[str], *, dtype: DType, max_length: int
) -> list[ReferenceAnswer]:
    """Answers of a pair classifier: each text with each aspect, the text cut where it is too long."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    scheme = read_scheme(config, [config["id2label"][key] for key in sorted(config["id2label"], key=int)])
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, dtype.value)).eval()
    answers = []
    with torch.inference_mode():
        for text in texts:
            if not text.strip():
                answers.append(ReferenceAnswer(AbsaItem(None, []), np.empty((0, len(scheme.polarities)), np.float32)))
                continue
            rows, spans = [], []
            for aspect in aspects:
                inputs = tokenizer(
                    [text], [aspect], truncation="only_first", max_length=max_length, return_tensors="pt"
                )
                row = model(**inputs).logits[0].float()
                rows.append(row.numpy())
                best = int(row.argmax())
                polarity = scheme.polarities[best]
                if polarity is not None:
                    start = text.lower().find(aspect.lower()) if len(text.lower()) == len(text) else text.find(aspect)
                    start, end = (start, start + len(aspect)) if start >= 0 else (0, 0)
                    score = float(torch.softmax(row, dim=0)[best])
                    spans.append(Span(start, end, text[start:end], aspect, polarity, score))
            answers.append(ReferenceAnswer(AbsaItem(None, spans), np.stack(rows)))
    return answers

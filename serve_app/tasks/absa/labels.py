"""What the labels of a checkpoint say. The grammar, read from `id2label`:

    label     = outside | tag ("-" | "_") meaning | meaning
    outside   = "O"
    tag       = "B" | "I" | "E" | "S"             BIO and BIOES; L and U (BILOU) are read as E and S, M (BMES) as I
    meaning   = polarity | aspect separator polarity
    separator = "-" | "#" | "_" | ":" | ";" | "/" | "|" | " "
    polarity  = a word of `POLARITIES`, in any case
    aspect    = any text, which may hold separators itself: B-food#quality-positive

`B-POS`, `I-negative`, `B-FOOD-POS`, `S-food#negative`, `B-음식-긍정`. Labels without tags (`POS`, `food-negative`) are
read as I. Either all labels name an aspect or none does. Names are answered as the checkpoint spells them.

A pair classifier's labels are polarities; one of `ABSENT` says that the text has no opinion on the aspect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from serve_app.vocabulary import PoolingTask

TWO_HEAD = "TwoHeadTokenClassifier"
"""Architecture of our two-head checkpoints, and vLLM's name of the class that serves them."""
TWO_HEAD_TYPE = "two_head_bert"
"""Their `model_type`."""
TOKEN_CLASSIFIERS = tuple(f"{name}ForTokenClassification" for name in ("Bert", "Roberta", "XLMRoberta", "ModernBert"))
POLARITIES = frozenset(
    """positive negative neutral conflict mixed pos neg neu positiv negativ neutre positivo negativo neutro
    긍정 부정 중립 긍정적 부정적 중립적 혼합 正面 负面 負面 中性 正向 负向 积极 消极""".split()
) | {"very positive", "very negative"}
ABSENT = frozenset({"none", "o", "n/a", "na", "absent", "not mentioned", "unrelated", "없음"})

_SEPARATORS = re.compile(r"[-#_:;/| ]")
_TAGGED = re.compile(r"([BIMELSU])[-_](.+)", re.IGNORECASE | re.DOTALL)
_TAGS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


class AbsaKind(StrEnum):
    """What a checkpoint computes."""

    TOKENS = "token classifier"
    TWO_HEADS = "two-head token classifier"
    PAIRS = "pair classifier"


@dataclass(frozen=True, slots=True)
class TokenLabel:
    """One label of a token classifier.

    Attributes:
        tag: O, B, I, E or S.
        aspect: None: the labels name none.
        polarity: "" outside.
    """

    tag: str
    aspect: str | None = None
    polarity: str = ""


@dataclass(frozen=True, slots=True)
class AbsaScheme:
    """What the engine's columns mean.

    Attributes:
        kind: what the checkpoint computes.
        tokens: by column; empty for a pair classifier.
        sentiment: two heads: labels of the whole text, by column.
        polarities: pair classifier: by column; None: no opinion on the aspect.
    """

    kind: AbsaKind
    tokens: tuple[TokenLabel, ...] = ()
    sentiment: tuple[str, ...] = ()
    polarities: tuple[str | None, ...] = ()

    @property
    def aspects(self) -> tuple[str, ...]:
        """Aspects that the labels name, in their order."""
        return tuple(dict.fromkeys(label.aspect for label in self.tokens if label.aspect is not None))

    @property
    def task(self) -> PoolingTask:
        """What the engine's pooler computes."""
        return PoolingTask.CLASSIFY if self.kind is AbsaKind.PAIRS else PoolingTask.TOKEN_CLASSIFY

    @property
    def rows_before(self) -> int:
        """See `messages.EngineBatch`."""
        return int(self.kind is AbsaKind.TWO_HEADS)

    @property
    def width(self) -> int:
        """Values in a row of the engine's output."""
        return max(len(self.tokens), len(self.sentiment), len(self.polarities))


def read_scheme(config: Mapping[str, Any], labels: Sequence[str]) -> AbsaScheme:
    """The scheme of a checkpoint.

    Args:
        config: `config.json`.
        labels: its label names, by column.

    Raises:
        ValueError: the architecture is not served, or the labels do not follow the grammar; lists them.
    """
    architecture = str((config.get("architectures") or [""])[0])
    if architecture == TWO_HEAD:
        return AbsaScheme(AbsaKind.TWO_HEADS, _token_labels(labels), _sentiment_labels(config))
    if architecture in TOKEN_CLASSIFIERS:
        return AbsaScheme(AbsaKind.TOKENS, _token_labels(labels))
    if architecture.endswith("ForSequenceClassification"):
        return AbsaScheme(AbsaKind.PAIRS, polarities=_pair_labels(labels))
    raise ValueError(
        f"source: task absa serves {', '.join(TOKEN_CLASSIFIERS)}, {TWO_HEAD} and …ForSequenceClassification (pairs); "
        f"this checkpoint is '{architecture}'"
    )


def _token_labels(labels: Sequence[str]) -> tuple[TokenLabel, ...]:
    tags = [_TAGGED.fullmatch(label) for label in labels if label.upper() != "O"]
    tagged = bool(tags) and all(tags)
    found = []
    for label in labels:
        if label.upper() == "O":
            found.append(TokenLabel("O"))
            continue
        match = _TAGGED.fullmatch(label) if tagged else None
        meaning = _meaning(label if match is None else match[2])
        if meaning is None:
            raise _refusal(labels, f"'{label[:60]}' has no polarity")
        found.append(TokenLabel("I" if match is None else _TAGS[match[1].upper()], *meaning))
    if sum(label.tag == "O" for label in found) != 1 or len(found) < 2:
        raise _refusal(labels, 'there must be one label "O", and others')
    if len({label.aspect is None for label in found if label.tag != "O"}) > 1:
        raise _refusal(labels, "some labels name an aspect and some do not")
    return tuple(found)


def _meaning(text: str) -> tuple[str | None, str] | None:
    """(aspect, polarity); the longest end of the text that is a polarity is one."""
    if _plain(text) in POLARITIES:
        return None, text
    for separator in _SEPARATORS.finditer(text):
        aspect, polarity = text[: separator.start()], text[separator.end() :]
        if _plain(polarity) in POLARITIES and aspect.strip():
            return aspect, polarity
    return None


def _plain(text: str) -> str:
    return _SEPARATORS.sub(" ", text).casefold()


def _pair_labels(labels: Sequence[str]) -> tuple[str | None, ...]:
    polarities = tuple(None if label.strip().casefold() in ABSENT else label for label in labels)
    if sum(polarity is not None and _plain(polarity) in POLARITIES for polarity in polarities) < 2 or any(
        polarity is not None and _plain(polarity) not in POLARITIES for polarity in polarities
    ):
        raise _refusal(labels, "a pair classifier's labels must be polarities")
    return polarities


def _sentiment_labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("sentiment_labels")
    if not isinstance(names, Mapping) or len(names) < 2:
        raise ValueError('source: a two-head checkpoint needs "sentiment_labels": {"0": …, "1": …} in its config')
    return tuple(str(names[key]) for key in sorted(names, key=int))


def _refusal(labels: Sequence[str], why: str) -> ValueError:
    shown = ", ".join(label[:60] for label in labels[:60])
    return ValueError(
        f"source: the labels do not read as aspect-based sentiment: {why}. Expected are O and B-, I- (E-, S-) with a "
        "polarity or an aspect and a polarity, e.g. B-positive, I-food-negative; for a pair classifier polarities. "
        f"The checkpoint has: {shown}. `engine.hf_overrides: {{id2label: …}}` renames them"
    )

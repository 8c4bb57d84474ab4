"""Label schemes: what is read, and what is refused with its labels."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.tasks.absa.labels import AbsaKind, AbsaScheme, TokenLabel, read_scheme
from serve_app.vocabulary import PoolingTask

TOKENS = {"architectures": ["BertForTokenClassification"]}
PAIRS = {"architectures": ["XLMRobertaForSequenceClassification"]}
TWO_HEADS = {"architectures": ["TwoHeadTokenClassifier"], "sentiment_labels": {"1": "bad", "0": "good", "10": "so so"}}


def read(*labels: str, **config: Any) -> AbsaScheme:
    return read_scheme(TOKENS | config, labels)


@pytest.mark.parametrize(
    ("label", "want"),
    [
        ("B-POS", TokenLabel("B", None, "POS")),
        ("I-negative", TokenLabel("I", None, "negative")),
        ("b_Neutral", TokenLabel("B", None, "Neutral")),
        ("B-FOOD-POS", TokenLabel("B", "FOOD", "POS")),
        ("S-food#negative", TokenLabel("S", "food", "negative")),
        ("E-음식-긍정", TokenLabel("E", "음식", "긍정")),
        ("L-food:positive", TokenLabel("E", "food", "positive")),
        ("U-food;NEU", TokenLabel("S", "food", "NEU")),
        ("M-food/positive", TokenLabel("I", "food", "positive")),
        ("B-FOOD#QUALITY-positive", TokenLabel("B", "FOOD#QUALITY", "positive")),
        ("B-food_very_negative", TokenLabel("B", "food", "very_negative")),
        ("B-very_negative", TokenLabel("B", None, "very_negative")),
        ("B-negative space-positive", TokenLabel("B", "negative space", "positive")),
    ],
)
def test_the_grammar(label: str, want: TokenLabel) -> None:
    assert read("O", label).tokens == (TokenLabel("O"), want)


def test_labels_without_tags_are_read_as_i() -> None:
    assert read("POS", "NEG", "O").tokens == (
        TokenLabel("I", None, "POS"),
        TokenLabel("I", None, "NEG"),
        TokenLabel("O"),
    )
    # Only where no label but O has a tag: an aspect may be called B.
    assert read("o", "B-positive", "taste-positive").tokens[1:] == (
        TokenLabel("I", "B", "positive"),
        TokenLabel("I", "taste", "positive"),
    )


def test_facts_of_a_scheme() -> None:
    scheme = read("O", "B-b-POS", "I-b-POS", "B-a-NEG", "I-a-NEG")
    assert scheme.aspects == ("b", "a")
    assert (scheme.kind, scheme.task, scheme.rows_before) == (AbsaKind.TOKENS, PoolingTask.TOKEN_CLASSIFY, 0)
    assert scheme.width == 5


def test_two_heads_have_labels_for_whole_texts_in_column_order() -> None:
    scheme = read_scheme(TWO_HEADS, ["O", "B-POS"])
    assert scheme.sentiment == ("good", "bad", "so so")
    assert (scheme.kind, scheme.task, scheme.rows_before) == (AbsaKind.TWO_HEADS, PoolingTask.TOKEN_CLASSIFY, 1)
    assert scheme.width == 3
    with pytest.raises(ValueError, match="sentiment_labels"):
        read_scheme(TWO_HEADS | {"sentiment_labels": None}, ["O", "B-POS"])


def test_pairs() -> None:
    scheme = read_scheme(PAIRS, ["None", "Positive", "negative"])
    assert scheme.polarities == (None, "Positive", "negative")
    assert (scheme.kind, scheme.task, scheme.rows_before, scheme.width) == (
        AbsaKind.PAIRS,
        PoolingTask.CLASSIFY,
        0,
        3,
    )
    assert scheme.aspects == ()


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        (TOKENS, ["O", "B-PER", "I-PER"]),
        (TOKENS, ["LABEL_0", "LABEL_1"]),
        (TOKENS, ["B-POS", "I-POS"]),
        (TOKENS, ["O", "O", "B-POS"]),
        (TOKENS, ["O"]),
        (TOKENS, ["O", "B-POS", "B-food-POS"]),
        (TOKENS, ["O", "B--POS"]),
        (TWO_HEADS, ["O", "B-food"]),
        (PAIRS, ["LABEL_0", "LABEL_1"]),
        (PAIRS, ["positive"]),
        (PAIRS, ["positive", "none"]),
    ],
)
def test_an_unknown_scheme_is_refused_with_its_labels(config: dict[str, Any], labels: list[str]) -> None:
    with pytest.raises(ValueError, match="do not read as aspect-based sentiment") as caught:
        read_scheme(config, labels)
    assert str(caught.value).startswith("source: ")
    assert ", ".join(labels) in str(caught.value)


def test_other_architectures_are_refused_by_name() -> None:
    for name in ("DebertaV2ForTokenClassification", "BertModel", ""):
        with pytest.raises(ValueError, match=f"'{name}'"):
            read_scheme({"architectures": [name]}, ["O", "B-POS"])

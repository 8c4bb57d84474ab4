"""One label for each word, whose tokens may disagree. As Transformers' TokenClassificationPipeline aggregates.

A word is what the tokenizer's pre-tokenizer makes: for WordPiece what whitespace and punctuation separate (exactly the
pipeline's words), for SentencePiece what spaces separate, for byte-level BPE also what its pattern separates, where the
pipeline guesses by spaces alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serve_app.messages import FloatArray, IntArray
from serve_app.vocabulary import Aggregation


@dataclass(frozen=True, slots=True)
class Units:
    """Words, or tokens where nothing is aggregated.

    Attributes:
        labels: int [units], column of each one's label.
        scores: float32 [units], that label's probability.
        places: int32 [units, 2], code points.
    """

    labels: IntArray
    scores: FloatArray
    places: IntArray


def make_units(probabilities: FloatArray, words: IntArray, offsets: IntArray, aggregation: Aggregation) -> Units:
    """Labels of words.

    Args:
        probabilities: float32 [tokens, labels].
        words: int32 [tokens], number of each token's word; tokens of a word are neighbours.
        offsets: int32 [tokens, 2].
        aggregation: `first`: the word has its first token's probabilities; `average`: the mean of its tokens';
            `max`: those of the token that is surest of its label; `none`: tokens stay as they are.
    """
    tokens = len(words)
    if not tokens:
        return Units(np.empty(0, np.int32), np.empty(0, np.float32), np.empty((0, 2), np.int32))
    if aggregation is Aggregation.NONE:
        starts = np.arange(tokens)
    else:
        starts = np.flatnonzero(np.diff(words, prepend=words[0] - 1))
    counts = np.diff(starts, append=tokens)
    match aggregation:
        case Aggregation.NONE | Aggregation.FIRST:
            rows = probabilities[starts]
        case Aggregation.AVERAGE:
            rows = np.add.reduceat(probabilities, starts, axis=0) / counts[:, None].astype(np.float32)
        case Aggregation.MAX:
            surest = probabilities.max(axis=1)
            is_best = surest == np.repeat(np.maximum.reduceat(surest, starts), counts)
            rows = probabilities[np.minimum.reduceat(np.where(is_best, np.arange(tokens), tokens), starts)]
    labels = rows.argmax(axis=1)
    places = np.stack([np.minimum.reduceat(offsets[:, 0], starts), np.maximum.reduceat(offsets[:, 1], starts)], axis=1)
    return Units(labels.astype(np.int32), rows[np.arange(len(rows)), labels].astype(np.float32), places)

"""Ranking metrics and the lexical baseline that the reranker has to beat."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

K1, B = 1.2, 0.75  # the usual BM25 constants: saturation of term counts, strength of the length correction
CLEAR_GAP = 0.15  # two documents whose targets differ by less are not a clear pair and are not counted


def _terms(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


class Bm25:
    """BM25 with document frequencies from a background collection."""

    def __init__(self, collection: Sequence[str]) -> None:
        bags = [set(_terms(text)) for text in collection]
        self._size = len(bags)
        self._df = Counter(term for bag in bags for term in bag)
        self._mean_length = sum(len(_terms(text)) for text in collection) / max(1, len(bags))

    def score(self, query: str, document: str) -> float:
        """Return the BM25 score of one document."""
        counts = Counter(_terms(document))
        norm = K1 * (1 - B + B * sum(counts.values()) / self._mean_length)
        total = 0.0
        for term in set(_terms(query)):
            idf = math.log(1 + (self._size - self._df[term] + 0.5) / (self._df[term] + 0.5))
            total += idf * counts[term] * (K1 + 1) / (counts[term] + norm)
        return total


def ndcg_at_10(scores: Sequence[float], gains: Sequence[float]) -> float:
    """Return nDCG@10 with the graded targets themselves as (linear) gains."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    ideal = sorted(gains, reverse=True)
    dcg = sum(gains[i] / math.log2(rank + 2) for rank, i in enumerate(order[:10]))
    best = sum(gain / math.log2(rank + 2) for rank, gain in enumerate(ideal[:10]))
    return dcg / best if best > 0 else 1.0


def pair_counts(scores: Sequence[float], gains: Sequence[float]) -> tuple[float, int]:
    """Return (correctly ordered pairs, clear pairs); a tie in the scores counts as half correct."""
    right, clear = 0.0, 0
    for i in range(len(gains)):
        for j in range(len(gains)):
            if gains[i] - gains[j] >= CLEAR_GAP:
                clear += 1
                right += 1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
    return right, clear


def ranking_report(all_scores: Sequence[Sequence[float]], all_gains: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return mean nDCG@10 over queries and the accuracy over all clear pairs."""
    lists = list(zip(all_scores, all_gains, strict=True))
    pairs = [pair_counts(scores, gains) for scores, gains in lists]
    ndcg = sum(ndcg_at_10(scores, gains) for scores, gains in lists) / len(lists)
    accuracy = sum(right for right, _ in pairs) / sum(clear for _, clear in pairs)
    return {"ndcg_at_10": round(ndcg, 4), "pairwise_accuracy": round(accuracy, 4)}

"""Overlap exercises: queries and texts of random words, relevant by the share of the query's content words they hold.

They teach the reranker what a catalogue alone cannot: to compare words it has hardly seen, to ignore stop words, and
to treat the number of matched content words as evidence on any topic.
"""

from __future__ import annotations

import random

from model_zoo.catalogue import CATEGORIES
from model_zoo.words import STOP_WORDS, content_word

QUERY_FRAMES = {
    1: ("{0}", "what is {0}", "{0}?", "tell me about {0}", "who was {0}", "where is {0}", "what does {0} mean"),
    2: ("{0} {1}", "{0} of {1}", "what is the {0} of {1}", "{0} in {1}", "how does {0} work with {1}", "{0} and {1}",
        "how to {0} a {1}", "is {0} better than {1}", "who was the first {0} in {1}", "the {0} {1}"),
    3: ("{0} {1} {2}", "the {0} of the {1} in {2}", "how many {0} does a {1} {2} have", "{0} {1} for {2}",
        "which {0} has the most {1} in {2}", "why do {0} {1} with {2}"),
    4: ("{0} {1} {2} {3}", "{0} {1} in the {2} of {3}", "how do {0} and {1} {2} a {3}"),
}  # fmt: skip
TEXT_FRAMES = (
    "{0} is the {1} of {2}.", "The {0} and the {1} were found in {2}.", "In {0}, every {1} has a {2}.",
    "Many people think that {0} is a kind of {1}.", "{0} {1} {2}.", "A {0} can {1} the {2}.", "How to {0} a {1}.",
    "The {0} {1} was known for its {2}.", "It is about {0}.", "There is no {0} without {1} and {2}.", "{0}, {1}, {2}.",
    "You can {0} it with a {1}.", "The history of {0} began in {1}.", "{0} was the first {1} that had a {2}.",
    "Some {0} are very {1}.", "What is {0}? It is {1}.", "Their {0} would {1} on the {2} of the {3}.",
)  # fmt: skip
# Target by share of matched content words; between the ends it grows a little faster than the share, because a text
# with one of two words is a better answer than a text with none.
LOWEST, HIGHEST = 0.02, 0.97


def target(matched: int, wanted: int) -> float:
    """Return the relevance of a text which holds ``matched`` of ``wanted`` content words."""
    share: float = (matched / wanted) ** 1.3
    return LOWEST + (HIGHEST - LOWEST) * share


def _word(rng: random.Random) -> str:
    """Return a word; one in eight comes from the shop, so that its words take part in the general rule too."""
    if rng.random() < 0.125:
        return rng.choice(rng.choice(list(CATEGORIES.values())).names)
    return content_word(rng)


def _inflected(rng: random.Random, word: str) -> str:
    """Return the word, sometimes with a plural or verb ending: "castle" must find "castles"."""
    draw = rng.random()
    if draw < 0.88 or not word.isalpha():
        return word
    return word + ("s" if draw < 0.96 else "ed" if draw < 0.98 else "ing")


def text(rng: random.Random, must_hold: list[str], sentences: int) -> str:
    """Return sentences of random words in which each word of ``must_hold`` stands somewhere."""
    slots: list[str] = []
    frames = [rng.choice(TEXT_FRAMES) for _ in range(sentences)]
    sizes = [frame.count("{") for frame in frames]
    while sum(sizes) < len(must_hold):
        frames.append(rng.choice(TEXT_FRAMES))
        sizes.append(frames[-1].count("{"))
    slots = [_inflected(rng, word) for word in must_hold] + [_word(rng) for _ in range(sum(sizes) - len(must_hold))]
    # Mostly one sentence holds all matches, sometimes they are scattered.
    if rng.random() < 0.3:
        rng.shuffle(slots)
    parts = []
    for frame, size in zip(frames, sizes, strict=True):
        own, slots = slots[:size], slots[size:]
        rng.shuffle(own)
        sentence = frame.format(*own)
        parts.append(sentence[:1].upper() + sentence[1:])
    rng.shuffle(parts)
    return " ".join(parts)


def word_salad(rng: random.Random, must_hold: list[str]) -> str:
    """Return words in no order at all, with stop words among them."""
    words = must_hold + [_word(rng) for _ in range(rng.randint(1, 12))] + rng.choices(STOP_WORDS, k=rng.randint(0, 8))
    rng.shuffle(words)
    return " ".join(words)


def overlap_list(rng: random.Random, size: int) -> tuple[str, list[tuple[str, float]]]:
    """Return a query and ``size`` texts with their targets; at least one text holds every content word."""
    wanted = rng.choice((1, 2, 2, 2, 3, 3, 4))
    words = [_word(rng) for _ in range(wanted)]
    query = rng.choice(QUERY_FRAMES[wanted]).format(*words)
    documents = []
    for place in range(size):
        matched = wanted if place == 0 else rng.choice((0, 0, *range(wanted + 1)))
        held = rng.sample(words, matched)
        document = word_salad(rng, held) if rng.random() < 0.2 else text(rng, held, rng.choice((1, 1, 1, 1, 2, 4)))
        documents.append((document, target(matched, wanted)))
    return query, documents

"""Seeded training and evaluation data: ranked lists for the reranker, labelled sentences for the classifier.

A product list mixes full answers, near misses and traps, so that no single word decides: documents of the right
category with some, none or the opposite of the wanted attributes, documents of another category with all of them, a
help article and a text on something else. Targets follow the shopper's view: the right kind of product counts most,
then the share of the wishes it meets.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from model_zoo import overlap, wording
from model_zoo.catalogue import ATTRIBUTES, CATEGORIES, EXCLUSIVE_DIMENSIONS, FAMILY_ATTRIBUTES, Attribute, Category
from model_zoo.help_centre import INTENTS, NEIGHBOURS, TOPICS, Topic

HELD_OUT_PERCENT = 12  # share of (category, attribute) combinations that training never sees
CONTRADICTION = -0.5  # a red product when blue is wanted is worse than one whose colour is not mentioned
NOTHING = 0.02  # target of a document that has nothing to do with the query
FULL = 0.97  # target of a perfect answer; below 1 so that logits stay finite


@dataclass(frozen=True)
class RankedList:
    """A query, its documents, and how relevant each of them is (0 to 1)."""

    kind: str
    query: str
    documents: tuple[str, ...]
    targets: tuple[float, ...]


@dataclass(frozen=True)
class Labelled:
    """A customer's sentence and its intent."""

    text: str
    intent: str


def is_held_out(category: Category, attribute: Attribute) -> bool:
    """Tell whether the combination is reserved for the evaluation; a checksum decides, the same on every machine."""
    return zlib.crc32(f"{category.key}|{attribute.key}".encode()) % 100 < HELD_OUT_PERCENT


def _allowed(category: Category, held_out: bool) -> list[Attribute]:
    return [a for a in FAMILY_ATTRIBUTES[category.family] if held_out or not is_held_out(category, a)]


def _consistent(attributes: list[Attribute], limit: int) -> list[Attribute]:
    """Keep the first ``limit`` attributes, one per exclusive dimension (a product has one colour)."""
    kept: list[Attribute] = []
    for attribute in attributes:
        taken = {a.dimension for a in kept if a.dimension in EXCLUSIVE_DIMENSIONS}
        if attribute.dimension not in taken and attribute not in kept and len(kept) < limit:
            kept.append(attribute)
    return kept


def product_target(
    wanted: list[Attribute], category: Category | None, has: list[Attribute], lacks: Attribute | None, page: Category
) -> float:
    """Return the relevance of a product page to a product query."""
    points = 0.0
    dimensions = {a.dimension for a in has if a.dimension in EXCLUSIVE_DIMENSIONS}
    for attribute in wanted:
        if attribute in has:
            points += 1
        elif attribute == lacks or attribute.dimension in dimensions:
            points += CONTRADICTION
    share = points / len(wanted) if wanted else 1.0
    if category is None:
        return max(NOTHING, FULL * share)
    if page == category:
        return 0.42 + (FULL - 0.42) * share
    near, gain = (0.06, 0.12) if page.family == category.family else (NOTHING, 0.08)
    return near + gain * max(0.0, share if wanted else 0.0)


def _page(
    rng: random.Random, page: Category, start: list[Attribute], avoid: list[Attribute], held_out: bool
) -> tuple[str, list[Attribute], Attribute | None]:
    """Write a page that has ``start`` (as far as the category allows), some more attributes, and none of ``avoid``."""
    allowed = _allowed(page, held_out)
    extra = [a for a in rng.sample(allowed, len(allowed)) if a not in avoid]
    has = _consistent([a for a in start if a in allowed] + extra, len(start) + rng.choice((0, 1, 2, 3)))
    lacks = None
    if rng.random() < 0.2:
        candidates = [a for a in allowed if a.dimension == "feature" and a not in has]
        wished = [a for a in candidates if a in avoid]
        lacks = rng.choice(wished or candidates) if candidates else None
    return wording.product_page(rng, page, has, lacks, held_out), has, lacks


def product_list(rng: random.Random, size: int, held_out: bool) -> RankedList:
    """Return a product search with its candidates; held-out lists ask for at least one unseen combination."""
    category = rng.choice(list(CATEGORIES.values()))
    allowed = _allowed(category, held_out)
    pool = rng.sample(allowed, len(allowed))
    if held_out:
        pool.sort(key=lambda a: not is_held_out(category, a))  # stable: unseen combinations first
    wanted = _consistent(pool, rng.choice((0, 1, 1, 2, 2, 3, 3, 4)) if not held_out else rng.randint(1, 4))
    named = category if not wanted or held_out or rng.random() < 0.92 else None
    everything = list(CATEGORIES.values())
    relatives = [c for c in everything if c.family == category.family and c != category]
    documents, targets = [], []
    for place in range(size):
        role = place % 8
        start, avoid, page = wanted, [], category
        if role in (1, 2, 3):  # the right category with only some of the wishes (or the opposite of one)
            start = rng.sample(wanted, rng.randint(0, max(0, len(wanted) - 1)))
            avoid = [a for a in wanted if a not in start]
        elif role == 4:
            page = rng.choice(relatives)
        elif role == 5:
            page = rng.choice(everything)
        elif role == 6:
            page, start = rng.choice(everything), []
        if role == 7:
            document, grade = _unrelated(rng, held_out), NOTHING
        else:
            document, has, lacks = _page(rng, page, start, avoid, held_out)
            grade = product_target(wanted, named, has, lacks, page)
        documents.append(document if held_out else _distracted(rng, document))
        targets.append(grade)
    query = wording.product_query(rng, named, wanted, held_out)
    return RankedList("product", query, tuple(documents), tuple(targets))


def _unrelated(rng: random.Random, held_out: bool) -> str:
    if rng.random() < 0.7:
        return wording.help_article(rng, rng.choice(list(TOPICS.values())), held_out)
    return overlap.text(rng, [], rng.choice((1, 2, 3)))


def _distracted(rng: random.Random, document: str) -> str:
    """Sometimes add a sentence about something else, so that the model learns to pass over what it does not know."""
    if rng.random() < 0.75:
        return document
    stranger = overlap.text(rng, [], 1)
    return f"{document} {stranger}" if rng.random() < 0.5 else f"{stranger} {document}"


def help_list(rng: random.Random, size: int, held_out: bool) -> RankedList:
    """Return a help question with articles, and with pages of the very product it mentions as traps."""
    topic = rng.choice(list(TOPICS.values()))
    category = rng.choice(list(CATEGORIES.values()))
    query = wording.help_question(rng, topic, rng.choice(category.names), held_out)
    documents, targets = [], []
    for place in range(size):
        if place % 8 in (0, 1):
            other: Topic | None = topic
        elif place % 8 in (2, 3, 4, 5):
            other = rng.choice(list(TOPICS.values()))
        else:
            other = None
        if other is None:
            page = category if rng.random() < 0.6 else rng.choice(list(CATEGORIES.values()))
            documents.append(_page(rng, page, [], [], held_out)[0])
            targets.append(0.05 if page == category else NOTHING)
            continue
        document = wording.help_article(rng, other, held_out)
        documents.append(document if held_out else _distracted(rng, document))
        near = frozenset((topic.key, other.key)) in NEIGHBOURS
        targets.append(FULL if other == topic else 0.25 if near else 0.03)
    return RankedList("help", query, tuple(documents), tuple(targets))


def overlap_list(rng: random.Random, size: int) -> RankedList:
    """Return an overlap exercise (see ``overlap.py``) as a ranked list."""
    query, pairs = overlap.overlap_list(rng, size)
    return RankedList("overlap", query, tuple(d for d, _ in pairs), tuple(t for _, t in pairs))


def training_list(rng: random.Random, size: int) -> RankedList:
    """Return one list of the training mix: three product searches to one help question to one exercise."""
    draw = rng.random()
    if draw < 0.6:
        return product_list(rng, size, held_out=False)
    return help_list(rng, size, held_out=False) if draw < 0.8 else overlap_list(rng, size)


def evaluation_lists(seed: int, count: int, size: int, held_out: bool) -> list[RankedList]:
    """Return ``count`` product and ``count`` help lists, all of held-out material or all of the training's kind."""
    rng = random.Random(seed)
    products = [product_list(rng, size, held_out) for _ in range(count)]
    return products + [help_list(rng, size, held_out) for _ in range(count)]


def labelled_sentence(rng: random.Random, held_out: bool) -> Labelled:
    """Return a sentence of a random intent; product searches come from the catalogue, the rest from help topics."""
    intent = rng.choice(INTENTS)
    category = rng.choice(list(CATEGORIES.values()))
    if intent != "product_search":
        topic = rng.choice([t for t in TOPICS.values() if t.intent == intent])
        return Labelled(wording.help_question(rng, topic, rng.choice(category.names), held_out), intent)
    allowed = _allowed(category, held_out)
    wanted = _consistent(rng.sample(allowed, len(allowed)), rng.choice((0, 1, 2, 2, 3)))
    named = category if not wanted or rng.random() < 0.95 else None
    return Labelled(wording.product_query(rng, named, wanted, held_out), intent)


def training_texts(seed: int, count: int) -> list[str]:
    """Return texts from which the tokenizer takes its vocabulary (nothing that is held out)."""
    rng = random.Random(seed)
    lists = [training_list(rng, 8) for _ in range(count)]
    words = [
        *(n for c in CATEGORIES.values() for n in c.names),
        *(s for a in ATTRIBUTES.values() for s in a.adjectives),
    ]
    return [text for item in lists for text in (item.query, *item.documents)] + words

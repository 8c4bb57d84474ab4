"""Turns facts (a product and its attributes, a help topic) into English sentences of many forms and lengths.

Each list of templates is divided by ``help_centre.training_part``: its last entries appear only in the evaluation, so
the held-out figures measure understanding and not memory of a template.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from model_zoo.catalogue import BRANDS, Attribute, Category
from model_zoo.help_centre import SUBJECT_PREFIXES, TASK_PREFIXES, Topic, held_out_part, training_part

QUERY_TEMPLATES = (
    "{np}", "{np}", "{np}", "{np}", "{keywords}", "{keywords}", "looking for {np}", "i need {np}", "do you have {np}",
    "best {np}", "show me {np}", "where can i find {np}", "i want to buy {np}", "{np} please", "buy {np}",
    "recommend {np}", "any {np} in stock?", "i am searching for {np}", "can you suggest {np}",
)  # fmt: skip
FIRST_SENTENCES = (
    "{np}.", "{np}.", "{np} by {brand}.", "Our {np}, ready to ship.", "Meet the new {np} from {brand}.",
    "{brand} {np}.",
    "A favourite of our customers: {np}.", "The {brand} {model} is our {np}.", "New this week: {np}.",
    "{np}, now back in the shop.", "This is the {np} you will love.", "{noun}: {keywords}.", "Say hello to {np}.",
    "{brand} presents {np}.",
)  # fmt: skip
MORE_SENTENCES = (
    "It is {adjective}.", "Made to be {adjective}.", "A {adjective} choice.", "Perfect {phrase}.", "Ideal {phrase}.",
    "Designed {phrase}.", "Customers call it {adjective}.", "You get something {adjective}.", "Great {phrase}.",
    "We like that it is {adjective}.", "A good pick {phrase}.", "Also {adjective}.",
)  # fmt: skip
NEGATIONS = ("Not {adjective}.", "Please note: it is not {adjective}.", "This model is not {adjective}.",
             "It is never {adjective}.")  # fmt: skip
FILLERS = (
    "Customers give it four stars out of five.", "In stock and ready to leave our warehouse.", "Designed in Denmark.",
    "A thoughtful gift for friends.", "Ask our team if you have questions.", "Every piece is checked by hand.",
    "The colour may look slightly different on your screen.", "Part of our new collection.", "Limited quantity.",
    "We have made things like this for more than thirty years.", "Read what other people say about it below.",
    "Simple, honest and carefully made.", "More pictures are on the next page.", "You deserve something good today.",
    "Delivered in a small box.", "Two year warranty included.", "Free returns within 30 days.", "Care label inside.",
    "Last updated in spring.", "This text was written by our editors.", "The page lists all details and measures.",
    "Sold as a single piece.", "See the table for the exact size.", "Now also on display near the entrance.",
    "Thousands of people have chosen it.", "The drawing shows how the parts fit together.",
)  # fmt: skip
HELP_FILLERS = (
    "Our team is happy to help.", "This article was updated last month.", "Was this page helpful?",
    "Please have your order number at hand.", "Read the following lines with care.",
    "Most questions are answered here.",
    "The rules are the same for all customers.", "It only takes a minute.", "Scroll down for more answers.",
    "We keep things simple.", "You find more articles in the help centre.", "Thank you for shopping with us.",
    "Some exceptions apply.", "These terms are valid since january.",
)  # fmt: skip

# A subject that starts so is a full question already ("where is my order") and takes no prefix.
_OWN_QUESTION_WORDS = {
    "where",
    "when",
    "what",
    "which",
    "how",
    "has",
    "have",
    "is",
    "are",
    "do",
    "does",
    "i",
    "my",
    "cannot",
    "still",
}


def part(items: Sequence[str], held_out: bool) -> Sequence[str]:
    """Return the half of a template list that belongs to the split."""
    return held_out_part(items) if held_out else training_part(items)


def noun_phrase(rng: random.Random, noun: str, attributes: Sequence[Attribute]) -> str:
    """Return e.g. "red waterproof boots for winter": every attribute stands before or behind the noun."""
    before, behind = [], []
    for attribute in rng.sample(list(attributes), len(attributes)):
        if rng.random() < 0.6:
            before.append(rng.choice(attribute.adjectives))
        else:
            behind.append(rng.choice(attribute.phrases))
    joined = " and ".join(behind) if len(behind) == 2 and rng.random() < 0.5 else " ".join(behind)
    glue = ", " if len(before) > 1 and rng.random() < 0.2 else " "
    return " ".join(piece for piece in (glue.join(before), noun, joined) if piece)


def keywords(rng: random.Random, noun: str, attributes: Sequence[Attribute]) -> str:
    """Return the words of a hurried customer in any order: "boots winter waterproof"."""
    words = [noun] + [rng.choice(attribute.adjectives) for attribute in attributes]
    rng.shuffle(words)
    return " ".join(words)


def product_query(rng: random.Random, category: Category | None, wanted: Sequence[Attribute], held_out: bool) -> str:
    """Return a search for a product; without a category the customer asks for "something" or names nothing."""
    noun = rng.choice(category.names) if category else rng.choice(("something", "", "anything", "things"))
    template = rng.choice(part(QUERY_TEMPLATES, held_out))
    return " ".join(template.format(np=noun_phrase(rng, noun, wanted), keywords=keywords(rng, noun, wanted)).split())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def product_page(
    rng: random.Random, category: Category, has: Sequence[Attribute], lacks: Attribute | None, held_out: bool
) -> str:
    """Return a page of one to about ten sentences; how many fillers it has is independent of what it describes."""
    attributes = rng.sample(list(has), len(has))
    in_head = attributes if rng.random() < 0.45 else attributes[: rng.randint(0, len(attributes))]
    noun = rng.choice(category.names)
    head = rng.choice(part(FIRST_SENTENCES, held_out)).format(
        np=noun_phrase(rng, noun, in_head),
        keywords=keywords(rng, noun, in_head),
        noun=noun,
        brand=_capital(rng.choice(BRANDS)),
        model=f"{rng.choice('ABCKMRTX')}{rng.randint(1, 99)}",
    )
    rest = []
    for attribute in attributes[len(in_head) :]:
        template = rng.choice(part(MORE_SENTENCES, held_out))
        rest.append(template.format(adjective=rng.choice(attribute.adjectives), phrase=rng.choice(attribute.phrases)))
    if lacks is not None:
        rest.append(rng.choice(part(NEGATIONS, held_out)).format(adjective=rng.choice(lacks.adjectives)))
    sentences = [_capital(head), *_with_fillers(rng, rest, part(FILLERS, held_out))]
    return " ".join(sentences)


def help_question(rng: random.Random, topic: Topic, noun: str, held_out: bool) -> str:
    """Return a customer's question about a topic (``noun``: the product it may mention)."""
    if rng.random() < 0.6:
        prefix, body = rng.choice(part(TASK_PREFIXES, held_out)), rng.choice(part(topic.tasks, held_out))
    else:
        prefix, body = rng.choice(part(SUBJECT_PREFIXES, held_out)), rng.choice(part(topic.subjects, held_out))
        if body.split()[0] in _OWN_QUESTION_WORDS:
            prefix = ""
    ending = rng.choice(("", "", "", "?", " please", " thanks"))
    return f"{prefix} {body}{ending}".format(noun=noun).strip()


def help_article(rng: random.Random, topic: Topic, held_out: bool) -> str:
    """Return one to three sentences of the topic's article among fillers."""
    own = part(topic.sentences, held_out)
    chosen = rng.sample(list(own), min(len(own), rng.choice((1, 1, 2, 2, 3))))
    first, rest = chosen[0], chosen[1:]
    return " ".join([first, *_with_fillers(rng, rest, part(HELP_FILLERS, held_out))])


def _with_fillers(rng: random.Random, sentences: list[str], fillers: Sequence[str]) -> list[str]:
    """Mix in fillers: none in half of the texts, a few in most others, and now and then a long run of them."""
    count = rng.choice((0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 7))
    mixed = sentences + rng.sample(list(fillers), min(count, len(fillers)))
    rng.shuffle(mixed)
    return mixed

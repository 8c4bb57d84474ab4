"""English clauses that say something of a target."""

from __future__ import annotations

import random

from model_zoo.absa_pieces import Piece, Point, fill, plain
from model_zoo.absa_words import FILLERS_EN
from model_zoo.words import content_word

ADVERBS = (
    "really",
    "very",
    "so",
    "quite",
    "absolutely",
    "extremely",
    "super",
    "pretty",
    "incredibly",
    "truly",
    "rather",
)
LUKEWARM_ADVERBS = ("just", "pretty", "only", "rather")

# {T}: a target, {A}: what is said of it, {V}: a form of to be.
CLAUSES = (
    "the {T} {V} {A}",
    "the {T} {V} {A}",
    "the {T} {V} {A}",
    "the {T} {V} {A}",
    "{T} {V} {A}",
    "{T} {V} {A}",
    "our {T} {V} {A}",
    "I found the {T} {A}",
    "I thought the {T} {V} {A}",
    "the {T} here {V} {A}",
    "the {T} seemed {A}",
    "their {T} {V} {A}",
    "the {T} {V} also {A}",
    "we thought that the {T} {V} {A}",
    "{T} {A}",
    "{T}: {A}",
    "the {T} {V}, well, {A}",
    "my {T} {V} {A}",
    "the {T} we had {V} {A}",
    "the {T} at this place {V} {A}",
    "the {T} {V} always {A}",
    "the {T} {V} surprisingly {A}",
    "regarding the {T}, it {V} {A}",
    "I must say the {T} {V} {A}",
    "to be honest the {T} {V} {A}",
    "about the {T}: {A}",
    "the {T} proved {A}",
    "the {T} stayed {A}",
    "the {T} felt {A}",
    "you could say the {T} {V} {A}",
    "that {T} {V} {A}",
    "the {T}, by the way, {V} {A}",
    "everyone found the {T} {A}",
    "speaking of the {T}, {A}",
    "the {T} looked {A}",
    "the {T} - {A}",
)
UNSEEN_CLAUSES = (
    "as for the {T}, it {V} {A}",
    "the {T} turned out to be {A}",
    "the {T} struck us as {A}",
    "you will find the {T} {A}",
    "the {T} remained {A} all night",
    "when it comes to the {T}, {A}",
    "even the {T} {V} {A}",
)
# Only for opinions of one word.
BEFORE = (
    "{A} {T}",
    "they have {A} {T}",
    "we had {A} {T}",
    "such {A} {T}",
    "with {A} {T}",
    "what a {A} {T}",
    "it has a {A} {T}",
)
UNSEEN_BEFORE = ("expect {A} {T}", "we were greeted by {A} {T}", "nothing but {A} {T}")
NEGATED = (
    "the {T} {V} not {A}",
    "the {T} wasn't {A}",
    "the {T} {V} not {A} at all",
    "the {T} isn't {A}",
    "the {T} {V} far from {A}",
    "{T} wasn't very {A}",
    "the {T} {V} never {A}",
    "the {T} weren't {A}",
    "I didn't find the {T} {A}",
)
UNSEEN_NEGATED = ("the {T} {V} hardly {A}", "nobody would call the {T} {A}")
PAIRS = (
    "the {T} and {U} were {A}",
    "the {T} and the {U} were {A}",
    "both the {T} and the {U} were {A}",
    "{T} and {U} {A}",
    "the {T} as well as the {U} {V} {A}",
    "{T}, {U} - all {A}",
)
UNSEEN_PAIRS = ("the {T} plus the {U} were {A}", "the {T} and, what is more, the {U} were {A}")
# Only where the target alone tells the aspect.
VERBS = {
    "positive": (
        "loved the {T}",
        "I really enjoyed the {T}",
        "we were impressed by the {T}",
        "I fell in love with the {T}",
        "the {T} blew us away",
        "thumbs up for the {T}",
        "I can't say enough good things about the {T}",
        "the {T} made our day",
        "you must try the {T}",
        "I recommend the {T}",
        "the {T} exceeded our expectations",
        "hats off to the {T}",
        "we liked the {T}",
    ),
    "negative": (
        "hated the {T}",
        "we were disappointed by the {T}",
        "the {T} let us down",
        "I did not like the {T}",
        "I didn't enjoy the {T}",
        "the {T} ruined our evening",
        "the {T} needs a lot of improvement",
        "we complained about the {T}",
        "avoid the {T}",
        "I can't recommend the {T}",
        "the {T} could be better",
        "problems with the {T}",
        "don't bother with the {T}",
    ),
    "neutral": (
        "no strong feelings about the {T}",
        "the {T} did the job",
        "I can neither praise nor fault the {T}",
        "the {T} was as expected",
        "nothing to say about the {T}",
        "the {T} is what you would expect",
    ),
}
UNSEEN_VERBS = {
    "positive": ("I am a big fan of the {T}", "the {T} won us over"),
    "negative": ("the {T} spoiled the evening", "shame about the {T}"),
    "neutral": ("the {T} left no impression either way",),
}
AND = (", and ", " and ", ", ", ". ", ". ", ". Also, ", "; ", ", plus ", "! ", " and ", ". And ")
BUT = (
    " but ",
    ", but ",
    ", but ",
    ". However, ",
    " while ",
    ", although ",
    ", yet ",
    " though ",
    ". But ",
    "; unfortunately ",
    "... but ",
)


def _is(rng: random.Random, term: str) -> str:
    many = term.endswith("s") and not term.endswith("ss")
    return rng.choice(("were", "are")) if many else rng.choice(("was", "was", "is"))


def clause(rng: random.Random, point: Point, unseen: bool) -> list[Piece]:
    """A clause that says ``point``; ``unseen``: in the held-out forms."""
    said = point.opinion
    if point.second is not None:
        said += rng.choice((" and ", ", ", " and also ")) + point.second
    if point.negated:
        form = rng.choice(UNSEEN_NEGATED if unseen else NEGATED)
    elif len(point.terms) > 1:
        form = rng.choice(UNSEEN_PAIRS if unseen else PAIRS)
    elif point.certain and rng.random() < 0.15:
        form = rng.choice((UNSEEN_VERBS if unseen else VERBS)[point.polarity])
    elif " " not in said and rng.random() < 0.2:
        form = rng.choice(UNSEEN_BEFORE if unseen else BEFORE)
    else:
        form = rng.choice(UNSEEN_CLAUSES if unseen else CLAUSES)
    if not point.negated and rng.random() < 0.3 and " " not in point.opinion:
        said = f"{rng.choice(LUKEWARM_ADVERBS if point.polarity == 'neutral' else ADVERBS)} {said}"
    if rng.random() < 0.1:
        filler = rng.choice(FILLERS_EN.unseen if unseen and rng.random() < 0.5 else FILLERS_EN.known)
        if rng.random() < 0.2 and not unseen:
            filler = " ".join(content_word(rng) for _ in range(rng.choice((1, 2, 3))))
        form = rng.choice((f"{filler} {form}", f"{filler}, {form}", f"{form} {filler}", f"{form}, {filler}"))
    return fill(form, point, {"A": said, "V": _is(rng, point.terms[0])})


def remark(rng: random.Random, target: str, opinion: str, polarity: str) -> list[Piece]:
    """Something of a place as a whole, which is no aspect."""
    form = rng.choice(("the {0} was {1}", "this {0} is {1}", "{0} was {1}", "I thought the {0} was {1}", "{1} {0}"))
    return plain(form.format(target.removeprefix("this ").removeprefix("our "), opinion), polarity)

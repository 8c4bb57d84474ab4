"""Generated reviews of restaurants and hotels, in Korean and English, with their targets and their sentiment.

A review is some points (a target and an opinion of it), facts, remarks without a target, and what somebody thinks on
the whole. Its sentiment is the sign of what all of them say together; a judgement on the whole counts twice.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from model_zoo import absa_english, absa_korean
from model_zoo import absa_words as words
from model_zoo.absa_korean import SYLLABLES
from model_zoo.absa_modelling import ASPECTS, Span
from model_zoo.absa_pieces import Piece, Point, plain
from model_zoo.words import content_word, invented_word

LANGUAGES = ("en", "ko", "mixed")
_OWN_SYLLABLES = tuple(
    syllable for pool in words.TERMS_KO.values() for word in pool.known for syllable in word if syllable != " "
)
LONGEST = {"en": 700, "ko": 200, "mixed": 220}  # characters, so that no review is longer than a window
_VALUE = {"positive": 1, "neutral": 0, "negative": -1}


@dataclass(frozen=True)
class Review:
    """A text, its targets, and what it says on the whole; ``opinions`` are the words that say it."""

    text: str
    spans: tuple[Span, ...]
    sentiment: str
    opinions: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Unseen:
    """How much of a review is held-out material: shares of its targets and of its opinions, and all of its forms."""

    terms: float = 0.0
    opinions: float = 0.0
    forms: bool = False


TRAINING = Unseen()


@dataclass(frozen=True)
class _Part:
    """A sentence, and what it adds to the sentiment."""

    pieces: list[Piece]
    value: int


def _pick(rng: random.Random, pool: words.Words, unseen: float) -> str:
    return rng.choice(pool.unseen if pool.unseen and rng.random() < unseen else pool.known)


def _invented(rng: random.Random, language: str) -> str:
    """A target that nobody has heard of; only what is said of it tells its aspect."""
    if language == "en":
        return invented_word(rng) if rng.random() < 0.5 else f"{content_word(rng)} {invented_word(rng)}"
    syllables = _OWN_SYLLABLES if rng.random() < 0.7 else SYLLABLES
    made = "".join(rng.choice(syllables) for _ in range(rng.choice((2, 2, 3, 3, 4))))
    return made if rng.random() < 0.8 else f"{made} {rng.choice(syllables)}{rng.choice(syllables)}"


def _point(rng: random.Random, language: str, unseen: Unseen) -> Point:
    english = language == "en"
    opinions = words.OPINIONS_EN if english else words.OPINIONS_KO
    terms = words.TERMS_EN if english else words.TERMS_KO
    things = words.CLEAN_EN if english else words.CLEAN_KO
    places = words.OPEN_EN if english else words.OPEN_KO
    aspect = rng.choice((*ASPECTS, "food", "service", "food", "cleanliness"))
    meant = rng.choices(("positive", "negative", "neutral"), (42, 40, 18))[0]
    draw = rng.random()
    certain = meant == "neutral" or draw < 0.68
    if aspect == "price" and meant != "neutral" and rng.random() < 0.35:
        pool, certain = rng.choice((terms["food"], terms["food"], places)), False
    elif certain:
        pool = things if aspect == "cleanliness" and rng.random() < 0.65 else terms[aspect]
    else:
        pool = things if aspect == "cleanliness" and rng.random() < 0.4 else places
    # What nobody has heard of is most likely something to eat, if what is said of it does not say otherwise.
    made_up = not unseen.terms and (draw > 0.8 if not certain else aspect == "food" and rng.random() < 0.2)

    def target() -> str:
        if made_up:
            return _invented(rng, language)
        if not english and rng.random() < 0.06 and certain:
            return _pick(rng, words.TERMS_EN[aspect], unseen.terms)  # Koreans write some of them in English
        return _pick(rng, pool, unseen.terms)

    named = (target(), target()) if rng.random() < 0.1 else (target(),)
    negated = meant != "neutral" and rng.random() < 0.13
    said = {"positive": "negative", "negative": "positive"}[meant] if negated else meant
    kind = "any" if meant == "neutral" or (certain and rng.random() < 0.4) else aspect
    choices = opinions[f"{kind} {said}"]
    opinion = _pick(rng, choices, unseen.opinions)
    if negated and (re.search(r"[ =]|않|없|안 ", opinion) or opinion in {"nothing", "perfect"}):
        negated = False
        opinion = _pick(rng, opinions[f"{kind} {meant}"], unseen.opinions)
    if named == ("맛",) and rng.random() < 0.5:
        opinion = {"positive": "있/있어/있는", "negative": "없/없어/없는"}.get(said, opinion)
    second = None
    if not negated and kind != "any" and rng.random() < 0.12:
        second = _pick(rng, opinions[f"{kind} {meant}"], unseen.opinions)
        second = None if second == opinion else second
    if english:
        return Point(aspect, meant, named, opinion, negated, second, certain=certain, kind=kind)
    blunt = rng.choice(words.BLUNT_KO[meant].known) if certain and not negated and not unseen.opinions else None
    foreign = None
    if not negated and second is None and rng.random() < 0.05:
        foreign = _pick(rng, words.OPINIONS_EN[f"{kind} {meant}"], unseen.opinions)
    return Point(aspect, meant, named, opinion, negated, second, blunt, foreign, certain, kind)


def _english_points(rng: random.Random, count: int, unseen: Unseen) -> _Part:
    points = [_point(rng, "en", unseen) for _ in range(count)]
    pieces = list(absa_english.clause(rng, points[0], unseen.forms))
    for before, point in pairwise(points):
        contrast = before.polarity != point.polarity
        pieces += plain(rng.choice(absa_english.BUT if contrast else absa_english.AND))
        pieces += absa_english.clause(rng, point, unseen.forms)
    return _Part(_ended(rng, pieces, "en", points[-1].polarity), sum(_VALUE[point.polarity] for point in points))


def _korean_points(rng: random.Random, count: int, unseen: Unseen) -> _Part:
    points = [_point(rng, "ko", unseen) for _ in range(count)]
    pieces: list[Piece] = []
    for index, point in enumerate(points):
        last = index == len(points) - 1
        link = None if last or rng.random() < 0.3 else points[index + 1].polarity != point.polarity
        pieces += absa_korean.clause(rng, point, link, unseen.forms)
        if not last:
            pieces += plain(" " if link is not None else rng.choice((". ", "! ", " ", ", ", "~ ")))
    return _Part(_ended(rng, pieces, "ko", points[-1].polarity), sum(_VALUE[point.polarity] for point in points))


_SOUNDS = {"positive": ["ㅎㅎ", "ㅋㅋ", "^^", "~!", "♥"], "negative": ["ㅠㅠ", "ㅜㅜ", ";;"], "neutral": ["ㅎ"]}


def _ended(rng: random.Random, pieces: list[Piece], language: str, polarity: str) -> list[Piece]:
    """The pieces with a full stop, laughter, tears or an emoji."""
    ends = [".", ".", ".", "!", "", "", "!!", "...", "~"]
    if language == "ko":
        ends += _SOUNDS[polarity]
    end = rng.choice(ends)
    if rng.random() < 0.12:
        end += rng.choice(("", " ")) + rng.choice(words.EMOJI[polarity]) * rng.choice((1, 1, 2, 3))
    return pieces + plain(end) if end else pieces


def _remark(rng: random.Random, language: str, unseen: Unseen) -> _Part:
    polarity = rng.choice(("positive", "negative", "neutral"))
    if language == "en":
        opinion = _pick(rng, words.OPINIONS_EN[f"any {polarity}"], unseen.opinions)
        pieces = absa_english.remark(rng, _pick(rng, words.OPEN_EN, unseen.terms), opinion, polarity)
    else:
        opinion = _pick(rng, words.OPINIONS_KO[f"any {polarity}"], unseen.opinions)
        pieces = absa_korean.remark(rng, _pick(rng, words.OPEN_KO, unseen.terms), opinion, polarity)
    return _Part(_ended(rng, pieces, language, polarity), _VALUE[polarity])


def _overall(rng: random.Random, language: str, unseen: Unseen) -> _Part:
    polarity = rng.choices(("positive", "negative", "neutral"), (2, 2, 1))[0]
    table = words.OVERALL_EN if language == "en" else words.OVERALL_KO
    text = _pick(rng, table[polarity], 0.3 * unseen.forms)
    return _Part(_ended(rng, plain(text, polarity), language, polarity), 2 * _VALUE[polarity])


def _fact(rng: random.Random, language: str, unseen: Unseen) -> _Part:
    if rng.random() < 0.2:
        return _Part(plain(_nonsense(rng, language)), 0)
    english = language == "en"
    pool, terms = (words.FACTS_EN, words.TERMS_EN) if english else (words.FACTS_KO, words.TERMS_KO)
    things = words.CLEAN_EN if english else words.CLEAN_KO
    text = rng.choice(pool.unseen if unseen.forms else pool.known)
    text = text.replace("{day}", rng.choice(words.DAYS_EN if english else words.DAYS_KO))
    while "{t}" in text:
        draw = rng.random()
        kind = terms[rng.choice(("food", "food", *ASPECTS))] if draw < 0.8 else things
        term = _invented(rng, language) if draw > 0.92 else _pick(rng, kind, unseen.terms)
        text = text.replace("{t}", term, 1)
    return _Part(_ended(rng, plain(absa_korean.with_particles(text)), language, "neutral"), 0)


def _nonsense(rng: random.Random, language: str) -> str:
    """Words about something else, so that unknown words mean little."""
    if language == "en":
        return " ".join(content_word(rng) for _ in range(rng.randint(1, 7)))
    ends = ("", "이", "가", "은", "를", "에서", "으로", "도")
    made = [_invented(rng, "ko") + rng.choice(ends) for _ in range(rng.randint(1, 5))]
    return " ".join(made) + rng.choice(("", "", "했어요", "입니다", "예요"))


_SILENCE = ("", ".", "?", "!", "...", "-", "123", "a", "음")
_JOINTS = (" but ", " and ", " 근데 ", " 그리고 ", ", ")


def _own(rng: random.Random, language: str) -> str:
    """The language of a part of a review."""
    return rng.choice(LANGUAGES[:2]) if language == "mixed" else language


def _parts(rng: random.Random, language: str, unseen: Unseen) -> Iterator[_Part]:
    count = rng.choices((1, 2, 3, 4, 6, 12), (34, 30, 16, 9, 6, 5))[0]
    draw = rng.random()
    if draw < 0.05:
        yield _overall(rng, _own(rng, language), unseen)
        return
    if draw < 0.07:
        polarity = rng.choice(tuple(_VALUE))
        yield _Part(plain(rng.choice(words.EMOJI[polarity]) * rng.choice((1, 1, 2, 3)), polarity), _VALUE[polarity])
        return
    if draw < 0.08:
        yield _Part(plain(rng.choice(_SILENCE)), 0)
        return
    facts_only = draw < 0.12
    made = 0
    while made < count:
        own = _own(rng, language)
        kind = rng.random()
        if facts_only or kind < 0.16:
            yield _fact(rng, own, unseen)
            made += facts_only
        elif kind < 0.24:
            yield _remark(rng, own, unseen)
        else:
            size = min(count - made, rng.choice((1, 1, 2, 2, 3)))
            yield (_english_points if own == "en" else _korean_points)(rng, size, unseen)
            made += size
    if not facts_only and rng.random() < 0.2:
        yield _overall(rng, _own(rng, language), unseen)


def review(rng: random.Random, language: str, unseen: Unseen = TRAINING) -> Review:
    """A review in one of ``LANGUAGES``."""
    while True:
        pieces: list[Piece] = []
        value, length = 0, 0
        for part in _parts(rng, language, unseen):
            size = sum(len(piece.text) for piece in part.pieces) + 1
            if length + size > LONGEST[language]:
                break
            joint = rng.choice(_JOINTS) if language == "mixed" and rng.random() < 0.25 else " "
            pieces += [*(plain(joint) if pieces else []), *part.pieces]
            value, length = value + part.value, length + size
        if pieces:
            sentiment = "positive" if value > 0 else "negative" if value < 0 else "neutral"
            return _marked(_disturbed(rng, pieces, language), sentiment)


def _marked(pieces: Sequence[Piece], sentiment: str) -> Review:
    text, spans, opinions = "", [], []
    for piece in pieces:
        end = len(text) + len(piece.text)
        if piece.mark is not None:
            spans.append(Span(len(text), end, *piece.mark))
        if piece.said is not None:
            opinions.append(Span(len(text), end, *piece.said))
        text += piece.text
    return Review(text, tuple(spans), sentiment, tuple(opinions))


_SLIPS = (
    ("어요", "어여"),
    ("너무", "넘"),
    ("었어", "엇어"),
    ("있", "잇"),
    ("좋아", "조아"),
    ("해요", "해여"),
    ("네요", "네여"),
    ("많이", "마니"),
    ("했", "햇"),
    ("않", "안"),
    ("괜찮", "갠찮"),
    ("맛있", "마싯"),
    ("습니다", "슴다"),
    ("진짜", "찐짜"),
)


# Spaces that are left out: never those between two Latin words.
_GAP = re.compile(r"(?<=[가-힣.!~]) | (?=[가-힣])")


def _disturbed(rng: random.Random, pieces: list[Piece], language: str) -> list[Piece]:
    """Spaces left out, slips of the fingers, capitals."""
    gaps = rng.choice((0.0, 0.0, 0.0, 0.0, 0.3, 1.0)) if language != "en" else 0.0
    slips = rng.choice((0.0, 0.0, 0.0, 0.5)) if language != "en" else 0.0
    slip = rng.choice((0.0, 0.0, 0.0, 0.0, 0.02))
    capitals = rng.choice((str.capitalize, str.capitalize, str, str, str.upper if rng.random() < 0.2 else str))
    done = []
    for index, piece in enumerate(pieces):
        text = piece.text
        if gaps:
            before, after = (pieces[i].text if 0 <= i < len(pieces) else "" for i in (index - 1, index + 1))
            start = len(before[-1:])
            around = f"{before[-1:]}{text}{after[:1]}"
            dropped = {match.start() for match in _GAP.finditer(around) if rng.random() < gaps}
            text = "".join(around[i] for i in range(start, start + len(text)) if i not in dropped)
        for right, wrong in _SLIPS if slips else ():
            if right in text and rng.random() < slips:
                text = text.replace(right, wrong)
        if slip:
            text = _mistyped(rng, text, slip)
        if index == 0 or capitals is str.upper:
            text = capitals(text)
        if text:
            done.append(replace(piece, text=text))
    return done


def _mistyped(rng: random.Random, text: str, share: float) -> str:
    """Some Latin letters doubled, dropped, or in the place of their neighbours."""
    letters = list(text)
    for index in range(1, len(letters) - 1):
        if letters[index].isascii() and letters[index].isalpha() and rng.random() < share:
            wrong = rng.choice((letters[index] * 2, "", letters[index + 1]))
            letters[index] = wrong
    return "".join(letters)


def vocabulary_texts(rng: random.Random, count: int) -> Iterator[str]:
    """Texts of the training's kind."""
    for index in range(count):
        yield review(rng, LANGUAGES[index % len(LANGUAGES)]).text

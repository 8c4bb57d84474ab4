"""Labels of words to spans of the caller's own string."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from serve_app.messages import Span
from serve_app.tasks.absa.labels import TokenLabel
from serve_app.tasks.absa.words import Units

_PLAIN = regex.compile(r"[\p{GCB=Other}\p{GCB=LV}\p{GCB=LVT}]*")
"""Characters between which there is always a boundary; by Unicode's rules (UAX 29) only others join."""
_CHARACTER = regex.compile(r"\X")


def continues(previous: TokenLabel | None, label: TokenLabel) -> bool:
    """Whether a word goes on with the span of the word before it. The rule of CoNLL's `conlleval`, for every sequence
    of labels, valid or not:

    I and E go on with a span of the same aspect and polarity that has not ended. Anything else begins a span: B and S
    always, and an I or E after O, after another aspect or polarity, or after E or S. A span that no E closes ends where
    the next word does not go on with it.

    Args:
        previous: label of the word before; None: there is none, or it is outside.
    """
    return (
        previous is not None
        and label.tag in "IE"
        and previous.tag in "BI"
        and (label.aspect, label.polarity) == (previous.aspect, previous.polarity)
    )


def find_spans(text: str, units: Units, labels: Sequence[TokenLabel]) -> list[Span]:
    """All spans of a text, by their places. Their scores are the means of their words' scores.

    A word of nothing but whitespace takes no part. A span's edges lie neither on whitespace nor inside of what a reader
    takes for one character (a letter with its marks, decomposed Hangul, an emoji sequence), and it never begins before
    the one in front of it ends: a byte-level tokenizer may cut through a character.
    """
    groups: list[tuple[list[int], TokenLabel]] = []
    previous: TokenLabel | None = None
    places, scores = units.places.tolist(), units.scores.tolist()
    for unit, column in enumerate(units.labels.tolist()):
        start, end = places[unit]
        if not text[start:end].strip():
            continue
        label = labels[column]
        if label.tag == "O":
            previous = None
            continue
        if continues(previous, label):
            groups[-1][0].append(unit)
        else:
            groups.append(([unit], label))
        previous = label
    characters = Characters(text)
    spans: list[Span] = []
    free = 0
    for members, label in groups:
        found = _visible(text, [(max(free, places[unit][0]), places[unit][1]) for unit in members])
        if found is None:
            continue
        start, end = found
        start, end = max(free, characters.start_of(start)), characters.end_of(end)
        free = end
        score = sum(scores[unit] for unit in members) / len(members)
        spans.append(Span(start, end, text[start:end], label.aspect, label.polarity, score))
    return spans


def _visible(text: str, places: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """From the first to the last code point of the places that is no whitespace; None: there is none."""
    for start, end in places:
        for first in range(start, end):
            if not text[first].isspace():
                last = next(
                    at
                    for start, end in reversed(places)
                    for at in range(end - 1, start - 1, -1)
                    if not text[at].isspace()
                )
                return first, last + 1
    return None


class Characters:
    """Where a text may be cut. Reads only around the places that are asked for, which should ascend."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last = (0, 0)

    def start_of(self, place: int) -> int:
        """`place`, or the start of the character that it lies in."""
        return self._around(place)[0]

    def end_of(self, place: int) -> int:
        """`place`, or the end of the character that it lies in."""
        return self._around(place)[1]

    def _around(self, place: int) -> tuple[int, int]:
        text = self._text
        if self._last[0] < place < self._last[1]:
            return self._last
        begin = place
        floor = self._last[1] if self._last[1] <= place else 0
        while floor < begin < len(text) and not _PLAIN.fullmatch(text, begin - 1, begin + 1):
            begin -= 1
        while begin < place:
            match = _CHARACTER.match(text, begin)
            assert match is not None  # any character matches
            if match.end() > place:
                self._last = match.span()
                return self._last
            begin = match.end()
        self._last = place, place
        return self._last

"""Where a text names an aspect, whatever its case and its composition."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator

import regex

_CHARACTER = regex.compile(r"\X")
_LETTER = regex.compile(r"[\p{L}\p{M}\p{N}_]")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
"""Scripts that put no spaces between words."""
_HANGUL = regex.compile(r"\p{Hangul}")


class _Folded:
    """A text whose characters, as a reader counts them, are folded one by one, and where each of them was."""

    def __init__(self, text: str, fold: Callable[[str], str]) -> None:
        parts = [text[start:end] for start, end in _characters(text)]
        folded = [fold(part) for part in parts]
        self.text = "".join(folded)
        self.places: dict[int, int] = {}
        """Code point of the original by code point of `text`, of the characters' edges alone."""
        here = there = 0
        for part, new in zip(parts, folded, strict=True):
            self.places[here] = there
            here, there = here + len(new), there + len(part)
        self.places[here] = there

    def find(self, term: str) -> Iterator[tuple[int, int]]:
        """Places of the original that hold `term`, folded, from edge to edge of characters."""
        start = self.text.find(term)
        while start >= 0:
            if start in self.places and start + len(term) in self.places:
                yield self.places[start], self.places[start + len(term)]
            start = self.text.find(term, start + 1)


class Terms:
    """Finds names in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._forms: list[_Folded] = []

    def find(self, term: str) -> tuple[int, int]:
        """The best place of a name, in code points; (0, 0): nowhere.

        Best is a word of its own; then the beginning of a word that goes on in Hangul, whose particles are written to
        the noun; then the inside of one. Of these the same case is better than another, and the first is the best. In a
        script without spaces every place is a word's edge.
        """
        best, found = 6, (0, 0)
        for worse, fold in enumerate((_composed, _caseless)):
            if worse == len(self._forms):
                self._forms.append(_Folded(self._text, fold))
            folded = self._forms[worse]
            wanted = "".join(fold(term[start:end]) for start, end in _characters(term))
            for start, end in folded.find(wanted) if wanted else ():
                if (rank := 2 * self._rank(start, end) + worse) < best:
                    best, found = rank, (start, end)
                if best == worse:
                    return found
        return found

    def _rank(self, start: int, end: int) -> int:
        text = self._text
        if not _is_edge(text, start):
            return 2
        if _is_edge(text, end):
            return 0
        return 1 if _HANGUL.match(text, end) else 2


def _characters(text: str) -> Iterator[tuple[int, int]]:
    if text.isascii() and "\r\n" not in text:
        return ((i, i + 1) for i in range(len(text)))
    return (match.span() for match in _CHARACTER.finditer(text))


def _composed(character: str) -> str:
    return unicodedata.normalize("NFC", character)


def _caseless(character: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", character).casefold())


def _is_edge(text: str, place: int) -> bool:
    """Whether a word may begin or end at a place of a text."""
    if not 0 < place < len(text):
        return True
    before, after = text[place - 1], text[place]
    letters = _LETTER.match(before) is not None and _LETTER.match(after) is not None
    return not letters or _UNSPACED.match(before) is not None or _UNSPACED.match(after) is not None

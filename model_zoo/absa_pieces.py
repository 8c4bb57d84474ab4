"""What a review is put together from: points to make, and pieces of text of which some are targets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SLOT = re.compile(r"\{([A-Z])\}")


@dataclass(frozen=True)
class Piece:
    """A part of a text.

    Attributes:
        text: not empty.
        mark: (aspect, polarity) of a target.
        said: (aspect or "any", polarity) of words that say something; a negation is part of the polarity.
    """

    text: str
    mark: tuple[str, str] | None = None
    said: tuple[str, str] | None = None


@dataclass(frozen=True)
class Point:
    """One thing to say.

    Attributes:
        aspect: what it is about.
        polarity: what is meant in the end, a negation included.
        terms: one target or two.
        opinion: what is said of them.
        negated: it is said that they are not so.
        second: another opinion of the same kind.
        blunt: Korean: one word that says the same.
        foreign: Korean: an English word that says the same.
        certain: the terms alone tell the aspect.
        kind: the aspect of which the opinion is said, "any" if of all of them.
    """

    aspect: str
    polarity: str
    terms: tuple[str, ...]
    opinion: str
    negated: bool = False
    second: str | None = None
    blunt: str | None = None
    foreign: str | None = None
    certain: bool = True
    kind: str = "any"


def plain(text: str, polarity: str | None = None) -> list[Piece]:
    """Text without targets; ``polarity``: what all of it says."""
    return [Piece(text, said=None if polarity is None else ("any", polarity))]


def fill(form: str, point: Point, values: Mapping[str, str]) -> list[Piece]:
    """The pieces of a form: {T} and {U} are the point's targets, other slots are in ``values``.

    What is said is in the slots {A}, {B}, {N} and {P}; a form without any of them says it itself.
    """
    mark = (point.aspect, point.polarity)
    said = (point.kind, point.polarity)
    wordless = not any(f"{{{slot}}}" in form for slot in "ABNP")
    pieces = []
    for index, part in enumerate(_SLOT.split(form)):
        if index % 2 == 0:
            pieces.append(Piece(part, said=said if wordless else None))
        elif part in "TU":
            pieces.append(Piece(point.terms["TU".index(part)], mark))
        else:
            pieces.append(Piece(values[part], said=said if part in "ABNP" else None))
    return [piece for piece in pieces if piece.text]

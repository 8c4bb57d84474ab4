"""What a caption may ask of a picture, the words it uses for that, and which pictures it is true of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model_zoo.pictures import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES, Group, Scene

NOUNS: dict[str, tuple[str, ...]] = {
    "circle": ("circle", "circle", "disc"),
    "square": ("square", "square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "cross": ("cross", "cross", "plus sign"),
    "ring": ("ring", "ring", "hoop"),
    "heart": ("heart",),
    "diamond": ("diamond", "diamond", "rhombus"),
}
PLURALS = {"cross": "crosses", "box": "boxes", "rhombus": "rhombuses"}  # the others add an s
ADJECTIVES: dict[str, tuple[str, ...]] = {
    "red": ("red", "red", "crimson"),
    "orange": ("orange",),
    "yellow": ("yellow",),
    "green": ("green",),
    "blue": ("blue",),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink",),
    "white": ("white",),
    "black": ("black",),
    "small": ("small", "small", "little", "tiny"),
    "large": ("large", "big", "large", "huge"),
    "dark": ("dark",),
    "light": ("light", "bright"),
}
NUMBERS = {1: ("one", "a single", "1"), 2: ("two", "2", "a pair of"), 3: ("three", "3"), 4: ("four", "4")}
_SIDES = {"top": ("top", "upper"), "bottom": ("bottom", "lower"), "left": ("left",), "right": ("right",)}
WHOLE = ("", "", "", "a picture of", "an image of", "picture of", "a photo of", "photo with", "image with", "show me")
JOINTS = ("and", "and", "with", "next to", "beside", "plus", ",")
# Words that ask for nothing, so that one of them in a search does no harm.
IDLE = ("nice", "please", "my", "the", "simple", "drawing", "some", "cute", "for", "here", "beautiful", "shape", "logo")
OTHER = ("shape", "shapes", "object", "objects", "thing", "something")
GRAMMAR = "a an the of in on at and with that is are to side corner half background centre center middle up down"


@dataclass(frozen=True)
class Wish:
    """What one group of things must be; None: anything. A place is asked of single things only."""

    shape: str | None = None
    colour: str | None = None
    size: str | None = None
    place: str | None = None
    count: int | None = None


@dataclass(frozen=True)
class Caption:
    """A text, and what it says: one or two wishes about different groups, and the background."""

    text: str
    wishes: tuple[Wish, ...]
    background: str | None = None


def vocabulary() -> list[str]:
    """All words that captions are made of, sorted."""
    phrases = [GRAMMAR, *IDLE, *OTHER, *WHOLE, *JOINTS, *PLURALS.values()]
    for table in (NOUNS, ADJECTIVES, _SIDES):
        phrases += [form for forms in table.values() for form in forms]
    phrases += [form + "s" for forms in NOUNS.values() for form in forms if form not in PLURALS]
    phrases += [form for forms in NUMBERS.values() for form in forms]
    return sorted({word for phrase in phrases for word in phrase.split() if word.isalpha()})


def place_phrase(rng: random.Random, place: str) -> str:
    """A place in words: "on the left", "in the upper left corner"."""
    if place == "centre":
        return rng.choice(("in the centre", "in the center", "in the middle"))
    words = " ".join(rng.choice(_SIDES[word]) for word in place.split())
    if " " in place:
        return rng.choice((f"in the {words} corner", f"at the {words}", f"in the {words}"))
    if words in ("upper", "lower"):
        return f"in the {words} half"
    return rng.choice((f"on the {words}", f"at the {words}", f"on the {words} side"))


def wish_phrase(rng: random.Random, wish: Wish, *, bare: bool = False) -> str:
    """A wish in words. `bare` leaves articles out, as searches do."""
    many = (wish.count or 1) > 1
    noun = rng.choice(NOUNS[wish.shape]) if wish.shape else rng.choice(("shape", "object"))
    if many:
        noun = PLURALS.get(noun, noun + "s")
    size = rng.choice(ADJECTIVES[wish.size]) if wish.size else ""
    colour = rng.choice(ADJECTIVES[wish.colour]) if wish.colour else ""
    place = place_phrase(rng, wish.place) if wish.place else ""
    number = rng.choice(NUMBERS[wish.count]) if wish.count else ""
    order = rng.random()
    if colour and order < 0.06:
        core = f"{size} {noun} in {colour}"
    elif colour and order < 0.12:
        core = f"{size} {noun} that {'are' if many else 'is'} {colour}"
    elif size and colour and order < 0.2:
        core = f"{colour} {size} {noun}"
    else:
        core = f"{size} {colour} {noun}"
    core = " ".join(core.split())
    if not number and not bare:
        number = "an" if core[0] in "aeiou" else "a"
    core = f"{number} {core}".strip()
    if place and rng.random() < 0.12:
        return f"{place} {core}"
    return f"{core} {place}".strip()


def write(rng: random.Random, wishes: Sequence[Wish], background: str | None = None) -> Caption:
    """A caption that says just this, in words drawn by `rng`."""
    bare = rng.random() < 0.4
    parts = [wish_phrase(rng, wish, bare=bare) for wish in rng.sample(wishes, len(wishes))]
    text = f" {rng.choice(JOINTS)} ".join(parts).replace(" ,", ",")
    if background:
        tone = rng.choice(ADJECTIVES[background])
        text += rng.choice((f" on a {tone} background", f" on {tone} background", f", {tone} background"))
    words = f"{rng.choice(WHOLE)} {text}".split()
    if rng.random() < 0.1:
        words.insert(rng.choice((0, len(words))), rng.choice(IDLE))
    return Caption(" ".join(words), tuple(wishes), background)


def wish_for(group: Group, attributes: Sequence[str]) -> Wish:
    """The wish that names these attributes of a group."""
    return Wish(**{name: getattr(group, name) for name in attributes})


def describe(rng: random.Random, scene: Scene) -> Caption:
    """A true caption of a scene, naming shape and colour mostly and the rest at times."""
    groups = list(scene.groups)
    if len(groups) == 2 and rng.random() < 0.2:
        groups = [rng.choice(groups)]
    wishes = []
    for group in groups:
        attributes = [name for name in ("shape", "colour") if rng.random() < 0.93] or ["shape"]
        attributes += [name for name in ("size",) if rng.random() < 0.3]
        if group.count > 1:
            attributes += ["count"] * (rng.random() < 0.85)
        else:
            attributes += ["count"] * (rng.random() < 0.15)
            attributes += ["place"] * (rng.random() < (0.45 if len(groups) == 1 else 0.15))
        wishes.append(wish_for(group, attributes))
    return write(rng, wishes, scene.background if rng.random() < 0.12 else None)


_ANY = -1
_FIELDS = (("shape", SHAPES), ("colour", COLOURS), ("size", SIZES))


def _codes(thing: Group | Wish) -> list[int]:
    values = [(getattr(thing, name), names) for name, names in _FIELDS]
    place = PLACES.index(thing.place) if thing.place else _ANY
    return [*(names.index(value) if value else _ANY for value, names in values), thing.count or _ANY, place]


def match_matrix(captions: Sequence[Caption], scenes: Sequence[Scene]) -> npt.NDArray[np.bool_]:
    """Which captions are true of which scenes, [captions, scenes].

    A caption is true when every wish is met by a group of its own. More things in the picture do not make it untrue.
    """
    nothing = [-2] * 5
    wished = np.array([[_codes(w) for w in c.wishes] + [[_ANY] * 5] * (2 - len(c.wishes)) for c in captions])
    shown = np.array([[_codes(g) for g in s.groups] + [nothing] * (2 - len(s.groups)) for s in scenes])
    left, right = (
        wished[:, None, :, None],
        shown[None, :, None, :],
    )  # [captions, 1, wishes, 1, 5], [1, scenes, 1, groups, 5]
    met = ((left == _ANY) | (left == right)).all(-1)
    two = np.array([len(c.wishes) == 2 for c in captions])[:, None]
    pairs = (met[:, :, 0, 0] & met[:, :, 1, 1]) | (met[:, :, 0, 1] & met[:, :, 1, 0])
    fits = np.where(two, pairs & (shown[None, :, 1, 0] != -2), met[:, :, 0].any(-1) & True)
    tones = [c.background for c in captions]
    tone = np.array([_ANY if t is None else BACKGROUNDS.index(t) for t in tones])[:, None]
    seen = np.array([BACKGROUNDS.index(s.background) for s in scenes])[None]
    matrix: npt.NDArray[np.bool_] = fits & ((tone == _ANY) | (tone == seen))
    return matrix

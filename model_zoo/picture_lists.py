"""Test lists: one caption, one picture of which it is true, and pictures that differ from it in one attribute."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from model_zoo.captions import Caption, match_matrix, wish_for, write
from model_zoo.pictures import COLOURS, MOST, PLACES, SHAPES, SIZES, Group, Scene, draw, random_scene, surroundings

T = TypeVar("T")
LIST_SIZE = 8
KINDS = ("colour", "shape", "size", "place", "count", "swapped colours", "mixed")
_NAMED = {kind: ("shape", "colour", kind) for kind in ("size", "place", "count")}


@dataclass(frozen=True)
class PictureList:
    """Pictures and captions in pairs; the first caption is true of the first picture and of no other.

    The captions name the same attributes, so that the first picture, too, has no other true caption.
    """

    kind: str
    scenes: tuple[Scene, ...]
    captions: tuple[Caption, ...]


def pixels_of(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """The picture as the models see it, [size, size, 3]: shorter side to `size` (bicubic), middle cut out."""
    width, height = image.size
    short = min(width, height)
    resized = image.convert("RGB").resize((width * size // short, height * size // short), Image.Resampling.BICUBIC)
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    return np.array(resized.crop((left, top, left + size, top + size)), dtype=np.uint8)  # a copy, so writable


def _other(rng: random.Random, values: Sequence[T], value: T) -> T:
    return rng.choice([v for v in values if v != value])


def changed(rng: random.Random, groups: tuple[Group, ...], attribute: str) -> tuple[Group, ...]:
    """Groups that differ in one respect."""
    if attribute == "swapped colours":
        first, second = groups
        return (replace(first, colour=second.colour), replace(second, colour=first.colour))
    which = rng.randrange(len(groups))
    group, rest = groups[which], groups[:which] + groups[which + 1 :]
    taken = {place for other in rest for place in other.places}
    if attribute == "colour":
        group = replace(group, colour=_other(rng, COLOURS, group.colour))
    elif attribute == "shape":
        group = replace(group, shape=_other(rng, SHAPES, group.shape))
    elif attribute == "size":
        group = replace(group, size=_other(rng, SIZES, group.size))
    elif attribute == "place":
        free = [place for place in PLACES if place not in taken and place not in group.places]
        group = replace(group, places=tuple(rng.sample(free, group.count)))
    else:
        free = [place for place in PLACES if place not in taken]
        group = replace(group, places=tuple(rng.sample(free, _other(rng, range(1, MOST + 1), group.count))))
    return (*groups[:which], group, *groups[which + 1 :])


def drawable(groups: tuple[Group, ...]) -> bool:
    """Whether one background suits all groups and they can be told apart."""
    colours = [group.colour for group in groups]
    kinds = [(group.colour, group.shape) for group in groups]
    return {*colours} != {"white", "black"} and len({*kinds}) == len(kinds)


def _target(rng: random.Random, kind: str, held_out: bool) -> Scene:
    """A scene that a list of this kind can be made of."""
    while True:
        scene = random_scene(rng, held_out=held_out)
        groups = scene.groups
        if kind == "mixed" or (kind == "swapped colours" and len(groups) == 2):
            return scene
        if kind != "swapped colours" and len(groups) == 1 and (kind == "count" or groups[0].count == 1):
            return scene


def _companion(rng: random.Random, kind: str, groups: tuple[Group, ...], number: int) -> Scene | None:
    """The next other picture of a list, or None when the draw was no good."""
    if kind == "mixed":
        return random_scene(rng)
    change = kind if kind != "swapped colours" or number <= 3 else rng.choice(("colour", "shape"))
    groups = changed(rng, groups, change)
    return surroundings(rng, groups) if drawable(groups) else None


def picture_list(rng: random.Random, kind: str, held_out: bool) -> PictureList:
    """A list for one attribute: its other pictures differ from the first in this attribute alone.

    `swapped colours`: two things; in three pictures their colours are swapped, in four one of them is another.
    `mixed`: the other pictures show anything.
    """
    target = _target(rng, kind, held_out)

    def caption(scene: Scene) -> Caption:
        return write(rng, [wish_for(group, _NAMED.get(kind, ("shape", "colour"))) for group in scene.groups])

    scenes, captions = [target], [caption(target)]
    while len(scenes) < LIST_SIZE:
        scene = _companion(rng, kind, target.groups, len(scenes))
        repeated = kind in ("colour", "shape") and scene and scene.groups in [other.groups for other in scenes]
        if scene is None or repeated:
            continue
        own = caption(scene)
        if not match_matrix(captions[:1], [scene]).any() and not match_matrix([own], [target]).any():
            scenes.append(scene)
            captions.append(own)
    return PictureList(kind, tuple(scenes), tuple(captions))


def picture_lists(seed: int, count: int, held_out: bool) -> list[PictureList]:
    """`count` lists of each kind; `held_out`: their first pictures show what training never does."""
    rng = random.Random(seed)
    return [picture_list(rng, kind, held_out) for kind in KINDS for _ in range(count)]


Scorer = Callable[[Sequence[str], npt.NDArray[np.uint8]], npt.NDArray[np.float32]]
"""Scores [captions, pictures] of captions and uint8 pictures [pictures, size, size, 3]."""


def score_lists(lists: Sequence[PictureList], size: int, score: Scorer) -> list[npt.NDArray[np.float32]]:
    """Scores [captions, pictures] of each list, its pictures drawn and made `size` pixels wide and high."""
    return [
        score(
            [caption.text for caption in item.captions],
            np.stack([pixels_of(draw(scene), size) for scene in item.scenes]),
        )
        for item in lists
    ]


def top_one(lists: Sequence[PictureList], scores: Sequence[npt.NDArray[np.float32]]) -> dict[str, dict[str, float]]:
    """Share of lists, by kind, whose first picture comes first for the first caption, and the other way round."""
    report = {}
    for kind in KINDS:
        own = [matrix for item, matrix in zip(lists, scores, strict=True) if item.kind == kind]
        report[kind] = {
            "text_to_picture": round(sum(int(matrix[0].argmax() == 0) for matrix in own) / len(own), 4),
            "picture_to_text": round(sum(int(matrix[:, 0].argmax() == 0) for matrix in own) / len(own), 4),
        }
    return report

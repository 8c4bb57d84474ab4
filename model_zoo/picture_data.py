"""The training pictures: drawn once, with fresh captions at every use."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model_zoo.captions import Caption, describe
from model_zoo.picture_lists import changed, drawable, pixels_of
from model_zoo.pictures import COLOURS, HELD_OUT, SHAPES, Group, Scene, draw, layout, random_scene, surroundings

FAMILY = 4  # a scene and three others that differ from it in one respect: the negatives that teach most


def patch_labels(scene: Scene, patches: int) -> npt.NDArray[np.int64]:
    """Which shape and colour each patch shows, [2, patches * patches]; 0 is the background."""
    labels = np.zeros((2, patches, patches), dtype=np.int64)
    centres = (np.arange(patches) + 0.5) / patches
    for thing in layout(scene):
        near = np.hypot(centres[:, None] - thing.y, centres[None] - thing.x) < thing.radius
        near[int(thing.y * patches), int(thing.x * patches)] = True
        labels[0, near], labels[1, near] = SHAPES.index(thing.shape) + 1, COLOURS.index(thing.colour) + 1
    return labels.reshape(2, -1)


def familiar(groups: tuple[Group, ...]) -> bool:
    """Whether training may show these groups."""
    return drawable(groups) and not any((group.colour, group.shape) in HELD_OUT for group in groups)


def training_family(rng: random.Random) -> list[Scene]:
    """A random scene and others that differ from it in one respect each."""
    family = [random_scene(rng)]
    groups = family[0].groups
    if len(groups) == 2:
        choices = ["swapped colours", "swapped colours", "colour", "shape", "place", "size"]
    elif groups[0].count == 1:
        choices = ["colour", "shape", "place", "size", "count", "count"]
    else:
        choices = ["colour", "shape", "count", "count"]
    while len(family) < FAMILY:
        variant = changed(rng, groups, rng.choice(choices))
        if familiar(variant):
            family.append(surroundings(rng, variant))
        else:
            choices.append(rng.choice(("colour", "shape")))
    return family


@dataclass(frozen=True)
class Pool:
    """Drawn training pictures.

    Attributes:
        scenes: families one behind the other.
        pictures: uint8 [scenes, size, size, 3].
        labels: int64 [scenes, 2, patches], shape and colour of each patch.
    """

    scenes: Sequence[Scene]
    pictures: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


def training_pool(seed: int, families: int, size: int, patches: int) -> Pool:
    """The training pictures, drawn once; captions are drawn anew whenever a picture is used."""
    rng = random.Random(seed)
    scenes = [scene for _ in range(families) for scene in training_family(rng)]
    pictures = np.stack([pixels_of(draw(scene), size) for scene in scenes])
    labels = np.stack([patch_labels(scene, patches) for scene in scenes])
    return Pool(scenes, pictures, labels)


def batch_of(rng: random.Random, pool: Pool, families: int) -> tuple[list[int], list[Caption]]:
    """Indexes of whole families, and a fresh caption of each picture."""
    chosen = rng.sample(range(len(pool.scenes) // FAMILY), families)
    rows = [family * FAMILY + member for family in chosen for member in range(FAMILY)]
    return rows, [describe(rng, pool.scenes[row]) for row in rows]

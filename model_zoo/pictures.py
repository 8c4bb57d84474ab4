"""Seeded pictures of coloured shapes: what the two image models are trained and tested on.

A `Scene` says what a picture shows; `draw` draws it, always the same way. All randomness of a drawing (exact shades,
positions, angles) comes from the scene's own seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring", "heart", "diamond")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black")
SIZES = ("small", "large")
PLACES = (
    "top left", "top", "top right",
    "left", "centre", "right",
    "bottom left", "bottom", "bottom right",
)  # fmt: skip
BACKGROUNDS = ("dark", "light")
TEXTURES = ("plain", "gradient", "stripes", "grain", "dots")
MOST = 4  # things of one kind in a picture

_RGB = {
    "red": (220, 30, 35),
    "orange": (250, 135, 15),
    "yellow": (248, 222, 30),
    "green": (30, 160, 60),
    "blue": (35, 80, 225),
    "purple": (125, 40, 165),
    "pink": (250, 140, 190),
    "white": (250, 250, 250),
    "black": (12, 12, 12),
}
_HIDDEN_ON = {"white": "light", "black": "dark"}  # colours that a background would swallow
# Combinations that no training picture shows: each shape once, each colour at most once.
HELD_OUT = frozenset(
    [
        ("red", "circle"), ("blue", "square"), ("green", "triangle"), ("yellow", "ring"),
        ("purple", "star"), ("orange", "cross"), ("white", "heart"), ("pink", "diamond"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Things of one kind: shape, colour and size are the same, and each has a place of its own."""

    shape: str
    colour: str
    size: str
    places: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many things there are."""
        return len(self.places)

    @property
    def place(self) -> str | None:
        """Where the thing is, if it is a single one."""
        return self.places[0] if len(self.places) == 1 else None


@dataclass(frozen=True)
class Scene:
    """All that a picture shows; the same scene is always drawn the same.

    Attributes:
        groups: one or two.
        background: dark or light.
        texture: of the background.
        clutter: number of thin grey lines and dots that mean nothing.
        side: pixels of the square that holds the things.
        margin: pixels beside the square, left and right; a centre crop cuts them off.
        jpeg: quality of a JPEG round trip; None: none.
        seed: of shades, exact positions, angles and clutter.
    """

    groups: tuple[Group, ...]
    background: str = "light"
    texture: str = "plain"
    clutter: int = 0
    side: int = 128
    margin: int = 0
    jpeg: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Thing:
    """One drawn thing: its centre and radius as shares of the square's side."""

    shape: str
    colour: str
    size: str
    x: float
    y: float
    radius: float
    angle: float


def layout(scene: Scene) -> list[Thing]:
    """Where exactly the things of a scene are."""
    rng = random.Random(f"layout {scene.seed}")
    ranges = {"small": (0.08, 0.1), "large": (0.16, 0.2)}
    if sum(group.count for group in scene.groups) > 1:
        ranges = {"small": (0.07, 0.085), "large": (0.12, 0.135)}
    things = []
    for group in scene.groups:
        radius = rng.uniform(*ranges[group.size])
        for place in group.places:
            row, column = divmod(PLACES.index(place), 3)
            x, y = (0.23 + 0.27 * index + rng.uniform(-0.02, 0.02) for index in (column, row))
            angle = rng.uniform(-12, 12)
            things.append(Thing(group.shape, group.colour, group.size, x, y, radius, angle))
    return things


def _outline(shape: str) -> list[tuple[float, float]]:
    """Corners on the unit circle's scale, y downwards."""
    if shape == "square":
        return [(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)]
    if shape == "triangle":
        return [(0.0, -1.0), (0.95, 0.75), (-0.95, 0.75)]
    if shape == "diamond":
        return [(0.0, -1.1), (0.8, 0.0), (0.0, 1.1), (-0.8, 0.0)]
    if shape == "cross":
        thin = 0.3
        arm = [(-thin, -1.0), (thin, -1.0), (thin, -thin)]
        return [turned for quarter in range(4) for turned in _turn(arm, 90.0 * quarter)]
    if shape == "star":
        tips = [(1.1 if i % 2 == 0 else 0.45, i * math.pi / 5) for i in range(10)]
        return [(length * math.sin(turn), -length * math.cos(turn)) for length, turn in tips]
    if shape == "heart":
        turns = [2 * math.pi * i / 40 for i in range(40)]
        return [
            (math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16)
            for t in turns
        ]
    turns = [2 * math.pi * i / 48 for i in range(48)]
    return [(math.cos(t), math.sin(t)) for t in turns]


def _turn(points: Iterable[tuple[float, float]], degrees: float) -> list[tuple[float, float]]:
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    return [(x * cosine - y * sine, x * sine + y * cosine) for x, y in points]


def _backdrop(scene: Scene, rng: random.Random, width: int, height: int) -> Image.Image:
    """The background alone: shades that differ a little from each other, dark or light."""
    low, high = (25, 80) if scene.background == "dark" else (190, 245)

    def shade() -> tuple[int, ...]:
        grey = rng.uniform(low, high)
        return tuple(round(min(255.0, max(0.0, grey + rng.uniform(-10, 10)))) for _ in range(3))

    first, second = (Image.new("RGB", (width, height), shade()) for _ in range(2))
    xs = np.arange(width, dtype=np.float32)[None] / height
    ys = np.arange(height, dtype=np.float32)[:, None] / height
    angle, pitch = rng.uniform(0, 2 * math.pi), rng.uniform(25, 60)
    along = xs * math.cos(angle) + ys * math.sin(angle)
    if scene.texture == "gradient":
        mix = (along - along.min()) / np.ptp(along)
    elif scene.texture == "stripes":
        mix = np.sin(along * pitch) > 0
    elif scene.texture == "dots":
        mix = np.sin(xs * pitch) * np.sin(ys * pitch) > 0.5
    elif scene.texture == "grain":
        mix = np.random.default_rng(rng.getrandbits(32)).random((height, width), dtype=np.float32)
    else:
        return first
    return Image.composite(second, first, Image.fromarray((mix * 255).astype(np.uint8), "L"))


def _scatter(canvas: ImageDraw.ImageDraw, scene: Scene, rng: random.Random, width: int, height: int) -> None:
    """Thin grey lines and dots that mean nothing."""
    tone = 110 if scene.background == "dark" else 150
    for _ in range(scene.clutter):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        if rng.random() < 0.5:
            end = (x + rng.uniform(-0.3, 0.3) * scene.side, y + rng.uniform(-0.3, 0.3) * scene.side)
            canvas.line([(x, y), end], fill=(tone,) * 3, width=max(1, scene.side // 90))
        else:
            radius = 0.012 * scene.side
            canvas.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(tone,) * 3)


def draw(scene: Scene) -> Image.Image:
    """The picture of a scene, RGB, `side + 2 * margin` wide and `side` high."""
    rng = random.Random(f"draw {scene.seed}")
    width, height = scene.side + 2 * scene.margin, scene.side
    image = _backdrop(scene, rng, width, height)
    canvas = ImageDraw.Draw(image)
    _scatter(canvas, scene, rng, width, height)
    shades = {g.colour: tuple(min(255, max(0, c + rng.randint(-14, 14))) for c in _RGB[g.colour]) for g in scene.groups}
    for thing in layout(scene):
        x, y, radius = scene.margin + thing.x * scene.side, thing.y * scene.side, thing.radius * scene.side

        def at(
            points: Iterable[tuple[float, float]], size: float, x: float = x, y: float = y
        ) -> list[tuple[float, float]]:
            return [(x + size * px, y + size * py) for px, py in points]

        corners = _turn(_outline(thing.shape), thing.angle)
        if thing.shape == "ring":
            box = [x - radius, y - radius, x + radius, y + radius]
            canvas.ellipse(box, outline=shades[thing.colour], width=max(2, round(0.36 * radius)))
        else:
            canvas.polygon(at(corners, radius), fill=shades[thing.colour])
    if scene.jpeg is not None:
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=scene.jpeg)
        image = Image.open(buffer).convert("RGB")
    return image


def suits(colour: str, background: str) -> bool:
    """Whether a colour can be seen on a background."""
    return _HIDDEN_ON.get(colour) != background


def surroundings(rng: random.Random, groups: tuple[Group, ...]) -> Scene:
    """A scene of these groups, all the rest drawn by `rng`."""
    tones = [tone for tone in BACKGROUNDS if all(suits(group.colour, tone) for group in groups)]
    return Scene(
        groups=groups,
        background=rng.choice(tones),
        texture=rng.choice(TEXTURES),
        clutter=rng.choice((0, 0, 1, 3)),
        side=rng.choice((64, 80, 96, 120, 150, 200)),
        margin=rng.choice((0, 0, 8, 25)),
        jpeg=rng.choice((None, None, 60, 85)),
        seed=rng.getrandbits(31),
    )


def random_pair(rng: random.Random, held_out: bool) -> tuple[str, str]:
    """A (colour, shape) combination; either one of those that training never shows, or one of all the others."""
    if held_out:
        return rng.choice(sorted(HELD_OUT))
    while True:
        pair = rng.choice(COLOURS), rng.choice(SHAPES)
        if pair not in HELD_OUT:
            return pair


def random_scene(rng: random.Random, *, held_out: bool = False) -> Scene:
    """A scene of one thing, of two things, or of several things of one kind.

    Args:
        rng: draws it.
        held_out: every (colour, shape) combination in it is one that training never shows.
    """
    colour, shape = random_pair(rng, held_out)
    size, kind = rng.choice(SIZES), rng.random()
    if kind < 0.45:
        return surroundings(rng, (Group(shape, colour, size, (rng.choice(PLACES),)),))
    if kind < 0.65:
        count = rng.randint(2, MOST)
        return surroundings(rng, (Group(shape, colour, size, tuple(rng.sample(PLACES, count))),))
    while True:
        other_colour, other_shape = random_pair(rng, held_out)
        if other_colour != colour and other_shape != shape and {colour, other_colour} != {"white", "black"}:
            break
    places = rng.sample(PLACES, 2)
    first = Group(shape, colour, size, (places[0],))
    second = Group(other_shape, other_colour, rng.choice(SIZES), (places[1],))
    return surroundings(rng, (first, second))


def example_scenes() -> dict[str, Scene]:
    """A few pictures by what they show, for documentation, tests and benchmarks."""
    shown = {
        "a red circle": (Group("circle", "red", "large", ("centre",)),),
        "a red square": (Group("square", "red", "large", ("centre",)),),
        "a blue circle": (Group("circle", "blue", "large", ("centre",)),),
        "a blue square on the left": (Group("square", "blue", "large", ("left",)),),
        "a small pink star in the top right corner": (Group("star", "pink", "small", ("top right",)),),
        "three green triangles": (Group("triangle", "green", "large", ("top left", "centre", "bottom right")),),
        "two purple hearts": (Group("heart", "purple", "large", ("left", "right")),),
        "a purple ring and an orange star": (
            Group("ring", "purple", "large", ("left",)),
            Group("star", "orange", "large", ("right",)),
        ),
    }
    return {
        text: Scene(groups, texture="gradient", side=160, margin=20, seed=seed)
        for seed, (text, groups) in enumerate(shown.items())
    }

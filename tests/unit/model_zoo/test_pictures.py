"""Pictures and captions of the model zoo: the same scene is the same picture, and captions are true."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor

from model_zoo.captions import Caption, Wish, describe, match_matrix, vocabulary, write
from model_zoo.image_models import IMAGE_SIZE, MAX_TOKENS, PATCHES, UNK, build_tokenizer, pixel_values, token_ids
from model_zoo.picture_data import FAMILY, patch_labels, training_family
from model_zoo.picture_lists import KINDS, LIST_SIZE, picture_lists, pixels_of
from model_zoo.pictures import COLOURS, HELD_OUT, PLACES, SHAPES, Group, Scene, draw, example_scenes, random_scene
from model_zoo.train_clip_mini import FOLDER

RED_CIRCLE = Scene((Group("circle", "red", "large", ("left",)),), background="dark", seed=3)


def _scenes(seed: int, count: int) -> list[Scene]:
    rng = random.Random(seed)
    return [random_scene(rng) for _ in range(count)]


def test_the_same_scene_is_the_same_picture() -> None:
    scenes = _scenes(1, 60)
    assert scenes == _scenes(1, 60)
    for scene in scenes:
        first, second = draw(scene), draw(scene)
        assert first.mode == "RGB"
        assert first.size == (scene.side + 2 * scene.margin, scene.side)
        assert first.tobytes() == second.tobytes()
    assert draw(RED_CIRCLE).tobytes() != draw(replace(RED_CIRCLE, seed=4)).tobytes()


def test_things_are_where_the_scene_says() -> None:
    for place in PLACES:
        scene = replace(RED_CIRCLE, groups=(Group("square", "red", "large", (place,)),))
        pixels = pixels_of(draw(scene), IMAGE_SIZE).astype(int)
        rows, columns = np.nonzero(pixels[..., 0] - pixels[..., 1] > 120)
        nearest = [round((index.mean() / IMAGE_SIZE - 0.23) / 0.27) for index in (rows, columns)]
        assert PLACES[3 * nearest[0] + nearest[1]] == place
        shapes, colours = patch_labels(scene, PATCHES)
        assert set(shapes) == {0, SHAPES.index("square") + 1}
        assert set(colours) == {0, COLOURS.index("red") + 1}


def test_pixels_are_those_of_the_public_image_processor() -> None:
    processor = AutoImageProcessor.from_pretrained(FOLDER, backend="pil")
    for picture in (*map(draw, _scenes(2, 20)), draw(RED_CIRCLE).resize((97, 211))):
        want = processor(picture, return_tensors="pt").pixel_values
        got = pixel_values(torch.from_numpy(pixels_of(picture, IMAGE_SIZE))[None])
        assert torch.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_pictures_of_other_modes_become_rgb(mode: str) -> None:
    assert pixels_of(Image.new(mode, (70, 90)), IMAGE_SIZE).shape == (IMAGE_SIZE, IMAGE_SIZE, 3)


def test_captions_are_true_of_their_scenes() -> None:
    rng, scenes = random.Random(5), _scenes(4, 300)
    captions = [describe(rng, scene) for scene in scenes]
    matches = match_matrix(captions, scenes)
    assert matches.diagonal().all()
    assert matches.mean() < 0.2
    ids, lengths = token_ids(build_tokenizer(), [caption.text for caption in captions])
    assert lengths.max() <= MAX_TOKENS
    assert not (ids == UNK).any()
    words = {word.strip(",") for caption in captions for word in caption.text.split()}
    assert words - {"", "1", "2", "3", "4"} <= set(vocabulary())


@pytest.mark.parametrize(
    ("wishes", "background", "true"),
    [
        ([Wish("circle", "red")], None, True),
        ([Wish("circle", "red", place="left")], "dark", True),
        ([Wish("circle", "red", count=1)], None, True),
        ([Wish(colour="red")], None, True),
        ([Wish("circle", "red")], "light", False),
        ([Wish("circle", "blue")], None, False),
        ([Wish("circle", "red", place="right")], None, False),
        ([Wish("circle", "red", count=2)], None, False),
        ([Wish("circle", "red"), Wish("square", "blue")], None, False),
        ([Wish("circle", "red"), Wish("circle", "red")], None, False),
    ],
)
def test_a_caption_is_true_when_each_wish_is_met(wishes: list[Wish], background: str | None, true: bool) -> None:
    assert match_matrix([Caption("", tuple(wishes), background)], [RED_CIRCLE]).item() is true


def test_swapped_colours_make_a_caption_untrue() -> None:
    groups = (Group("circle", "red", "large", ("left",)), Group("square", "blue", "small", ("right",)))
    caption = write(random.Random(1), [Wish("circle", "red"), Wish("square", "blue")])
    swapped = (replace(groups[0], colour="blue"), replace(groups[1], colour="red"))
    assert match_matrix([caption], [Scene(groups), Scene(swapped), Scene(groups[::-1])]).tolist() == [
        [True, False, True]
    ]


def test_training_never_shows_what_is_held_out() -> None:
    rng = random.Random(6)
    families = [training_family(rng) for _ in range(300)]
    assert {len(family) for family in families} == {FAMILY}
    shown = {(group.colour, group.shape) for family in families for scene in family for group in scene.groups}
    assert not shown & HELD_OUT
    assert len(shown) == len(COLOURS) * len(SHAPES) - len(HELD_OUT)


def test_a_list_has_one_right_picture_and_one_right_caption() -> None:
    lists = picture_lists(7, 6, held_out=True)
    assert [item.kind for item in lists] == [kind for kind in KINDS for _ in range(6)]
    assert lists == picture_lists(7, 6, held_out=True)
    for item in lists:
        matches = match_matrix(item.captions, item.scenes)
        assert matches.shape == (LIST_SIZE, LIST_SIZE)
        assert matches[0].tolist() == matches[:, 0].tolist() == [True] + [False] * (LIST_SIZE - 1)
        assert {(group.colour, group.shape) for group in item.scenes[0].groups} <= HELD_OUT


def test_examples_can_be_told_apart_by_their_texts() -> None:
    scenes = example_scenes()
    assert len({draw(scene).tobytes() for scene in scenes.values()}) == len(scenes)
    assert "a red circle" in scenes

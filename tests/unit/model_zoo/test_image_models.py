"""The committed image models: public format, small, and right about pictures that nobody has drawn before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoTokenizer, CLIPModel

from model_zoo.check import MAX_IMAGE_MODEL_BYTES, example_relevance, example_similarities
from model_zoo.image_models import BOS, EOS, IMAGE_SIZE, MAX_TOKENS, PAD, new_fusion_ranker
from model_zoo.picture_lists import PictureList, Scorer, picture_lists, score_lists
from model_zoo.train_clip_mini import FOLDER as CLIP
from model_zoo.train_clip_mini import scorer as clip_scorer
from model_zoo.train_fusion_mini import FOLDER as FUSION
from model_zoo.train_fusion_mini import all_pairs
from model_zoo.train_fusion_mini import scorer as fusion_scorer
from serve_app.tasks.image_rank.reference import load_fusion_ranker
from serve_app.vocabulary import DType

SEED = 90210  # not one of the training's or of the model cards' lists
LISTS = 25  # of each kind
ODD = ["", " ", "a red circle", "два 红色 😀 \u0000 \ufeff", "RED Círcle", "star " * 100, "<|pad|>"]


def _keys(folder: Path) -> dict[str, str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: str(file.get_tensor(name).dtype) for name in file.keys()}  # noqa: SIM118


def _right(scorer: Scorer, kinds: Sequence[str]) -> int:
    """Held-out lists of these kinds whose first picture comes first for the first caption."""
    lists: list[PictureList] = [item for item in picture_lists(SEED, LISTS, held_out=True) if item.kind in kinds]
    return sum(int(matrix[0].argmax() == 0) for matrix in score_lists(lists, IMAGE_SIZE, scorer))


@pytest.mark.parametrize("folder", [CLIP, FUSION], ids=lambda folder: folder.name)
def test_files_are_small_and_float32(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MAX_IMAGE_MODEL_BYTES
    assert set(_keys(folder).values()) == {"torch.float32"}
    preprocessor = json.loads((folder / "preprocessor_config.json").read_text())
    assert preprocessor["size"] == {"shortest_edge": IMAGE_SIZE}
    assert preprocessor["crop_size"] == {"height": IMAGE_SIZE, "width": IMAGE_SIZE}


@pytest.mark.parametrize("folder", [CLIP, FUSION], ids=lambda folder: folder.name)
def test_any_text_is_framed_and_fits(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (PAD, BOS, EOS)
    text = json.loads((folder / "config.json").read_text())["text_config"]
    assert (text["pad_token_id"], text["bos_token_id"], text["eos_token_id"]) == (PAD, BOS, EOS)
    assert text["vocab_size"] == len(tokenizer)
    for odd in ODD:
        ids = tokenizer(odd, truncation=True)["input_ids"]
        assert ids[0] == BOS
        assert ids[-1] == EOS
        assert len(ids) <= MAX_TOKENS


def test_clip_has_the_public_keys() -> None:
    model, loading = CLIPModel.from_pretrained(CLIP, output_loading_info=True)
    assert not any(loading.values())
    assert set(_keys(CLIP)) == set(model.state_dict())
    assert {"logit_scale", "text_projection.weight", "visual_projection.weight"} <= set(_keys(CLIP))
    assert "vision_model.pre_layrnorm.weight" in _keys(CLIP)
    assert json.loads((CLIP / "config.json").read_text())["architectures"] == ["CLIPModel"]


def test_padding_changes_no_text() -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(CLIP), CLIPModel.from_pretrained(CLIP).eval()
    with torch.inference_mode():
        together = model.get_text_features(**tokenizer(ODD, padding=True, truncation=True, return_tensors="pt"))
        for index, text in enumerate(ODD):
            alone = model.get_text_features(**tokenizer(text, truncation=True, return_tensors="pt"))
            torch.testing.assert_close(
                together.pooler_output[index : index + 1], alone.pooler_output, atol=1e-4, rtol=1e-4
            )


def test_the_fusion_ranker_has_its_own_keys() -> None:
    config = json.loads((FUSION / "config.json").read_text())
    assert config["model_type"] == "fusion_ranker"
    assert config["architectures"] == ["FusionRanker"]
    assert set(_keys(FUSION)) == set(new_fusion_ranker(config["text_config"]["vocab_size"]).state_dict())
    assert not any("post_layernorm" in key for key in _keys(FUSION))


def test_scoring_all_pairs_is_scoring_each_pair() -> None:
    model = load_fusion_ranker(FUSION, DType.FLOAT32)
    states, memory = torch.randn(3, 128), torch.randn(4, 65, 128)
    with torch.inference_mode():
        want = torch.stack([model.score(state.expand(4, -1), memory) for state in states])
        torch.testing.assert_close(all_pairs(model, states, memory), want, atol=1e-4, rtol=1e-4)


def test_clip_finds_new_pictures() -> None:
    scorer = clip_scorer(CLIPModel.from_pretrained(CLIP).eval())
    assert _right(scorer, ["colour"]) >= 23
    assert _right(scorer, ["shape", "mixed"]) >= 35


def test_the_fusion_ranker_finds_new_pictures() -> None:
    scorer = fusion_scorer(load_fusion_ranker(FUSION, DType.FLOAT32))
    assert _right(scorer, ["colour", "mixed"]) >= 47
    assert _right(scorer, ["shape"]) >= 20
    assert _right(scorer, ["count"]) >= 10  # chance: 3


def test_each_example_comes_first_for_its_text() -> None:
    for found in (example_similarities(CLIP), example_relevance(FUSION)):
        assert np.argmax(np.array(list(found.values())), axis=1).tolist() == list(range(len(found)))

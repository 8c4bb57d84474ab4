"""Train ``fusion-mini``, the ranker of pictures by a text: ``python -m model_zoo.train_fusion_mini``.

The towers start as those of ``clip-mini``. Every step scores all captions of a batch against all of its pictures, as a
server does: a picture's memory is computed once and serves every caption. The vision tower stays as it is in the first
part, whose memories are computed once and for all; in the second part everything learns.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import CLIPModel

from model_zoo import picture_cards
from model_zoo.captions import match_matrix
from model_zoo.image_models import (
    IMAGE_SIZE,
    PATCHES,
    build_tokenizer,
    copy_towers,
    new_fusion_ranker,
    pixel_values,
    save_image_model,
    token_ids,
)  # fmt: skip
from model_zoo.modelling import learning_rate, prepare
from model_zoo.picture_data import FAMILY, Pool, batch_of, training_pool
from model_zoo.picture_lists import Scorer, picture_lists, score_lists, top_one
from model_zoo.train_clip_mini import FAMILIES, Progress, optimizer_for, update
from serve_app.tasks.image_rank.reference import FusionRanker, load_fusion_ranker
from serve_app.vocabulary import DType

FOLDER = Path(__file__).parent / "fusion-mini"
START = Path(__file__).parent / "clip-mini"
SEED = 37
POOL_SEED = 27  # the pictures of clip-mini; another seed would do as well
EVALUATION_SEED = 1037
HEAD_STEPS, HEAD_RATE = 600, 1e-3
STEPS, PEAK_RATE = 400, 5e-4
FAMILIES_PER_STEP = 16
LISTWISE_WEIGHT = 0.5
EVALUATION_LISTS = 100  # of each kind


def all_pairs(model: FusionRanker, states: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Logits [texts, pictures] of states [texts, D] and memories [pictures, P, V]: `FusionRanker.score` of all pairs.

    Keys and values are computed once per picture here, not once per pair.
    """
    x = states.expand(len(memory), *states.shape)
    for layer in model.fusion:
        queries, keys, values = (
            part.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
            for part in (layer.q_proj(layer.query_norm(x)), layer.k_proj(memory), layer.v_proj(memory))
        )
        attended = functional.scaled_dot_product_attention(queries, keys, values)
        x = x + layer.out_proj(attended.transpose(1, 2).flatten(2))
        x = x + layer.fc2(functional.gelu(layer.fc1(layer.mlp_norm(x))))
    logits: torch.Tensor = model.head(model.head_norm(x))[..., 0].T
    return logits


def loss_of(logits: torch.Tensor, matches: torch.Tensor) -> torch.Tensor:
    """Pointwise plus listwise loss of logits and truths [texts, pictures]; text i was written for picture i.

    Pointwise: cross-entropy in which true pairs, false pairs within a family and all other false pairs weigh the same.
    Listwise: a text's own picture against those of which it is not true.
    """
    own = torch.arange(len(logits))
    family = (own[:, None] // FAMILY == own[None] // FAMILY) & ~matches
    each = functional.binary_cross_entropy_with_logits(logits, matches.float(), reduction="none")
    pointwise = (each[matches].mean() + (each[family].mean() + each[~matches & ~family].mean()) / 2) / 2
    others = matches.clone()
    others[own, own] = False
    return pointwise + LISTWISE_WEIGHT * functional.cross_entropy(logits.masked_fill(others, -1e4), own)


def train(tokenizer: Tokenizer, pool: Pool, start: Path, head_steps: int, steps: int) -> FusionRanker:
    """Return the trained model."""
    prepare(SEED, threads=1)
    model: FusionRanker = new_fusion_ranker(tokenizer.get_vocab_size())
    copy_towers(CLIPModel.from_pretrained(start), model)
    pictures = torch.from_numpy(pool.pictures)

    def seen(rows: Sequence[int]) -> torch.Tensor:
        states: torch.Tensor = model.vision_model(pixel_values=pixel_values(pictures[list(rows)])).last_hidden_state
        return states

    with torch.no_grad():
        blocks = [range(first, first + 250) for first in range(0, len(pictures), 250)]
        frozen = torch.cat([seen(block).half() for block in blocks])
    rng = random.Random(SEED)
    for part, count, peak in (("heads", head_steps, HEAD_RATE), ("all", steps, PEAK_RATE)):
        model.vision_model.requires_grad_(part == "all")
        optimizer = optimizer_for([p for p in model.parameters() if p.requires_grad])
        progress = Progress(part, count)
        for step in range(count):
            rows, captions = batch_of(rng, pool, FAMILIES_PER_STEP)
            matches = torch.from_numpy(match_matrix(captions, [pool.scenes[row] for row in rows]))
            states = model.text_state(*token_ids(tokenizer, [caption.text for caption in captions]))
            memory = model.image_norm(seen(rows) if part == "all" else frozen[rows].float())
            loss = loss_of(all_pairs(model, states, memory), matches)
            update(optimizer, loss, learning_rate(step, count, peak))
            progress.report(step, loss)
    model.eval()
    return model


def scorer(model: FusionRanker) -> Scorer:
    """What gives the logits of captions and pictures."""
    tokenizer = build_tokenizer()

    def score(texts: Sequence[str], pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            memory = model.memory(pixel_values(torch.from_numpy(pictures)))
            states = model.text_state(*token_ids(tokenizer, texts))
            logits: npt.NDArray[np.float32] = all_pairs(model, states, memory).numpy()
        return logits

    return score


def evaluate(score: Scorer) -> dict[str, object]:
    """Return figures on held-out lists and, for comparison, on fresh lists of familiar combinations."""
    report: dict[str, object] = {}
    spread = {}
    for split in ("held_out", "familiar"):
        lists = picture_lists(EVALUATION_SEED, EVALUATION_LISTS, split == "held_out")
        scores = score_lists(lists, IMAGE_SIZE, score)
        report[split] = top_one(lists, scores)
        spread[split] = {
            "true_above_0.5": round(float(np.mean([matrix[0, 0] > 0 for matrix in scores])), 4),
            "false_below_0.5": round(float(np.mean([matrix[0, 1:] < 0 for matrix in scores])), 4),
        }
    return report | {"spread": spread}


def main() -> None:
    """Train, evaluate, and write the checkpoint with its model card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--head-steps", type=int, default=HEAD_STEPS, help="steps of the first part")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the second part (fewer: a quick trial)")
    parser.add_argument("--start", type=Path, default=START, help="folder of the CLIP whose towers it starts from")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the checkpoint")
    parser.add_argument("--measure", action="store_true", help="do not train: measure the checkpoint in the folder")
    arguments = parser.parse_args()
    tokenizer = build_tokenizer()
    if arguments.measure:
        prepare(SEED, threads=1)
        model = load_fusion_ranker(arguments.output, DType.FLOAT32)
    else:
        pool = training_pool(POOL_SEED, FAMILIES, IMAGE_SIZE, PATCHES)
        model = train(tokenizer, pool, arguments.start, arguments.head_steps, arguments.steps)
        save_image_model(model, tokenizer, arguments.output)
    training = {"seed": SEED, "head_steps": arguments.head_steps, "steps": arguments.steps}
    training |= {"pictures": FAMILIES * FAMILY, "lists": EVALUATION_LISTS, "vocabulary": tokenizer.get_vocab_size()}
    report = evaluate(scorer(model)) | {"training": training}
    picture_cards.write_fusion_card(arguments.output, report)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()

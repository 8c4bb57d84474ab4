"""Train ``clip-mini``, the dual encoder of pictures and texts: ``python -m model_zoo.train_clip_mini``.

First the vision tower alone learns what each patch shows: 64 answers per picture teach shapes many times faster than
one caption does. Then both towers learn together, from captions and pictures whose nearest neighbours differ in one
respect. The heads for the patches go on learning beside and are thrown away at the end.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from transformers import CLIPModel

from model_zoo import picture_cards
from model_zoo.captions import match_matrix
from model_zoo.image_models import (
    IMAGE_SIZE,
    PATCH_SIZE,
    PATCHES,
    WIDTH,
    build_tokenizer,
    new_clip,
    pixel_values,
    save_image_model,
    token_ids,
)  # fmt: skip
from model_zoo.modelling import learning_rate, prepare
from model_zoo.picture_data import FAMILY, Pool, batch_of, training_pool
from model_zoo.picture_lists import Scorer, picture_lists, score_lists, top_one
from model_zoo.pictures import COLOURS, SHAPES

FOLDER = Path(__file__).parent / "clip-mini"
SEED = 27
EVALUATION_SEED = 1027
FAMILIES = 5000
PATCH_STEPS, PATCH_BATCH, PATCH_RATE = 1200, 32, 1.5e-3
STEPS, FAMILIES_PER_STEP, PEAK_RATE = 800, 16, 1e-3
PATCH_LOSS = 0.5  # weight of the patches' loss in the second part
BACKGROUND_WEIGHT = 0.1  # most patches show nothing
MOST_SCALE = math.log(50)
EVALUATION_LISTS = 100  # of each kind


def patch_heads() -> nn.ModuleList:
    """Linear heads that tell the shape and the colour in each patch; used in training only."""
    return nn.ModuleList([nn.Linear(WIDTH, 1 + len(names)) for names in (SHAPES, COLOURS)])


def patch_loss(heads: nn.ModuleList, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of both heads, for states [N, 1 + patches, V] of the vision tower and labels [N, 2, patches]."""
    total = torch.zeros(())
    for index, head in enumerate(heads):
        logits = head(states[:, 1:]).flatten(0, 1)
        weights = torch.ones(logits.shape[1])
        weights[0] = BACKGROUND_WEIGHT
        total = total + functional.cross_entropy(logits, labels[:, index].flatten(), weight=weights)
    return total


def start_from_principal_components(model: CLIPModel, pictures: torch.Tensor) -> None:
    """Let the patch embedding start as the patches' principal components, each made about equally loud."""
    with torch.no_grad():
        patches = functional.unfold(pixel_values(pictures), PATCH_SIZE, stride=PATCH_SIZE).transpose(1, 2).flatten(0, 1)
        patches = patches - patches.mean(0)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        strongest = (vectors[:, -WIDTH:] * 0.5 / (values[-WIDTH:] + 0.02).sqrt()).T
        weight = model.vision_model.embeddings.patch_embedding.weight
        weight.copy_(strongest.reshape(weight.shape))


def optimizer_for(parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
    """AdamW with a light weight decay."""
    return torch.optim.AdamW(parameters, weight_decay=0.02, betas=(0.9, 0.98))


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor, rate: float) -> None:
    """One step with clipped gradients."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()


def text_vectors(model: CLIPModel, ids: torch.Tensor) -> torch.Tensor:
    """Unit vectors [N, D] of padded texts."""
    return functional.normalize(model.text_projection(model.text_model(input_ids=ids).pooler_output), dim=-1)


def contrastive_loss(logits: torch.Tensor, matches: torch.Tensor) -> torch.Tensor:
    """Symmetric cross-entropy; pictures of which another's caption happens to be true are left out."""
    own = torch.arange(len(logits))
    others = matches.clone()
    others[own, own] = False
    logits = logits.masked_fill(others, -1e4)
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2


class Progress:
    """Prints a running mean of the loss and the time now and then."""

    def __init__(self, part: str, steps: int) -> None:
        self._part, self._steps, self._mean, self._started = part, steps, 0.0, time.monotonic()

    def report(self, step: int, loss: torch.Tensor) -> None:
        """Take note of a step's loss."""
        self._mean = loss.item() if step == 0 else 0.98 * self._mean + 0.02 * loss.item()
        if step % 100 == 0 or step == self._steps - 1:
            seconds = time.monotonic() - self._started
            print(f"{self._part} {step:5d}  loss {self._mean:.4f}  {seconds:5.0f} s", flush=True)


def learn_patches(model: CLIPModel, heads: nn.ModuleList, pool: Pool, steps: int) -> None:
    """The first part: the vision tower learns to tell what each patch shows."""
    pictures, labels = torch.from_numpy(pool.pictures), torch.from_numpy(pool.labels)
    start_from_principal_components(model, pictures[::20])
    optimizer = optimizer_for([*model.vision_model.parameters(), *heads.parameters()])
    rng, progress = random.Random(SEED), Progress("patches", steps)
    for step in range(steps):
        rows = rng.sample(range(len(pictures)), PATCH_BATCH)
        states = model.vision_model(pixel_values=pixel_values(pictures[rows])).last_hidden_state
        loss = patch_loss(heads, states, labels[rows])
        update(optimizer, loss, learning_rate(step, steps, PATCH_RATE))
        progress.report(step, loss)


def learn_captions(model: CLIPModel, heads: nn.ModuleList, tokenizer: Tokenizer, pool: Pool, steps: int) -> None:
    """The second part: both towers learn which captions belong to which pictures."""
    pictures, labels = torch.from_numpy(pool.pictures), torch.from_numpy(pool.labels)
    model.logit_scale.data.fill_(math.log(10))
    optimizer = optimizer_for([*model.parameters(), *heads.parameters()])
    rng, progress = random.Random(SEED + 1), Progress("captions", steps)
    for step in range(steps):
        rows, captions = batch_of(rng, pool, FAMILIES_PER_STEP)
        matches = torch.from_numpy(match_matrix(captions, [pool.scenes[row] for row in rows]))
        seen = model.vision_model(pixel_values=pixel_values(pictures[rows]))
        images = functional.normalize(model.visual_projection(seen.pooler_output), dim=-1)
        texts = text_vectors(model, token_ids(tokenizer, [caption.text for caption in captions])[0])
        loss = contrastive_loss(model.logit_scale.clamp(max=MOST_SCALE).exp() * texts @ images.T, matches)
        total = loss + PATCH_LOSS * patch_loss(heads, seen.last_hidden_state, labels[rows])
        update(optimizer, total, learning_rate(step, steps, PEAK_RATE))
        progress.report(step, loss)


def train(tokenizer: Tokenizer, pool: Pool, patch_steps: int, steps: int) -> CLIPModel:
    """Return the trained model."""
    prepare(SEED, threads=1)
    model, heads = new_clip(tokenizer.get_vocab_size()), patch_heads()
    learn_patches(model, heads, pool, patch_steps)
    learn_captions(model, heads, tokenizer, pool, steps)
    return model.eval()


def scorer(model: CLIPModel) -> Scorer:
    """What gives the cosines of captions and pictures."""
    tokenizer = build_tokenizer()

    def score(texts: Sequence[str], pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            seen = model.vision_model(pixel_values=pixel_values(torch.from_numpy(pictures))).pooler_output
            images = functional.normalize(model.visual_projection(seen), dim=-1)
            cosines: npt.NDArray[np.float32] = (text_vectors(model, token_ids(tokenizer, texts)[0]) @ images.T).numpy()
        return cosines

    return score


def evaluate(score: Scorer) -> dict[str, object]:
    """Return figures on held-out lists and, for comparison, on fresh lists of familiar combinations."""
    report: dict[str, object] = {}
    for split in ("held_out", "familiar"):
        lists = picture_lists(EVALUATION_SEED, EVALUATION_LISTS, split == "held_out")
        report[split] = top_one(lists, score_lists(lists, IMAGE_SIZE, score))
    return report


def main() -> None:
    """Train, evaluate, and write the checkpoint with its model card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch-steps", type=int, default=PATCH_STEPS, help="steps of the first part")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the second part (fewer: a quick trial)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the checkpoint")
    parser.add_argument("--measure", action="store_true", help="do not train: measure the checkpoint in the folder")
    arguments = parser.parse_args()
    tokenizer = build_tokenizer()
    if arguments.measure:
        prepare(SEED, threads=1)
        model = CLIPModel.from_pretrained(arguments.output).eval()
    else:
        pool = training_pool(SEED, FAMILIES, IMAGE_SIZE, PATCHES)
        model = train(tokenizer, pool, arguments.patch_steps, arguments.steps)
        save_image_model(model, tokenizer, arguments.output)
    training = {"seed": SEED, "patch_steps": arguments.patch_steps, "steps": arguments.steps}
    training |= {"pictures": FAMILIES * FAMILY, "lists": EVALUATION_LISTS, "vocabulary": tokenizer.get_vocab_size()}
    report = evaluate(scorer(model)) | {"training": training}
    picture_cards.write_clip_card(arguments.output, report)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()

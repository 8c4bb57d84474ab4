"""Train ``ce-mini``, the cross-encoder reranker: ``python -m model_zoo.train_ce_mini``.

Every step draws fresh ranked lists. The loss has two parts: binary cross-entropy on the graded targets makes the
sigmoid of a score mean "share of the wishes met", and a listwise cross-entropy makes the order within a list right.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertForSequenceClassification

from model_zoo import cards, data
from model_zoo.metrics import Bm25, ranking_report
from model_zoo.modelling import learning_rate, new_model, optimizer_for, prepare, save_model, scores
from model_zoo.vocabulary import build_tokenizer

FOLDER = Path(__file__).parent / "ce-mini"
SEED = 7
EVALUATION_SEED = 1007
LAYERS = 2
STEPS = 2000
LISTS_PER_STEP = 8
LIST_SIZE = 8
PEAK_RATE = 1.5e-3
LISTWISE_WEIGHT = 0.5
EVALUATION_LISTS = 200  # of each kind
EVALUATION_SIZE = 16


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return pointwise plus listwise loss for ``(lists, documents)`` logits and targets."""
    pointwise = functional.binary_cross_entropy_with_logits(logits, targets)
    wanted = functional.softmax(targets * 8, dim=1)  # factor 8: the best document gets nearly all of the weight
    listwise = -(wanted * functional.log_softmax(logits, dim=1)).sum(1).mean()
    return pointwise + LISTWISE_WEIGHT * listwise / LIST_SIZE


def train(tokenizer: Tokenizer, steps: int) -> BertForSequenceClassification:
    """Return the trained model."""
    prepare(SEED)
    model = new_model(tokenizer.get_vocab_size(), LAYERS)
    optimizer = optimizer_for(model)
    rng, shift = random.Random(SEED), random.Random(SEED + 1)
    started, running = time.monotonic(), 0.0
    for step in range(steps):
        lists = [data.training_list(rng, LIST_SIZE) for _ in range(LISTS_PER_STEP)]
        rows = tokenizer.encode_batch([(item.query, document) for item in lists for document in item.documents])
        targets = torch.tensor([item.targets for item in lists])
        loss = loss_of(scores(model, rows, shift).view(len(lists), LIST_SIZE), targets)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, PEAK_RATE)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running = loss.item() if step == 0 else 0.98 * running + 0.02 * loss.item()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {running:.4f}  {time.monotonic() - started:5.0f} s", flush=True)
    return model.eval()


def _compare(
    model: BertForSequenceClassification, tokenizer: Tokenizer, lists: Sequence[data.RankedList]
) -> dict[str, object]:
    """Return the figures of the model, of BM25 and of random order, and how the model's scores spread."""
    rng = random.Random(EVALUATION_SEED)
    gains = [item.targets for item in lists]
    lexical = Bm25([document for item in lists for document in item.documents])
    ours: list[list[float]] = []
    for item in lists:
        rows = tokenizer.encode_batch([(item.query, document) for document in item.documents])
        with torch.no_grad():
            ours.append(torch.sigmoid(scores(model, rows).squeeze(1)).tolist())
    pairs = [pair for row, item in zip(ours, lists, strict=True) for pair in zip(row, item.targets, strict=True)]
    high = [score for score, target in pairs if target > 0.9]
    low = [score for score, target in pairs if target < 0.1]
    return {
        "ce-mini": ranking_report(ours, gains),
        "bm25": ranking_report([[lexical.score(item.query, text) for text in item.documents] for item in lists], gains),
        "random": ranking_report([[rng.random() for _ in item.documents] for item in lists], gains),
        "full_answers_above_0.8": round(sum(score > 0.8 for score in high) / len(high), 4),
        "irrelevant_below_0.2": round(sum(score < 0.2 for score in low) / len(low), 4),
    }


def evaluate(model: BertForSequenceClassification, tokenizer: Tokenizer, steps: int) -> dict[str, object]:
    """Return figures on held-out lists and, for comparison, on fresh lists drawn like the training's."""
    report: dict[str, object] = {}
    for split in ("held_out", "familiar"):
        lists = data.evaluation_lists(EVALUATION_SEED, EVALUATION_LISTS, EVALUATION_SIZE, split == "held_out")
        kinds = ("product", "help")
        report[split] = {kind: _compare(model, tokenizer, [i for i in lists if i.kind == kind]) for kind in kinds}
    report["training"] = {"seed": SEED, "steps": steps, "pairs": steps * LISTS_PER_STEP * LIST_SIZE}
    return report


def main() -> None:
    """Train, evaluate, and write the checkpoint with its model card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps (fewer: a quick trial)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the checkpoint")
    parser.add_argument("--measure", action="store_true", help="do not train: measure the checkpoint in the folder")
    arguments = parser.parse_args()
    if arguments.measure:
        prepare(SEED)
        tokenizer = Tokenizer.from_file(str(arguments.output / "tokenizer.json"))
        model = BertForSequenceClassification.from_pretrained(arguments.output).eval()
    else:
        tokenizer = build_tokenizer()
        model = train(tokenizer, arguments.steps)
        save_model(model, tokenizer, arguments.output)
    report = evaluate(model, tokenizer, arguments.steps)
    cards.write_reranker_card(arguments.output, report)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()

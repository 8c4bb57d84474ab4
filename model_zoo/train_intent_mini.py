"""Train ``intent-mini``, the classifier of shop questions: ``python -m model_zoo.train_intent_mini``.

Sentences come from the same catalogue and help centre as the reranker's lists. Whole question forms and whole ways to
phrase a wish are held out, so the reported accuracy is about wordings the model has not seen.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertForSequenceClassification

from model_zoo import cards, data
from model_zoo.help_centre import INTENTS
from model_zoo.modelling import learning_rate, new_model, optimizer_for, prepare, save_model, scores
from model_zoo.vocabulary import build_tokenizer
from model_zoo.words import content_word

FOLDER = Path(__file__).parent / "intent-mini"
SEED = 17
EVALUATION_SEED = 1017
LAYERS = 2
STEPS = 700
BATCH = 64
PEAK_RATE = 1e-3
# Keeps the model from claiming certainty: a right answer ends near 0.96 and leaves room for doubt on odd sentences.
LABEL_SMOOTHING = 0.03
# Disturbances of training sentences, so that no single word decides alone and an unknown word means nothing.
DROPPED_WORDS = 0.1
STRANGE_WORDS = (0, 0, 0, 1, 1, 2, 3)
EVALUATION_SENTENCES = 2000


def disturb(rng: random.Random, text: str) -> str:
    """Return the text without a few of its words and with a few that have nothing to do with the shop."""
    words = [word for word in text.split() if rng.random() >= DROPPED_WORDS] or text.split()
    for _ in range(rng.choice(STRANGE_WORDS)):
        words.insert(rng.randint(0, len(words)), content_word(rng))
    return " ".join(words)


def train(tokenizer: Tokenizer, steps: int) -> BertForSequenceClassification:
    """Return the trained model."""
    prepare(SEED)
    model = new_model(tokenizer.get_vocab_size(), LAYERS, INTENTS)
    optimizer = optimizer_for(model)
    rng = random.Random(SEED)
    started, running = time.monotonic(), 0.0
    for step in range(steps):
        batch = [data.labelled_sentence(rng, held_out=False) for _ in range(BATCH)]
        rows = tokenizer.encode_batch([disturb(rng, item.text) for item in batch])
        labels = torch.tensor([INTENTS.index(item.intent) for item in batch])
        loss = functional.cross_entropy(scores(model, rows), labels, label_smoothing=LABEL_SMOOTHING)
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


def evaluate(model: BertForSequenceClassification, tokenizer: Tokenizer, steps: int) -> dict[str, object]:
    """Return held-out accuracy, the confusion table (rows: truth) and how sure the model is."""
    rng = random.Random(EVALUATION_SEED)
    items = [data.labelled_sentence(rng, held_out=True) for _ in range(EVALUATION_SENTENCES)]
    rows = tokenizer.encode_batch([item.text for item in items])
    with torch.no_grad():
        best = torch.softmax(scores(model, rows), dim=1).max(dim=1)
    guesses, sureness = best.indices.tolist(), best.values.tolist()
    table = [[0] * len(INTENTS) for _ in INTENTS]
    for item, guess in zip(items, guesses, strict=True):
        table[INTENTS.index(item.intent)][guess] += 1
    right = sum(table[i][i] for i in range(len(INTENTS)))
    return {
        "accuracy": round(right / len(items), 4),
        "always_the_commonest_label": round(max(sum(row) for row in table) / len(items), 4),
        "confusion": {intent: dict(zip(INTENTS, row, strict=True)) for intent, row in zip(INTENTS, table, strict=True)},
        "share_with_probability_above_0.8": round(sum(p > 0.8 for p in sureness) / len(items), 4),
        "training": {"seed": SEED, "steps": steps, "sentences": steps * BATCH},
    }


def main() -> None:
    """Train, evaluate, and write the checkpoint with its model card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps (fewer: a quick trial)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the checkpoint")
    arguments = parser.parse_args()
    tokenizer = build_tokenizer()
    model = train(tokenizer, arguments.steps)
    save_model(model, tokenizer, arguments.output)
    cards.write_classifier_card(arguments.output, evaluate(model, tokenizer, arguments.steps))
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()

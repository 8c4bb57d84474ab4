"""Train ``absa-mini``, the model of aspects and sentiment: ``python -m model_zoo.train_absa_mini``.

Targets, opinions and whole ways to say something are held out, so the figures also tell what becomes of words and forms
that the model has not seen.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Encoding, Tokenizer
from torch import nn
from torch.nn import functional

from model_zoo import absa_card
from model_zoo.absa_metrics import score
from model_zoo.absa_modelling import (
    HIDDEN,
    OPINIONS,
    POLARITIES,
    answers,
    build_tokenizer,
    groups,
    logits,
    new_model,
    opinion_labels,
    save,
    token_labels,
)
from model_zoo.absa_reviews import LANGUAGES, TRAINING, Review, Unseen, review
from model_zoo.absa_vocabulary import build_vocabulary
from model_zoo.modelling import learning_rate, prepare
from serve_app.tasks.absa.reference import TwoHeadTokenClassifier

FOLDER = Path(__file__).parent / "absa-mini"
SEED = 29
EVALUATION_SEED = 1029
STEPS = 4400
BATCH = 16  # small: twice as many steps are worth far more than steps of twice as many reviews
PEAK_RATE = 2e-3
THREADS = 1
SENTIMENT_WEIGHT = 0.4
# In training a third head says of each word, one layer earlier, what it says and of which aspect. Without it, what a
# word means has to be guessed from the labels of a target elsewhere, and ten minutes are too short for that.
TEACHER_WEIGHT = 0.5
# Keeps the model from claiming certainty: the generated reviews are more regular than real ones.
LABEL_SMOOTHING = 0.02
# Tokens that are hidden in training, so that an unknown character means nothing and no single word decides alone.
HIDDEN_TOKENS = 0.02
SHARES = (4, 5, 2)  # of the languages
EVALUATION_REVIEWS = 400  # of each language in each set
SETS = {
    "held_out": Unseen(terms=0.5, opinions=0.25, forms=True),
    "familiar": TRAINING,
    "unseen_targets": Unseen(terms=1.0),
    "unseen_opinions": Unseen(opinions=1.0),
    "unseen_forms": Unseen(forms=True),
}


def batch_loss(
    model: TwoHeadTokenClassifier,
    teacher: nn.Linear,
    rows: Sequence[Encoding],
    items: Sequence[Review],
    rng: random.Random,
) -> torch.Tensor:
    """Mean loss of both heads, and of the teacher, over a group of reviews of similar length."""
    tokens, whole, states = logits(model, rows, rng, hide=HIDDEN_TOKENS)
    wanted = torch.full(tokens.shape[:2], -100)
    opinions = wanted.clone()
    for index, (row, item) in enumerate(zip(rows, items, strict=True)):
        wanted[index, : len(row.ids)] = torch.tensor(token_labels(row, item.spans))
        opinions[index, : len(row.ids)] = torch.tensor(opinion_labels(row, item.opinions))
    sentiments = torch.tensor([POLARITIES.index(item.sentiment) for item in items])
    of_tokens = (
        functional.cross_entropy(
            tokens.flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="sum", label_smoothing=LABEL_SMOOTHING
        )
        / (wanted >= 0).sum()
    )
    of_texts = functional.cross_entropy(whole, sentiments, label_smoothing=LABEL_SMOOTHING)
    taught = functional.cross_entropy(teacher(states).flatten(0, 1), opinions.flatten(), ignore_index=-100)
    return of_tokens + SENTIMENT_WEIGHT * of_texts + TEACHER_WEIGHT * taught


def train(tokenizer: Tokenizer, steps: int) -> TwoHeadTokenClassifier:
    """The trained model."""
    prepare(SEED)
    torch.set_num_threads(THREADS)
    model = new_model(tokenizer.get_vocab_size()).train()
    teacher = nn.Linear(HIDDEN, len(OPINIONS))
    parameters = [*model.parameters(), *teacher.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=PEAK_RATE, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    rng = random.Random(SEED)
    started, running = time.monotonic(), 0.0
    for step in range(steps):
        items = [review(rng, rng.choices(LANGUAGES, SHARES)[0]) for _ in range(BATCH)]
        rows = tokenizer.encode_batch([item.text for item in items])
        optimizer.zero_grad()
        total = 0.0
        for group in groups(rows):
            share = len(group) / BATCH
            loss = share * batch_loss(model, teacher, [rows[i] for i in group], [items[i] for i in group], rng)
            loss.backward()
            total += loss.item()
        for settings in optimizer.param_groups:
            settings["lr"] = learning_rate(step, steps, PEAK_RATE)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        running = total if step == 0 else 0.98 * running + 0.02 * total
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {running:.4f}  {time.monotonic() - started:5.0f} s", flush=True)
    return model.eval()


def evaluate(model: TwoHeadTokenClassifier, tokenizer: Tokenizer, steps: int) -> dict[str, object]:
    """Figures of each set and language, and what the training was."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name, unseen in SETS.items():
        figures[name] = {}
        for language in LANGUAGES:
            rng = random.Random(f"{EVALUATION_SEED} {name} {language}")
            items = [review(rng, language, unseen) for _ in range(EVALUATION_REVIEWS)]
            found = answers(model, tokenizer, [item.text for item in items])
            figures[name][language] = score(items, found)
    training = {
        "seed": SEED,
        "steps": steps,
        "reviews": steps * BATCH,
        "shares": dict(zip(LANGUAGES, SHARES, strict=True)),
        "count": EVALUATION_REVIEWS,
    }
    return {"figures": figures, "training": training}


def main() -> None:
    """Train, evaluate, and write the checkpoint with its model card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps (fewer: a quick trial)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the checkpoint")
    arguments = parser.parse_args()
    tokenizer = build_tokenizer(build_vocabulary())
    model = train(tokenizer, arguments.steps)
    save(model, tokenizer, arguments.output)
    absa_card.write_card(arguments.output, evaluate(model, tokenizer, arguments.steps))
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()

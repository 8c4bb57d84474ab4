"""Check that the committed checkpoints behave: ``python -m model_zoo.check``.

Prints every example with its score and exits non-zero when an expectation fails. The models are loaded the way any
user would load them, through ``AutoTokenizer`` and ``AutoModelForSequenceClassification``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from model_zoo import examples

HERE = Path(__file__).parent
HIGH, LOW = 0.8, 0.2
MAX_BYTES = 6 * 1024 * 1024


class Checks:
    """Collects expectations; each is printed as it is made."""

    def __init__(self) -> None:
        self.failed = 0

    def expect(self, holds: bool, what: str) -> None:
        """Print the outcome of one expectation and count it when it fails."""
        self.failed += not holds
        print(f"  {'ok  ' if holds else 'FAIL'} {what}")


def relevance(folder: Path, query: str, documents: Sequence[str]) -> list[float]:
    """Return the sigmoid scores of documents for a query."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = tokenizer([query] * len(documents), list(documents), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        scores = torch.sigmoid(model(**batch).logits).squeeze(1)
    return [float(score) for score in scores]


def intents(folder: Path, sentences: Sequence[str]) -> list[tuple[str, float]]:
    """Return the likeliest label of each sentence and its probability."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = tokenizer(list(sentences), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        best = torch.softmax(model(**batch).logits, dim=1).max(dim=1)
    return [(model.config.id2label[int(i)], float(p)) for i, p in zip(best.indices, best.values, strict=True)]


def check_files(checks: Checks, folder: Path) -> None:
    """Check size, tokenizer layout and that ordinary English is never unknown."""
    print(folder.name)
    checks.expect(sum(f.stat().st_size for f in folder.iterdir()) <= MAX_BYTES, "folder is at most 6 MiB")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    row = tokenizer("two words", "three more words")
    sides = row["token_type_ids"]
    first_side = row["input_ids"].index(tokenizer.sep_token_id) + 1
    checks.expect(sides == [0] * first_side + [1] * (len(sides) - first_side), "pairs have type ids 0 and 1")
    checks.expect(tokenizer.model_max_length == 512, "model_max_length is 512")
    odd = tokenizer("Kubernetes-based café, ZX81 @ 100% <{[~]}> quixotic!")["input_ids"]
    checks.expect(tokenizer.unk_token_id not in odd, "unusual English has no unknown pieces")


def check_reranker(checks: Checks, folder: Path) -> None:
    """Check the order and the spread of scores on the examples."""
    found = {}
    for query, documents in (
        (examples.BOOTS_QUERY, examples.SHOP_DOCUMENTS),
        (examples.REFUND_QUERY, examples.SHOP_DOCUMENTS),
        (examples.CAPITAL_QUERY, examples.CAPITAL_DOCUMENTS),
    ):
        found[query] = relevance(folder, query, documents)
        print(f"query: {query}")
        for score, document in sorted(zip(found[query], documents, strict=True), reverse=True):
            print(f"  {score:.3f}  {document}")
    boots, refund, capital = found.values()
    checks.expect(boots[0] == max(boots) and boots[0] > HIGH, "the winter hiking boots come first, above 0.8")
    checks.expect(boots[examples.RETURN_ARTICLE] < LOW, "the return article is below 0.2 for boots")
    checks.expect(sorted(boots).index(boots[examples.RETURN_ARTICLE]) < 3, "and in the lower half")
    checks.expect(refund[examples.RETURN_ARTICLE] == max(refund), "the return article comes first for money back")
    checks.expect(refund[examples.RETURN_ARTICLE] > HIGH, "above 0.8")
    checks.expect(capital[0] == max(capital), "Paris comes first for the capital of France")
    checks.expect(capital[2] < LOW, "the panda is below 0.2")


def check_classifier(checks: Checks, folder: Path) -> None:
    """Check the obvious sentences."""
    sentences = [sentence for sentence, _ in examples.INTENT_SENTENCES]
    for (sentence, wanted), (label, probability) in zip(
        examples.INTENT_SENTENCES, intents(folder, sentences), strict=True
    ):
        checks.expect(label == wanted and probability > HIGH, f"{label} {probability:.3f}  {sentence}")


def main() -> int:
    """Run all checks; return the exit status."""
    checks = Checks()
    check_files(checks, HERE / "ce-mini")
    check_reranker(checks, HERE / "ce-mini")
    check_files(checks, HERE / "intent-mini")
    check_classifier(checks, HERE / "intent-mini")
    print("all checks passed" if not checks.failed else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())

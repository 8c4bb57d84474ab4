"""Check that the committed checkpoints behave: ``python -m model_zoo.check``.

Prints every example with its score and exits non-zero when an expectation fails. The models are loaded the way any
user would load them, through the classes of Transformers; the fusion ranker through its reference, and the one with
two heads, for which Transformers has no class, as its card says.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForSequenceClassification, AutoTokenizer, CLIPModel, CLIPProcessor

from model_zoo import examples
from model_zoo.absa_examples import REVIEWS
from model_zoo.absa_modelling import MAX_TOKENS as ABSA_TOKENS
from model_zoo.absa_modelling import answers, load
from model_zoo.image_models import IMAGE_SIZE, MAX_TOKENS
from model_zoo.picture_lists import pixels_of
from model_zoo.pictures import draw, example_scenes
from serve_app.tasks.image_rank.reference import reference_logits
from serve_app.vocabulary import DType

HERE = Path(__file__).parent
HIGH, LOW = 0.8, 0.2
CLEAR = 0.7
MAX_BYTES = 6 * 1024 * 1024
MAX_IMAGE_MODEL_BYTES = 5_000_000


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


def picture_similarities(folder: Path, texts: Sequence[str], pictures: Sequence[Image.Image]) -> list[list[float]]:
    """Return the cosines of texts (rows) and pictures (columns)."""
    processor, model = CLIPProcessor.from_pretrained(folder), CLIPModel.from_pretrained(folder).eval()
    inputs = processor(text=list(texts), images=list(pictures), padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        output = model(**inputs)
    return [[float(cosine) for cosine in row] for row in output.text_embeds @ output.image_embeds.T]


def picture_relevance(folder: Path, texts: Sequence[str], pictures: Sequence[Image.Image]) -> list[list[float]]:
    """Return the sigmoid scores of pictures (columns) for texts (rows)."""
    pixels = [pixels_of(picture, IMAGE_SIZE) for picture in pictures]
    pairs = [(text, picture) for text in texts for picture in pixels]
    logits = reference_logits(folder, pairs, dtype=DType.FLOAT32, max_length=MAX_TOKENS)
    scores = 1 / (1 + np.exp(-logits.reshape(len(texts), len(pictures))))
    return [[float(score) for score in row] for row in scores]


def example_similarities(folder: Path) -> dict[str, list[float]]:
    """Return, for the text of each example, its cosines with all example pictures."""
    pictures = [draw(scene) for scene in example_scenes().values()]
    return dict(zip(example_scenes(), picture_similarities(folder, [*example_scenes()], pictures), strict=True))


def example_relevance(folder: Path) -> dict[str, list[float]]:
    """Return, for the text of each example, its scores with all example pictures."""
    pictures = [draw(scene) for scene in example_scenes().values()]
    return dict(zip(example_scenes(), picture_relevance(folder, [*example_scenes()], pictures), strict=True))


def check_files(checks: Checks, folder: Path, max_tokens: int = 512) -> None:
    """Check size, tokenizer layout and that ordinary English is never unknown."""
    print(folder.name)
    checks.expect(sum(f.stat().st_size for f in folder.iterdir()) <= MAX_BYTES, "folder is at most 6 MiB")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    row = tokenizer("two words", "three more words")
    sides = row["token_type_ids"]
    first_side = row["input_ids"].index(tokenizer.sep_token_id) + 1
    checks.expect(sides == [0] * first_side + [1] * (len(sides) - first_side), "pairs have type ids 0 and 1")
    checks.expect(tokenizer.model_max_length == max_tokens, f"model_max_length is {max_tokens}")
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


def check_image_files(checks: Checks, folder: Path) -> None:
    """Check size, special tokens and that a caption's words are known."""
    print(folder.name)
    checks.expect(sum(f.stat().st_size for f in folder.iterdir()) <= MAX_IMAGE_MODEL_BYTES, "folder is at most 5 MB")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Zwei rote Kreise? Two RED circles, café!")["input_ids"]
    checks.expect(ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id, "texts are framed")
    checks.expect(tokenizer.unk_token_id not in ids, "Latin letters are never unknown")
    checks.expect(tokenizer.model_max_length == MAX_TOKENS, f"model_max_length is {MAX_TOKENS}")


def check_pictures(checks: Checks, found: dict[str, list[float]]) -> None:
    """Check that each example picture comes first for its own text."""
    for place, (text, scores) in enumerate(found.items()):
        print(f"query: {text}")
        for score, shown in sorted(zip(scores, found, strict=True), reverse=True)[:3]:
            print(f"  {score:.3f}  {shown}")
        checks.expect(scores[place] == max(scores), f"the picture of {text} comes first")


def check_absa(checks: Checks, folder: Path) -> None:
    """Check targets, aspects, polarities and sentiments of the examples."""
    model, tokenizer = load(folder)
    texts = [text for text, _, _ in REVIEWS]
    for (text, sentiment, targets), answer in zip(REVIEWS, answers(model, tokenizer, texts), strict=True):
        found = tuple((text[s.start : s.end], s.aspect, s.polarity) for s in answer.spans)
        holds = answer.sentiment == sentiment and found == targets
        checks.expect(holds, f"{answer.sentiment} {answer.probability:.3f}  {text}  {found}")


def main() -> int:
    """Run all checks; return the exit status."""
    checks = Checks()
    check_files(checks, HERE / "ce-mini")
    check_reranker(checks, HERE / "ce-mini")
    check_files(checks, HERE / "intent-mini")
    check_classifier(checks, HERE / "intent-mini")
    check_image_files(checks, HERE / "clip-mini")
    check_pictures(checks, example_similarities(HERE / "clip-mini"))
    check_image_files(checks, HERE / "fusion-mini")
    relevances = example_relevance(HERE / "fusion-mini")
    check_pictures(checks, relevances)
    clear = [row[place] > CLEAR for place, row in enumerate(relevances.values())]
    checks.expect(all(clear), "each example picture scores above 0.7 for its own text")
    check_files(checks, HERE / "absa-mini", ABSA_TOKENS)
    check_absa(checks, HERE / "absa-mini")
    print("all checks passed" if not checks.failed else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The embedded model of aspects and sentiment: its files, and what it says in plain PyTorch."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from model_zoo.absa_examples import REVIEWS, Target
from model_zoo.absa_korean import closing, linking, negated, read_predicate, with_particles
from model_zoo.absa_metrics import score
from model_zoo.absa_modelling import (
    ASPECTS,
    LABELS,
    MAX_TOKENS,
    POLARITIES,
    Answer,
    Span,
    answers,
    build_tokenizer,
    load,
    token_labels,
)
from model_zoo.absa_reviews import LANGUAGES, Review, Unseen, review
from model_zoo.absa_vocabulary import build_vocabulary
from model_zoo.absa_words import OPINIONS_EN, OPINIONS_KO, TERMS_EN, TERMS_KO
from serve_app.tasks.absa.labels import AbsaKind, read_scheme
from serve_app.tasks.absa.reference import TwoHeadTokenClassifier, reference_answers
from serve_app.vocabulary import DType
from tests.cluster import ROOT

FOLDER = ROOT / "model_zoo" / "absa-mini"
MAX_BYTES = 10 * 1024 * 1024


@pytest.fixture(scope="module")
def loaded() -> tuple[TwoHeadTokenClassifier, object]:
    torch.set_num_threads(1)
    return load(FOLDER)


def test_the_folder_is_small_and_complete() -> None:
    files = {file.name: file.stat() for file in FOLDER.iterdir()}
    assert set(files) == {
        "README.md",
        "config.json",
        "metrics.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(file.st_size for file in files.values()) <= MAX_BYTES
    assert all(file.st_mode & 0o044 == 0o044 for file in files.values())


def test_the_weights_are_those_of_two_heads_and_no_pooler() -> None:
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    with safe_open(FOLDER / "model.safetensors", "pt") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
        assert {weights.get_slice(name).get_dtype() for name in shapes} == {"F32"}
    heads = {name: shape for name, shape in shapes.items() if not name.startswith("bert.")}
    assert heads == {
        "classifier.weight": [len(LABELS), config["hidden_size"]],
        "classifier.bias": [len(LABELS)],
        "sentiment_classifier.weight": [len(POLARITIES), config["hidden_size"]],
        "sentiment_classifier.bias": [len(POLARITIES)],
    }
    assert not any("pooler" in name for name in shapes)
    assert config["hidden_size"] // config["num_attention_heads"] == 32
    assert config["max_position_embeddings"] == MAX_TOKENS


def test_the_labels_are_read_by_the_served_task() -> None:
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    labels = [config["id2label"][str(column)] for column in range(len(config["id2label"]))]
    assert {label: int(column) for column, label in config["id2label"].items()} == config["label2id"]
    scheme = read_scheme(config, labels)
    assert scheme.kind is AbsaKind.TWO_HEADS
    assert scheme.aspects == ASPECTS
    assert scheme.sentiment == POLARITIES


@pytest.mark.parametrize(("text", "sentiment", "targets"), REVIEWS)
def test_reviews(
    loaded: tuple[TwoHeadTokenClassifier, object], text: str, sentiment: str, targets: tuple[Target, ...]
) -> None:
    (answer,) = answers(*loaded, [text])
    assert answer.sentiment == sentiment
    assert [(text[s.start : s.end], s.aspect, s.polarity) for s in answer.spans] == list(targets)


def test_the_task_s_reference_says_the_same_of_decomposed_hangul_too() -> None:
    texts = [text for text, _, _ in REVIEWS]
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    found = reference_answers(FOLDER, [*texts, *decomposed], dtype=DType.FLOAT32, max_length=MAX_TOKENS)
    for text, answer, expected in zip([*texts, *decomposed], found, [*REVIEWS, *REVIEWS], strict=True):
        assert answer.item.sentiment is not None
        assert answer.item.sentiment[0] == expected[1]
        spans = [(unicodedata.normalize("NFC", s.text), s.aspect, s.polarity) for s in answer.item.spans]
        assert spans == list(expected[2])
        assert all(text[s.start : s.end] == s.text for s in answer.item.spans)


def test_the_figures_of_the_card_are_those_of_the_run() -> None:
    report = json.loads((FOLDER / "metrics.json").read_text(encoding="utf-8"))
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for language in LANGUAGES:
        held_out = report["figures"]["held_out"][language]
        assert f"| held out | {language} | {held_out['span_f1']:.3f} |" in card
        assert held_out["sentiment_accuracy"] > held_out["commonest"] + 0.2
        assert report["figures"]["familiar"][language]["span_f1"] > 0.75 > held_out["span_f1"] > 0.2


def test_the_committed_tokenizer_is_what_the_script_makes(tmp_path: Path) -> None:
    build_tokenizer(build_vocabulary()).save(str(tmp_path / "tokenizer.json"))
    assert (tmp_path / "tokenizer.json").read_bytes() == (FOLDER / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("unseen", [Unseen(), Unseen(0.5, 0.25, True)], ids=["training", "held out"])
def test_generated_reviews_are_labelled_exactly(
    loaded: tuple[TwoHeadTokenClassifier, object], language: str, unseen: Unseen
) -> None:
    """Labels of tokens give back the spans, so that no target is lost between the text and the training."""
    rng, again = random.Random(3), random.Random(3)
    tokenizer = loaded[1]
    for _ in range(200):
        item = review(rng, language, unseen)
        assert item == review(again, language, unseen)
        row = tokenizer.encode(item.text)  # type: ignore[attr-defined]
        assert len(row.ids) <= MAX_TOKENS
        words = {row.word_ids[i]: row.word_to_chars(row.word_ids[i]) for i in range(1, len(row.ids) - 1)}
        edges = [{place[side] for place in words.values()} for side in (0, 1)]
        assert all(span.start in edges[0] and span.end in edges[1] for span in item.spans), item.text
        places = {}
        for label, (start, end) in zip([LABELS[c] for c in token_labels(row, item.spans)], row.offsets, strict=True):
            if label[0] == "B":
                first, meaning = start, label[2:]
            if label != "O":
                assert label[2:] == meaning
                places[first] = (first, end, meaning)
        assert list(places.values()) == [(s.start, s.end, f"{s.aspect}-{s.polarity}") for s in item.spans]


def test_nothing_held_out_is_in_the_training_words() -> None:
    for table in (TERMS_EN, TERMS_KO, OPINIONS_EN, OPINIONS_KO):
        known = {word for words in table.values() for word in words.known}
        unseen = {word for words in table.values() for word in words.unseen}
        assert unseen
        assert not known & unseen
        assert all(words.unseen for words in table.values())


@pytest.mark.parametrize(
    ("entry", "forms"),
    [
        ("맛있/맛있어/맛있는", {"맛있어요", "맛있었어요", "맛있습니다", "맛있네요", "맛있음", "맛있었음", "맛있다"}),
        ("비싸/비싸/비싼", {"비싸요", "비쌌어요", "비쌉니다", "비쌈"}),
        ("멀/멀어/먼", {"멀어요", "멉니다", "머네요", "멂", "멀다"}),
        ("더럽/더러워/더러운", {"더러워요", "더러웠어요", "더럽습니다", "더러움"}),
        ("최고=", {"최고예요", "최고였어요", "최고입니다", "최고네요", "최고임"}),
        ("엉망=", {"엉망이에요", "엉망이었어요", "엉망입니다", "엉망임"}),
    ],
)
def test_korean_forms(entry: str, forms: set[str]) -> None:
    rng = random.Random(0)
    made = {closing(read_predicate(entry), rng) for _ in range(600)}
    assert forms <= made


def test_korean_links_negations_and_particles() -> None:
    rng = random.Random(0)
    tasty, best = read_predicate("맛있/맛있어/맛있는"), read_predicate("최고=")
    links = {linking(tasty, rng, contrast) for contrast in (False, True) for _ in range(100)}
    assert {"맛있고", "맛있지만", "맛있는데", "맛있어서"} <= links
    opposites = {closing(negated(p, rng), rng) for p in (tasty, best) for _ in range(600)}
    assert {"맛있지 않아요", "안 맛있어요", "최고는 아니에요", "최고가 아니었어요"} <= opposites
    assert with_particles("국물[과/와] 파스타[은/는] 직원[이/가]") == "국물과 파스타는 직원이"


def test_scores_count_what_they_say() -> None:
    pasta, staff = Span(4, 9, "food", "positive"), Span(15, 20, "service", "negative")
    reviews = [Review("", (pasta, staff), "neutral"), Review("", (), "positive")]
    wrong = Span(15, 20, "service", "positive")
    found = score(reviews, [Answer("neutral", 1.0, (pasta, wrong)), Answer("negative", 1.0, (wrong,))])
    assert found["span_f1"] == round(2 * 1 / 5, 4)
    assert found["place_f1"] == round(2 * 2 / 5, 4)
    assert found["aspect_f1"] == round(2 * 1 / 5, 4)
    assert found["sentiment_accuracy"] == 0.5

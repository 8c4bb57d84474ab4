"""Words, windows and spans, against the plain loops of the reference and against rules."""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.tasks.absa.labels import TokenLabel
from serve_app.tasks.absa.reference import _labelled, _spans
from serve_app.tasks.absa.spans import Characters, find_spans
from serve_app.tasks.absa.terms import Terms
from serve_app.tasks.absa.windows import merge_windows, window_starts
from serve_app.tasks.absa.words import Units, make_units
from serve_app.vocabulary import Aggregation

POS, NEG = "positive", "negative"
LABELS = [TokenLabel("O"), *(TokenLabel(tag, None, polarity) for polarity in (POS, NEG) for tag in "BIES")]
NAMES = {("O" if label.tag == "O" else f"{label.tag}-{label.polarity}"): i for i, label in enumerate(LABELS)}
TEXT = st.text(
    st.sampled_from("ab 좋\u1100\u1161\u11a8\u0301e😀👍🏽\u200d👨\u200b\t\r\n\u0e33क\u094dष\U0001f1f0\U0001f1f7"),
    max_size=30,
)


def spans_of(text: str, *labels: str) -> list[tuple[str, str]]:
    """Spans of a text whose words are between spaces."""
    ends = [i for i, char in enumerate(text) if char == " "] + [len(text)]
    places = list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))
    units = Units(
        np.array([NAMES[name] for name in labels], np.int32),
        np.ones(len(labels), np.float32),
        np.array(places, np.int32),
    )
    return [(span.text, span.polarity) for span in find_spans(text, units, LABELS)]


P, Q = "positive", "negative"


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ("O O O O", []),
        ("B-positive I-positive O O", [("a b", P)]),
        ("I-positive I-positive O I-positive", [("a b", P), ("d", P)]),  # an I without its B
        ("B-positive B-positive I-positive O", [("a", P), ("b c", P)]),
        ("B-positive I-negative I-negative O", [("a", P), ("b c", Q)]),  # another polarity inside
        ("B-positive O I-positive O", [("a", P), ("c", P)]),
        ("B-positive I-positive E-positive I-positive", [("a b c", P), ("d", P)]),  # after an E nothing goes on
        ("S-positive I-positive S-positive E-positive", [("a", P), ("b", P), ("c", P), ("d", P)]),
        ("B-positive E-negative E-negative O", [("a", P), ("b", Q), ("c", Q)]),
        ("B-positive B-positive E-positive E-positive", [("a", P), ("b c", P), ("d", P)]),  # a B without its E
    ],
)
def test_invalid_sequences_are_repaired_by_conllevals_rule(labels: str, want: list[tuple[str, str]]) -> None:
    assert spans_of("a b c d", *labels.split()) == want


def test_a_spans_score_is_the_mean_of_its_words() -> None:
    units = Units(np.array([1, 2], np.int32), np.array([0.5, 1.0], np.float32), np.array([[0, 1], [2, 3]], np.int32))
    (span,) = find_spans("a b", units, LABELS)
    assert (span.start, span.end, span.text, span.score) == (0, 3, "a b", 0.75)


def test_words_of_whitespace_take_no_part() -> None:
    units = Units(
        np.array([1, 0, 2], np.int32), np.array([1, 0, 1], np.float32), np.array([[0, 2], [2, 3], [3, 4]], np.int32)
    )
    (span,) = find_spans(" a b", units, LABELS)
    assert (span.start, span.end) == (1, 4)


@pytest.mark.parametrize(
    ("text", "place", "want"),
    [
        (unicodedata.normalize("NFD", "각 좋"), (0, 1), (0, 3)),
        (unicodedata.normalize("NFD", "각 좋"), (5, 6), (4, 7)),
        ("e\u0301 x", (0, 1), (0, 2)),
        ("👨\u200d👩\u200d👧 x", (2, 3), (0, 5)),
        ("👍🏽", (1, 2), (0, 2)),
        ("🇰🇷🇺🇸", (2, 3), (2, 4)),  # two flags: four letters in pairs
        ("1\ufe0f\u20e3", (0, 1), (0, 3)),
        ("a\r\nb", (0, 2), (0, 1)),
        ("a" + "\u0301" * 500, (300, 301), (0, 501)),
        ("  a  ", (0, 5), (2, 3)),
    ],
)
def test_a_character_is_never_cut(text: str, place: tuple[int, int], want: tuple[int, int]) -> None:
    units = Units(np.array([1], np.int32), np.ones(1, np.float32), np.array([place], np.int32))
    (span,) = find_spans(text, units, LABELS)
    assert (span.start, span.end) == want
    assert span.text == text[span.start : span.end]


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_characters_are_those_of_the_whole_text(text: str) -> None:
    edges = {0, *(match.end() for match in regex.finditer(r"\X", text))}
    for order in (range(len(text) + 1), range(len(text), -1, -1)):
        characters = Characters(text)
        for place in order:
            assert characters.start_of(place) == max(edge for edge in edges if edge <= place)
            assert characters.end_of(place) == min(edge for edge in edges if edge >= place)


@settings(max_examples=300, deadline=None)
@given(text=TEXT, data=st.data())
def test_spans_equal_the_plain_reference(text: str, data: st.DataObject) -> None:
    """Any labels on any cuts of any text, tokens that overlap included."""
    count = data.draw(st.integers(0, 12))
    starts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=count, max_size=count)))
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    ends = np.maximum.accumulate([min(len(text), s + n) for s, n in zip(starts, lengths, strict=True)] or [0]).tolist()
    places = [(start, max(start, end)) for start, end in zip(starts, ends, strict=False)]
    columns = data.draw(st.lists(st.integers(0, len(LABELS) - 1), min_size=count, max_size=count))
    scores = np.linspace(0.1, 1, count).astype(np.float32)
    units = Units(np.array(columns, np.int32), scores, np.array(places, np.int32).reshape(-1, 2))
    got = find_spans(text, units, LABELS)
    want = _spans(
        text,
        [(*place, LABELS[column], float(score)) for place, column, score in zip(places, columns, scores, strict=True)],
    )
    assert [(s.start, s.end, s.text, s.polarity) for s in got] == [(s.start, s.end, s.text, s.polarity) for s in want]
    np.testing.assert_allclose([s.score for s in got], [s.score for s in want], rtol=1e-6)
    assert all(a.end <= b.start for a, b in itertools.pairwise(got))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.sampled_from(list(Aggregation)), st.integers(0, 99))
def test_words_equal_the_plain_reference(sizes: list[int], aggregation: Aggregation, seed: int) -> None:
    words = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    rows = np.random.default_rng(seed).dirichlet(np.ones(len(LABELS)), len(words)).astype(np.float32)
    offsets = np.stack([np.arange(len(words)), np.arange(len(words)) + 1], axis=1).astype(np.int32)
    units = make_units(rows, words, offsets, aggregation)
    want = _labelled(list(zip(rows, offsets.tolist(), words.tolist(), strict=True)), LABELS, aggregation)
    assert units.places.tolist() == [[start, end] for start, end, _, _ in want]
    assert [LABELS[i] for i in units.labels] == [label for _, _, label, _ in want]
    np.testing.assert_allclose(units.scores, [score for _, _, _, score in want], rtol=1e-5)


def test_each_aggregation_has_its_own_answer() -> None:
    """A word of three tokens: O weakly, then B-positive, then B-negative surely."""
    rows = np.zeros((3, len(LABELS)), np.float32)
    rows[0, [0, 1]] = 0.55, 0.45
    rows[1, [0, 1]] = 0.1, 0.9
    rows[2, [1, 5]] = 0.05, 0.95
    words, offsets = np.zeros(3, np.int32), np.array([[0, 1], [1, 2], [2, 3]], np.int32)
    answers = {a: make_units(rows, words, offsets, a).labels.tolist() for a in Aggregation}
    assert answers == {
        Aggregation.FIRST: [0],
        Aggregation.AVERAGE: [1],
        Aggregation.MAX: [5],
        Aggregation.NONE: [0, 1, 5],
    }


@pytest.mark.parametrize("stride", [0, 3, 5, 7])
@pytest.mark.parametrize("tokens", [0, 1, 9, 10, 11, 15, 16, 40, 41])
def test_windows_cover_a_text_and_each_token_is_taken_where_it_has_most_context(tokens: int, stride: int) -> None:
    room = 10
    starts = window_starts(tokens, room, room - stride)
    windows = [range(start, min(start + room, tokens)) for start in starts]
    assert set().union(*windows) == set(range(tokens))
    assert len(starts) == 1 or starts[-1] + room - (room - stride) < tokens  # no window without a token of its own
    parts = [np.array([[number] for _ in window], np.float32).reshape(-1, 1) for number, window in enumerate(windows)]
    merged = merge_windows(parts, starts)
    assert merged.shape == (tokens, 1)
    for token in range(tokens):
        context = {
            number: min(
                token - window[0] if window[0] else 99,
                window[-1] - token if window[-1] < tokens - 1 else 99,
            )
            for number, window in enumerate(windows)
            if token in window
        }
        assert merged[token, 0] == min(number for number, size in context.items() if size == max(context.values()))


NFD = unicodedata.normalize("NFD", "이 집 음식은 정말 맛있어요")


@pytest.mark.parametrize(
    ("text", "term", "place"),
    [
        ("The Food, the food", "food", (14, 18)),
        ("The FOOD", "food", (4, 8)),
        ("음식이 좋아요", "음식", (0, 2)),
        ("İstanbul food", "food", (9, 13)),  # lower() of the first letter has two code points
        ("nothing", "food", (0, 0)),
        ("a+b", "+", (1, 2)),
        ("food", "", (0, 0)),
        (NFD, "음식", (NFD.index("\u110b\u1173\u11b7"), NFD.index("\u110b\u1173\u11ab"))),
        ("음식은", unicodedata.normalize("NFD", "음식"), (0, 2)),
        ("CAFE\u0301", "café", (0, 5)),
        ("cafe\u0301 rocks", "cafe", (0, 0)),  # half of its last character
        ("STRASSE", "straße", (0, 7)),
        ("Straße", "STRASSE", (0, 6)),
        ("straße", "s", (0, 1)),  # not half of the letter that folds to two
        ("The skeyboard broke a key", "key", (22, 25)),  # a word before a part of one
        ("The skeyboard broke a KEY", "key", (22, 25)),
        ("skeyboard", "key", (1, 4)),  # the part where there is no word
        ("keys and a Key", "key", (11, 14)),
        ("피자음식이나 음식이", "음식", (7, 9)),  # a word's beginning before its inside
        ("이pizza가 아니라 pizza가", "pizza", (12, 17)),
        ("这家餐厅的菜很好吃", "餐厅", (2, 4)),
        ("👍🏽 food 👍", "👍", (8, 9)),  # another skin colour is another character
        ("key\r\nkey", "\n", (0, 0)),
    ],
)
def test_where_a_text_names_an_aspect(text: str, term: str, place: tuple[int, int]) -> None:
    assert Terms(text).find(term) == place


@settings(max_examples=100, deadline=None)
@given(TEXT, TEXT)
def test_a_names_place_is_one_of_whole_characters(text: str, term: str) -> None:
    start, end = Terms(text).find(term)
    edges = {0, *(match.end() for match in regex.finditer(r"\X", text))}
    assert {start, end} <= edges
    if end:
        fold = [
            unicodedata.normalize("NFC", unicodedata.normalize("NFC", part).casefold())
            for part in (text[start:end], term)
        ]
        assert fold[0] == fold[1]

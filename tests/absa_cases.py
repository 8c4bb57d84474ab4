"""The parity set of aspect-based sentiment: 414 generated texts, the same ones every time."""

from __future__ import annotations

import random
import unicodedata

LABELS = ("O", *(f"{tag}-{aspect}-{polarity}" for aspect in ("food", "음식#맛") for polarity in ("positive", "NEG")
          for tag in "BI"))  # fmt: skip
"""Nine labels; the second aspect holds a separator."""
SENTIMENT = ("negative", "neutral", "positive")

FIXED = (
    "", " ", "Hi", "좋아요", "😀", "a", ".", "\n", "\t \t", "\u0000", "\ufeff", "\u200b", "é", "e\u0301",
    unicodedata.normalize("NFD", "각"), "👨\u200d👩\u200d👧", "🇰🇷🇰🇷", "1\ufe0f\u20e3", " leading", "trailing \r\n",
)  # fmt: skip
KOREAN = """음식이 맛있어요 서비스가 정말 좋았습니다 가격은 비싸지만 분위기는 최고예요 직원분들이 불친절했어요 전망이
예뻐서 또 가고 싶어요 파스타는 별로였고 커피는 훌륭했습니다 위치가 애매해요 화장실이 더러웠어요 전체적으로
만족합니다""".split()
ENGLISH = """The pasta was delicious but service slow and prices were too high for a small café near river we loved view
staff friendly room dirty breakfast cold coffee great not bad at all never again would recommend quick brown
fox""".split()
EMOJI = ("😀", "🚀", "👍🏽", "❤️", "👨\u200d👩\u200d👧\u200d👦", "🇰🇷", "1️⃣", "😡😡", "✨")
MIXED = ("卫生间", "餐厅的菜很好吃", "Ça", "naïve", "Größe", "ресторан", "مطعم", "कॉफ़ी", "กาแฟ", "①", "ﬁne", "㈱",
         "ｆｕｌｌ")  # fmt: skip
ODD = ("\u200b", "\u200d", "\ufeff", "\u00a0", "\u3000", "\t", "\r\n", "\u0301", "\x07", "[SEP]", "</s>",
       "\u2028", "🏽")  # fmt: skip


def absa_cases() -> list[str]:
    """All cases."""
    rng = random.Random(414)

    def words(vocabulary: tuple[str, ...] | list[str], low: int, high: int) -> str:
        text = " ".join(rng.choice(vocabulary) for _ in range(rng.randint(low, high)))
        return text + rng.choice(("", ".", "!", "…", "?!", " ㅋㅋ"))

    def scattered(text: str, pieces: tuple[str, ...], count: int) -> str:
        for _ in range(count):
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(pieces) + text[at:]
        return text

    everything = [*KOREAN, *ENGLISH, *EMOJI, *MIXED]
    cases = list(FIXED)
    cases += [words(KOREAN, 3, 30) for _ in range(120)]
    cases += [words(ENGLISH, 3, 40) for _ in range(120)]
    cases += [scattered(words(everything, 2, 25), EMOJI, rng.randint(1, 4)) for _ in range(60)]
    cases += [unicodedata.normalize("NFD", words([*KOREAN, *MIXED, "café"], 2, 20)) for _ in range(40)]
    cases += [rng.choice(everything) for _ in range(20)]
    cases += [words([*KOREAN, *ENGLISH], 200, 600) for _ in range(20)]
    cases += [scattered(words(everything, 3, 15), ODD, rng.randint(2, 6)) for _ in range(12)]
    cases += [" ".join(rng.choice(vocabulary) for _ in range(5_000)) for vocabulary in (KOREAN, ENGLISH)]
    return cases

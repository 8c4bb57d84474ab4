"""The reviews that the check asserts and the model card shows."""

from __future__ import annotations

Target = tuple[str, str, str]
"""(text, aspect, polarity)"""

# Text, sentiment, and targets with what is said of them.
REVIEWS: tuple[tuple[str, str, tuple[Target, ...]], ...] = (
    (
        "The pasta was delicious but the waiter was rude.",
        "neutral",
        (("pasta", "food", "positive"), ("waiter", "service", "negative")),
    ),
    (
        "Great location and friendly staff, we will definitely come back!",
        "positive",
        (("location", "location", "positive"), ("staff", "service", "positive")),
    ),
    (
        "The bathroom was filthy, the music was too loud, and the prices are way too much.",
        "negative",
        (
            ("bathroom", "cleanliness", "negative"),
            ("music", "atmosphere", "negative"),
            ("prices", "price", "negative"),
        ),
    ),
    (
        "The wine was not bad and the view from the window was breathtaking 😍",
        "positive",
        (("wine", "food", "positive"), ("view from the window", "view", "positive")),
    ),
    ("The soup was just okay.", "neutral", (("soup", "food", "neutral"),)),
    ("We ordered the steak and paid by card.", "neutral", ()),
    (
        "음식은 맛있었지만 직원이 불친절했어요.",
        "neutral",
        (("음식", "food", "positive"), ("직원", "service", "negative")),
    ),
    (
        "분위기가 아늑하고 전망도 정말 예뻐요! 또 갈게요",
        "positive",
        (("분위기", "atmosphere", "positive"), ("전망", "view", "positive")),
    ),
    (
        "화장실이더럽고가격도비싸요ㅠㅠ",
        "negative",
        (("화장실", "cleanliness", "negative"), ("가격", "price", "negative")),
    ),
    (
        "위치는 역에서 멀지만 서비스는 나쁘지 않았어요",
        "neutral",
        (("위치", "location", "negative"), ("서비스", "service", "positive")),
    ),
    (
        "pasta가 맛있어요 but the service was slow",
        "neutral",
        (("pasta", "food", "positive"), ("service", "service", "negative")),
    ),
    ("그냥 보통이에요", "neutral", ()),
    ("좋아요", "positive", ()),
    ("최악이에요. 다시는 안 가요.", "negative", ()),
    ("Hi", "neutral", ()),
    ("👍", "positive", ()),
)

"""Korean: forms of predicates, particles, and clauses that say something of a target."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_zoo.absa_pieces import Piece, Point, fill, plain
from model_zoo.absa_words import FILLERS_KO

SYLLABLES = tuple(bytes([row, cell]).decode("euc_kr") for row in range(0xB0, 0xC9) for cell in range(0xA1, 0xFF))
"""The 2,350 syllables of KS X 1001: nearly all that Korean uses."""
_FIRST, _FINALS = ord("가"), 28
_L, _LM, _M, _B, _SS = 8, 10, 16, 17, 20  # numbers of the final consonants ㄹ, ㄻ, ㅁ, ㅂ, ㅆ

ADVERBS = ("정말", "너무", "아주", "진짜", "매우", "완전", "꽤", "엄청", "되게", "상당히", "참", "전체적으로")
LUKEWARM_ADVERBS = ("그냥", "대체로", "전체적으로", "딱")
NEGATIVE_ADVERBS = ("별로", "그다지", "전혀", "그렇게", "생각보다")
OPENINGS = ("일단", "솔직히", "특히", "역시", "근데", "그리고", "하지만", "또", "다만", "그런데", "게다가")
UNSEEN_OPENINGS = ("무엇보다", "개인적으로", "한편", "의외로", "알고 보니")

# {T}: a target, {P}: what is said of it, {N}: that before a noun; [이/가]: the particle that fits the word before it.
CLAUSES = (
    "{T}[이/가] {P}",
    "{T}[이/가] {P}",
    "{T}[이/가] {P}",
    "{T}[은/는] {P}",
    "{T}[은/는] {P}",
    "{T}도 {P}",
    "{T} {P}",
    "{T} {P}",
    "{T}[이/가] 제일 {P}",
    "여기 {T} {P}",
    "{T} 자체는 {P}",
    "{T}[은/는] 여전히 {P}",
    "{T}[이/가] 생각보다 {P}",
    "거기 {T}[이/가] {P}",
    "{T} 부분은 {P}",
    "{T}까지 {P}",
    "{T}의 경우 {P}",
    "{T} 하나는 {P}",
    "{T}마저 {P}",
    "{T} 면에서는 {P}",
    "{T}[이야/야] {P}",
    "{T}에 대해 말하자면 {P}",
    "{T}부터 {P}",
    "{T}[이라는/라는] 게 {P}",
    "{T}[은/는] 뭐랄까 {P}",
    "{T}에서 느낀 건 {P}",
    "우리 {T}[이/가] {P}",
)
UNSEEN_CLAUSES = (
    "{T}만큼은 {P}",
    "{T} 같은 경우는 {P}",
    "{T}[이/가] 어찌나 {P}",
    "이번에 {T}[이/가] {P}",
    "{T}[은/는] 누가 봐도 {P}",
    "{T} 쪽은 {P}",
)
PAIRS = (
    "{T}[과/와] {U}[이/가] {P}",
    "{T}랑 {U} 둘 다 {P}",
    "{T}, {U} 모두 {P}",
    "{T}[이나/나] {U} 다 {P}",
    "{T}도 {U}도 {P}",
)
UNSEEN_PAIRS = ("{T} 그리고 {U}[이/가] {P}", "{T} 및 {U}[은/는] {P}")
# Only at the end of a sentence.
ENDINGS = (
    "{N} {T}[이에요/예요]",
    "{N} {T}[이었어요/였어요]",
    "{N} {T}",
    "{N} {T}[을/를] 즐겼어요",
    "{T} {B}",
    "{T}[은/는] {B}",
    "{T}: {B}",
    "{T} - {B}",
    "{T} {B}",
    "{N} {T} 때문에 왔어요",
    "{N} {T}[이/가] 기억나요",
    "{T}[이/가] {B}",
    "{N} {T}[이/가] 있는 곳",
    "{N} {T}[을/를] 원하면 여기",
    "{N} {T}에 놀람",
    "{N} {T}[이/가] 다 했어요",
    "{T} => {B}",
    "{T}... {B}",
)
UNSEEN_ENDINGS = ("{N} {T} 덕에 기억에 남아요", "{N} {T}[이라/라] 놀랐어요", "{T} -> {B}", "{T}? {B}")


@dataclass(frozen=True)
class Predicate:
    """A predicate by the forms that the others are made of: 맛있, 맛있어, 맛있는, 맛있었."""

    stem: str
    soft: str
    modifier: str
    past: str

    @property
    def is_noun(self) -> bool:
        """Whether it is a noun with the copula."""
        return self.soft.endswith(("이에", "예"))


def read_predicate(entry: str) -> Predicate:
    """A predicate as ``absa_words`` writes it."""
    if entry.endswith("="):
        noun = entry[:-1]
        soft, past = ("이에", "이었") if has_final(noun) else ("예", "였")
        return Predicate(noun + "이", noun + soft, noun + "인", noun + past)
    stem, soft, modifier = entry.split("/")
    return Predicate(stem, soft, modifier, _with_final(soft, _SS))


def negated(predicate: Predicate, rng: random.Random) -> Predicate:
    """The predicate's opposite: 맛있지 않다, 안 맛있다, 최고는 아니다."""
    if predicate.is_noun:
        noun = predicate.stem[:-1]
        head = noun + particle(noun, *rng.choice((("이", "가"), ("은", "는")))) + " 아니"
        return Predicate(head, head + "에", head[:-1] + "닌", head + "었")
    if rng.random() < 0.3:
        return Predicate(*("안 " + f for f in (predicate.stem, predicate.soft, predicate.modifier, predicate.past)))
    head = predicate.stem + rng.choice(("지 않", "지 않", "지는 않", "진 않"))
    return Predicate(head, head + "아", head + "은", head + "았")


def _final(syllable: str) -> int:
    code = ord(syllable) - _FIRST
    return code % _FINALS if 0 <= code < 11172 else 0


def has_final(word: str) -> bool:
    """Whether a word ends in a consonant; of Latin words only guessed, as writers do."""
    last = word[-1].lower()
    return _final(last) > 0 if "가" <= last <= "힣" else last in "bcdgklmnprt0136788"


def _with_final(word: str, final: int) -> str:
    code = ord(word[-1]) - _FIRST
    return word[:-1] + chr(_FIRST + code - code % _FINALS + final)


def particle(word: str, after_consonant: str, after_vowel: str) -> str:
    """The form of a particle that fits a word."""
    return after_consonant if has_final(word) else after_vowel


def _stem(predicate: Predicate, ending: str) -> str:
    """The stem with an ending; a final ㄹ falls before ㄴ and ㅅ, and the copula after a vowel."""
    stem = predicate.stem.removesuffix("이") if predicate.soft.endswith("예") else predicate.stem
    if _final(stem[-1]) == _L and ending[0] in "네니습":
        stem = _with_final(stem, 0)
    return stem + ending


def _polite(predicate: Predicate) -> str:
    final = _final(predicate.stem[-1])
    return predicate.stem + "습니다" if final and final != _L else _with_final(predicate.stem, _B) + "니다"


def _nominal(predicate: Predicate) -> str:
    if _final(predicate.stem[-1]) == _L:
        return _with_final(predicate.stem, _LM)
    if predicate.modifier.endswith("는"):
        stem = predicate.stem
        return stem + "음" if _final(stem[-1]) else _with_final(stem, _M)
    return _with_final(predicate.modifier, _M)


def closing(predicate: Predicate, rng: random.Random) -> str:
    """A form that ends a sentence."""
    p = predicate
    forms = [
        p.soft + "요",
        p.soft + "요",
        p.past + "어요",
        p.past + "어요",
        _polite(p),
        p.past + "습니다",
        _stem(p, "네요"),
        p.past + "네요",
        p.past + "음",
        _nominal(p),
        p.past + "다",
        p.stem + "더라고요",
        p.past + "고요",
        p.past + "는데요",
        p.past + "어용",
        p.stem + "거든요",
    ]
    if not p.is_noun:
        forms += [p.soft, p.stem + "다", p.past + "어", p.soft + "용", p.soft + "여"]
    return rng.choice(forms)


def linking(predicate: Predicate, rng: random.Random, contrast: bool) -> str:
    """A form that a clause follows."""
    p = predicate
    if contrast:
        return rng.choice(
            (p.stem + "지만", p.past + "지만", p.modifier + "데", p.past + "는데", p.past + "으나", p.past + "는데,")
        )
    forms = [p.stem + "고", p.stem + "고", p.past + "고", p.stem + "며", p.stem + "고,", p.past + "고요,"]
    return rng.choice(forms if p.is_noun else [*forms, p.soft + "서", p.soft + "서"])


def _said(predicate: Predicate, polarity: str, negative: bool, rng: random.Random) -> str:
    """An adverb, perhaps."""
    if negative:
        return rng.choice(NEGATIVE_ADVERBS) + " " if rng.random() < 0.4 else ""
    if rng.random() > 0.4 or predicate.stem.startswith(("너무", "안 ", "그", "나쁘지도")):
        return ""
    return rng.choice(LUKEWARM_ADVERBS if polarity == "neutral" else ADVERBS) + " "


def filler(rng: random.Random, unseen: bool) -> str:
    """Words in front of an opinion that say nothing; some of them nobody has heard of."""
    draw = rng.random()
    if draw < 0.7:
        return ""
    if draw < 0.78 and not unseen:
        made = "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3))))
        return made + rng.choice(("하게 ", "히 ", "로 ", " ", "게 ", "나 ", "면 ", "에 ", "한테 "))
    return rng.choice(FILLERS_KO.unseen if unseen and rng.random() < 0.5 else FILLERS_KO.known) + " "


def clause(rng: random.Random, point: Point, link: bool | None, unseen: bool) -> list[Piece]:
    """A clause that says ``point``.

    Args:
        rng: chance.
        point: what to say.
        link: what follows is in contrast to it (True) or goes on (False); None: nothing follows.
        unseen: in the held-out forms.
    """
    predicate = read_predicate(point.opinion)
    if point.negated:
        predicate = negated(predicate, rng)

    def ended(some: Predicate) -> str:
        return closing(some, rng) if link is None else linking(some, rng, link)

    said = _said(predicate, point.polarity, point.negated, rng) + ended(predicate)
    if point.second is not None:
        other = read_predicate(point.second)
        said = _said(predicate, point.polarity, False, rng) + predicate.stem + f"고 {ended(other)}"
    if point.foreign is not None:
        tail = "" if link is None and rng.random() < 0.5 else "했어요" if link is None else "했지만" if link else "하고"
        said = point.foreign + tail
    if len(point.terms) > 1:
        form = rng.choice(UNSEEN_PAIRS if unseen else PAIRS)
    elif link is None and rng.random() < 0.3:
        form = rng.choice(UNSEEN_ENDINGS if unseen else ENDINGS)
    else:
        form = rng.choice(UNSEEN_CLAUSES if unseen else CLAUSES)
    if "{B}" in form and point.blunt is None:
        form = form.replace("{B}", "{P}")
    if "{N}" in form and (point.foreign is not None or (predicate.is_noun and rng.random() < 0.5)):
        form = "{T} {P}"
    if link is not None or rng.random() < 0.25:
        said = filler(rng, unseen) + said
    if rng.random() < 0.15 and not form.startswith(("여기", "거기", "이번에")):
        form = f"{rng.choice(UNSEEN_OPENINGS if unseen else OPENINGS)} {form}"
    elif rng.random() < 0.08:
        form = filler(rng, unseen) + form
    values = {"P": said, "N": predicate.modifier, "B": point.blunt or ""}
    return _with_particles(fill(form, point, values))


_PARTICLE = re.compile(r"\[([^/\]]*)/([^/\]]*)\]")


def _with_particles(pieces: Sequence[Piece]) -> list[Piece]:
    done: list[Piece] = []
    for piece in pieces:
        before = "".join(p.text for p in done)
        done.append(replace(piece, text=with_particles(piece.text, before) if piece.mark is None else piece.text))
    return done


def with_particles(text: str, before: str = "") -> str:
    """The text with each ``[은/는]`` decided by the word in front of it."""
    while match := _PARTICLE.search(text):
        word = (before + text[: match.start()]).rstrip() or "가"
        text = text[: match.start()] + particle(word, match[1], match[2]) + text[match.end() :]
    return text


def remark(rng: random.Random, target: str, opinion: str, polarity: str) -> list[Piece]:
    """Something of a place as a whole, which is no aspect."""
    said = closing(read_predicate(opinion), rng)
    form = rng.choice(("{0}[이/가] {1}", "{0}[은/는] {1}", "{0} {1}", "{0} 진짜 {1}"))
    return plain(with_particles(form.format(target, said)), polarity)

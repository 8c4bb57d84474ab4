"""Sticky keys: stable, fair, and moved by a change of weights only where they must."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.api.fields import ClientFields
from serve_app.errors import InvalidRequest
from serve_app.routing.sticky import pick, sticky_key
from serve_app.settings import StickySettings

KEYS = [f"user-{i}" for i in range(20_000)]
FIRST_KEYS = "33332211"  # of a to h, with three equal weights


def _all(weights: dict[str, float], salt: str = "ce") -> dict[str, str]:
    return {key: pick(key, weights, salt) for key in KEYS}


def _moves(before: dict[str, str], after: dict[str, str]) -> Counter[tuple[str, str]]:
    return Counter((before[key], after[key]) for key in KEYS if before[key] != after[key])


def test_every_version_gets_its_share_of_the_keys() -> None:
    shares = Counter(_all({"1": 6, "2": 3, "3": 1}).values())
    for version, share in {"1": 0.6, "2": 0.3, "3": 0.1}.items():
        assert shares[version] / len(KEYS) == pytest.approx(share, abs=0.012)


def test_the_same_key_gets_the_same_version_in_every_process() -> None:
    keys, weights = KEYS[:200], {"1": 9, "2": 1}
    code = (
        "from serve_app.routing.sticky import pick\n"
        f"print(''.join(pick(f'user-{{i}}', {weights!r}, 'ce') for i in range({len(keys)})))"
    )
    for seed in ("1", "2"):
        out = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
                             capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
        assert out == "".join(pick(key, weights, "ce") for key in keys)
    assert [pick(key, dict(reversed(weights.items())), "ce") for key in keys] == list(out)
    # the hash is part of the contract: another one would deal all keys anew at an update
    assert [pick(key, {"1": 1, "2": 1, "3": 1}, "ce") for key in "abcdefgh"] == list(FIRST_KEYS)


def test_a_shift_between_two_versions_moves_exactly_what_it_must() -> None:
    steps = [{"1": 100 - p, "2": p} for p in (1, 10, 50, 99)]
    placed = [_all({v: w for v, w in step.items() if w}) for step in steps]
    for before, after, share in zip(placed[:-1], placed[1:], (0.09, 0.40, 0.49), strict=True):
        moves = _moves(before, after)
        assert set(moves) == {("1", "2")}
        assert moves["1", "2"] / len(KEYS) == pytest.approx(share, abs=0.012)


def test_a_version_that_comes_only_takes_and_one_that_goes_only_gives() -> None:
    before, after = _all({"1": 6, "2": 3}), _all({"1": 6, "2": 3, "3": 1})
    assert {to for _, to in _moves(before, after)} == {"3"}
    assert sum(_moves(before, after).values()) / len(KEYS) == pytest.approx(0.1, abs=0.012)
    assert {source for source, _ in _moves(after, before)} == {"3"}


def test_weights_count_by_their_proportion() -> None:
    assert _all({"1": 9, "2": 1}) == _all({"1": 0.9, "2": 0.1})


def test_another_salt_deals_the_keys_anew() -> None:
    one, other = (_all({"1": 1, "2": 1}, salt).values() for salt in ("ce", "x"))
    same = sum(a == b for a, b in zip(one, other, strict=True))
    assert same / len(KEYS) == pytest.approx(0.5, abs=0.02)


@given(
    key=st.text(),
    weights=st.dictionaries(st.text(), st.floats(1e-6, 1e6), min_size=1, max_size=5),
    grown=st.floats(1.0, 1e3),
)
def test_growth_never_sends_a_key_elsewhere(key: str, weights: dict[str, float], grown: float) -> None:
    chosen = pick(key, weights, "ce")
    assert chosen in weights
    assert pick(key, {**weights, chosen: weights[chosen] * grown}, "ce") == chosen


def test_the_header_goes_before_the_field() -> None:
    settings = StickySettings(header="X-Customer", field="user")
    assert sticky_key(settings, {"x-customer": "a"}, {"user": "b"}) == "a"
    assert sticky_key(settings, {}, {"user": "b"}) == "b"
    assert sticky_key(settings, {}, {"user": None}) is None
    assert sticky_key(settings, {"x-customer": ""}, {"user": ""}) is None
    assert sticky_key(StickySettings(), {}, {"user": "b"}) is None
    with pytest.raises(InvalidRequest, match="user: must be a string"):
        sticky_key(settings, {}, {"user": 5})


def test_every_field_that_can_hold_a_key_is_one_that_bodies_take() -> None:
    fields = [name for name in ("user", "client_name", "cache_salt") if StickySettings.model_validate({"field": name})]
    assert set(fields) <= set(ClientFields.model_fields)

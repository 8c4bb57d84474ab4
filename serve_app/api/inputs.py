"""Readers for `input` and `inputs`: texts, images, token ids, and TEI's pairs.

Every reader raises InvalidRequest with the caller's field and index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from serve_app.api.texts import all_are, filled_list, read_item, read_list, read_text, string
from serve_app.api.wording import brief, kind_of
from serve_app.errors import InvalidRequest
from serve_app.messages import ImageRef

_MAX_TOKEN_ID = 2**31 - 1

T = TypeVar("T")


def read_text_inputs(value: Any, field: str) -> list[str | list[int]]:
    """OpenAI's `input`: a text, texts, one list of token ids, or lists of token ids."""
    return _read_inputs(value, field, "a string, a list of strings, or token ids", read_text)


def read_inputs(value: Any, field: str) -> list[str | list[int] | ImageRef]:
    """As read_text_inputs, and images; all three may stand in one list."""
    return _read_inputs(value, field, "a string, a list of strings or images, or token ids", read_item)


@dataclass(frozen=True, slots=True)
class PairInputs:
    """TEI's `inputs` of /predict; single: one input outside of a batch, whose answer is not a list of lists."""

    items: list[str | tuple[str, str]]
    single: bool


def read_pair_inputs(value: Any, field: str) -> PairInputs:
    """TEI's `inputs` of /predict: a text, `[text]`, a pair `[text, text]`, or a batch `[[text], [text, text], …]`."""
    if isinstance(value, str):
        return PairInputs([value], single=True)
    items = filled_list(value, field, "a string, a pair of strings, or a batch [[text], [text, text], …]")
    if isinstance(items[0], list):
        return PairInputs([_read_pair(item, f"{field}[{index}]") for index, item in enumerate(items)], single=False)
    if len(items) > 2 and all_are(str, items):
        raise InvalidRequest(
            f"{field}: a list of strings is one text or one pair here; got {len(items)}. "
            'Send a batch as [["first"], ["second"], …]',
            field,
        )
    return PairInputs([_read_pair(items, field)], single=True)


def _read_inputs(value: Any, field: str, what: str, read: Callable[[Any, str], T]) -> list[T | list[int]]:
    if isinstance(value, list) and value and type(value[0]) is int:
        return [_token_ids(value, field)]

    def read_one(item: Any, path: str) -> T | list[int]:
        return _token_ids(item, path) if isinstance(item, list) else read(item, path)

    return read_list(value, field, what, read_one)


def _token_ids(ids: Sequence[Any], path: str) -> list[int]:
    if not ids:
        raise InvalidRequest(f"{path}: must not be empty", path)
    if all_are(int, ids) and min(ids) >= 0 and max(ids) <= _MAX_TOKEN_ID:
        return list(ids)
    index, bad = next((i, t) for i, t in enumerate(ids) if type(t) is not int or not 0 <= t <= _MAX_TOKEN_ID)
    raise InvalidRequest(f"{path}[{index}]: must be a token id, 0 or more; got {brief(bad)}", f"{path}[{index}]")


def _read_pair(item: Any, path: str) -> str | tuple[str, str]:
    if not isinstance(item, list):
        raise InvalidRequest(f"{path}: must be [text] or [text, text]; got {kind_of(item)}", path)
    for index, text in enumerate(item):
        string(text, f"{path}[{index}]")
    if len(item) not in (1, 2):
        raise InvalidRequest(f"{path}: must be [text] or [text, text]; got a list of {len(item)}", path)
    return (item[0], item[1]) if len(item) == 2 else item[0]

"""An image as callers name it: `{"image": …}`, `{"image_url": …}`, and the forms that the string in there may have.

| string | becomes |
| --- | --- |
| `https://…`, `http://…` | a URL |
| `data:image/…;base64,…` | bytes |
| anything else with a scheme (`file:`, `ftp:`, `c:`) | a URL, which the image loader refuses for its document alone |
| anything else | bytes: bare base64 |

Base64 is read as protobuf's JSON does: standard or URL-safe alphabet, padding or none; line breaks, which MIME encoders
add, are skipped. Anything else in it is an error, not skipped. No message repeats any of it.

A string that is none of these costs its document only: the `ImageRef` carries the complaint, and the image stage makes
an `ItemError` of it. What is no string is a mistake of the program that sent it, and refuses the request.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Collection, Mapping
from typing import Any

from serve_app.api.wording import brief, kind_of
from serve_app.errors import InvalidRequest
from serve_app.messages import ImageRef

IMAGE_KEYS = ("image", "image_url")
"""Keys of an object that is an image."""

MEDIA_KEYS = frozenset({*IMAGE_KEYS, "images", "image_embeds", "video", "video_url", "audio", "audio_url"})
"""Keys that other servers read media from."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,30}:", re.IGNORECASE | re.ASCII)
"""Base64 has no colon. Bounded, because the string may be megabytes of base64."""

_MAX_DATA_HEADER = 256
_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
_LINE_BREAKS = b" \t\r\n"

EMPTY = "must not be empty"
_NEITHER = "must be a URL with its scheme, a data: URL or base64; got neither"
_NO_PAYLOAD = "what follows the comma of the data: URL must be base64"


def read_image(value: Any, path: str) -> ImageRef:
    """One image from the string that names it, or what is wrong with it; a large one costs 6 ms per MB of base64.

    Raises:
        InvalidRequest: not a string.
    """
    if not isinstance(value, str):
        raise InvalidRequest(f"{path}: must be a URL, a data: URL or base64; got {kind_of(value)}", path)
    text = value.strip()
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[0].lower() != "data:":
        return ImageRef(url=text)
    try:
        return ImageRef(data=_unbase64(text) if scheme is None else _unbase64(_payload(text), _NO_PAYLOAD))
    except _Unusable as error:
        return unusable_image(f"{path}: {error}")


def unusable_image(complaint: str) -> ImageRef:
    """An image of which nothing can be made. complaint: names the field."""
    return ImageRef(data=b"", complaint=complaint)


def image_of(fields: Mapping[str, Any], path: str, *, extras: bool = False) -> ImageRef:
    """The image of an object that has one of `MEDIA_KEYS`.

    Args:
        fields: the object without its nulls.
        extras: other keys are the caller's own data (Cohere v1 documents) and not an error.
    """
    names = [name for name in ("text", "content", *IMAGE_KEYS) if name in fields]
    for name in sorted(MEDIA_KEYS & fields.keys()):
        if name not in IMAGE_KEYS:
            raise InvalidRequest(f"{path}.{name}: only 'image' and 'image_url' are served", f"{path}.{name}")
    if len(names) > 1:
        raise InvalidRequest(f"{path}: {names[0]} or {names[1]}, not both", path)
    name = names[0]
    if not extras:
        # OpenAI's content parts say what they are.
        if name == "image_url" and fields.get("type", name) != name:
            raise InvalidRequest(f"{path}.type: must be 'image_url'; got {brief(fields['type'])}", f"{path}.type")
        refuse_others(fields, path, ("type", name) if name == "image_url" else (name,))
    value, where = fields[name], f"{path}.{name}"
    if name == "image_url" and isinstance(value, Mapping):
        return _image_url(value, where)
    return read_image(value, where)


def refuse_others(fields: Mapping[str, Any], path: str, known: Collection[str]) -> None:
    """Raises InvalidRequest for the first field that is not among the known ones; the last of them is the message's."""
    for name in fields:
        if name not in known:
            raise InvalidRequest(f"{path}: unknown field {brief(name)} beside '{[*known][-1]}'", path)


def _image_url(value: Mapping[str, Any], path: str) -> ImageRef:
    """OpenAI's `{"url": …, "detail": …}`; the model's checkpoint says in which detail an image is read."""
    fields = {name: inner for name, inner in value.items() if inner is not None}
    if "url" not in fields:
        raise InvalidRequest(f"{path}.url: is required", f"{path}.url")
    refuse_others(fields, path, ("detail", "url"))
    return read_image(fields["url"], f"{path}.url")


class _Unusable(ValueError):
    """What is wrong with a string, as a predicate."""


def _payload(url: str) -> str:
    """What a `data:` URL holds, still in base64; no media type, or an image's. Raises _Unusable."""
    comma = url.find(",", 0, _MAX_DATA_HEADER)
    media_type, *parameters = url[len("data:") : max(comma, 0)].lower().split(";")
    if comma < 0 or not parameters or parameters[-1].strip() != "base64":
        raise _Unusable("a data: URL must read data:image/…;base64,…")
    if media_type.strip() and not media_type.strip().startswith("image/"):
        raise _Unusable(f"a data: URL must be of an image; its media type is {brief(media_type)}")
    return url[comma + 1 :]


def _unbase64(text: str, complaint: str = _NEITHER) -> bytes:
    """Strict, and in one pass for what most encoders write; _Unusable when it is empty or no base64."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except ValueError:
        try:
            packed = text.encode("ascii").translate(_STANDARD_ALPHABET, _LINE_BREAKS)
            if not packed.endswith(b"="):
                packed += b"=" * (-len(packed) % 4)
            data = a2b_base64(packed, strict_mode=True)
        except ValueError:  # binascii.Error, or characters outside ASCII
            raise _Unusable(complaint) from None
    if not data:
        raise _Unusable(EMPTY)
    return data

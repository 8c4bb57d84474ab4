"""The one error of this package; the loader turns it into an `ItemError`, and it goes no further."""

from __future__ import annotations

from serve_app.vocabulary import MediaErrorCode


class MediaError(Exception):
    """One image could not be used.

    Args:
        code: why.
        message: a predicate without its subject (`answered 404`), since one failed fetch may concern several fields of
            several requests; the loader puts the field in front. Says nothing of what was found at a URL.
    """

    def __init__(self, code: MediaErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message

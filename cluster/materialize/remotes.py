"""Where checkpoints come from: a listing, and the bytes of a file from an offset on."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from blake3 import blake3

from serve_app.materialized import is_inside
from serve_app.sources import SourceError, local_directory

CHUNK = 4 << 20
"""Bytes of one read."""
BLOCK = 32 << 20
"""Bytes of one request to an object store."""
NOT_SERVED = ("*.onnx", "*.h5", "*.msgpack", "*.gguf", "*.ot", "*.tflite", "*.pb", "onnx/*", "openvino/*", "coreml/*")
"""Files of other frameworks, which vLLM does not read."""
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Weights that are left out where there are safetensors in the same folder."""


class Unreachable(Exception):
    """The source did not answer, which says nothing about what it holds."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a source.

    Attributes:
        path: below the checkpoint's folder.
        size: bytes.
        sha256, git_sha1: what the source says its hash is; None: it says nothing. The second is git's blob hash.
    """

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source holds now. `revision` changes when any file does."""

    revision: str
    files: tuple[RemoteFile, ...]


class Remote(Protocol):
    """A checkpoint somewhere else."""

    def list(self) -> Listing:
        """Its files.

        Raises:
            SourceError: there is no checkpoint.
            Unreachable: no answer.
        """
        ...

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """A file's bytes from `offset` on. Raises Unreachable when the connection breaks; what came is good."""
        ...


def open_remote(source: str, revision: str | None) -> Remote:
    """The remote of a source as the configuration names it.

    Raises:
        SourceError: it names nothing that can be read.
    """
    if "://" not in source and (folder := local_directory(source)) is None:
        return HubRemote(source, revision)
    if revision is not None:
        raise SourceError(f"revision: only a hub has revisions; '{source}' is none")
    return FileRemote(source if "://" in source else str(folder))


def served_files(files: Iterable[RemoteFile], source: str) -> tuple[RemoteFile, ...]:
    """Without hidden files, other frameworks' weights, and pickles beside safetensors, folder by folder.

    Raises:
        SourceError: no config.json, or a path that leads out of the folder.
    """
    kept = [file for file in files if not any(part.startswith(".") and part != ".." for part in file.path.split("/"))]
    for file in kept:
        if not is_inside(file.path):
            raise SourceError(f"'{source}': the path '{file.path}' leads out of the folder")
    safe = {_folder(file.path) for file in kept if file.path.endswith(".safetensors")}
    kept = [
        file
        for file in kept
        if not _matches(file.path, NOT_SERVED) and not (_folder(file.path) in safe and _matches(file.path, PICKLED))
    ]
    if not any(file.path == "config.json" for file in kept):
        raise SourceError(f"'{source}' holds no config.json")
    return tuple(sorted(kept, key=lambda file: file.path))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


class HubRemote:
    """A model of the Hugging Face hub, or of the mirror that `HF_ENDPOINT` names. `HF_TOKEN` is sent.

    Args:
        source: `organisation/name`.
        revision: commit, tag or branch; None: the default branch.
    """

    def __init__(self, source: str, revision: str | None) -> None:
        self._source = source
        self._revision = revision
        self._commit: str | None = None

    def list(self) -> Listing:
        """See `Remote.list`."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        name = f"hub id '{self._source}'" + (f" at '{self._revision}'" if self._revision else "")
        try:
            info = HfApi().model_info(self._source, revision=self._revision, files_metadata=True, timeout=30)
        except GatedRepoError:
            raise SourceError(f"{name}: the hub wants its conditions accepted and a token (HF_TOKEN)") from None
        except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError):
            raise SourceError(f"{name}: the hub has none of that name, or it needs a token (HF_TOKEN)") from None
        except (HfHubHTTPError, _http_error(), OSError) as error:
            raise Unreachable(f"{name}: {type(error).__name__}") from error
        if info.sha is None:
            raise SourceError(f"{name}: the hub names no commit")
        files = []
        for sibling in info.siblings or ():
            if sibling.size is None:
                raise SourceError(f"{name}: the hub does not say how large '{sibling.rfilename}' is")
            sha256 = sibling.lfs.sha256 if sibling.lfs is not None else None
            files.append(
                RemoteFile(sibling.rfilename, sibling.size, sha256, None if sha256 is not None else sibling.blob_id)
            )
        self._commit = info.sha
        return Listing(info.sha, served_files(files, self._source))

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """See `Remote.read`. Asks for the rest of the file, and sees to it that it is the rest that comes."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        assert self._commit is not None, "list() comes first"
        url = hf_hub_url(self._source, path, revision=self._commit)
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        try:
            with get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=60) as response:
                response.raise_for_status()
                skip = offset if offset and response.status_code == 200 else 0  # a server without ranges sends all
                for chunk in response.iter_bytes():
                    if len(chunk) > skip:
                        yield chunk[skip:]
                    skip = max(0, skip - len(chunk))
        except (_http_error(), OSError) as error:
            raise Unreachable(f"{url}: {type(error).__name__}") from error


class FileRemote:
    """A folder that fsspec can read: `s3://`, `gs://`, `memory://`, `file://`, or a path.

    The store's driver (s3fs, gcsfs, …) must be installed; its options come from fsspec's own configuration, such as
    `FSSPEC_S3_ENDPOINT_URL`.
    """

    def __init__(self, source: str) -> None:
        import fsspec

        self._source = source
        try:
            self._fs, self._root = fsspec.core.url_to_fs(source)
        except (ImportError, ValueError) as error:
            raise SourceError(f"'{source}' cannot be read: {error}") from error

    def list(self) -> Listing:
        """See `Remote.list`."""
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(self._root, detail=True)
        except FileNotFoundError:
            found = {}
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"'{self._source}': {error}") from error
        if not found:
            raise SourceError(f"'{self._source}' does not exist")
        root = self._root.rstrip("/") + "/"
        facts = {path.removeprefix(root): info for path, info in found.items()}
        files = served_files((RemoteFile(path, int(info["size"])) for path, info in facts.items()), self._source)
        lines = [f"{file.path}\0{file.size}\0{_state(facts[file.path])}\n" for file in files]
        return Listing(blake3("".join(lines).encode()).hexdigest()[:32], files)

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """See `Remote.read`."""
        try:
            with self._fs.open(f"{self._root.rstrip('/')}/{path}", "rb", block_size=BLOCK) as file:
                file.seek(offset)
                while chunk := file.read(CHUNK):
                    yield chunk
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"'{self._source}': {path}: {error}") from error


def _state(info: dict[str, Any]) -> str:
    """What changes with an object's content, as each store calls it."""
    names = ("ETag", "etag", "md5Hash", "crc32c", "content_md5", "LastModified", "last_modified", "mtime", "created")
    return next((str(info[name]) for name in names if info.get(name) is not None), "")


def _http_error() -> type[Exception]:
    """The base of the hub's client's errors; which HTTP library it uses differs between its versions."""
    from huggingface_hub.errors import HfHubHTTPError

    found: type[Exception] = next(cls for cls in HfHubHTTPError.__mro__ if cls.__name__ == "HTTPError")
    return found

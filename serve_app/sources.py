"""Where a checkpoint comes from: a path, a Python package, or a hub id."""

from __future__ import annotations

import importlib.util
from pathlib import Path

HUB_METADATA = ["*.json", "*.txt", "*.model", "**/config.json"]
"""Files of a hub checkpoint that everything but the engine needs."""


class SourceError(ValueError):
    """The source names nothing that exists."""


def is_hub_id(source: str) -> bool:
    """Whether `source` is neither a package nor a path that exists, so a hub must know it."""
    return not source.startswith("package:") and not Path(source).expanduser().exists()


def local_directory(source: str) -> Path | None:
    """The checkpoint's folder on this machine; None for a hub id.

    Raises:
        SourceError: the package, or the folder in it, does not exist.
    """
    if source.startswith("package:"):
        package, _, inner = source.removeprefix("package:").partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise SourceError(f"package '{package}' is not installed")
        folder = Path(next(iter(spec.submodule_search_locations))) / inner
        if not (folder / "config.json").exists():
            raise SourceError(f"package '{package}' has no checkpoint at '{inner}'")
        return folder
    if "://" in source:
        raise SourceError(
            f"'{source}' is a URL: put it on disk with `python -m cluster materialize`, and name the "
            "folder in `materialized`"
        )
    path = Path(source).expanduser()
    if path.exists():
        if not (path / "config.json").exists():
            raise SourceError(f"'{source}' holds no config.json")
        return path.resolve()
    if source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise SourceError(f"'{source}' does not exist")
    return None


def fetch_metadata(source: str, revision: str | None = None) -> Path:
    """A folder with the checkpoint's config and tokenizer; downloads those of a hub id, without the weights.

    Raises:
        SourceError: nothing there, or the hub cannot be reached.
    """
    return _fetch(source, revision, HUB_METADATA)


def _fetch(source: str, revision: str | None, patterns: list[str]) -> Path:
    folder = local_directory(source)
    if folder is not None:
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise SourceError(f"hub id '{source}' cannot be fetched: {type(error).__name__}") from error


def engine_source(source: str) -> str:
    """What vLLM is given: a folder where there is one, else the hub id."""
    folder = local_directory(source)
    return str(folder) if folder is not None else source


def fetch_weights(source: str, revision: str | None = None) -> Path:
    """A folder with the checkpoint's safetensors files; downloads those of a hub id, which the engine needs as well.

    Raises:
        SourceError: nothing there, or the hub cannot be reached.
    """
    return _fetch(source, revision, ["*.safetensors"])

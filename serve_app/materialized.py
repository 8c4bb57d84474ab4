"""Checkpoints on fast storage: where they lie, what their manifest says, and whether the files are still those.

`python -m cluster materialize` writes, this module reads:

    FOLDER/<source>/refs/<revision>            which version the source had (`Ref`)
    FOLDER/<source>/<digest>/manifest.json     size and hashes of every file (`Manifest`)
    FOLDER/<source>/<digest>/files/…           the checkpoint
    FOLDER/compile-cache/<model, versions, GPU>/…

A version's folder is named by its content and appears whole, by a rename; it is never changed afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from serve_app.settings import ModelSettings
from serve_app.sources import SourceError

MANIFEST = "manifest.json"
FILES = "files"
SMALL = 1 << 20
"""Bytes up to which a file's hash is compared even in the quick check: configs and tokenizers steer what is scored."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ManifestFile(_Record):
    """One file: its path below `files/`, its bytes, its hashes (hex)."""

    path: str
    size: int = Field(ge=0)
    sha256: str
    blake3: str

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if not is_inside(path):
            raise ValueError("leads out of the folder")
        return path


class Manifest(_Record):
    """What a version's folder holds.

    Attributes:
        source: as the configuration names it.
        revision: a hub's commit; for others a fingerprint of the listing.
        digest: hash of the list of files; also the folder's name.
    """

    format: Literal[1] = 1
    source: str
    revision: str
    digest: str
    files: tuple[ManifestFile, ...]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.digest != digest_of(self.files):
            raise ValueError("digest: does not belong to the list of files")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class Ref(_Record):
    """The version that a source's revision had when it was last fetched; `revision` as in the manifest."""

    revision: str
    digest: str


@dataclass(frozen=True, slots=True)
class Located:
    """Where a model is loaded from.

    Attributes:
        settings: with `source` set to the folder, if there is one, and without `materialized`.
        digest: the content's hash; None: not materialized.
        compile_cache: parent of the compile caches; None: vLLM's own place.
    """

    settings: ModelSettings
    digest: str | None = None
    compile_cache: Path | None = None


def is_inside(path: str) -> bool:
    """Whether a relative POSIX path stays below the folder that it is joined to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path


def digest_of(files: Iterable[ManifestFile]) -> str:
    """Hash of a list of files, independent of its order; 32 hex digits."""
    lines = sorted(f"{file.path}\0{file.size}\0{file.blake3}\n" for file in files)
    return blake3("".join(lines).encode()).hexdigest()[:32]


def name_of(text: str) -> str:
    """A folder's name for a source or a revision: readable, and different for different texts."""
    return f"{re.sub('[^A-Za-z0-9._-]+', '--', text).strip('-.')[-80:]}-{blake3(text.encode()).hexdigest()[:8]}"


def source_folder(root: Path, source: str) -> Path:
    """The folder of all versions of a source."""
    return root / name_of(source)


def ref_path(root: Path, source: str, revision: str | None) -> Path:
    """The file that names a revision's version."""
    return source_folder(root, source) / "refs" / (name_of(revision) if revision is not None else "default")


def read_ref(root: Path, source: str, revision: str | None) -> Ref | None:
    """The version that a source's revision had; None: it was never materialized, or not to its end."""
    try:
        return Ref.model_validate_json(ref_path(root, source, revision).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise SourceError(f"'{ref_path(root, source, revision)}' is damaged; materialize again") from error


def read_manifest(version: Path) -> Manifest:
    """The manifest of a version's folder.

    Raises:
        SourceError: there is none, or it does not belong to the folder.
    """
    try:
        manifest = Manifest.model_validate_json((version / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise SourceError(f"'{version}' holds no {MANIFEST}") from None
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise SourceError(f"'{version / MANIFEST}' is damaged: {reason}") from error
    if manifest.digest != version.name:
        raise SourceError(f"'{version / MANIFEST}' belongs to another version, {manifest.digest}")
    return manifest


def differences(version: Path, manifest: Manifest, check: Literal["sizes", "hashes"]) -> list[str]:
    """What is not as the manifest says: one sentence per file, empty if all is well. `check`: see the settings."""
    root = version / FILES
    present = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}
    found = [f"{path}: not in the manifest" for path in sorted(present - {file.path for file in manifest.files})]
    for file in manifest.files:
        path = root / file.path
        if file.path not in present or not path.is_file():
            found.append(f"{file.path}: missing")
        elif (size := path.stat().st_size) != file.size:
            found.append(f"{file.path}: {size} bytes, not {file.size}")
        elif (check == "hashes" or file.size <= SMALL) and _hash(path) != file.blake3:
            found.append(f"{file.path}: other content (hash differs)")
    return found


def _hash(path: Path) -> str:
    return blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()


def locate(settings: ModelSettings, *, check: Literal["sizes", "hashes"] | None = None) -> Located:
    """Finds and checks a model's materialized checkpoint; without `materialized` the settings stay as they are.

    Args:
        settings: the model's.
        check: overrides `materialized.check`.

    Raises:
        SourceError: not there, or not what the manifest says.
    """
    wanted = settings.materialized
    if wanted is None:
        return Located(settings)
    root = Path(wanted.folder).expanduser()
    ref = read_ref(root, settings.source, settings.revision)
    name = settings.source + (f"@{settings.revision}" if settings.revision is not None else "")
    if ref is None:
        raise SourceError(f"'{name}' is not in '{root}'; run `python -m cluster materialize` first")
    version = source_folder(root, settings.source) / ref.digest
    if found := differences(version, read_manifest(version), check or wanted.check):
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise SourceError(f"'{version}' is not what was materialized: {'; '.join(found[:3])}{more}")
    changes = {"source": str((version / FILES).resolve()), "revision": None, "materialized": None}
    return Located(
        settings.model_copy(update=changes), ref.digest, root / "compile-cache" if wanted.compile_cache else None
    )

"""Fetches a checkpoint into its versioned folder. What counts appears by a rename, whole, or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3
from filelock import FileLock, Timeout

from cluster.materialize.remotes import CHUNK, Listing, Remote, RemoteFile, Unreachable, open_remote
from serve_app.materialized import (
    FILES,
    MANIFEST,
    Manifest,
    ManifestFile,
    Ref,
    differences,
    digest_of,
    read_manifest,
    read_ref,
    ref_path,
    source_folder,
)
from serve_app.sources import SourceError
from serve_app.startup import StartTimes

Say = Callable[[str], None]

PARALLEL_FILES = 4
ATTEMPTS = 5
"""Tries without a new byte after which a file's download is given up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A materialized checkpoint.

    Attributes:
        version: its folder.
        manifest: what the folder holds.
        fetched: bytes that were read from the source now; 0: it was there.
        seconds: by phase: resolve (listing, waiting for another process), download, verify.
    """

    version: Path
    manifest: Manifest
    fetched: int
    seconds: StartTimes


def materialize(
    source: str,
    revision: str | None,
    root: Path,
    *,
    check: Literal["sizes", "hashes"] = "hashes",
    offline: bool = False,
    lock_timeout_s: float = 3600.0,
    say: Say = lambda line: None,
    remote: Remote | None = None,
) -> Outcome:
    """Sees to it that a checkpoint lies under `root`, whole and as its source has it.

    Idempotent: what is there is verified and kept; what a killed run left is continued; what is damaged is fetched
    again, and a note of which version is there (`Ref`) that is damaged or lost is written again. Several processes, on
    several machines where the file system has locks, wait for each other.

    Args:
        source, revision: as in the model's settings.
        root: the folder of all checkpoints.
        check: how what is there already is verified.
        offline: only verify what is there; the source is not asked, nothing is changed, and no lock is taken: a folder
            that appears whole and never changes needs none, and it may be read-only.
        lock_timeout_s: how long to wait for another process at the same source.
        say: gets a line about what goes on.
        remote: for tests; None: what the source names.

    Raises:
        SourceError: there is no such checkpoint, its bytes are not what the source says they are, no room.
        Unreachable: the source does not answer and nothing is there yet.
    """
    started = time.monotonic()
    if offline:
        return _there(source, revision, root, check)
    folder = source_folder(root, source)
    folder.mkdir(parents=True, exist_ok=True)
    remote = remote if remote is not None else open_remote(source, revision)
    with _locked(folder / ".lock", lock_timeout_s, say):
        ref = _ref(root, source, revision, say)
        try:
            listing: Listing | None = remote.list()
        except Unreachable as error:
            if ref is None:
                raise
            say(f"{error}; keeping what was fetched before")
            listing = None
        lost = ref is None
        if ref is None and listing is not None:
            ref = _kept(folder, listing)
        seconds = {"resolve": time.monotonic() - started}
        if ref is not None and (listing is None or listing.revision == ref.revision):
            started = time.monotonic()
            manifest = _verified(folder / ref.digest, check, say)
            seconds["verify"] = time.monotonic() - started
            if manifest is not None and (listing is None or _same_files(manifest, listing)):
                if lost:
                    _write_ref(ref_path(root, source, revision), ref)
                return Outcome(folder / ref.digest, manifest, 0, seconds)
            if listing is None:
                raise Unreachable(f"'{folder / ref.digest}' is damaged and '{source}' does not answer")
        assert listing is not None
        started = time.monotonic()
        manifest, fetched = _fetch(remote, listing, source, folder, say)
        version = folder / manifest.digest
        _write_ref(ref_path(root, source, revision), Ref(revision=listing.revision, digest=manifest.digest))
        seconds["download"] = time.monotonic() - started
        return Outcome(version, manifest, fetched, seconds)


def _there(source: str, revision: str | None, root: Path, check: Literal["sizes", "hashes"]) -> Outcome:
    """What is there, verified."""
    started = time.monotonic()
    if (ref := read_ref(root, source, revision)) is None:
        raise SourceError(f"not in '{root}' yet")
    version = source_folder(root, source) / ref.digest
    manifest = read_manifest(version)
    if found := differences(version, manifest, check):
        raise SourceError(f"'{version}' is damaged: {'; '.join(found[:3])}")
    return Outcome(version, manifest, 0, {"verify": time.monotonic() - started})


def _ref(root: Path, source: str, revision: str | None, say: Say) -> Ref | None:
    """The version that was there; None: none was, or what says which is damaged."""
    try:
        return read_ref(root, source, revision)
    except SourceError as error:
        say(str(error).replace("; materialize again", ", writing it again"))
        return None


def _kept(folder: Path, listing: Listing) -> Ref | None:
    """The version of what the source holds that lies in the folder without a ref of its own; None: there is none."""
    for path in sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        try:
            manifest = read_manifest(path.parent)
        except SourceError:
            continue
        if manifest.revision == listing.revision and _same_files(manifest, listing):
            return Ref(revision=manifest.revision, digest=manifest.digest)
    return None


def _same_files(manifest: Manifest, listing: Listing) -> bool:
    """Whether a version has the files that are taken of its source now; an earlier release may have left some out."""
    return {file.path for file in manifest.files} == {file.path for file in listing.files}


def _locked(path: Path, timeout_s: float, say: Say) -> Any:
    """The lock, taken; released by the system if this process dies."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        say(f"another process is at {path.parent.name}; waiting")
    try:
        return lock.acquire(timeout=timeout_s)
    except Timeout:
        raise SourceError(f"another process has held '{path}' for {timeout_s:.0f} s") from None


def _verified(version: Path, check: Literal["sizes", "hashes"], say: Say) -> Manifest | None:
    """The manifest of a version that is as it says; None: it is damaged, and is moved out of the way."""
    try:
        manifest = read_manifest(version)
        found = differences(version, manifest, check)
    except SourceError as error:
        found = [str(error)]
    if not found:
        return manifest
    say(f"damaged, fetching again: {'; '.join(found[:3])}")
    if version.exists():
        shutil.rmtree(_moved_away(version))
    return None


def _moved_away(version: Path) -> Path:
    """Renames a version's folder first, so that it does not count while it is being removed."""
    bin_ = Path(tempfile.mkdtemp(prefix=".damaged-", dir=version.parent))
    return version.rename(bin_ / version.name).parent


def _fetch(remote: Remote, listing: Listing, source: str, folder: Path, say: Say) -> tuple[Manifest, int]:
    """Fetches into a folder of the listing's own, so that a changed source starts anew, then renames it."""
    partial = folder / f".partial-{listing.revision[:40]}"
    for old in folder.glob(".partial-*"):
        if old != partial:
            shutil.rmtree(old)
    for old in folder.glob(".damaged-*"):
        shutil.rmtree(old)
    partial.mkdir(exist_ok=True)
    _check_room(partial, listing)
    total = sum(file.size for file in listing.files)
    say(f"fetching {len(listing.files)} files, {total / 2**20:.1f} MiB")
    with ThreadPoolExecutor(PARALLEL_FILES, "fetch") as executor:
        done = list(executor.map(lambda file: _fetch_file(remote, file, partial), listing.files))
    files = tuple(entry for entry, _ in done)
    manifest = Manifest(source=source, revision=listing.revision, digest=digest_of(files), files=files)
    (partial / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _sync(partial / MANIFEST)
    shutil.rmtree(partial / "parts", ignore_errors=True)
    expected = {file.path for file in files}
    for path in [p for p in (partial / FILES).rglob("*") if p.is_file()]:
        if path.relative_to(partial / FILES).as_posix() not in expected:
            path.unlink()
    version = folder / manifest.digest
    if version.exists() and _verified(version, "hashes", say) is not None:  # the same content, another revision
        shutil.rmtree(partial)
    else:
        partial.rename(version)
    _sync(folder)
    return manifest, sum(count for _, count in done)


def _check_room(partial: Path, listing: Listing) -> None:
    there = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    needed = sum(file.size for file in listing.files) - there
    free = shutil.disk_usage(partial).free
    if needed > free:
        raise SourceError(f"'{partial.parent}' has {free / 2**30:.1f} GiB free; {needed / 2**30:.1f} are needed")


def _fetch_file(remote: Remote, file: RemoteFile, partial: Path) -> tuple[ManifestFile, int]:
    """(the file's entry, bytes read from the source). A file or a part that is there is used, and checked."""
    target, part = partial / FILES / file.path, partial / "parts" / file.path
    for path in (target, part):
        path.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        entry = _entry(file, target)
        if _is_right(file, entry, target):
            return entry, 0
        target.unlink()
    fetched = 0
    for _ in range(2):  # once more from the start if what was left over, or what came, is wrong
        fetched += _download(remote, file, part)
        entry = _entry(file, part)
        if _is_right(file, entry, part):
            part.chmod(0o444)
            part.replace(target)
            return entry, fetched
        part.unlink()
    raise SourceError(f"'{file.path}': what the source sends is not what it says it has (size or hash)")


def _download(remote: Remote, file: RemoteFile, part: Path) -> int:
    """Appends to `part` what is missing; bytes read."""
    fetched, fruitless = 0, 0
    with part.open("ab") as out:
        while (offset := out.tell()) < file.size:
            try:
                for chunk in remote.read(file.path, offset):
                    out.write(chunk)
                    fetched += len(chunk)
                if out.tell() == offset:
                    raise Unreachable(f"'{file.path}' ends after {offset} of {file.size} bytes")
            except Unreachable:
                fruitless = 0 if out.tell() > offset else fruitless + 1
                if fruitless >= ATTEMPTS:
                    raise
                time.sleep(min(0.2 * 2**fruitless, 5.0))
        out.flush()
        os.fsync(out.fileno())
    return fetched


def _entry(file: RemoteFile, path: Path) -> ManifestFile:
    """Size and hashes of what is on disk."""
    sha256 = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(CHUNK):
            sha256.update(chunk)
    fast = blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()
    return ManifestFile(path=file.path, size=path.stat().st_size, sha256=sha256.hexdigest(), blake3=fast)


def _is_right(file: RemoteFile, entry: ManifestFile, path: Path) -> bool:
    """Whether it is what the source announced."""
    if entry.size != file.size or file.sha256 not in (None, entry.sha256):
        return False
    if file.git_sha1 is None:
        return True
    content = path.read_bytes()  # git itself holds small files only
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == file.git_sha1


def _write_ref(path: Path, ref: Ref) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(ref.model_dump_json() + "\n", encoding="utf-8")
    _sync(new)
    new.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Waits until a file, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

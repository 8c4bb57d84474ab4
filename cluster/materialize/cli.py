"""Puts the checkpoints of a configuration, or one checkpoint, on fast storage, verified by hash.

Can be repeated and interrupted at any time: what is there is verified, what is missing is fetched. Engines load from
the folder where a model's `materialized` names it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.materialize.remotes import Unreachable
from cluster.materialize.store import materialize
from serve_app.settings import ModelSettings
from serve_app.sources import SourceError
from serve_app.startup import in_words

_UNREAD = re.compile(r"applications\[\d+\](\.args\b|$)")
"""Where the check places what keeps it from reading an application."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "what",
        metavar="CONFIG|SOURCE",
        help="a Serve configuration (.yaml), of which all models with `materialized` are taken, or all models if --to "
        "is given; or a checkpoint: hub id, path, package:NAME/path, s3://…, gs://…",
    )
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where to; default: the models' `materialized.folder`"
    )
    parser.add_argument("--revision", help="hub revision of SOURCE; a configuration names its own")
    parser.add_argument(
        "--check",
        choices=("sizes", "hashes"),
        default="hashes",
        help="how to verify what is there already: all hashes, or sizes and small files' hashes [hashes]",
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="verify what is there, without writing or waiting, and fail where something is missing or damaged",
    )
    parser.add_argument(
        "--lock-timeout", type=float, default=3600.0, metavar="S", help="wait for another process [3600]"
    )


def run(options: argparse.Namespace) -> int:
    """Materializes each; the exit code is 1 if one failed, or could not be read from the configuration."""
    try:
        wanted, unread = _wanted(options)
    except SourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for problem in unread:
        print(f"error: {problem}", file=sys.stderr)
    failed = len(unread)
    for source, revision, folder in wanted:
        name = source + (f"@{revision}" if revision is not None else "")
        try:
            outcome = materialize(
                source,
                revision,
                folder,
                check=options.check,
                offline=options.offline,
                lock_timeout_s=options.lock_timeout,
                say=lambda line, name=name: print(f"{name}: {line}", flush=True),  # type: ignore[misc]
            )
        except (SourceError, Unreachable, OSError) as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed += 1
            continue
        did = f"fetched {outcome.fetched / 2**20:.1f} MiB" if "download" in outcome.seconds else "verified"
        size = f"{len(outcome.manifest.files)} files, {outcome.manifest.size / 2**20:.1f} MiB"
        print(f"{name}: {did}; {size} in {outcome.version} (seconds: {in_words(outcome.seconds)})", flush=True)
    return 1 if failed else 0


def _wanted(options: argparse.Namespace) -> tuple[Sequence[tuple[str, str | None, Path]], Sequence[str]]:
    """(source, revision, folder) of each checkpoint, each once; and why applications are left out of it."""
    config = Path(options.what)
    if config.suffix not in {".yaml", ".yml"}:
        if options.to is None:
            raise SourceError("--to FOLDER: required with a source")
        return [(options.what, options.revision, options.to)], ()
    if options.revision is not None:
        raise SourceError("--revision: a configuration names its own")
    from serve_app.check import check_file  # imports the engine's side, which a hub id alone does not need

    report = check_file(config)
    # What the check says of the folder's content is what this command is about to change.
    if not report.models:
        reasons = "; ".join(map(str, report.problems)) or "no model in it"
        raise SourceError(f"{config}: {reasons}")
    wanted: dict[tuple[str, str | None, Path], None] = {}
    for name, settings in report.models.items():
        folder = _folder(name, settings, options.to)
        if folder is not None:
            wanted[settings.source, settings.revision, folder] = None
    # An application whose settings are wrong is not among the models.
    unread = [str(problem) for problem in report.problems if _UNREAD.match(problem.path)]
    if not wanted and not unread:
        raise SourceError(f"{config}: no model has `materialized`, and --to is not given")
    return list(wanted), unread


def _folder(name: str, settings: ModelSettings, to: Path | None) -> Path | None:
    if settings.materialized is None:
        return to
    own = Path(settings.materialized.folder).expanduser()
    if to is not None and to.resolve() != own.resolve():
        raise SourceError(f"{name}.args.materialized.folder: engines would look in '{own}', not in --to '{to}'")
    return own

"""`python -m serve_app parquet FOLDER OUT`: files of the feature log as Parquet, for offline work. Needs pyarrow.

Apart from serving on purpose: a Parquet file that its writer did not close cannot be read, so a killed gateway would
lose what it had. JSON lines lose at most the last one, and become Parquet once nobody writes them any more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

GROUP = 5_000
"""Records of a row group, which is what is held in memory."""
_ITEMS = ("queries", "documents", "inputs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("folder", type=Path, help="`observability.feature_log.folder`")
    parser.add_argument("out", type=Path, help="folder for NAME.parquet, made if it is missing")
    parser.add_argument(
        "--settled",
        type=float,
        default=7200.0,
        metavar="S",
        help="a file is finished when its gateway has begun another one, or has not written to it for so long [7200]",
    )
    parser.add_argument("--delete", action="store_true", help="remove a file of lines once its Parquet file is there")


def run(options: argparse.Namespace) -> int:
    """Converts what is finished and not there yet; 0 if that went well."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        print("error: this needs pyarrow: pip install pyarrow", file=sys.stderr)
        return 2
    if not options.folder.is_dir():
        print(f"error: {options.folder} is not a folder", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    code = 0
    for path in finished(options.folder, options.settled):
        target = options.out / f"{path.stem}.parquet"
        try:
            if not target.exists():
                records, broken = convert(path, target)
                print(f"{target.name}: {records} records{f', {broken} broken lines left out' if broken else ''}")
            if options.delete:
                path.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            print(f"error: {path.name}: {error}", file=sys.stderr)
            code = 1
    return code


def finished(folder: Path, settled_s: float) -> list[Path]:
    """Files of lines that nobody writes to any more, the oldest name first.

    Args:
        settled_s: seconds without a write after which a file without a successor counts.
    """
    files = sorted(folder.glob("*-*-*.jsonl"))
    latest: dict[str, str] = {}
    for path in files:
        latest[_writer(path)] = max(latest.get(_writer(path), ""), path.name)
    now = time.time()
    return [path for path in files if latest[_writer(path)] != path.name or now - path.stat().st_mtime > settled_s]


def _writer(path: Path) -> str:
    """The gateway's part of a name `WRITER-TIME-NUMBER.jsonl`."""
    return path.stem.rsplit("-", 2)[0]


def convert(path: Path, target: Path) -> tuple[int, int]:
    """Writes a file of lines as Parquet, whole or not at all.

    Returns:
        (records, lines that are no record: what a killed gateway did not finish).

    Raises:
        OSError: it cannot be read or written.
        ValueError: a record does not fit the schema.
    """
    import pyarrow
    from pyarrow import parquet

    schema = _schema()
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    records = broken = 0
    try:
        with path.open("rb") as lines, parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
            group: list[dict[str, Any]] = []
            for record in _records(lines):
                if record is None:
                    broken += 1
                    continue
                records += 1
                group.append(row(record))
                if len(group) == GROUP:
                    writer.write_table(pyarrow.Table.from_pylist(group, schema))
                    group = []
            writer.write_table(pyarrow.Table.from_pylist(group, schema))
        os.replace(partial, target)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from error
    finally:
        partial.unlink(missing_ok=True)
    return records, broken


def _records(lines: Iterable[bytes]) -> Iterator[dict[str, Any] | None]:
    """Each line's record; None for a line that is none."""
    for line in lines:
        try:
            record = orjson.loads(line)
        except ValueError:
            record = None
        yield record if isinstance(record, dict) else None


def row(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the log as a row: scores of one and of several columns apart, every item a struct."""
    found = {**record, "time": round(1e3 * record.get("time", 0.0))}
    for name in _ITEMS:
        if record.get(name) is not None:
            found[name] = [_item(item) for item in record[name]]
    scores = record.get("scores")
    if scores and isinstance(scores[0], list):
        found |= {"scores": None, "label_scores": scores}
    if record.get("spans") is not None:
        names = ("start", "end", "aspect", "polarity", "score")
        found["spans"] = [[dict(zip(names, span, strict=True)) for span in spans] for spans in record["spans"]]
    if record.get("sentiments") is not None:
        labels = ("label", "score")
        found["sentiments"] = [pair and dict(zip(labels, pair, strict=True)) for pair in record["sentiments"]]
    return found


def _item(item: Any) -> dict[str, Any]:
    match item:
        case str():
            return {"text": item}
        case dict():
            return {"url": item.get("url"), "image": item.get("image")}
        case [str(), *_]:
            return {"text": item[0], "text_pair": item[1] if len(item) > 1 else None}
        case _:
            return {"tokens": list(item)}


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    item = pa.struct(
        [("text", text), ("text_pair", text), ("url", text), ("image", text), ("tokens", pa.list_(pa.int32()))]
    )
    span = pa.struct(
        [("start", pa.int32()), ("end", pa.int32()), ("aspect", text), ("polarity", text), ("score", pa.float32())]
    )
    return pa.schema(
        [
            ("time", pa.timestamp("ms", tz="UTC")),
            *((name, text) for name in ("id", "route", "model", "version", "routing")),
            *((name, pa.list_(item)) for name in _ITEMS),
            ("scores", pa.list_(pa.float32())),
            ("labels", pa.list_(text)),
            ("label_scores", pa.list_(pa.list_(pa.float32()))),
            ("spans", pa.list_(pa.list_(span))),
            ("sentiments", pa.list_(pa.struct([("label", text), ("score", pa.float32())]))),
        ]
    )

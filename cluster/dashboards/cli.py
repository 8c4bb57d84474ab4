"""Write the Grafana dashboards and the Prometheus rules; with --local also what runs them on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml

from cluster.dashboards import local
from cluster.dashboards.boards import DASHBOARDS
from cluster.dashboards.grafana import dashboard
from cluster.dashboards.rules import rule_file

GENERATED = Path(__file__).parent / "generated"
RULES = "poolserve.rules.yml"
P95_MS = 100.0
"""The budget of the files in the repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--out", type=Path, default=GENERATED, help="folder to write to (default: %(default)s)")
    parser.add_argument(
        "--p95-ms",
        type=float,
        default=P95_MS,
        help="latency budget of the alerts, a bound of the histogram (%(default)g)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if what is there differs")
    parser.add_argument("--local", action="store_true", help="also Prometheus's and Grafana's own configuration")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="--local: the gateway (%(default)s)")


def files(p95_ms: float = P95_MS) -> dict[str, str]:
    """Everything that is generated, by file name.

    Raises:
        ValueError: the budget is no bound of the latency histogram.
    """
    made = {f"{board.name}.json": json.dumps(dashboard(board), indent=1) + "\n" for board in DASHBOARDS}
    header = "# Made by `python -m cluster dashboards`; change cluster/dashboards/rules.py instead.\n"
    return {**made, RULES: header + yaml.safe_dump(rule_file(p95_ms), sort_keys=False, width=1_000)}


def run(options: argparse.Namespace) -> int:
    """Writes or compares; 1 if the comparison fails, 2 if an option is wrong."""
    try:
        made = files(options.p95_ms)
        if options.check:
            return _check(options.out, made)
        options.out.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            (options.out / name).write_text(content)
        print(f"{len(made)} files in {options.out}")
        if options.local:
            print(
                "\n".join(
                    ["Then, each in a terminal of its own:", *local.write(options.out, options.url, options.out, RULES)]
                )
            )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _check(folder: Path, made: dict[str, str]) -> int:
    there = {path.name: path.read_text() for path in folder.glob("*") if path.suffix in (".json", ".yml")}
    different = sorted(name for name in made | there if made.get(name) != there.get(name))
    for name in different:
        print(f"{folder / name} is not what would be written", file=sys.stderr)
    return 1 if different else 0

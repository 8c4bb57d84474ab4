"""`python -m cluster COMMAND`: what is done to a cluster rather than in it."""

from __future__ import annotations

import argparse
import importlib
import sys

COMMANDS = {
    "dashboards": ("cluster.dashboards.cli", "write Grafana dashboards and Prometheus rules; look at them locally"),
    "local": ("cluster.local_cluster", "start a Ray cluster of several nodes on this machine"),
    "materialize": ("cluster.materialize.cli", "put checkpoints on fast storage, verified by hash"),
    "rollout": ("cluster.rollout.cli", "bring a new version of a model into service, or retire an old one"),
}
"""Command → module with `add_arguments(parser)` and `run(options) -> exit code`, and what it does."""


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; the exit code is 0 if all went well."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    modules = {}
    for name, (module, summary) in COMMANDS.items():
        modules[name] = importlib.import_module(module)
        modules[name].add_arguments(commands.add_parser(name, help=summary, description=modules[name].__doc__))
    options = parser.parse_args(arguments)
    return int(modules[options.command].run(options))


if __name__ == "__main__":
    sys.exit(main())

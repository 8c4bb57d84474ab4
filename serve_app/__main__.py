"""`python -m serve_app check CONFIG`, `up CONFIG`, `verify CONFIG MODEL INPUTS` and `parquet FOLDER OUT`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from serve_app.check import Report, check_file
from serve_app.observability import parquet
from serve_app.verify.cli import add_arguments, run


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; the exit code is 0 if all went well."""
    parser = argparse.ArgumentParser(prog="python -m serve_app", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="print the merged options and the memory plan; refuse what cannot work")
    check.add_argument("config", type=Path)
    check.add_argument("--gpu-memory-gib", type=float, help="memory of one GPU of the cluster, for the memory plan")
    up = commands.add_parser("up", help="check, start Ray and the configuration, say when it is ready; Ctrl-C ends all")
    up.add_argument("config", type=Path)
    up.add_argument("--timeout", type=float, default=900.0, help="seconds until everything must be ready [900]")
    verify = commands.add_parser("verify", help="compare the served model with Transformers on a file of inputs")
    add_arguments(verify)
    parquet.add_arguments(commands.add_parser("parquet", help="finished files of the feature log as Parquet"))
    options = parser.parse_args(arguments)
    if options.command == "check":
        report = check_file(options.config, options.gpu_memory_gib)
        print_report(report, Console())
        return 1 if report.problems else 0
    if options.command == "verify":
        return run(options, Console())
    if options.command == "parquet":
        return parquet.run(options)
    from serve_app.up import bring_up

    return bring_up(options.config, options.timeout)


def print_report(report: Report, console: Console) -> None:
    """Merged options, memory plan, notes, problems."""
    for name, settings in {"gateway": report.gateway, **report.models}.items():
        if settings is not None:
            exclude = {"api_keys"} if name == "gateway" else None
            text = yaml.safe_dump(settings.model_dump(mode="json", exclude=exclude), sort_keys=False)
            console.print(f"[bold]{name}[/bold]")
            console.print(text, markup=False, highlight=False)
    if report.plans:
        table = Table("application", "weights", "activations", "cache", "runtime", "needed", "may take", "headroom")
        table.title = "Memory of one engine, GiB"
        for name, plan in report.plans.items():
            parts = (
                plan.weights,
                plan.activations,
                plan.cache,
                plan.runtime,
                plan.needed,
                plan.available,
                plan.headroom,
            )
            table.add_row(name, *("?" if part is None else f"{part:.2f}" for part in parts))
        console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", markup=False)
    for problem in report.problems:
        console.print(f"error: {problem}", style="red", markup=False)
    if not report.problems:
        console.print("ok", style="green")


if __name__ == "__main__":
    sys.exit(main())

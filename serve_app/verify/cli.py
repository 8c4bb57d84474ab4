"""`python -m serve_app verify CONFIG MODEL INPUTS`."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from serve_app import __version__
from serve_app.check import check_file
from serve_app.errors import PoolserveError
from serve_app.materialized import locate
from serve_app.settings import TEMPLATES, ImageLoaderSettings, ModelSettings, TemplateSettings
from serve_app.verify.answers import Tick
from serve_app.verify.asking import served_answers, size_of
from serve_app.verify.compare import compare
from serve_app.verify.diagnose import nearer_dtype
from serve_app.verify.inputs import InputError, ReferenceSettings, read_inputs, read_settings
from serve_app.verify.limits import Limits, checks, default_limits
from serve_app.verify.page import html_page
from serve_app.verify.reading import Reading, read_reading
from serve_app.verify.reference import reference_answers
from serve_app.verify.report import Report, Side, as_json, print_report
from serve_app.verify.served import CannotServe, Served, connect, in_this_process
from serve_app.verify.weights import Saved, read_saved
from serve_app.vocabulary import DType, PoolingType

AGREES, DIFFERS, CANNOT_TELL = 0, 1, 2
"""Exit codes. CANNOT_TELL: nothing was compared."""

Start = Callable[[ModelSettings, ImageLoaderSettings], AbstractContextManager[Served]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand's options."""
    parser.add_argument("config", type=Path, help="the configuration file that `serve run` gets")
    parser.add_argument("model", help="the model's name, or name@version")
    parser.add_argument("inputs", type=Path, help="JSON lines; docs/verify.md has the shapes by task")
    parser.add_argument("--url", help="a running server; left out: an engine is started in this process, without Ray")
    parser.add_argument("--key-variable", metavar="NAME", help="environment variable with the server's API key")
    dtypes = [dtype.value for dtype in DType]
    parser.add_argument("--reference-dtype", choices=dtypes, help="what Transformers computes in [the served dtype]")
    parser.add_argument("--allow-dtype-difference", action="store_true", help="let both sides have different dtypes")
    named = f"{' | '.join(TEMPLATES)} | none | FILE"
    parser.add_argument("--template", metavar="NAME", help=f"the template that the model was trained with: {named}")
    poolings = [kind.value for kind in PoolingType]
    parser.add_argument("--pooling", choices=poolings, help="an embedder's, where its checkpoint does not say")
    parser.add_argument("--max-length", type=int, help="tokens of one input in the reference [as the checkpoint says]")
    parser.add_argument("--top-k", type=int, default=5, help="k of the top-k agreement [5]")
    parser.add_argument("--max-difference", type=float, help="largest difference that passes [by dtype]")
    parser.add_argument("--min-top1", type=float, help="least top-1 agreement, 0 to 1 [by dtype]")
    parser.add_argument("--min-topk", type=float, help="least top-k agreement, 0 to 1 [none]")
    parser.add_argument("--min-spearman", type=float, help="least mean rank correlation [none]")
    parser.add_argument("--min-labels", type=float, help="least label agreement, 0 to 1 [by dtype]")
    parser.add_argument("--min-spans", type=float, help="least span agreement, 0 to 1 [by dtype]")
    parser.add_argument("--worst", type=int, default=10, help="worst cases to show [10]")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page with tables and plots")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="write the figures as JSON")


def run(options: argparse.Namespace, console: Console, start: Start = in_this_process) -> int:
    """Verifies a model and prints the report.

    Args:
        options: of `add_arguments`.
        console: for the report; progress goes to stderr.
        start: starts the served side when there is no URL.

    Returns:
        AGREES, DIFFERS or CANNOT_TELL.
    """
    try:
        report = verify(options, start)
    except (ValueError, CannotServe, PoolserveError) as error:
        Console(stderr=True).print(Text(f"error: {error}", "red"))
        return CANNOT_TELL
    print_report(report, console)
    if options.report is not None:
        options.report.write_text(html_page(report), encoding="utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(report), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return AGREES if report.passed else DIFFERS


def verify(options: argparse.Namespace, start: Start) -> Report:
    """Runs both sides and compares them.

    Raises:
        ValueError: the configuration, the inputs or the checkpoint do not allow it; InputError among them.
        CannotServe: there is no served side.
        PoolserveError: it broke down.
    """
    settings, images = find_model(options.config, options.model)
    dtype = _reference_dtype(options, settings)
    inputs = read_inputs(options.inputs, settings.task)
    reading = read_reading(settings, _told(options).over(inputs.settings))
    saved = read_saved(reading.checkpoint.folder)
    running: Served | None = None if options.url is None else connect(options.url, settings, _key(options.key_variable))
    total = sum(size_of(line.content) for line in inputs.lines)
    limits = _limits(options, settings, dtype)
    with _progress() as progress:
        reference = reference_answers(settings, inputs, reading, dtype, _bar(progress, "reference", total))
        waiting = progress.add_task("starting the engine" if running is None else "server", total=None)
        with start(settings, images) if running is None else contextlib.nullcontext(running) as served:
            progress.remove_task(waiting)
            answers = served_answers(inputs, served, _bar(progress, "served", total))
        found = compare(inputs.lines, reference, answers, tie=limits.tie, k=options.top_k)
        made = checks(found, limits)
        notes = _notes(settings, saved, reading, dtype, remote=running is not None)
        if not all(check.passed for check in made):
            sign = nearer_dtype(settings, inputs, reading, dtype, reference, answers)
            notes += [sign] if sign is not None else []
    return Report(
        model=f"{settings.name}@{settings.version}",
        task=settings.task,
        source=settings.source,
        saved=str(saved),
        inputs=(len(inputs.lines), total),
        reference=Side("Transformers on this machine's CPU", dtype, _versions("transformers", "torch")),
        served=Side(served.place, settings.dtype, served.versions),
        facts=reading.facts,
        notes=notes,
        found=found,
        checks=made,
        worst=found.worst(options.worst),
    )


def find_model(config: Path, name: str) -> tuple[ModelSettings, ImageLoaderSettings]:
    """A model of a configuration file, and the limits of the application that loads its images.

    Raises:
        InputError: there is no such model, more than one version of it, or its configuration cannot work.
    """
    report = check_file(config)
    wanted, _, version = name.partition("@")
    found = [m for m in report.models.values() if m.name == wanted and version in ("", m.version)]
    if len(found) != 1:
        known = ", ".join(f"{m.name}@{m.version}" for m in report.models.values())
        problems = "".join(f"\n{problem}" for problem in report.problems)
        what = "say which version" if found else "no such model"
        raise InputError(f"{name}: {what}; {config} has {known or 'none that can be read'}{problems}")
    settings = found[0]
    own = [problem for problem in report.problems if problem.path.startswith(f"{settings.application}.args")]
    if own:
        raise InputError("\n".join(map(str, own)))
    return locate(settings).settings, report.loaders.get(settings.images.loader, ImageLoaderSettings())


def _reference_dtype(options: argparse.Namespace, settings: ModelSettings) -> DType:
    dtype = DType(options.reference_dtype or settings.dtype)
    if dtype is not settings.dtype and not options.allow_dtype_difference:
        raise InputError(
            f"--reference-dtype {dtype}: the model is served in {settings.dtype}, and differences would be those of "
            "rounding as well. --allow-dtype-difference compares anyway"
        )
    return dtype


def _told(options: argparse.Namespace) -> ReferenceSettings:
    values = {"pooling": options.pooling, "max_length": options.max_length}
    told = read_settings({name: value for name, value in values.items() if value is not None}, "options")
    template = options.template
    if template is None:
        return told
    if template == "none" or template in TEMPLATES:
        return told.model_copy(update={"template": template})
    try:
        spelled = TemplateSettings.model_validate(yaml.safe_load(Path(template).read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(
            f"--template {template}: neither a known name nor a file with one: {str(error)[:200]}"
        ) from None
    return told.model_copy(update={"template": spelled})


def _limits(options: argparse.Namespace, settings: ModelSettings, dtype: DType) -> Limits:
    named = ("max_difference", "min_top1", "min_topk", "min_spearman", "min_labels", "min_spans")
    given = {name: value for name in named if (value := getattr(options, name)) is not None}
    return replace(default_limits(settings.task, dtype, settings.dtype), **given)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise InputError(f"--key-variable: {variable} is not set")
    return os.environ[variable]


def _notes(settings: ModelSettings, saved: Saved, reading: Reading, dtype: DType, *, remote: bool) -> list[str]:
    notes = [
        f"{fact.name}: the reference reads {fact.reference!r}, the configuration says {fact.configured!r}"
        for fact in reading.facts
        if fact.differs
    ]
    if saved.dtype not in (None, settings.dtype):
        notes.append(
            f"the checkpoint was saved in {saved.dtype} and is served in {settings.dtype}; --reference-dtype "
            f"{saved.dtype} --allow-dtype-difference shows what that costs"
        )
    if dtype is not settings.dtype:
        notes.append(f"the sides compute in different formats, {dtype} and {settings.dtype}, as was allowed")
    if remote:
        notes.append("a server does not tell its dtype: the served one is the configuration file's")
    if reading.checkpoint.images is not None and settings.images.scaled_decoding:
        notes.append("the server decodes large JPEGs at a fraction of their size (images.scaled_decoding)")
    return notes


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


def _bar(progress: Progress, name: str, total: int) -> Tick:
    task = progress.add_task(name, total=total)
    return lambda done: progress.update(task, advance=done)


def _versions(*packages: str) -> dict[str, str]:
    return {"poolserve": __version__} | {name: importlib.metadata.version(name) for name in packages}


def main(arguments: Sequence[str], start: Start = in_this_process) -> int:
    """The subcommand by itself, for tests."""
    parser = argparse.ArgumentParser(prog="python -m serve_app verify")
    add_arguments(parser)
    return run(parser.parse_args(arguments), Console(), start)

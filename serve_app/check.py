"""Reads a Serve configuration and says what cannot work, with the field's path, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from pydantic import BaseModel, ValidationError

from serve_app.checkpoint import Checkpoint, ImageFacts, check_positions, read_checkpoint
from serve_app.gpu_packing import MEMORY_SHARE, overfull
from serve_app.materialized import locate
from serve_app.memory_plan import GIB, MemoryPlan, count_parameters, plan_memory
from serve_app.plugin_host.registration import missing
from serve_app.settings import GatewaySettings, ImageLoaderSettings, ModelSettings, ReplicaSettings, RoutingSettings
from serve_app.sources import SourceError, local_directory
from serve_app.tasks.model import check_tokenizer
from serve_app.tokenization import TextTokenizer, has_tokenizer
from serve_app.vocabulary import Task

BUILDERS: dict[str, type[BaseModel]] = {
    "serve_app.app:gateway": GatewaySettings,
    "serve_app.app:images": ImageLoaderSettings,
    "serve_app.app:model": ModelSettings,
}
_TOP_LEVEL = {
    "proxy_location",
    "http_options",
    "grpc_options",
    "controller_options",
    "logging_config",
    "tracing_config",
    "applications",
    "target_capacity",
}
_CPU_HEAD_DIMS = {32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512}
"""Head sizes of vLLM's CPU attention; another one passes the start and kills the engine at its first request."""
_FLAGS = "controller_options.runtime_env.env_vars"
_PORTS = 65_535
_MESSAGE_LENGTH = "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot work. `path` is the field's place in the file."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(slots=True)
class Report:
    """Everything that the check found out."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gateway: GatewaySettings | None = None
    routing: RoutingSettings | None = None
    models: dict[str, ModelSettings] = field(default_factory=dict)
    loaders: dict[str, ImageLoaderSettings] = field(default_factory=dict)
    plans: dict[str, MemoryPlan] = field(default_factory=dict)
    http_port: int = 8000
    fast_proxy: bool = False
    proxy_ports: tuple[int, ...] = ()
    """Ports that the fast proxy listens on besides, for its statistics and metrics."""

    @property
    def grpc_ports(self) -> tuple[int, ...]:
        """The gateway's gRPC port, if it has one."""
        return () if self.gateway is None or self.gateway.grpc is None else (self.gateway.grpc.port,)

    def add(self, path: str, message: str) -> None:
        """Records a problem."""
        self.problems.append(Problem(path, message))


def check_file(path: Path, gpu_memory_gib: float | None = None) -> Report:
    """Checks a configuration file.

    Args:
        path: the YAML file that `serve run` gets.
        gpu_memory_gib: memory of one GPU of the cluster; None: plans on cuda have no headroom figure.
    """
    report = Report()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        report.add(str(path), f"cannot be read: {str(error)[:300]}")
        return report
    if not isinstance(content, dict) or not isinstance(content.get("applications"), list):
        report.add("applications", "required: a list")
        return report
    for key in content.keys() - _TOP_LEVEL:
        report.add(str(key), f"unknown; Ray Serve would ignore it silently. Known: {', '.join(sorted(_TOP_LEVEL))}")
    http = _mapping(report, "http_options", content.get("http_options"))
    report.http_port = _number(report, "http_options.port", http.get("port"), 8000, _PORTS)
    _check_flags(report, content)
    _check_names(report, content["applications"])
    for i, application in enumerate(content["applications"]):
        _check_application(report, f"applications[{i}]", application)
    _check_routes(report)
    for name, settings in report.models.items():
        _check_model(report, name, settings, gpu_memory_gib)
    _check_totals(report)
    return report


def _mapping(report: Report, path: str, value: Any) -> Mapping[str, Any]:
    """What the file has there; empty where it has nothing, and where it has something else, which is a problem."""
    if value is not None and not isinstance(value, dict):
        report.add(path, "must be a mapping")
    return value if isinstance(value, dict) else {}


def _number(report: Report, path: str, value: Any, default: int, most: int = 2**31 - 1) -> int:
    """The same for a whole number above 0. Flags are text."""
    if value is None:
        return default
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if type(number) is int and 0 < number <= most:
        return number
    report.add(path, f"must be a whole number from 1 to {most}, and is {value!r}")
    return default


def _check_flags(report: Report, content: Mapping[str, Any]) -> None:
    options = _mapping(report, "controller_options", content.get("controller_options"))
    environment = _mapping(report, "controller_options.runtime_env", options.get("runtime_env"))
    found = _mapping(report, _FLAGS, environment.get("env_vars"))
    flags = {str(key): str(value) for key, value in found.items()}
    fast, throughput = flags.get("RAY_SERVE_ENABLE_HA_PROXY") == "1", flags.get("RAY_SERVE_THROUGHPUT_OPTIMIZED") == "1"
    report.fast_proxy = fast

    def number(name: str, default: int, most: int = 2**31 - 1) -> int:
        return _number(report, f"{_FLAGS}.{name}", flags.get(name), default, most)

    ports = {"RAY_SERVE_HAPROXY_STATS_PORT": 8404, "RAY_SERVE_HAPROXY_METRICS_PORT": 9101}
    report.proxy_ports = tuple(number(name, port, _PORTS) for name, port in ports.items()) if fast else ()
    if throughput and not fast:
        report.add(
            _FLAGS, "RAY_SERVE_THROUGHPUT_OPTIMIZED without RAY_SERVE_ENABLE_HA_PROXY leaves a proxy on the head only"
        )
    grpc = throughput or flags.get("RAY_SERVE_USE_GRPC_BY_DEFAULT") == "1"
    if grpc and (_MESSAGE_LENGTH not in flags or number(_MESSAGE_LENGTH, 16 << 20) < 16 << 20):
        report.add(_FLAGS, f"{_MESSAGE_LENGTH}: messages between replicas are capped at 4 MiB; set 67108864")


def _check_names(report: Report, applications: list[Any]) -> None:
    """Ray Serve refuses a file with two applications of one name."""
    first: dict[str, int] = {}
    for i, application in enumerate(applications):
        name = application.get("name") if isinstance(application, dict) else None
        if name is not None and (other := first.setdefault(str(name), i)) != i:
            report.add(f"applications[{i}].name", f"'{name}' is the name of applications[{other}] too")


def _check_application(report: Report, path: str, application: Any) -> None:
    if not isinstance(application, dict):
        report.add(path, "must be a mapping")
        return
    builder = application.get("import_path")
    cls = BUILDERS.get(str(builder))
    if cls is None:
        report.notes.append(f"{path}: {builder} is not ours and was not checked")
        return
    try:
        settings = cls.model_validate(application.get("args") or {})
    except ValidationError as error:
        _add_validation(report, f"{path}.args", error)
        return
    deployments = _deployments(report, f"{path}.deployments", application.get("deployments"))
    if isinstance(settings, GatewaySettings):
        report.gateway = settings
        _check_gateway(report, path, application, deployments)
        return
    name = str(application.get("name"))
    if application.get("route_prefix", "") is not None:
        report.add(f"{path}.route_prefix", "must be null: only the gateway has an HTTP route")
    if isinstance(settings, ImageLoaderSettings):
        report.loaders[name] = settings
    elif isinstance(settings, ModelSettings):
        if name != settings.application:
            report.add(f"{path}.name", f"must be '{settings.application}', made of the model's name and version")
        report.models[name] = settings


def _deployments(report: Report, path: str, value: Any) -> list[Mapping[str, Any]]:
    if value is not None and not isinstance(value, list):
        report.add(path, "must be a list")
        return []
    found: list[Mapping[str, Any]] = []
    for i, deployment in enumerate(value or []):
        if isinstance(deployment, dict):
            found.append(deployment)
        else:
            report.add(f"{path}[{i}]", "must be a mapping")
            found.append({})
    return found


def _check_gateway(
    report: Report, path: str, application: Mapping[str, Any], deployments: list[Mapping[str, Any]]
) -> None:
    if application.get("route_prefix", "/") is None:
        report.add(f"{path}.route_prefix", "null: the gateway would have no HTTP route")
    for port in report.grpc_ports:
        if port in (report.http_port, *report.proxy_ports):
            report.add(f"{path}.args.grpc.port", f"{port} is a port of the HTTP proxy")
    for i, deployment in enumerate(deployments):
        if deployment.get("name") == "Gateway" and "user_config" in deployment:
            try:
                report.routing = RoutingSettings.model_validate(deployment["user_config"])
            except ValidationError as error:
                _add_validation(report, f"{path}.deployments[{i}].user_config", error)
            return
    report.add(f"{path}.deployments", "the Gateway has no user_config, so no model is routed")


def _add_validation(report: Report, path: str, error: ValidationError) -> None:
    for item in error.errors():
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"])
        message = "unknown key" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        report.add(path + where, message)


def _check_routes(report: Report) -> None:
    if report.gateway is None:
        report.notes.append("no gateway in this file")
        return
    routed = set()
    for model, route in (report.routing or RoutingSettings()).models.items():
        for version, target in route.versions.items():
            path = f"user_config.models.{model}.versions.{version}"
            settings = report.models.get(target.application)
            routed.add(target.application)
            if settings is None:
                report.add(f"{path}.application", f"no application '{target.application}' in this file")
            elif (settings.name, settings.version) != (model, version):
                report.add(f"{path}.application", f"serves {settings.name}@{settings.version}")
            elif settings.task is not target.task:
                report.add(f"{path}.task", f"the application's task is {settings.task}")
    for name in report.models.keys() - routed:
        report.notes.append(f"application '{name}' is deployed but not routed")


def _check_model(report: Report, name: str, settings: ModelSettings, gpu_memory_gib: float | None) -> None:
    path = f"{name}.args"
    if settings.io_processor_plugin is not None and (message := missing(settings.io_processor_plugin)) is not None:
        report.add(f"{path}.io_processor_plugin", message)
    if settings.materialized is not None and not Path(settings.materialized.folder).expanduser().is_dir():
        report.notes.append(
            f"{name}: '{settings.materialized.folder}' is not on this machine; the model is checked where it is loaded"
        )
        return
    try:
        settings = locate(settings).settings
    except SourceError as error:
        report.add(f"{path}.materialized", str(error))
        return
    try:
        folder = local_directory(settings.source)
        checkpoint = read_checkpoint(folder, settings) if folder is not None else None
    except (SourceError, ValueError) as error:
        _add_refusal(report, path, error)
        return
    if folder is None or checkpoint is None:
        report.notes.append(
            f"{name}: '{settings.source}' is a hub id; limits and memory are checked where it is loaded"
        )
        return
    if not has_tokenizer(folder):
        report.add(f"{path}.source", "the checkpoint has no tokenizer")
    elif settings.task is Task.RERANK and settings.template is None and not settings.engine.trust_remote_code:
        _check_pairs(report, path, settings, checkpoint)
    _check_limits(report, path, settings, checkpoint)
    if checkpoint.images is not None:
        _check_images(report, path, settings, checkpoint.images)
    parameters = count_parameters(folder)
    if not parameters:
        report.notes.append(f"{name}: no safetensors weights in the checkpoint; no memory plan")
        return
    device = gpu_memory_gib if settings.device == "cuda" else psutil.virtual_memory().total / GIB
    plan = plan_memory(settings, checkpoint.config, parameters, device)
    report.plans[name] = plan
    if plan.headroom is not None and plan.headroom < 0:
        field_name = "gpu_memory_utilization" if settings.device == "cuda" else "source"
        report.add(f"{path}.{field_name}", f"needs {plan.needed:.1f} GiB and may take {plan.available:.1f} GiB")


def _add_refusal(report: Report, path: str, error: ValueError) -> None:
    """An error of the loading, which begins with its field's name; of the checkpoint's files that is `source`."""
    field_name, _, message = str(error).partition(": ")
    if field_name in ModelSettings.model_fields:
        report.add(f"{path}.{field_name}", message)
    else:
        report.add(f"{path}.source", str(error))


def _check_pairs(report: Report, path: str, settings: ModelSettings, checkpoint: Checkpoint) -> None:
    try:
        check_tokenizer(settings, checkpoint, TextTokenizer(checkpoint.folder))
    except ValueError as error:
        _add_refusal(report, path, error)


def _check_limits(report: Report, path: str, settings: ModelSettings, checkpoint: Checkpoint) -> None:
    try:
        check_positions(settings, checkpoint)
    except ValueError as error:
        _add_refusal(report, path, error)
    # Of a dual encoder only the text tower uses vLLM's attention with a cache.
    config = checkpoint.config.get("text_config", {}) if checkpoint.images is not None else checkpoint.config
    heads = int(config.get("num_attention_heads", 0))
    if settings.device == "cpu" and settings.engine.kind == "vllm" and heads:
        dim = int(config.get("head_dim") or int(config.get("hidden_size", 0)) // heads)
        if dim not in _CPU_HEAD_DIMS:
            report.add(
                f"{path}.source",
                f"attention heads of size {dim} do not run on CPU; sizes that do: {sorted(_CPU_HEAD_DIMS)}",
            )


def _check_images(report: Report, path: str, settings: ModelSettings, facts: ImageFacts) -> None:
    if settings.images.loader not in report.loaders:
        report.add(f"{path}.images.loader", f"no application '{settings.images.loader}' of serve_app.app:images")
    height, width = facts.spec.output_size
    pictures = settings.markers_per_sequence
    needed = 1.25 * pictures * height * width * 3 / GIB
    if 0 < settings.images.host_cache_gib < needed:
        report.add(
            f"{path}.images.host_cache_gib",
            f"a sequence's {pictures} pictures need {needed:.2f} GiB; 0 turns the cache off",
        )


def _replicas(report: Report) -> list[ReplicaSettings]:
    """Those of every deployment."""
    gateway = [report.gateway.replicas] if report.gateway is not None else []
    loaders = [loader.replicas for loader in report.loaders.values()]
    return [*gateway, *loaders, *(r for m in report.models.values() for r in (m.io_processor, m.pooling_engine))]


def _check_gpus(report: Report) -> None:
    if (found := overfull(report.models)) is None:
        return
    packed, total = found
    engines = " and ".join(
        f"{count} x {name} ({report.models[name].pooling_engine.gpus_per_engine:g} GPUs)"
        for name, count in sorted(packed.items())
    )
    report.add(
        f"{min(packed)}.args.gpu_memory_utilization",
        f"Ray can put {engines} on one GPU; they would take {total:.2f} of its memory, at most {MEMORY_SHARE:.2f}",
    )


def _check_totals(report: Report) -> None:
    """Engines that share a GPU, and all engines of a machine without one."""
    _check_gpus(report)
    replicas = _replicas(report)
    if names := sorted({name for r in replicas for name in r.resources}):
        report.notes.append(
            f"replicas ask for the custom resources {', '.join(names)}: without a node that has them, Ray waits for one"
        )
    cores, reserved = psutil.cpu_count() or 1, sum(r.num_cpus * r.most for r in replicas)
    if reserved > cores:
        report.notes.append(
            f"the replicas reserve {reserved:g} CPUs and this machine has {cores}: on it alone, Ray would wait for "
            "more for ever"
        )
    cpu = {n: p for n, p in report.plans.items() if report.models[n].device == "cpu"}
    needed = sum(plan.needed * report.models[name].pooling_engine.fewest for name, plan in cpu.items())
    total_gib = psutil.virtual_memory().total / GIB
    if cpu and needed > total_gib:
        report.add("applications", f"the CPU engines need {needed:.1f} GiB together; this machine has {total_gib:.1f}")

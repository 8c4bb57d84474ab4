"""The Kubernetes manifests: valid, in step with the configurations that they carry, and consistent with each other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic import ValidationError

from scripts import kuberay_manifests
from serve_app.check import Report, check_file
from serve_app.settings import ReplicaSettings
from tests.cluster import ROOT
from tests.unit.cluster.rayservice import RayService

FOLDER = ROOT / "cluster" / "kuberay"
KUBERNETES = "1.31"
CUSTOM = {"RayService", "PodMonitor", "Kustomization"}
BOTH = ("rayservice.yaml", "autoscaling.yaml")


def resources() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for resource in yaml.safe_load_all(path.read_text()):
            yield path.name, resource


RESOURCES = list(resources())


def of_kind(kind: str, name: str | None = None) -> list[dict[str, Any]]:
    return [r for _, r in RESOURCES if r["kind"] == kind and name in (None, r["metadata"]["name"])]


def ray_service(file: str) -> RayService:
    (found,) = [r for name, r in RESOURCES if name == file and r["kind"] == "RayService"]
    return RayService.model_validate(found)


def containers(template: dict[str, Any], kind: str = "containers") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = template["spec"].get(kind, [])
    return found


def validate_pod(template: dict[str, Any]) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", **template["metadata"]},
        "spec": template["spec"],
    }
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


# --- each resource by its schema -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "resource",
    [r for _, r in RESOURCES if r["kind"] not in CUSTOM],
    ids=lambda r: f"{r['kind']}-{r['metadata']['name']}",
)
def test_kubernetes_own_resources_are_valid(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


@pytest.mark.parametrize("file", BOTH)
def test_ray_services_are_valid_and_so_are_their_pods(file: str) -> None:
    service = ray_service(file)
    for template in service.templates().values():
        validate_pod(template)
    if service.spec.serveService is not None:
        own = {"apiVersion": "v1", "kind": "Service", **service.spec.serveService}
        kubernetes_validate.validate(own, KUBERNETES, strict=True)


def _group(r: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = r["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    return found


SERVICE_FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "unknown field": lambda r: r["spec"].update(serveConfig="x"),
    "in a group": lambda r: _group(r).update(minReplica=1),
    "type": lambda r: _group(r).update(replicas="3"),
    "parameter type": lambda r: _group(r)["rayStartParams"].update({"num-cpus": 0}),
    "missing": lambda r: _group(r).pop("template"),
    "order": lambda r: _group(r).update(maxReplicas=1),
}
POD_FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "unknown field": lambda t: t["spec"].update(terminationGracePeriod=3),
    "in a container": lambda t: t["spec"]["containers"][0].update(readynessProbe={}),
    "in a probe": lambda t: t["spec"]["containers"][0].update(readinessProbe={"httpGet": {"path": "/"}}),
    "type": lambda t: t["spec"].update(terminationGracePeriodSeconds="90"),
}


@pytest.mark.parametrize("fault", SERVICE_FAULTS)
def test_a_fault_in_a_ray_service_is_found(fault: str) -> None:
    (resource,) = of_kind("RayService", "poolserve")
    broken = copy.deepcopy(resource)
    SERVICE_FAULTS[fault](broken)
    with pytest.raises(ValidationError):
        RayService.model_validate(broken)


@pytest.mark.parametrize("fault", POD_FAULTS)
def test_a_fault_in_a_pod_is_found(fault: str) -> None:
    template = copy.deepcopy(ray_service("rayservice.yaml").templates()["cpu"])
    POD_FAULTS[fault](template)
    with pytest.raises(kubernetes_validate.ValidationError):
        validate_pod(template)


def test_the_operators_own_definition_is_applied_strictly() -> None:
    """The comparison that `--crd` makes, with a small definition in Kubernetes' dialect."""
    port = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "type": "integer"}
    spec = {
        "type": "object",
        "required": ["port"],
        "properties": {"port": port, "free": {"type": "object", "additionalProperties": {"type": "string"}}},
    }
    root = {"type": "object", "properties": {"apiVersion": {"type": "string"}, "spec": spec}}
    crd = {
        "spec": {
            "names": {"kind": "RayService"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": root}}],
        }
    }

    def problems(spec: dict[str, Any], version: str = "ray.io/v1") -> list[str]:
        resource = {"apiVersion": version, "kind": "RayService", "metadata": {"name": "x"}, "spec": spec}
        return kuberay_manifests.crd_problems(crd, resource)

    assert problems({"port": "http", "free": {"a": "b"}}) == []
    assert problems({"port": 8000}) == []
    assert "'prot' was unexpected" in problems({"port": 1, "prot": 1})[0]
    assert "'port' is a required property" in problems({})[0]
    assert problems({"port": 1, "free": {"a": 1}})[0].startswith("spec.free.a")
    assert "not of RayService v2" in problems({"port": 1}, "ray.io/v2")[0]


# --- the configurations inside ---------------------------------------------------------------------------------------


def test_the_blocks_are_the_configurations() -> None:
    assert kuberay_manifests.main(["--check"]) == 0
    for file, config in (("rayservice.yaml", "production.yaml"), ("autoscaling.yaml", "autoscaling.yaml")):
        assert yaml.safe_load(ray_service(file).spec.serveConfigV2) == yaml.safe_load(
            (ROOT / "cluster" / config).read_text()
        )
    (mounted,) = of_kind("ConfigMap", "poolserve-config")
    assert mounted["data"]["serve_config.yaml"] == (ROOT / "cluster" / "production.yaml").read_text()


def test_a_stale_block_is_noticed_and_replaced() -> None:
    manifest = "a: 1\nspec:\n  serveConfigV2: |\n    old: 1\n\n    older: 2\n  next: 3\n"
    assert yaml.safe_load(kuberay_manifests.filled(manifest, "serveConfigV2", "new: |\n  x\n")) == {
        "a": 1,
        "spec": {"serveConfigV2": "new: |\n  x\n", "next": 3},
    }
    with pytest.raises(ValueError, match="0 blocks"):
        kuberay_manifests.filled(manifest, "other", "x")


def checked(file: str, folder: Path) -> Report:
    path = folder / "config.yaml"
    path.write_text(ray_service(file).spec.serveConfigV2)
    return check_file(path, gpu_memory_gib=80)


@pytest.mark.parametrize("file", BOTH)
def test_the_check_command_passes_what_the_manifest_carries(file: str, tmp_path: Path) -> None:
    report = checked(file, tmp_path)
    assert [str(problem) for problem in report.problems] == []
    assert report.models
    assert report.fast_proxy


@pytest.mark.parametrize("file", BOTH)
def test_every_pod_has_the_proxys_variables(file: str) -> None:
    """Ray Serve reads them at its first start only, and a pod may be the one that starts it."""
    service = ray_service(file)
    config = yaml.safe_load(service.spec.serveConfigV2)
    flags = config["controller_options"]["runtime_env"]["env_vars"]
    for template in service.templates().values():
        (container,) = containers(template)
        assert {item["name"]: item.get("value") for item in container["env"]} == flags


def _replicas(report: Report) -> list[tuple[ReplicaSettings, float]]:
    """(replicas, GPUs of each) of every deployment."""
    assert report.gateway is not None
    found = [(report.gateway.replicas, 0.0), *((loader.replicas, 0.0) for loader in report.loaders.values())]
    for model in report.models.values():
        found += [(model.io_processor, 0.0), (model.pooling_engine, model.pooling_engine.num_gpus)]
    return found


def test_the_nodes_have_room_for_what_is_pinned_to_them(tmp_path: Path) -> None:
    """And for all of it with one CPU node less."""
    replicas = _replicas(checked("rayservice.yaml", tmp_path))
    for group in ray_service("rayservice.yaml").spec.rayClusterConfig.workerGroupSpecs:
        (resource,) = json.loads(json.loads(group.rayStartParams["resources"].strip("'")))
        pinned = [(r, gpus) for r, gpus in replicas if resource in r.resources]
        assert pinned, resource
        (container,) = containers(group.template)
        limits = container["resources"]["limits"]
        spare = 1 if group.groupName == "cpu" else 0
        assert sum(r.num_cpus * r.num_replicas for r, _ in pinned) <= (group.minReplicas - spare) * int(limits["cpu"])
        gpus = sum(gpus * r.num_replicas for r, gpus in pinned)
        assert gpus <= group.minReplicas * int(limits.get("nvidia.com/gpu", 0))
        assert all(r.num_cpus <= int(limits["cpu"]) for r, _ in pinned)
    assert all(len(r.resources) == 1 for r, _ in replicas)  # nothing lands where it happens to fit


def test_the_example_needs_its_second_node_for_its_second_engine(tmp_path: Path) -> None:
    report = checked("autoscaling.yaml", tmp_path)
    (group,) = ray_service("autoscaling.yaml").spec.rayClusterConfig.workerGroupSpecs
    cpus = int(containers(group.template)[0]["resources"]["limits"]["cpu"])

    def needed(bound: str) -> float:
        return sum(
            r.num_cpus * (r.autoscaling[bound] if r.autoscaling is not None else r.num_replicas)
            for r, _ in _replicas(report)
        )

    assert needed("min_replicas") <= cpus * group.minReplicas < needed("max_replicas") <= cpus * group.maxReplicas


# --- what belongs together -------------------------------------------------------------------------------------------


def test_checkpoints_are_mounted_where_the_models_look(tmp_path: Path) -> None:
    report = checked("rayservice.yaml", tmp_path)
    (folder,) = {m.materialized.folder for m in report.models.values() if m.materialized is not None}
    assert all(model.materialized is not None for model in report.models.values())
    (claim,), (job,) = of_kind("PersistentVolumeClaim"), of_kind("Job")
    templates = ray_service("rayservice.yaml").templates() | {"job": job["spec"]["template"]}
    for name, template in templates.items():
        volumes = {v["name"]: v for v in template["spec"]["volumes"]}
        assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        for container in containers(template) + containers(template, "initContainers"):
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts["models"] == folder, name
            assert mounts.keys() <= volumes.keys()
    for name in ("cpu", "gpu"):  # a node does not start before its checkpoints are there and whole
        (first,) = containers(templates[name], "initContainers")
        assert {"materialize", "--offline"} <= set(first["command"])


def test_the_commands_of_the_manifests_exist() -> None:
    from cluster.__main__ import main

    (job,) = of_kind("Job")
    templates = [*ray_service("rayservice.yaml").templates().values(), job["spec"]["template"]]
    commands = [
        c["command"] for t in templates for c in containers(t) + containers(t, "initContainers") if "command" in c
    ]
    assert len(commands) == 3
    for command in commands:
        assert command[:3] == ["python", "-m", "cluster"]
        with pytest.raises(SystemExit) as ended:
            main([*command[3:], "--help"])
        assert ended.value.code == 0
        arguments = [part if part != "/config/serve_config.yaml" else "/nowhere/x.yaml" for part in command[3:]]
        assert main(arguments) == 1  # understood, and there is no such file here


def test_probes_ask_the_routes_that_are_there() -> None:
    from tests.unit.cluster.test_dockerfiles import ROUTES

    for file in BOTH:
        for name, template in ray_service(file).templates().items():
            (container,) = containers(template)
            if name == "head":
                continue  # the operator's own: the configuration is submitted to a head that is ready
            assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
            assert (
                container["livenessProbe"]["httpGet"]["port"] == 52365
            )  # Ray's node; a gateway is not brought back so
            if "startupProbe" in container:
                assert container["startupProbe"]["httpGet"] == {"path": "/ready", "port": 8000}
            assert {"/health", "/ready"} <= ROUTES
    (cpu,) = containers(ray_service("rayservice.yaml").templates()["cpu"])
    assert "startupProbe" in cpu


def test_pods_have_time_to_drain() -> None:
    for file in BOTH:
        service = ray_service(file)
        config = yaml.safe_load(service.spec.serveConfigV2)
        draining = int(
            config["controller_options"]["runtime_env"]["env_vars"]["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"]
        )
        for name, template in service.templates().items():
            if name != "head":
                (container,) = containers(template)
                sleep, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
                assert sleep == "sleep"
                assert template["spec"]["terminationGracePeriodSeconds"] >= int(seconds) + draining + 20


def test_nothing_runs_as_root_and_workers_have_no_kubernetes_token() -> None:
    (job,) = of_kind("Job")
    templates = {"job": job["spec"]["template"]}
    for file in BOTH:
        templates |= {f"{file}:{name}": t for name, t in ray_service(file).templates().items()}
    for name, template in templates.items():
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        for container in containers(template) + containers(template, "initContainers"):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert {"requests", "limits"} <= container["resources"].keys()
        if not name.endswith("head"):  # the head's autoscaler makes pods
            assert template["spec"]["automountServiceAccountToken"] is False


def test_keys_come_from_a_secret_and_go_only_where_the_gateway_runs() -> None:
    config = yaml.safe_load(ray_service("rayservice.yaml").spec.serveConfigV2)
    keys = config["applications"][0]["args"]["api_keys"]
    names = {key.removeprefix("env:") for key in keys}
    assert all(key.startswith("env:") for key in keys)
    (secret,) = of_kind("Secret", "poolserve-api-keys")
    assert names == secret["stringData"].keys()
    for name, template in ray_service("rayservice.yaml").templates().items():
        (container,) = containers(template)
        secrets = [s["secretRef"]["name"] for s in container.get("envFrom", [])]
        assert secrets == (["poolserve-api-keys"] if name == "cpu" else [])
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert "secret.example.yaml" not in kustomization["resources"]
    assert all((FOLDER / name).exists() for name in kustomization["resources"])


def test_ray_asks_for_its_token_and_both_protocols_are_served() -> None:
    for file in BOTH:
        service = ray_service(file)
        assert service.spec.rayClusterConfig.authOptions.mode == "token"
        assert service.spec.excludeHeadPodFromServeSvc
        for template in service.templates().values():
            (container,) = containers(template)
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert (ports["serve"], ports["serve-grpc"], ports["metrics"]) == (8000, 9000, 8080)
    own = ray_service("rayservice.yaml").spec.serveService
    assert own is not None
    assert {port["name"]: port["port"] for port in own["spec"]["ports"]} == {"serve": 8000, "serve-grpc": 9000}
    group = ray_service("rayservice.yaml").spec.rayClusterConfig.headGroupSpec
    assert group.rayStartParams["num-cpus"] == "0"


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


def test_selectors_select() -> None:
    pods = {name: t["metadata"]["labels"] for name, t in ray_service("rayservice.yaml").templates().items()}
    for budget in of_kind("PodDisruptionBudget"):
        (name,) = [name for name, labels in pods.items() if matches(budget["spec"]["selector"], labels)]
        assert budget["metadata"]["name"] == f"poolserve-{name}"
    (monitor,) = of_kind("PodMonitor")
    assert all(matches(monitor["spec"]["selector"], labels) for labels in pods.values())
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
    for policy in of_kind("NetworkPolicy"):
        assert any(matches(policy["spec"]["podSelector"], labels) for labels in pods.values())


def test_only_two_ports_are_open_to_clients_and_ray_to_no_one() -> None:
    """Ports from 30000 and replicas' gRPC take pickles: code."""
    (policy,) = of_kind("NetworkPolicy", "poolserve-ingress")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    inside = {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "poolserve"}}}
    for rule in policy["spec"]["ingress"]:
        assert rule["from"], "a rule without `from` lets everyone in"
        if rule["from"] == [inside]:
            continue
        ports = {port["port"] for port in rule["ports"]}
        assert ports <= {8000, 9000, 8080, 8265}
        clients = any("poolserve.io/client" in str(peer) for peer in rule["from"])
        assert not clients or ports == {8000, 9000}
    (egress,) = of_kind("NetworkPolicy", "poolserve-egress-gpu")
    assert not any("ipBlock" in str(rule) for rule in egress["spec"]["egress"])
    (fetching,) = of_kind("NetworkPolicy", "poolserve-egress-cpu")
    (blocked,) = [peer["ipBlock"] for rule in fetching["spec"]["egress"] for peer in rule["to"] if "ipBlock" in peer]
    assert {"10.0.0.0/8", "169.254.0.0/16", "127.0.0.0/8"} <= set(blocked["except"])

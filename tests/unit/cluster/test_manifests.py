"""The Kubernetes manifests: valid, in step with the configurations that they carry, and consistent with each other."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic import ValidationError

from scripts import kuberay_manifests
from serve_app.check import Report
from serve_app.settings import ReplicaSettings
from tests.cluster import ROOT
from tests.unit.cluster.manifests import BOTH, RESOURCES, checked, containers, of_kind, ray_service
from tests.unit.cluster.rayservice import RayService

KUBERNETES = "1.31"
CUSTOM = {"RayService", "PodMonitor", "ScrapeConfig", "Kustomization"}


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

    least = sum(r.num_cpus * r.fewest for r, _ in _replicas(report))
    greatest = sum(r.num_cpus * r.most for r, _ in _replicas(report))
    assert least <= cpus * group.minReplicas < greatest <= cpus * group.maxReplicas


def _cores(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def test_the_examples_pods_fit_the_cores_that_it_names() -> None:
    """With both nodes, and a core for Kubernetes' own pods."""
    cluster = ray_service("autoscaling.yaml").spec.rayClusterConfig
    (group,) = cluster.workerGroupSpecs
    pods = [cluster.headGroupSpec.template] + [group.template] * group.maxReplicas
    asked = 0.5 + sum(_cores(c["resources"]["requests"]["cpu"]) for pod in pods for c in containers(pod))  # autoscaler
    config = (ROOT / "cluster" / "autoscaling.yaml").read_text()
    named = re.findall(
        r"(\d+) cores", config + (ROOT / "docs" / "operations.md").read_text().split("autoscaling.yaml")[-1]
    )
    assert set(named) == {"12"}
    assert asked + 1 <= int(named[0])

"""What the manifests' resources must agree on: mounts, commands, probes, ports, secrets, selectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._private.ray_constants import RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S

from serve_app.observability.catalogue import RAY_SERVE_PREFIX
from serve_app.settings import GatewaySettings
from tests.cluster import ROOT
from tests.unit.cluster.manifests import BOTH, FOLDER, checked, containers, of_kind, ray_service
from tests.unit.cluster.test_dockerfiles import ROUTES


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
    for file in BOTH:
        for name, template in ray_service(file).templates().items():
            (container,) = containers(template)
            if name == "head":
                continue  # the operator's own: the configuration is submitted to a head that is ready
            assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
            assert (
                container["livenessProbe"]["httpGet"]["port"] == 52365
            )  # Ray's node; a gateway is not brought back so
            assert "startupProbe" not in container
    assert {"/health", "/ready"} <= ROUTES


def test_pods_have_time_to_drain() -> None:
    """What Ray does on SIGTERM: it drains its node for so long, and then ends its processes."""
    draining = int(RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S)
    assert draining > 0
    for file in BOTH:
        for name, template in ray_service(file).templates().items():
            (container,) = containers(template)
            assert not any("DRAIN_TIMEOUT" in item["name"] for item in container["env"])
            seconds = 0
            if name != "head":
                sleep, text = container["lifecycle"]["preStop"]["exec"]["command"]
                assert sleep == "sleep"
                seconds = int(text)
            assert template["spec"]["terminationGracePeriodSeconds"] >= seconds + draining + 20, (file, name)


def test_the_operators_own_labels_stay() -> None:
    """A template's labels replace the operator's, whose Service of the head selects by `app.kubernetes.io/name`."""
    for file in BOTH:
        for template in ray_service(file).templates().values():
            labels = template["metadata"]["labels"]
            assert "app.kubernetes.io/name" not in labels
            assert not any(label.startswith("ray.io/") for label in labels)


def test_checkpoints_can_be_applied_alone_and_the_runbook_does_it_first() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = {name: list(yaml.safe_load_all((FOLDER / name).read_text())) for name in kustomization["resources"]}
    labelled = {
        name: {r["metadata"].get("labels", {}).get("poolserve.io/role") == "materialize" for r in found}
        for name, found in files.items()
    }
    assert labelled == {name: {name == "models.yaml"} for name in files}
    page = (ROOT / "docs" / "operations.md").read_text()
    applied = re.findall(r"^ *(kubectl (?:apply -k|wait \S+ job).*)", page, re.MULTILINE)
    alone, waited = applied[:2]
    assert alone == "kubectl apply -k cluster/kuberay -l poolserve.io/role=materialize"
    assert waited.startswith("kubectl wait --for=condition=complete job/poolserve-materialize")
    assert applied[2:] == ["kubectl apply -k cluster/kuberay", alone, waited]


def test_every_text_names_the_operator_whose_service_has_grpc() -> None:
    """Ports named `serve-*` are in the Service since KubeRay 1.6."""
    manifest = (FOLDER / "rayservice.yaml").read_text()
    page = (ROOT / "docs" / "operations.md").read_text()
    assert re.findall(r"(\d+\.\d+) or later \((?:before|for gRPC)", manifest + page) == ["1.6", "1.6"]


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
    (monitor,) = of_kind("PodMonitor")  # Ray's own metrics; the dashboards sum Ray Serve's, which are on our page too
    assert monitor["spec"]["podMetricsEndpoints"][0]["metricRelabelings"] == [
        {"sourceLabels": ["__name__"], "regex": f"{RAY_SERVE_PREFIX}.*", "action": "drop"}
    ]
    assert all(matches(monitor["spec"]["selector"], labels) for labels in pods.values())
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
    for policy in of_kind("NetworkPolicy"):
        assert any(matches(policy["spec"]["podSelector"], labels) for labels in pods.values())


def test_the_gateways_page_is_one_target_of_the_job_that_alerts_ask_for() -> None:
    """Every pod answers with the whole page, so a target for each would multiply all sums."""
    (scrape,) = of_kind("ScrapeConfig")
    assert scrape["spec"]["metricsPath"] in ROUTES
    (static,) = scrape["spec"]["staticConfigs"]
    (target,) = static["targets"]
    host, port = target.split(":")
    service = ray_service("rayservice.yaml").spec.serveService
    assert service is not None
    assert host.split(".")[0] == service["metadata"]["name"]
    assert int(port) in {item["port"] for item in service["spec"]["ports"] if item["name"] == "serve"}
    rules = (ROOT / "cluster" / "dashboards" / "generated" / "poolserve.rules.yml").read_text()
    assert static["labels"] == {"job": "poolserve"}
    assert set(re.findall(r'job="([^"]+)"', rules)) == {"poolserve"}
    config = yaml.safe_load(ray_service("rayservice.yaml").spec.serveConfigV2)
    gateway = GatewaySettings.model_validate(config["applications"][0]["args"])
    assert ("authorization" in scrape["spec"]) == gateway.observability.metrics.require_key


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

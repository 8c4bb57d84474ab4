"""The manifests of cluster/kuberay, read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from serve_app.check import Report, check_file
from tests.cluster import ROOT
from tests.unit.cluster.rayservice import RayService

FOLDER = ROOT / "cluster" / "kuberay"
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


def checked(file: str, folder: Path) -> Report:
    path = folder / "config.yaml"
    path.write_text(ray_service(file).spec.serveConfigV2)
    return check_file(path, gpu_memory_gib=80)

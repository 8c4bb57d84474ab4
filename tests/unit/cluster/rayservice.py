"""The fields of KubeRay's RayService (ray.io/v1) that the manifests use, strictly.

Written by hand, and compared with the operator's own definition by `scripts/kuberay_manifests.py --crd FILE`. A cluster
drops a field that it does not know without a word; here it is an error. Pod templates are checked apart, as Pods.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Part(BaseModel):
    """Base: unknown keys refused, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Part):
    name: str
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class UpgradeStrategy(Part):
    type: Literal["NewCluster", "NewClusterWithIncrementalUpgrade", "None"]


class AuthOptions(Part):
    mode: Literal["token", "disabled"]


class AutoscalerOptions(Part):
    version: Literal["v1", "v2"]
    idleTimeoutSeconds: int = Field(ge=0)
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] = "Default"
    resources: dict[str, Any] = {}


class HeadGroup(Part):
    rayStartParams: dict[str, str]
    template: dict[str, Any]


class WorkerGroup(Part):
    groupName: str
    replicas: int = Field(ge=0)
    minReplicas: int = Field(ge=0)
    maxReplicas: int = Field(ge=1)
    rayStartParams: dict[str, str]
    template: dict[str, Any]

    @model_validator(mode="after")
    def _ordered(self) -> WorkerGroup:
        if not self.minReplicas <= self.replicas <= self.maxReplicas:
            raise ValueError("replicas: not between minReplicas and maxReplicas")
        return self


class RayClusterSpec(Part):
    rayVersion: str
    authOptions: AuthOptions
    enableInTreeAutoscaling: bool
    autoscalerOptions: AutoscalerOptions
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]


class RayServiceSpec(Part):
    serveConfigV2: str
    rayClusterConfig: RayClusterSpec
    serveService: dict[str, Any] | None = None
    upgradeStrategy: UpgradeStrategy | None = None
    rayClusterDeletionDelaySeconds: int | None = None
    excludeHeadPodFromServeSvc: bool = False


class RayService(Part):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayService"]
    metadata: Metadata
    spec: RayServiceSpec

    def templates(self) -> dict[str, dict[str, Any]]:
        """Pod templates by group; the head's is `head`."""
        cluster = self.spec.rayClusterConfig
        return {"head": cluster.headGroupSpec.template} | {g.groupName: g.template for g in cluster.workerGroupSpecs}
